//! `bench history`: what was measured, when and on what; kept in git and compared over time.

mod collect;
mod inputs;
mod predictions;
#[cfg(test)]
mod samples;
mod schema;
mod tables;
mod trends;

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Build a session from the output of GPU kit calls, or of commands run with --json, in these
    /// folders: all of one session at once.
    #[arg(long, value_name = "FOLDER", num_args = 1..)]
    add: Vec<PathBuf>,
    /// The folder of the history.
    #[arg(long, value_name = "FOLDER", default_value = "bench/history")]
    into: PathBuf,
    /// Day of the measurements, YYYY-MM-DD; default today, UTC.
    #[arg(long, requires = "add")]
    date: Option<String>,
    /// A remark for readers of the session.
    #[arg(long, value_name = "TEXT", requires = "add")]
    remark: Vec<String>,
    /// Replace the session's file if it exists.
    #[arg(long, requires = "add")]
    replace: bool,
    /// Regenerate the GPU tables of the document, instead of printing.
    #[arg(long, conflicts_with = "add")]
    tables: bool,
    /// The document with the tables, between its two markers.
    #[arg(long, value_name = "FILE", default_value = "docs/measurements.md")]
    document: PathBuf,
    /// Also print the ops and nodes whose name contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

pub(crate) fn run(args: &HistoryArgs) -> anyhow::Result<()> {
    if !args.add.is_empty() {
        let mut session = collect::session(&args.add, args.date.as_deref())?;
        session.remarks.splice(0..0, args.remark.iter().cloned());
        let (path, replaced) = collect::write(&session, &args.into, args.replace)?;
        let did = if replaced { "replaced" } else { "wrote" };
        say!("{did} {}: {}", path.display(), session.contents());
        return Ok(());
    }
    let sessions = collect::read_all(&args.into)?;
    if args.tables {
        let path = &args.document;
        let at = || path.display().to_string();
        let document = std::fs::read_to_string(path).with_context(at)?;
        let made = tables::rewritten(&document, &sessions).with_context(at)?;
        let did = if made == document { "is as it was" } else { "was made anew" };
        engine::run_dir::write_whole(path, made.as_bytes())?;
        say!("{}: {did}, from {} sessions", path.display(), sessions.len());
        return Ok(());
    }
    crate::write_out(&trends::text(&sessions, args.filter.as_deref()));
    Ok(())
}
