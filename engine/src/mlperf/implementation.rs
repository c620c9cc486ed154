//! The folder `benchmarks/` of a submission, with instructions to repeat a run.

use std::path::Path;

use crate::config::Config;
use serde_json::json;

use super::format::{BENCHMARK, UNVERIFIED};
use super::timer::Submission;
use crate::error::EngineError;
use crate::provenance;
use crate::run_dir::write_whole;

/// Writes `benchmarks/maskrcnn/implementations/SYSTEM` into the folder `out`: the config, and files
/// that the submitter may edit, which are not overwritten if they exist.
///
/// # Errors
/// [`EngineError::Io`].
pub fn write_implementation(
    out: &Path,
    submission: &Submission,
    config: &Config,
) -> Result<(), EngineError> {
    let (system, org) = (&submission.system, submission.org.replace('\'', r"'\''"));
    let folder = out.join("benchmarks").join(BENCHMARK).join("implementations").join(system);
    let (version, commit) = (env!("CARGO_PKG_VERSION"), provenance::commit().unwrap_or("unknown"));
    let (what, command) = (format!("onegraph {version}, commit {commit}"), provenance::command());
    let shell = |line: &str| format!("#!/bin/sh\nset -eu\n{line} \"$@\"\n");
    let files = [
        ("config.toml", config.to_toml()?),
        (
            "README.md",
            format!(
                "# Mask R-CNN on {system}\n\n{what}; {UNVERIFIED}.\n\nWith a checkout of onegraph \
                 in `ONEGRAPH_SOURCE`, `setup.sh` builds it, `init_datasets.sh FOLDER` fetches the \
                 data and makes the stores, and `run_and_time.sh` times a run of `config.toml`; \
                 additional options are passed on. The command was `{command}`.\n"
            ),
        ),
        ("setup.sh", shell("cd \"${ONEGRAPH_SOURCE:?}\"\ncargo build --release")),
        ("init_datasets.sh", shell("\"${ONEGRAPH_SOURCE:?}/configs/launch/fetch-coco.sh\"")),
        (
            "run_and_time.sh",
            shell(&format!(
                "\"${{ONEGRAPH:-onegraph}}\" mlperf run \"$(dirname \"$0\")/config.toml\" \
                 --org '{org}' --system {system} --out \"${{OUT:-out}}\""
            )),
        ),
        (
            &format!("{system}_onegraph.json"),
            format!("{:#}\n", json!({"implementation": what, "command": command})),
        ),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        if name == "config.toml" || !path.exists() {
            write_whole(&path, text.as_bytes())?;
        }
    }
    Ok(())
}
