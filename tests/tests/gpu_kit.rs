//! The GPU kit's runner, where there is no GPU: what it says then, what the calls leave on the test
//! driver, and what still runs there after planted faults. And the scripts of the kit.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::driver::Gpus;
use common::{Place, said};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const KIT: &str = env!("CARGO_BIN_EXE_gpu-kit");

/// The runner in this folder, with the commands of this build.
fn kit(place: &Place, more: &[&str]) -> Command {
    let mut command = Command::new(KIT);
    command.current_dir(place.path()).args(["run", "--quick", "--out", "out"]);
    command.args(["--images", "data/images", "--annotations", "data/annotations.json"]);
    command.args(["--onegraph", env!("CARGO_BIN_EXE_onegraph-under-test")]);
    command.args(["--bench", env!("CARGO_BIN_EXE_bench-under-test")]);
    command.args(["--total-seconds", "3000", "--slower", "10"]);
    command.args(more);
    command
}

/// The same where the test driver is.
fn kit_on(gpus: &Gpus, more: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = kit(&gpus.place, more);
    gpus.show(&mut command);
    command.envs(variables.iter().copied());
    command
}

/// Six drawn images.
fn draw(place: &Place) {
    place.good("prep --synthetic shapes --count 6 --size 64 --seed 3 --out data");
}

/// Runs a call on GPUs of the test driver, in which no stage may fail, nor be skipped unless its
/// name begins with one of `skipped`; in all there are `stages`.
fn passes(gpus: &Gpus, more: &[&str], stages: usize, skipped: &[&str]) -> BTreeMap<String, Value> {
    draw(&gpus.place);
    let said = said(&mut kit_on(gpus, more, &[("NCCL_TEST_VERSION", "23000")]));
    assert_eq!(said.code, 0, "{}", said.out);
    let rows = rows(&gpus.place);
    assert_eq!(rows.len(), stages, "{rows:?}");
    for (stage, row) in &rows {
        let may_be_skipped = skipped.iter().any(|name| stage.starts_with(name));
        assert_eq!(result(row).0 == "SKIPPED", may_be_skipped, "{stage}: {row}");
    }
    // The kit keeps its device until the process ends.
    let findings = gpus.findings();
    assert!(findings.lines().all(|line| line.starts_with("leak: ")), "{findings}");
    check_archive(&gpus.place.join("out"));
    rows
}

/// Each row of the JSON file, by stage.
fn rows(place: &Place) -> BTreeMap<String, Value> {
    let report = place.json("out/report.json");
    let rows = report["stages"].as_array().expect("stages").iter();
    rows.map(|row| (row["stage"].as_str().expect("a name").to_string(), row.clone())).collect()
}

fn result(row: &Value) -> (&str, &str) {
    let text = |key: &str| row[key].as_str().expect("text");
    (text("result"), text("figure"))
}

/// At most seven flat files of at most 16 MiB, and every JSON file reads.
fn check_archive(folder: &Path) {
    let entries: Vec<_> = fs::read_dir(folder).expect("a folder").flatten().collect();
    assert!(entries.len() <= 7, "{entries:?}");
    for entry in entries {
        let (path, data) = (entry.path(), entry.metadata().expect("a file"));
        assert!(data.is_file() && data.len() < 16 << 20, "{}", path.display());
        if path.extension().is_some_and(|kind| kind == "json") {
            let read = serde_json::from_slice::<Value>(&fs::read(&path).expect("a file"));
            assert!(read.is_ok(), "{}: {read:?}", path.display());
        }
    }
}

#[test]
fn without_a_gpu_every_stage_that_needs_one_fails_with_the_sentence() {
    let Err(sentence) = kernels::compiled::open(0, |_| ()) else {
        println!("SKIPPED: there is a GPU here");
        return;
    };
    let sentence = sentence.to_string();
    for (call, stages, failed) in [("a", 12, 10), ("b", 7, 6), ("c", 11, 9), ("d", 6, 5)] {
        let place = Place::new();
        let started = Instant::now();
        draw(&place);
        let said = said(&mut kit(&place, &["--call", call]));
        assert_eq!(said.code, 1, "{}", said.err);
        assert!(started.elapsed() < Duration::from_secs(60), "call {call} takes seconds here");
        let rows = rows(&place);
        assert_eq!(rows.len(), stages, "{rows:?}");
        for (stage, row) in &rows {
            match stage.as_str() {
                // The machine is described, whatever it has.
                "doctor" => assert_eq!(result(row), ("ok", "--device auto trains on the CPU")),
                "clocks" | "shapes" => assert_ne!(result(row).1, sentence, "{stage}"),
                _ => assert_eq!(result(row), ("FAILED", sentence.as_str()), "{stage}"),
            }
        }
        let with_the_sentence = rows.values().filter(|row| result(row).1 == sentence).count();
        assert_eq!(with_the_sentence, failed, "call {call}");
        check_archive(&place.join("out"));
    }
}

#[test]
fn call_a_passes_on_the_test_driver() {
    let gpus = Gpus::new("H100");
    let tool = gpus.place.write(
        "tool",
        "#!/bin/sh\n[ \"$1 $3\" = '--tool --error-exitcode' ] || exit 2\nshift 4\n\"$@\" && \
                echo '========= ERROR SUMMARY: 0 errors'\n",
    );
    executable(&tool);
    let tool = tool.display().to_string();
    let more = ["--call", "a", "--sanitizer", &tool, "--peers", "none"];
    let rows = passes(&gpus, &more, 12, &["clocks", "ceilings"]);
    assert!(result(&rows["memcheck"]).1.starts_with("0 errors; "), "{}", rows["memcheck"]);
    assert!(rows["bench 12x800x1344"]["details"]["images_per_second"].is_number());
    assert_eq!(rows["ops"]["details"]["not_run"], 0);
    // The test driver assembles nothing, and every kernel takes 32 registers.
    let device = &rows["device"];
    let others = device["details"]["other_resources"].as_array().expect("a list").len();
    let told = format!(", {others} kernels take other resources than planned, the worst ");
    let figure = result(device).1;
    assert!(others > 100 && figure.contains(&told) && figure.len() < 400, "{figure}");
    let log = gpus.place.text("out/log.txt");
    assert!(log.contains("\n===== step =====\n") && log.contains("::item 0 "), "{log}");
    assert_eq!(gpus.place.json("out/ops.json")["failed"], serde_json::json!([]));
}

#[test]
fn calls_b_and_c_pass_on_the_test_driver() {
    let tools = Place::new();
    let refuses = "#!/bin/sh\nwhile [ \"$1\" != --log-file ]; do shift; done\n\
                   echo '==ERROR== ERR_NVGPUCTRPERM' > \"$2\"\nexit 1\n";
    let ncu = tools.write("ncu", refuses);
    executable(&ncu);
    let ncu = ncu.display().to_string();
    let in_c = ["clocks", "convolutions", "torchvision", "racecheck"];
    let gpus = ["H100", "A100"].map(Gpus::new);
    let more = |call| ["--call", call, "--ncu", &ncu, "--peers", "none"];
    let rows = passes(&gpus[0], &more("b"), 7, &["clocks", "ceilings", "ncu"]);
    for stage in ["ncu nodes", "ncu kernels"] {
        assert_eq!(result(&rows[stage]).1, "SKIPPED: ncu refuses: ERR_NVGPUCTRPERM", "{stage}");
    }
    let rows = passes(&gpus[1], &more("c"), 11, &in_c);
    assert!(result(&rows["infer"]).1.starts_with("batch 1: "), "{}", rows["infer"]);
}

#[test]
fn call_d_passes_on_the_test_driver() {
    let gpus = Gpus::new("H100");
    let rows = passes(&gpus, &["--call", "d"], 6, &["clocks"]);
    let figure = |stage: &str| result(&rows[stage]).1.to_string();
    assert!(figure("sums").contains("3 replays right in every bit"), "{rows:?}");
    assert!(figure("two ranks").contains("NCCL 2.30: 2 steps twice"), "{rows:?}");
    let sums = &rows["bench all-reduce"];
    assert!(figure("bench all-reduce").contains(": ratio "), "{sums}");
    assert_eq!(sums["details"]["all_reduce"], "nccl", "{sums}");
    let plain = &rows["bench 12x800x1344"]["details"];
    assert_eq!(sums["details"]["against"]["p50_ms"], plain["step_ms"]["p50"], "{sums}");
}

/// Two runs that end with other weights are told, and one that fails.
#[test]
fn ranks_that_part_are_a_failed_stage() {
    let gpus = Gpus::new("H100");
    let place = &gpus.place;
    let weights = "runs=runs/$(echo \"$*\" | sed 's/.*train.name=\\([a-z]*\\).*/\\1/')\n\
                   mkdir -p $runs/checkpoints/step_00000002\n\
                   echo $runs > $runs/checkpoints/step_00000002/model.safetensors\n";
    let parts = place.write("parts", format!("#!/bin/sh\n{weights}"));
    let fails = place.write("fails", "#!/bin/sh\nexit 8\n");
    for (program, words) in
        [(parts, "end with other weights"), (fails, "the first run ended with exit status: 8")]
    {
        executable(&program);
        let program = program.display().to_string();
        let more = ["--call", "d", "--only", "two ranks", "--onegraph", &program];
        let mut command = Command::new(KIT);
        command.current_dir(place.path()).args(["run", "--quick", "--out", "out"]).args(more);
        gpus.show(command.env("NCCL_TEST_VERSION", "23000"));
        let said = said(&mut command);
        assert!(said.code == 1 && said.out.contains(words), "{}", said.out);
    }
}

/// One launch faults, so that its device is lost, and one kernel never ends: all that does not need
/// them is run all the same.
#[test]
fn a_fault_and_a_hang_are_named_and_the_rest_runs() {
    let gpus = Gpus::new("H100");
    let hang = "hang:giou_loss_f16:1";
    let plants = format!("cuLaunchKernel:1200=700,{hang}");
    let more = ["--only", "ops", "--item-seconds", "15"];
    let said = said(&mut kit_on(&gpus, &more, &[("DRIVER_PLANT", &plants)]));
    print!("{}", said.out);
    assert_eq!(said.code, 1);
    let rows = rows(&gpus.place);
    let ops = &rows["ops"]["details"];
    let count = |key: &str| ops[key].as_u64().expect("a count");
    let names = |key: &str| -> Vec<&str> {
        let list = ops[key].as_array().expect("a list").iter();
        list.map(|item| item["name"].as_str().expect("a name")).collect()
    };
    assert_eq!((count("failed"), count("not_run")), (count("restarts"), 0), "{ops}");
    assert_eq!(count("passed") + count("failed") + count("skipped"), count("items"));
    let hung = |name: &&str| name.starts_with("giou_loss (");
    // Two processes that hang are the most that an op may cost; the others fault.
    assert_eq!(names("failures").into_iter().filter(hung).count(), 2, "{ops}");
    assert!(count("failed") > 2 && count("passed") > 500, "{ops}");
    assert!(names("skips").iter().all(hung) && !names("skips").is_empty(), "{ops}");
    let failures = ops["failures"].to_string();
    let words = ["no end after 15 s", "CUDA_ERROR_ILLEGAL_ADDRESS"];
    assert!(words.iter().all(|words| failures.contains(words)), "{ops}");
    check_archive(&gpus.place.join("out"));
}

#[test]
fn a_module_that_does_not_load_is_named_and_the_others_are_tried() {
    let gpus = Gpus::new("H100");
    let broken = ("DRIVER_EDIT", "top_k_sort_f16:1=nonsense;");
    let said = said(&mut kit_on(&gpus, &["--only", "device"], &[broken]));
    assert_eq!(said.code, 1, "{}", said.out);
    let rows = rows(&gpus.place);
    let details = &rows["device"]["details"];
    let failures: Vec<&str> = details["failures"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| item["name"].as_str().expect("a name"))
        .collect();
    let module = "kernels/src/ops/boxes/top_k_per_level/top_k_per_level.cu";
    assert_eq!(failures, [module], "{details}");
    assert!(details["passed"].as_u64() > Some(40) && details["not_run"] == 0, "{details}");
}

/// Whenever the runner is killed, what it knew is there, and its work does not go on.
#[test]
fn a_killed_runner_leaves_all_rows_so_far() {
    let start = |gpus: &Gpus| -> Child {
        let mut command = kit_on(gpus, &["--only", "doctor,device,ops"], &[]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the runner starts")
    };
    for ms in [20, 60, 120, 250, 500] {
        let gpus = Gpus::new("H100");
        let place = &gpus.place;
        let mut runner = start(&gpus);
        sleep(Duration::from_millis(ms));
        runner.kill().expect("it runs still");
        runner.wait().expect("it has ended");
        if place.join("out").is_dir() {
            check_archive(&place.join("out"));
        }
    }
    let gpus = Gpus::new("H100");
    let place = &gpus.place;
    let mut runner = start(&gpus);
    let begun =
        || fs::read_to_string(place.join("out/log.txt")).is_ok_and(|l| l.contains("::item 2"));
    let known = || place.join("out/report.json").is_file() && rows(place).len() == 2;
    let started = Instant::now();
    while !(known() && begun()) {
        assert!(started.elapsed() < Duration::from_secs(120), "no second row");
        sleep(Duration::from_millis(10));
    }
    runner.kill().expect("it runs still");
    runner.wait().expect("it has ended");
    assert_eq!(rows(place).keys().collect::<Vec<_>>(), ["device", "doctor"]);
    check_archive(&place.join("out"));
}

/// Asked to end, the runner ends its stage and writes the row.
#[test]
fn an_interrupted_runner_says_so() {
    let place = Place::new();
    let sleeper = place.write("sleeper", "#!/bin/sh\necho begun\nexec sleep 600\n");
    executable(&sleeper);
    let mut command = Command::new(KIT);
    command.current_dir(place.path()).args(["run", "--out", "out", "--only", "doctor,device"]);
    command.arg("--onegraph").arg(&sleeper).stdout(Stdio::null()).stderr(Stdio::null());
    let mut runner = command.spawn().expect("the runner starts");
    let begun = || fs::read_to_string(place.join("out/log.txt")).is_ok_and(|l| l.contains("begun"));
    while !begun() {
        sleep(Duration::from_millis(10));
    }
    let pid = Pid::from_raw(runner.id() as i32).expect("a process");
    kill_process(pid, Signal::TERM).expect("it runs still");
    assert_eq!(runner.wait().expect("it ends").code(), Some(1));
    let report = place.json("out/report.json");
    assert_eq!(report["stages_in_all"], 2);
    let rows = rows(&place);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(result(&rows["doctor"]), ("FAILED", "interrupted; last said: begun"));
}

/// A stage that says too much, one that hangs, a tool that finds something, images that are not
/// there, and a stage for which no time is left.
#[test]
fn what_goes_wrong_is_a_row_of_the_table() {
    let gpus = Gpus::new("H100");
    let place = &gpus.place;
    let tool = place.write("tool", "#!/bin/sh\necho ========= ERROR SUMMARY: 3 errors\nexit 9\n");
    executable(&tool);
    let long = "#!/bin/sh\necho begun\nyes 01234567890123456789012345678901 | head -c 9000000\n\
                echo auto picks\n";
    let talker = place.write("talker", long);
    executable(&talker);
    let [tool, talker] = [tool, talker].map(|path| path.display().to_string());
    let more = ["--sanitizer", &tool, "--onegraph", &talker, "--images", "none", "--hang"];
    let mut command = Command::new(KIT);
    command.current_dir(place.path()).args(["run", "--quick", "--out", "out"]).args(more);
    command.args(["--only", "doctor,memcheck,train,hang", "--total-seconds", "600"]);
    gpus.show(&mut command);
    let ended = said(&mut command);
    assert_eq!(ended.code, 1, "{}", ended.out);
    let found = rows(place);
    assert_eq!(result(&found["memcheck"]), ("FAILED", "3 errors"));
    assert!(result(&found["hang"]).1.starts_with("no end after 1 s"), "{found:?}");
    assert_eq!(result(&found["train"]).0, "SKIPPED");
    assert!(result(&found["train"]).1.contains("the kit holds no"), "{found:?}");
    let log = place.text("out/log.txt");
    assert!(log.len() < 1 << 20 && log.contains("[cut: ") && log.contains("auto picks"));
    check_archive(&place.join("out"));

    let late = ["--only", "ops,train", "--total-seconds", "0"];
    let ended = said(Command::new(KIT).current_dir(place.path()).arg("run").args(late));
    assert_eq!(ended.code, 1, "{}", ended.out);
    let none = "no time was left for it";
    assert!(ended.out.contains(&format!("FAILED       0.0  {none}")), "{}", ended.out);
    assert!(ended.out.contains(&format!("SKIPPED      0.0  SKIPPED: {none}")), "{}", ended.out);
}

/// The scripts parse, a folder that is no kit is left alone, and a call finds the kit around it.
#[test]
fn the_scripts_are_sound() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/gpu-kit");
    let gpus = Gpus::new("H100");
    let place = &gpus.place;
    fs::create_dir_all(place.join("kit/bin")).expect("a folder");
    for script in ["pack", "run", "call-a", "call-b", "call-c", "call-d"] {
        let said = said(Command::new("bash").arg("-n").arg(scripts.join(script)));
        assert_eq!(said.code, 0, "{}", said.err);
        fs::copy(scripts.join(script), place.join("kit").join(script)).expect("a copy");
    }
    place.write("photos/a.jpg", "mine");
    let packed = said(Command::new(scripts.join("pack")).arg(place.join("photos")));
    assert_eq!(packed.code, 1);
    assert!(packed.err.contains("exists and is no kit"), "{}", packed.err);
    assert_eq!(place.names("photos"), ["a.jpg"]);

    std::os::unix::fs::symlink(KIT, place.join("kit/bin/gpu-kit")).expect("a link");
    for (call, out) in [("call-a", Some("mine")), ("call-c", None)] {
        let mut command = Command::new(place.join("kit").join(call));
        command.args(["--only", "device"]).current_dir(place.path()).env_remove("OUT");
        gpus.show(command.envs(out.map(|out| ("OUT", place.join(out)))));
        let said = said(&mut command);
        assert_eq!(said.code, 0, "{}", said.err);
        let left = out.map_or(format!("kit/out/{call}"), String::from);
        assert_eq!(place.names(&left), ["log.txt", "report.json"]);
    }
}

/// The peers' scripts that are ours say what they miss, or run in small where PyTorch is there.
#[test]
fn the_peers_are_sound() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/peers");
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

fn executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let rights = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, rights).expect("a file of ours");
}
