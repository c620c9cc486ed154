//! `ONEGRAPH_LOG`: a run prints its decisions if asked, and nothing otherwise.

mod common;

use common::{BAD_CONFIG, Place, Said, micro, said};

/// A tiny training with the variable set to `level`.
fn train(level: Option<&str>) -> Said {
    let place = Place::new();
    let arguments = micro("--device cpu --set train.steps=2 --set train.run_dir=runs/log");
    let mut command = place.command(&arguments);
    command.env_remove("ONEGRAPH_LOG");
    if let Some(level) = level {
        command.env("ONEGRAPH_LOG", level);
    }
    said(&mut command)
}

fn is_event(line: &str) -> bool {
    [" INFO ", " DEBUG "].iter().any(|level| line.contains(level))
}

#[test]
fn a_run_logs_what_it_decides() {
    let Said { code, err, .. } = train(Some("debug"));
    assert_eq!(code, 0, "{err}");
    for event in [
        "resolved the config from=micro",
        "runs on the CPU: --device cpu",
        "opened a store",
        "built a program",
        "planned a program",
        "loading begins",
        "evaluates step=2",
        "stops: all steps are done",
        "wrote a checkpoint",
    ] {
        assert!(err.lines().any(|line| is_event(line) && line.contains(event)), "{event}:\n{err}");
    }
}

#[test]
fn info_leaves_the_details_out() {
    let Said { code, err, .. } = train(Some("info"));
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("resolved the config") && !err.contains("planned a program"), "{err}");
}

#[test]
fn nothing_is_told_unless_asked() {
    for level in [None, Some("off"), Some("")] {
        let Said { code, err, .. } = train(level);
        assert_eq!(code, 0, "{err}");
        let events: Vec<_> = err.lines().filter(|line| is_event(line)).collect();
        assert!(events.is_empty(), "{events:?}");
    }
}

#[test]
fn a_level_that_is_not_known_is_one_sentence() {
    let Said { code, err, .. } = train(Some("loud"));
    assert_eq!(code, BAD_CONFIG, "{err}");
    assert_eq!(err, "error: ONEGRAPH_LOG is `loud`; set it to off, info or debug\n");
}
