//! `bench data`: images per second that the data pipeline decodes into batch slots, without
//! training.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use dali::loader::{Batch, ImageRows, Loader, Slot};
use dali::store::Stores;
use engine::config::Config;
use engine::dataset::{DataSet, Split};
use engine::model::training_layout;
use engine::progress::Progress;
use serde_json::json;

use crate::report::{commit, cpu, write_json};

#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    /// Config file, or the name of a preset.
    #[arg(long, default_value = "quickstart")]
    preset: String,
    /// Override a config value.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Batches to load.
    #[arg(long, default_value_t = 200)]
    batches: usize,
    /// Number of decoding threads.
    #[arg(long, default_value_t = 1, value_parser = threads())]
    threads: usize,
    /// Write the figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1024)
}

pub(crate) fn run(args: &DataArgs) -> anyhow::Result<()> {
    let config = Config::load(&args.preset, &args.set)?;
    let data = DataSet::open(&config, Split::Train, &Progress::loud())?;
    let batch_size = config.train.batch_size;
    let images = data.images.clone();
    let batches = (0..args.batches).map(move |b| Batch {
        indices: (0..batch_size).map(|i| images[(b * batch_size + i) % images.len()]).collect(),
        epoch: 0,
        copies: vec![],
    });
    let layout = Arc::new(training_layout(batch_size, data.slot_shape())?);
    let slots = (0..3).map(|_| Slot::plain(layout.clone())).collect();
    let fill_no_more = Box::new(|_: &Stores, _, _: &mut ImageRows<'_>| Ok(()));
    let mut loader = Loader::new(data.store.clone(), batches, slots, args.threads, fill_no_more)?;
    let started = Instant::now();
    let mut loaded = 0;
    while let Some(filled) = loader.next()? {
        loaded += batch_size;
        loader.recycle(filled.slot);
    }
    let seconds = started.elapsed().as_secs_f64();
    let rate = loaded as f64 / seconds;
    say!(
        "{} | {loaded} images in {seconds:.2} s: {rate:.0} images/s on {} threads, {:.1} MiB/slot",
        cpu(),
        args.threads,
        layout.bytes() as f64 / (1 << 20) as f64,
    );
    if let Some(path) = &args.json {
        let value = json!({
            "images_per_second": rate,
            "images": loaded,
            "threads": args.threads,
            "device": cpu(),
            "commit": commit(),
            "preset": args.preset,
        });
        write_json(path, &value)?;
    }
    Ok(())
}
