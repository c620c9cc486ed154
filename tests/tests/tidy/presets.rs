//! The preset files: each one parses and validates.

use std::path::Path;

use configs::Config;

/// Presets of a folder that do not load, or a folder without any.
pub(crate) fn faults(folder: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    let mut presets = 0;
    let entries = std::fs::read_dir(folder).expect("the folder of the presets");
    for entry in entries {
        let path = entry.expect("an entry of the folder").path();
        let is_toml = path.extension().is_some_and(|extension| extension == "toml");
        if !is_toml || path.file_name().is_some_and(|name| name == "Cargo.toml") {
            continue;
        }
        presets += 1;
        // The sentence of `configs` names the file, the key and the mend.
        let checked = Config::load(&path, &[]).and_then(|config| config.validate());
        faults.extend(checked.err().map(|error| error.to_string()));
    }
    if presets == 0 {
        faults.push(format!("{}: holds no preset; this check proves nothing", folder.display()));
    }
    faults
}

#[test]
fn a_preset_that_does_not_parse_or_validate_is_a_fault() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    assert_eq!(faults(folder.path()).len(), 1, "an empty folder");
    let with = |text: &str| {
        std::fs::write(folder.path().join("mine.toml"), text).expect("a file");
        faults(folder.path())
    };
    assert!(with("extends = \"tiny\"\n").is_empty());
    for bad in ["train = ", "[train]\nstepz = 3\n", "[train]\nbatch_size = 0\n"] {
        let faults = with(bad);
        assert_eq!(faults.len(), 1, "{bad}");
        assert!(faults[0].contains("mine.toml"), "{}", faults[0]);
    }
}
