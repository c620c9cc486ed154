//! The compiled kernels are those of the sources: the check needs no compiler and no GPU.

use std::collections::BTreeMap;

use compile::sources::{architectures, exported, reals, sha256, source_sha256};
use compile::{FOLDER, SOURCES};
use device::Precision;
use device::manifest::{Manifest, Source};
use kernels::compiled::kernels;

use super::files::File;

const MEND: &str = "run `cargo run --release -p compile -- --fetch`";

/// Sources that are not what was compiled, and PTX that is not what came out.
pub(crate) fn faults(files: &[File]) -> Vec<String> {
    let texts: BTreeMap<&str, &str> =
        files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    faults_of(&texts, &|source| kernels().ptx(source).to_string())
}

/// `ptx` is what the archives hold for a source.
fn faults_of(texts: &BTreeMap<&str, &str>, ptx: &dyn Fn(&Source) -> String) -> Vec<String> {
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
                Some(source) => faults.extend(source_faults(&listed, source, text, texts)),
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
            faults.push(format!("{listed}: names {}, which is gone; {MEND}", source.path));
        }
        if sha256(ptx(source).as_bytes()) != source.ptx_sha256 {
            let ptx = &source.ptx;
            faults.push(format!("{folder}{ptx}: is not what {} became; {MEND}", source.path));
        }
    }
    if manifest.sources.is_empty() {
        faults.push(format!("{listed}: holds no source; this check proves nothing"));
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
        faults
            .push(format!("{path}: it, or a header of it, changed since it was compiled; {MEND}"));
    }
    // The launches would show which of them a source leaves out where `real` is float.
    let promised = if source.real == Precision::Fp16 { exported(text) } else { vec![] };
    for kernel in promised {
        if !source.kernels.iter().any(|compiled| compiled.name == kernel) {
            faults.push(format!("{path}: exports `{kernel}`, which {listed} lacks; {MEND}"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::faults_of;
    use compile::sources::{sha256, source_sha256};

    const SOURCE: &str = "#include \"h.cuh\"\nKERNEL(1) k() {}\nEXPORT(k)\n";
    const PTX: &str = ".visible .entry k(\n)\n{ mma.sync.aligned.m16n8k16; }\n";

    fn checkout(change: impl Fn(&str, String) -> String) -> Vec<String> {
        let read = |path: &str| match path {
            "kernels/src/ops/a/a.cu" => Some(SOURCE.to_string()),
            "kernels/src/cuda/h.cuh" => Some("int h;".to_string()),
            _ => None,
        };
        let (source, header) = ("kernels/src/ops/a/a.cu", "kernels/src/cuda/h.cuh");
        let hash = source_sha256(source, &read).expect("a source");
        let zeros = "{\"registers\":8,\"shared_bytes\":0,\"stack_bytes\":0,\
                     \"spill_store_bytes\":0,\"spill_load_bytes\":0}";
        let manifest = format!(
            "{{\"compiler\":\"c\",\"flags\":[],\"sources\":[{{\"path\":\"{source}\",\
             \"architecture\":\"compute_80\",\"sha256\":\"{hash}\",\
             \"ptx\":\"a.ptx\",\"ptx_sha256\":\"{}\",\"kernels\":\
             [{{\"name\":\"k\",\"parameter_bytes\":[],\"on\":\
             {{\"sm_80\":{zeros},\"sm_90a\":{zeros}}}}}]}}]}}",
            sha256(PTX.as_bytes())
        );
        let files = [
            (source, SOURCE.to_string()),
            (header, "int h;".to_string()),
            ("a.ptx", PTX.to_string()),
            ("ptx/manifest.json", manifest),
        ];
        let changed = files.map(|(path, text)| (path, change(path, text)));
        // A text made empty is a file taken away.
        let there = changed.iter().filter(|(_, text)| !text.is_empty());
        let texts: BTreeMap<&str, &str> =
            there.map(|(path, text)| (*path, text.as_str())).collect();
        faults_of(&texts, &|_| texts.get("a.ptx").copied().unwrap_or_default().into())
    }

    fn with(path: &str, change: impl Fn(String) -> String) -> Vec<String> {
        checkout(|name, text| if name == path { change(text) } else { text })
    }

    #[test]
    fn what_was_compiled_is_no_fault() {
        assert_eq!(checkout(|_, text| text), [""; 0]);
    }

    #[test]
    fn a_source_or_header_that_changed_is_a_fault() {
        for path in ["kernels/src/ops/a/a.cu", "kernels/src/cuda/h.cuh"] {
            let found = with(path, |text| text + "//");
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("kernels/src/ops/a/a.cu: it, or a header"), "{found:?}");
        }
        let gone = with("kernels/src/ops/a/a.cu", |_| String::new());
        assert!(gone[0].contains("which is gone"), "{gone:?}");
    }

    #[test]
    fn a_kernel_that_is_not_compiled_is_a_fault() {
        let found = with("ptx/manifest.json", |text| text.replace("\"k\"", "\"old\""));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("exports `k`, which ptx/manifest.json lacks"), "{found:?}");
        let found = with("ptx/manifest.json", |text| text.replace("a/a.cu", "b/b.cu"));
        assert!(found[0].contains("is not in ptx/manifest.json"), "{found:?}");
    }

    #[test]
    fn ptx_that_is_not_the_sources_is_a_fault() {
        let found = with("a.ptx", |text| text + " changed");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("ptx/a.ptx: is not what"), "{found:?}");
    }

    #[test]
    fn a_manifest_that_says_nothing_is_a_fault() {
        let found = with("ptx/manifest.json", |_| String::new());
        assert!(found[0].starts_with("ptx/manifest.json: is missing"), "{found:?}");
        let found = with("ptx/manifest.json", |_| "{}".into());
        assert!(found[0].starts_with("ptx/manifest.json: missing field"), "{found:?}");
    }
}
