//! `tools/gpu.sh` and its checks on the emulated driver, and the baseline scripts.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::driver::Gpus;
use common::{Place, Said, said};
use rustix::process::{Pid, Signal, kill_process};

const CHECKS: &str = env!("CARGO_BIN_EXE_gpu-checks");
/// A stub of onegraph whose written weights depend on the run's name.
const PARTS: &str = r#"#!/bin/sh
name=$(echo "$*" | sed 's/.*train.name=\([a-z]*\).*/\1/')
mkdir -p runs/$name/checkpoints/1
echo "\"model.safetensors\": $name" >runs/$name/checkpoints/1/checkpoint.json
"#;

fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools")
}

fn program(place: &Place, name: &str, text: &str) {
    let path = place.write(name, text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a file of ours");
}

/// The script in a folder as packed for a GPU machine, with the commands of this build and short
/// stages.
fn script(place: &Place, arguments: &[&str]) -> Command {
    let onegraph = env!("CARGO_BIN_EXE_onegraph-under-test");
    let bench = env!("CARGO_BIN_EXE_bench-under-test");
    fs::create_dir_all(place.join("gpu/bin")).expect("a folder");
    fs::copy(tools().join("gpu.sh"), place.join("gpu/gpu.sh")).expect("a copy");
    for (name, path) in [("onegraph", onegraph), ("bench", bench), ("gpu-checks", CHECKS)] {
        // The test may already have created this command as a stub.
        let _ = symlink(path, place.join("gpu/bin").join(name));
    }
    let mut command = Command::new(place.join("gpu/gpu.sh"));
    command.args(["--quick", "--out", "out"]).args(arguments).current_dir(place.path());
    command
}

/// The result and message of each stage in the printed table.
fn rows(said: &Said) -> BTreeMap<&str, (&str, &str)> {
    said.out.lines().skip(1).filter_map(row).collect()
}

fn row(line: &str) -> Option<(&str, (&str, &str))> {
    let (stage, rest) = line.split_once(' ')?;
    let (result, rest) = rest.trim_start().split_once(' ')?;
    Some((stage, (result, rest.rsplit("  ").next()?)))
}

#[test]
fn gpu_script_has_no_failed_stage_on_emulator() {
    let gpus = Gpus::new("H100");
    let mut command = script(&gpus.place, &["--seconds", "3000"]);
    gpus.show(command.env("NCCL_TEST_VERSION", "23000"));
    let said = said(&mut command);
    print!("{}", said.out);
    assert_eq!(said.code, 0, "{}", gpus.place.text("out/log.txt"));
    let rows = rows(&said);
    let passed = rows.values().filter(|(result, _)| *result == "ok").count();
    assert!(rows.len() == 27 && passed >= 17, "{passed} of {} passed", rows.len());
    assert!(rows["sums"].1.starts_with("1 of 1 passed") && rows["two-ranks"].0 == "ok");
    let of = |file: &str| gpus.place.json(&format!("out/{file}.json"));
    assert!(of("bench-12x800x1344")["images_per_second"].is_number());
    assert!(of("all-reduce")["against"]["p50_ms"].is_number());
    assert!(gpus.place.join("out.tar.gz").is_file());
    // The checks keep their device until the process ends.
    let findings = gpus.findings();
    assert!(findings.lines().all(|line| line.starts_with("leak: ")), "{findings}");
}

/// Failures: no GPU, a module that does not load, two-rank runs that diverge, and no time left.
#[test]
fn failed_gpu_script_stage_is_listed_and_others_run() {
    let place = Place::new();
    let mut command = script(&place, &["--only", "doctor,device"]);
    let without = said(command.env(common::GPUS, "").env("LD_LIBRARY_PATH", place.path()));
    assert_eq!((without.code, rows(&without)["doctor"].0), (1, "ok"), "{}", without.out);
    assert!(rows(&without)["device"].1.starts_with("error: "), "{}", without.out);

    let gpus = Gpus::new("H100");
    program(&gpus.place, "gpu/bin/onegraph", PARTS);
    let mut command = script(&gpus.place, &["--only", "device,sums,two-*"]);
    gpus.show(command.env("DRIVER_EDIT", "top_k_sort_f16:1=nonsense;"));
    let broken = said(&mut command);
    let found = rows(&broken);
    assert_eq!((broken.code, found["sums"].0), (1, "ok"), "{}", broken.out);
    let module = "FAILED kernels/src/ops/boxes/top_k_per_level/top_k_per_level.cu: ";
    assert!(found["device"].1.starts_with(module), "{}", broken.out);
    let log = gpus.place.text("out/log.txt");
    let counts = |line: &str| -> Option<[usize; 2]> {
        let (passed, all) = line.strip_suffix(" passed")?.split_once(" of ")?;
        Some([passed.parse().ok()?, all.parse().ok()?])
    };
    let is_one_short = |[passed, all]: [usize; 2]| passed > 100 && passed + 1 == all;
    assert!(log.lines().filter_map(counts).any(is_one_short), "{log}");
    assert!(found["two-ranks"].1.contains("two runs end with different weights"), "{}", broken.out);

    let late = said(&mut script(&gpus.place, &["--only", "bench-ops", "--seconds", "0"]));
    assert_eq!(rows(&late)["bench-ops"], ("SKIPPED", "no time is left for it"));
}

/// A stage that never ends is killed at its time limit, or when the script ends.
#[test]
fn hanging_gpu_script_stage_times_out() {
    let place = Place::new();
    let hangs = "#!/bin/sh\necho begun\nexec sleep 600\n";
    program(&place, "gpu/bin/onegraph", hangs);
    let ended = said(&mut script(&place, &["--only", "doctor", "--seconds", "3"]));
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert_eq!(rows(&ended)["doctor"], ("FAILED", "stopped after 3 s; last line: begun"));

    let mut command = script(&place, &["--only", "doctor", "--out", "late"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a start");
    let log = || fs::read_to_string(place.join("late/log.txt")).unwrap_or_default();
    let begin = Instant::now();
    while !log().contains("===== doctor") && begin.elapsed() < Duration::from_secs(60) {
        sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs still");
    assert_eq!(child.wait().expect("it ends").code(), Some(143));
    assert!(log().contains("\nstage ") && place.join("late.tar.gz").is_file(), "{}", log());
}

/// Missing or disallowed tools are not a failure: NCCL, performance counters, the sanitizer.
#[test]
fn unsupported_gpu_script_stage_is_skipped() {
    let gpus = Gpus::new("H100");
    fs::remove_file(gpus.place.join("driver/libnccl.so.2")).expect("a link");
    let refuses = "#!/bin/sh\nwhile [ \"$1\" != --log-file ]; do shift; done\n\
                   echo '==ERROR== ERR_NVGPUCTRPERM' >\"$2\"\nexit 1\n";
    program(&gpus.place, "gpu/bin/ncu", refuses);
    let sanitizer = "#!/bin/sh\n[ $2 = racecheck ] || { echo '= Device not supported'; exit 1; }\n\
                     echo 'error: 3 hazards'\nexit 9\n";
    program(&gpus.place, "gpu/bin/compute-sanitizer", sanitizer);
    let only = "sums,all-reduce,two-ranks,*check,ncu-*,torchvision-step";
    let mut command = script(&gpus.place, &["--only", only]);
    gpus.show(&mut command);
    let said = said(&mut command);
    for (stage, (result, words)) in rows(&said) {
        let expected = match stage {
            "nodes-check" => "ok",
            "racecheck" => "FAILED",
            _ => "SKIPPED",
        };
        assert_eq!(result, expected, "{stage}: {words}");
    }
    assert_eq!((said.code, rows(&said).len()), (1, 9), "{}", said.out);
}

/// One launch faults, so the device is lost, and one kernel never ends: all checks that do not
/// depend on them still run.
#[test]
fn gpu_checks_report_fault_and_hang_and_run_the_rest() {
    let gpus = Gpus::new("H100");
    let mut command = Command::new(CHECKS);
    command.args(["ops", "--most", "100000", "--each", "15"]);
    gpus.show(command.env("DRIVER_PLANT", "cuLaunchKernel:1200=700,hang:giou_loss_f16:1"));
    let said = said(&mut command);
    let failed: Vec<&str> = said.out.lines().filter(|line| line.starts_with("FAILED ")).collect();
    assert_eq!(said.code, 1);
    let faults = failed.iter().filter(|line| line.contains("CUDA_ERROR_ILLEGAL_ADDRESS")).count();
    let hung = failed.iter().filter(|line| **line == "FAILED giou_loss: hung for 15 s").count();
    assert!(hung == 1 && faults > 0 && hung + faults == failed.len(), "{failed:?}");
    let end = said.out.lines().last().unwrap_or_default();
    let counts: Vec<usize> = end.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [passed, all, not_run] = counts[..] else { panic!("{end}") };
    assert!(passed > 500 && not_run > 0 && passed + failed.len() + not_run == all, "{end}");
}

/// User folders are left unchanged, and the kernels profiled with ncu exist.
#[test]
fn gpu_script_keeps_user_folders_and_profiles_known_kernels() {
    let place = Place::new();
    place.write("photos/a.jpg", "mine");
    let script = script(&place, &[]);
    for arguments in [["pack", "photos"], ["--out", "photos"]] {
        let mut command = Command::new(script.get_program());
        let refused = said(command.args(arguments).current_dir(place.path()));
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains("photos exists and was not "), "{}", refused.err);
        assert_eq!(place.names("photos"), ["a.jpg"]);
    }
    let text = fs::read_to_string(tools().join("gpu.sh")).expect("a script");
    let lists = text.lines().filter_map(|line| line.strip_prefix("kernels"));
    let names = lists.flat_map(|line| line.split(['=', '+', '\'', '|'])).filter(|n| !n.is_empty());
    let manifest = kernels::compiled::kernels().manifest();
    let capability = device::Gpu::h100().capability;
    let unknown: Vec<&str> = names.filter(|n| manifest.kernel(n, capability).is_none()).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// Our baseline scripts run at a small size, or print what is missing if PyTorch is not installed.
#[test]
fn baseline_scripts_run_at_small_size() {
    let scripts = tools().join("peers");
    let place = Place::new();
    let shape = r#"{"op": "conv2d", "pass": "grad_weight", "n": 1, "h": 8, "w": 8, "c": 4, "k": 4,
                   "r": 3, "s": 3, "stride": 2, "pad": 1, "count": 2}"#;
    let linear = r#"{"op": "linear", "pass": "forward", "n": 5, "h": 1, "w": 1, "c": 4, "k": 3,
                   "r": 1, "s": 1, "stride": 1, "pad": 0, "count": 1}"#;
    place.write("shapes.json", format!(r#"{{"batch": 1, "shapes": [{linear}, {shape}]}}"#));
    for (script, more) in
        [("ceilings.py", &[][..]), ("convolutions.py", &["--shapes", "shapes.json"][..])]
    {
        let mut command = Command::new("python3");
        command.current_dir(place.path()).arg(scripts.join(script)).args(more);
        command.args(["--device", "cpu", "--tiny", "--json", "figures.json"]);
        let Ok(output) = command.output() else {
            println!("SKIPPED: there is no python3");
            return;
        };
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        if out.starts_with("SKIPPED: no PyTorch") {
            println!("SKIPPED: {script} finds no PyTorch");
            continue;
        }
        assert!(out.lines().last().is_some_and(|line| line.starts_with("figure: ")), "{out}");
        let figures = place.json("figures.json");
        assert_eq!(figures["figures"].as_array().map(Vec::len), Some(2), "{figures}");
    }
}
