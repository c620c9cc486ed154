//! `bench` with several ranks: the figures of all ranks, and their efficiency relative to one rank.

use anyhow::{Context, ensure};
use clap::Args;
use engine::EngineError;
use engine::cli::RankArgs;
use engine::config::Config;
use engine::model::Division;
use engine::runtime::Backend;
use engine::team::Team;
use serde_json::{Value, json};

#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    #[command(flatten)]
    pub(crate) ranks: RankArgs,
    /// With N ranks: first measure one rank with 1/N of the batch, and print the efficiency:
    /// images/s of all ranks divided by N times the images/s of one rank.
    #[arg(long)]
    pub(crate) efficiency: bool,
}

/// The division of each training step among the ranks.
///
/// # Errors
/// The ranks cannot share a batch evenly.
pub(crate) fn division(
    config: &Config,
    backend: &Backend,
    team: &Team,
) -> Result<Division, EngineError> {
    let target = backend.target(config);
    let mut division = Division::new(&config.train, &target, team.ranks())?;
    division.group = team.group().clone();
    division.local_ranks = team.local_ranks();
    Ok(division)
}

/// Images per second of a run with only rank 0 and 1/N of the batch, while the other ranks wait;
/// `None` on the other ranks.
///
/// # Errors
/// The errors of `measure`, which returns the figures for a config; a rank is lost.
pub(crate) fn single_rank(
    config: &Config,
    team: &Team,
    measure: impl FnOnce(&Config) -> anyhow::Result<Value>,
) -> anyhow::Result<Option<f64>> {
    let mut share = config.clone();
    share.train.batch_size /= team.ranks().count;
    let figures = team.is_first().then(|| measure(&share)).transpose()?;
    team.meet("the measurement of a single rank")?;
    Ok(figures.and_then(|figures| figures["images_per_second"].as_f64()))
}

/// Gathers the figures of all ranks on rank 0, whose `figures` become those of the group, with the
/// step time of the slowest rank. `alone` is the images per second of one rank.
///
/// # Errors
/// A rank is lost.
pub(crate) fn gather(
    team: &Team,
    through: &str,
    alone: Option<f64>,
    figures: &mut Value,
) -> anyhow::Result<()> {
    let messages = team.gather("the figures of all ranks", &serde_json::to_vec(figures)?)?;
    if !team.is_first() {
        return Ok(());
    }
    let all: Vec<Value> =
        messages.iter().map(|m| serde_json::from_slice(m)).collect::<Result<_, _>>()?;
    let count = all.len();
    let number = |value: &Value, pointer: &str| {
        value.pointer(pointer).and_then(Value::as_f64).context("a rank sent no figures")
    };
    let (mut each, mut slowest, mut seconds) = (Vec::new(), 0, 0.0_f64);
    for (rank, (own, member)) in all.iter().zip(team.group().members()).enumerate() {
        // Each rank counts the images of all ranks.
        let rate = number(own, "/images_per_second")? / count as f64;
        each.push(json!({
            "rank": rank, "host": member.host, "images_per_second": rate,
            "step_ms": own["step_ms"], "data_ms": own["data_ms"],
        }));
        seconds = seconds.max(number(own, "/seconds")?);
        if number(own, "/step_ms/p50")? > number(&all[slowest], "/step_ms/p50")? {
            slowest = rank;
        }
    }
    let images = number(figures, "/images_per_second")? * number(figures, "/seconds")?;
    let total = images / seconds;
    figures["images_per_second"] = total.into();
    figures["seconds"] = seconds.into();
    figures["step_ms"] = all[slowest]["step_ms"].clone();
    figures["data_ms"] = all[slowest]["data_ms"].clone();
    figures["all_reduce"] = format!("{through} over {count} ranks").into();
    figures["ranks"] = json!({
        "count": count, "hosts": team.group().hosts(), "slowest": slowest, "each": each,
    });
    if let Some(one) = alone {
        figures["ranks"]["one_rank_images_per_second"] = one.into();
        figures["ranks"]["efficiency"] = (total / (count as f64 * one)).into();
    }
    Ok(())
}

/// Prints the figures added by [`gather`].
pub(crate) fn print(figures: &Value) {
    let ranks = &figures["ranks"];
    let number = |value: &Value, pointer: &str| {
        value.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN)
    };
    for each in ranks["each"].as_array().into_iter().flatten() {
        let slowest = if each["rank"] == ranks["slowest"] { " | the slowest" } else { "" };
        say!(
            "rank {} on {}: {:.2} images/s | step p50 {:.1} ms, p95 {:.1} ms | data wait {:.2} \
             ms{slowest}",
            each["rank"],
            each["host"].as_str().unwrap_or_default(),
            number(each, "/images_per_second"),
            number(each, "/step_ms/p50"),
            number(each, "/step_ms/p95"),
            number(each, "/data_ms"),
        );
    }
    if let Some(one) = ranks["one_rank_images_per_second"].as_f64() {
        say!(
            "efficiency {:.3}: {:.2} images/s with {count} ranks, {one:.2} with one rank on \
             1/{count} of the batch",
            number(ranks, "/efficiency"),
            number(figures, "/images_per_second"),
            count = ranks["count"],
        );
    }
}

/// Rejects options that are invalid for this number of ranks.
///
/// # Errors An option is invalid.
pub(crate) fn check(
    args: &GroupArgs,
    ranks: usize,
    all_reduce: bool,
    seconds: bool,
) -> anyhow::Result<()> {
    ensure!(
        ranks > 1 || !args.efficiency,
        "--efficiency compares several ranks with one: start several with --ranks N or a launcher"
    );
    let why = match ranks {
        2.. if all_reduce => "always all-reduce their gradients: leave out --all-reduce",
        2.. if seconds => "must run equally many steps: give --steps and leave out --seconds",
        _ => return Ok(()),
    };
    Err(EngineError::OfAllRanks(format!("{ranks} ranks {why}")).into())
}
