//! Checks that the compiled kernels match the sources; needs no compiler and no GPU.

use std::collections::BTreeMap;

use compile::sources::{architectures, exported, reals, sha256, source_sha256};
use compile::{FOLDER, SOURCES};
use device::Precision;
use device::manifest::{Manifest, Source};
use kernels::compiled::kernels;

use super::files::File;

const MEND: &str = "run `cargo run --release -p compile -- --fetch`";

/// Sources that have changed since they were compiled, and PTX files that differ from the compiled
/// ones.
pub(crate) fn faults(files: &[File]) -> Vec<String> {
    let texts: BTreeMap<&str, &str> =
        files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let folder = format!("{FOLDER}/");
    let listed = format!("{folder}{}", Manifest::FILE);
    let Some(text) = texts.get(listed.as_str()) else {
        return vec![format!("{listed}: is missing; {MEND}")];
    };
    let manifest = match Manifest::parse(text) {
        Ok(manifest) => manifest,
        Err(fault) => return vec![format!("{folder}{fault}; {MEND}")],
    };
    let mut faults = Vec::new();
    let is_source = |path: &str| path.starts_with(&format!("{SOURCES}/")) && path.ends_with(".cu");
    for (path, text) in texts.iter().filter(|(path, _)| is_source(path)) {
        let reals = reals(text).unwrap_or_default();
        let each = |architecture| reals.iter().map(move |real| (architecture, *real));
        for (architecture, real) in
            architectures(text).unwrap_or_default().into_iter().flat_map(each)
        {
            let is_it =
                |s: &&Source| s.path == *path && s.architecture == architecture && s.real == real;
            match manifest.sources.iter().find(is_it) {
                Some(source) => faults.extend(source_faults(&listed, source, text, &texts)),
                None => {
                    let real = real.name();
                    let what = format!("{architecture} and {real}");
                    faults.push(format!("{path}: is not in {listed} for {what}; {MEND}"));
                }
            }
        }
    }
    for source in &manifest.sources {
        if !texts.contains_key(source.path.as_str()) {
            faults.push(format!("{listed}: names {}, which does not exist; {MEND}", source.path));
        }
        if sha256(kernels().ptx(source).as_bytes()) != source.ptx_sha256 {
            let ptx = &source.ptx;
            faults.push(format!("{folder}{ptx}: was not compiled from {}; {MEND}", source.path));
        }
    }
    if manifest.sources.is_empty() {
        faults.push(format!("{listed}: lists no source: nothing was checked"));
    }
    faults
}

fn source_faults(
    listed: &str,
    source: &Source,
    text: &str,
    texts: &BTreeMap<&str, &str>,
) -> Vec<String> {
    let path = &source.path;
    let read = |path: &str| texts.get(path).map(|text| text.to_string());
    let mut faults = Vec::new();
    if source_sha256(path, &read).as_ref() != Some(&source.sha256) {
        faults.push(format!("{path}: it or one of its headers changed since compilation; {MEND}"));
    }
    // A source may omit kernels if `real` is float; the launch tests would find a missing one.
    let promised = if source.real == Precision::Fp16 { exported(text) } else { vec![] };
    for kernel in promised {
        if !source.kernels.iter().any(|compiled| compiled.name == kernel) {
            faults.push(format!("{path}: exports `{kernel}`, which {listed} lacks; {MEND}"));
        }
    }
    faults
}
