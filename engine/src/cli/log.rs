//! `ONEGRAPH_LOG`: a log of the decisions that a run makes, on standard error.

use std::env::VarError;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::time::uptime;

use crate::EngineError;

/// The level: `off` (as if unset), `info` or `debug`.
const VARIABLE: &str = "ONEGRAPH_LOG";

/// Starts the log if the environment variable requests one.
///
/// # Errors
/// [`EngineError::Usage`] if the value is not a level.
pub(super) fn start() -> Result<(), EngineError> {
    let level = match std::env::var(VARIABLE) {
        Ok(text) => parse(&text)?,
        Err(VarError::NotPresent) => LevelFilter::OFF,
        Err(VarError::NotUnicode(text)) => parse(&text.to_string_lossy())?,
    };
    if level != LevelFilter::OFF {
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_timer(uptime())
            .with_ansi(false)
            .with_writer(std::io::stderr)
            .init();
    }
    Ok(())
}

fn parse(text: &str) -> Result<LevelFilter, EngineError> {
    match text {
        "" | "off" => Ok(LevelFilter::OFF),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        other => Err(EngineError::Usage(format!(
            "{VARIABLE} is `{other}`; set it to off, info or debug"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_log_levels_are_accepted() {
        let levels = ["", "off", "info", "debug"].map(|text| parse(text).unwrap());
        use LevelFilter as L;
        assert_eq!(levels, [L::OFF, L::OFF, L::INFO, L::DEBUG]);
        for wrong in ["Debug", "trace", "engine=debug"] {
            assert!(parse(wrong).unwrap_err().to_string().contains("off, info or debug"));
        }
    }
}
