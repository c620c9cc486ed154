//! The compiled kernels, and what was counted in them, are those of the sources: no compiler and no
//! GPU is needed to tell.

use std::collections::BTreeMap;

use compile::sass::record::{Record, RecordedPtx};
use compile::sass::{Sm, hot};
use compile::sources::{architectures, exported, reals, sha256, source_sha256};
use compile::{FOLDER, SOURCES};
use device::Precision;
use device::manifest::{Manifest, Source};

use super::files::File;

/// The most that a folder may weigh: every clone and every program carries it.
const MAX_BYTES: usize = 8 << 20;
const MEND: &str = "run `cargo run --release -p compile -- --fetch`";

/// Sources that are not what was compiled, and PTX that is not what came out.
pub(crate) fn faults(files: &[File]) -> Vec<String> {
    let texts: BTreeMap<&str, &str> =
        files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    faults_of(&texts)
}

fn faults_of(texts: &BTreeMap<&str, &str>) -> Vec<String> {
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
        let ptx = format!("{folder}{}", source.ptx);
        match texts.get(ptx.as_str()) {
            Some(text) if sha256(text.as_bytes()) == source.ptx_sha256 => {}
            Some(_) => faults.push(format!("{ptx}: is not what {} became; {MEND}", source.path)),
            None => faults.push(format!("{ptx}: is missing; {MEND}")),
        }
    }
    faults.extend(sass_faults(&folder, &manifest, texts));
    let ours = texts.iter().filter(|(path, _)| path.starts_with(&folder));
    let bytes: usize = ours.map(|(_, text)| text.len()).sum();
    if bytes > MAX_BYTES {
        faults.push(format!("{folder}: {bytes} bytes; {MAX_BYTES} are the most"));
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
    // Which of them a source leaves out where `real` is float, the launches would tell.
    let promised = if source.real == Precision::Fp16 { exported(text) } else { vec![] };
    for kernel in promised {
        if !source.kernels.iter().any(|compiled| compiled.name == kernel) {
            faults.push(format!("{path}: exports `{kernel}`, which {listed} lacks; {MEND}"));
        }
    }
    faults
}

/// Hot kernels without counts, and counts of other code than what is there.
fn sass_faults(folder: &str, manifest: &Manifest, texts: &BTreeMap<&str, &str>) -> Vec<String> {
    let sass = format!("{folder}{}", Record::FILE);
    let Some(text) = texts.get(sass.as_str()) else {
        return vec![format!("{sass}: is missing; {MEND}")];
    };
    let record = match Record::parse(text) {
        Ok(record) => record,
        Err(fault) => return vec![format!("{folder}{fault}; take it from the last commit")],
    };
    let mut faults = Vec::new();
    for source in &manifest.sources {
        let ptx = texts.get(format!("{folder}{}", source.ptx).as_str());
        let counted = ptx.filter(|_| source.real == Precision::Fp16);
        let hot = counted.map(|text| hot(text)).unwrap_or_default();
        match record.sources.iter().find(|recorded| recorded.ptx == source.ptx) {
            Some(recorded) => faults.extend(counts_faults(&sass, source, recorded, &hot)),
            None if hot.is_empty() => {}
            None => faults.push(format!("{sass}: lacks the kernels of {}; {MEND}", source.ptx)),
        }
    }
    for RecordedPtx { ptx, .. } in &record.sources {
        if !manifest.sources.iter().any(|source| source.ptx == *ptx) {
            faults.push(format!("{sass}: counts in {ptx}, which is gone; {MEND}"));
        }
    }
    faults
}

fn counts_faults(sass: &str, source: &Source, recorded: &RecordedPtx, hot: &[&str]) -> Vec<String> {
    let mut faults = Vec::new();
    if recorded.ptx_sha256 != source.ptx_sha256 {
        faults
            .push(format!("{sass}: {} changed since its kernels were counted; {MEND}", source.ptx));
    }
    let on_each = |kernel| Sm::running(source.architecture).map(move |sm| (kernel, sm.name()));
    for (kernel, target) in hot.iter().flat_map(on_each) {
        if !recorded.kernels.iter().any(|one| one.name == *kernel && one.target == target) {
            faults.push(format!("{sass}: lacks `{kernel}` on {target}; {MEND}"));
        }
    }
    let strange = recorded.kernels.iter().filter(|one| !hot.contains(&one.name.as_str()));
    faults.extend(strange.map(|one| format!("{sass}: `{}` is no hot kernel; {MEND}", one.name)));
    faults
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{MAX_BYTES, MEND, faults_of};
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
        let counts = "{\"instructions\":9,\"in_loops\":0,\"loads_16_bit\":0,\"local\":0}";
        let counted = ["sm_80", "sm_90a"]
            .map(|gpu| format!("{{\"name\":\"k\",\"target\":\"{gpu}\",\"counts\":{counts}}}"));
        let sass = format!(
            "{{\"assembler\":\"a\",\"disassembler\":\"d\",\"sources\":[{{\"ptx\":\"a.ptx\",\
             \"ptx_sha256\":\"{}\",\"kernels\":[{}]}}]}}",
            sha256(PTX.as_bytes()),
            counted.join(",")
        );
        let files = [
            (source, SOURCE.to_string()),
            (header, "int h;".to_string()),
            ("ptx/a.ptx", PTX.to_string()),
            ("ptx/manifest.json", manifest),
            ("ptx/sass.json", sass),
        ];
        let changed = files.map(|(path, text)| (path, change(path, text)));
        // A text made empty is a file taken away.
        let there = changed.iter().filter(|(_, text)| !text.is_empty());
        let texts: BTreeMap<&str, &str> =
            there.map(|(path, text)| (*path, text.as_str())).collect();
        faults_of(&texts)
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
        let found = with("ptx/a.ptx", |text| text + " changed");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("ptx/a.ptx: is not what"), "{found:?}");
        let found = with("ptx/a.ptx", |_| String::new());
        assert!(found[0].starts_with("ptx/a.ptx: is missing"), "{found:?}");
    }

    #[test]
    fn a_folder_over_its_weight_is_a_fault() {
        let found = with("ptx/a.ptx", |text| text + &" ".repeat(MAX_BYTES));
        assert!(found[1].starts_with("ptx/: 8389"), "{found:?}");
    }

    #[test]
    fn a_manifest_that_says_nothing_is_a_fault() {
        let found = with("ptx/manifest.json", |_| String::new());
        assert!(found[0].starts_with("ptx/manifest.json: is missing"), "{found:?}");
        let found = with("ptx/manifest.json", |_| "{}".into());
        assert!(found[0].starts_with("ptx/manifest.json: missing field"), "{found:?}");
    }

    #[test]
    fn a_hot_kernel_without_counts_is_a_fault() {
        let found = with("ptx/sass.json", |_| String::new());
        assert_eq!(found, [format!("ptx/sass.json: is missing; {MEND}")]);
        let found = with("ptx/sass.json", |text| text.replace("sm_90a", "sm_70"));
        assert_eq!(found, [format!("ptx/sass.json: lacks `k` on sm_90a; {MEND}")]);
        let found = with("ptx/sass.json", |text| text.replace("a.ptx", "b.ptx"));
        assert!(found[0].contains("lacks the kernels of a.ptx"), "{found:?}");
        assert!(found[1].contains("counts in b.ptx, which is gone"), "{found:?}");
        let found = with("ptx/sass.json", |_| "{}".into());
        assert!(found[0].starts_with("ptx/sass.json: missing field"), "{found:?}");
    }

    #[test]
    fn counts_of_other_code_are_a_fault() {
        let other = |text: String| text.replace("\"ptx_sha256\":\"", "\"ptx_sha256\":\"0");
        let found = with("ptx/sass.json", other);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("a.ptx changed since its kernels were counted"), "{found:?}");
        let found = with("ptx/sass.json", |text| text.replacen("\"k\"", "\"old\"", 1));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("lacks `k` on sm_80"), "{found:?}");
        assert!(found[1].contains("`old` is no hot kernel"), "{found:?}");
    }
}
