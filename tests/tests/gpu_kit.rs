//! The GPU kit's runner, where there is no GPU: what it says then, and that all its stages but the
//! benches pass on the emulated device. And the script that packs it.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Place, Said, said};
use kernels::device::cuda::CudaDevice;
use serde_json::Value;

/// The runner in this folder, on drawn images, with the commands of this build.
fn run(program: &str, place: &Place, more: &[&str]) -> Said {
    place.good("prep --synthetic shapes --count 6 --size 64 --seed 3 --out data");
    let mut command = Command::new(program);
    command.current_dir(place.path()).args(["run", "--quick", "--out", "out"]);
    command.args(["--images", "data/images", "--annotations", "data/annotations.json"]);
    command.args(["--onegraph", env!("CARGO_BIN_EXE_onegraph-under-test")]);
    command.args(["--bench", env!("CARGO_BIN_EXE_bench-under-test")]).args(more);
    said(&mut command)
}

/// Stage, result and figure of each row, of the JSON file.
fn rows(place: &Place) -> Vec<(String, String, String)> {
    let report = place.json("out/report.json");
    let text = |row: &Value, key: &str| row[key].as_str().expect("text").to_string();
    let stages = report["stages"].as_array().expect("stages");
    stages
        .iter()
        .map(|row| ["stage", "result", "figure"].map(|key| text(row, key)).into())
        .collect()
}

#[test]
fn without_a_gpu_every_stage_that_needs_one_fails_with_the_sentence() {
    let Err(sentence) = CudaDevice::open(0) else {
        println!("SKIPPED: there is a GPU here");
        return;
    };
    let place = Place::new();
    let said = run(
        env!("CARGO_BIN_EXE_gpu-kit"),
        &place,
        &["--only", "doctor,device,ops,step,train,repeat,bench"],
    );
    assert_eq!(said.code, 1, "{}", said.err);
    let rows = rows(&place);
    assert_eq!(rows.len(), 10, "{rows:?}");
    for (stage, result, figure) in &rows {
        // The machine is described, whatever it has.
        let (want, sentence) = match stage.as_str() {
            "doctor" => ("ok", "--device auto trains on the CPU".into()),
            _ => ("FAILED", sentence.to_string()),
        };
        assert_eq!((result.as_str(), figure), (want, &sentence), "{stage}");
        assert!(said.out.contains(&format!("{stage:<18} {want:<8}")), "{}", said.out);
    }
    assert!(said.out.contains("10 stages, 9 failed, 0 skipped"), "{}", said.out);
}

#[test]
fn on_the_emulated_device_every_stage_but_the_benches_passes() {
    let place = Place::new();
    let tool = place
        .write("tool", "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n");
    executable(&tool);
    let only = "doctor,device,ops,step,train,repeat,check";
    let tool = tool.display().to_string();
    let said = run(
        env!("CARGO_BIN_EXE_gpu-kit-emulated"),
        &place,
        &["--total-seconds", "3000", "--only", only, "--sanitizer", &tool],
    );
    print!("{}", said.out);
    assert_eq!(said.code, 0, "{}", said.out);
    let rows = rows(&place);
    let names: Vec<&str> = rows.iter().map(|(stage, ..)| stage.as_str()).collect();
    let wanted = ["doctor", "device", "ops", "step", "train", "repeat", "memcheck", "racecheck"];
    assert_eq!(names, wanted);
    assert!(rows.iter().all(|(_, result, _)| result == "ok"), "{rows:?}");
}

/// A tool that finds something, a stage that hangs, and images that are not there.
#[test]
fn what_goes_wrong_is_a_row_of_the_table() {
    let place = Place::new();
    let tool = place.write("tool", "#!/bin/sh\necho ========= ERROR SUMMARY: 3 errors\nexit 9\n");
    executable(&tool);
    let tool = tool.display().to_string();
    let more =
        ["--sanitizer", &tool, "--only", "memcheck,train,hang", "--hang", "--images", "none"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-kit-emulated"));
    command.current_dir(place.path()).args(["run", "--quick", "--out", "out"]).args(more);
    let said = said(&mut command);
    assert_eq!(said.code, 1, "{}", said.out);
    let rows = rows(&place);
    let row = |name: &str| rows.iter().find(|(stage, ..)| stage == name).expect("a row");
    assert_eq!(row("memcheck").1, "FAILED");
    assert!(row("memcheck").2.starts_with("3 errors"), "{rows:?}");
    assert_eq!(row("hang").1, "FAILED");
    assert!(row("hang").2.starts_with("no end after 1 s"), "{rows:?}");
    assert_eq!(row("train").1, "SKIPPED");
    assert!(row("train").2.contains("the kit holds no"), "{rows:?}");
}

/// The scripts parse, and a folder that is no kit is left alone.
#[test]
fn the_scripts_are_sound() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu-kit");
    for script in ["pack", "run"] {
        let said = said(Command::new("bash").arg("-n").arg(scripts.join(script)));
        assert_eq!(said.code, 0, "{}", said.err);
    }
    let place = Place::new();
    place.write("photos/a.jpg", "mine");
    let said = said(Command::new(scripts.join("pack")).arg(place.join("photos")));
    assert_eq!(said.code, 1);
    assert!(said.err.contains("exists and is no kit"), "{}", said.err);
    assert_eq!(place.names("photos"), ["a.jpg"]);
}

fn executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let rights = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, rights).expect("a file of ours");
}
