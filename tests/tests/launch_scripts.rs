//! The launch scripts for processes, cluster jobs and data, with stubs of onegraph, srun and
//! scontrol that print their arguments and variables.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{
    INTERRUPTED, Place, Said, as_list, assert_has, has_namespaces, is_missing, said,
    with_default_signals,
};
use rustix::process::{Pid, Signal, kill_process};

/// Prints its rank and arguments, one per line; if a file `hold` exists it waits for a request to
/// stop.
const STAND_IN: &str = r#"#!/usr/bin/env bash
rank=${OMPI_COMM_WORLD_RANK:-${RANK:-none}}
trap 'exit 6' USR1
{
    echo "rank $rank of ${OMPI_COMM_WORLD_SIZE:-${WORLD_SIZE:-none}}"
    echo "local ${LOCAL_RANK:-} of ${LOCAL_WORLD_SIZE:-}, host $(hostname)"
    echo "master ${MASTER_ADDR:-}:${MASTER_PORT:-}, token of ${#ONEGRAPH_TOKEN} characters"
    printf '<%s>' "$@"
    echo
} > "said.$rank.part" && mv "said.$rank.part" "said.$rank"
[[ $rank != "${FAILS:-}" ]] || { echo "error: planted" >&2; exit 8; }
[[ ! -e hold ]] || { for ((i = 0; i < 600; i++)); do sleep 0.05; done; exit 9; }
"#;

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/launch")
}

fn program(place: &Place, name: &str, text: &str) -> PathBuf {
    let path = place.write(name, text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a file of ours");
    path
}

/// The script in this folder, with the stub.
fn script(place: &Place, name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(scripts().join(name));
    command.args(arguments).current_dir(place.path()).stdin(Stdio::null());
    command.env("ONEGRAPH_BIN", program(place, "onegraph", STAND_IN));
    command.env("ONEGRAPH_ML", place.join("ml")).env("OMPI_ALLOW_RUN_AS_ROOT", "1");
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    // After a rank has failed, mpirun needs twice this value to end.
    command.env("OMPI_MCA_odls_base_sigkill_timeout", "1").envs(variables.iter().copied());
    command
}

/// Runs the script, which must end with `code`; `tells` lists files, or `err` for standard error,
/// each with the text that it must contain.
fn ends(command: &mut Command, place: &Place, code: i32, tells: &[(&str, &str)]) -> Said {
    let said = said(command);
    assert_eq!(said.code, code, "{command:?}\n{}{}", said.out, said.err);
    for (file, words) in tells {
        let told = if *file == "err" { said.err.clone() } else { place.text(file) };
        assert!(told.contains(words), "{command:?}: {file} lacks {words}\n{told}");
    }
    said
}

/// Requests a script to stop after all its ranks have started: the ranks must save and exit.
fn is_interrupted(command: &Command, place: &Place, ranks: [usize; 2]) {
    place.write("hold", "");
    let quiet = with_default_signals(command).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let (mut child, begin) = (quiet.expect("the script starts"), Instant::now());
    while !ranks.iter().all(|rank| place.join(&format!("said.{rank}")).exists()) {
        assert!(begin.elapsed() < Duration::from_secs(60), "not all ranks begin: {command:?}");
        sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it is still running");
    let code = child.wait().expect("it ends when its ranks end").code();
    assert_eq!(code, Some(INTERRUPTED), "{command:?}");
}

#[test]
fn every_launch_script_parses_and_prints_usage() {
    let checkout = scripts().join("../..");
    let launchers =
        ["mpirun.sh", "two-hosts.sh", "slurm.sbatch", "sagemaker/train", "sagemaker/serve"];
    let of_checkout =
        ["configs/launch/fetch-coco.sh", "tools/gpu.sh", "tools/image", "tools/release"];
    let launchers_here = launchers.map(|name| scripts().join(name));
    for path in launchers_here.iter().cloned().chain(of_checkout.map(|name| checkout.join(name))) {
        let text = fs::read_to_string(&path).expect("a script");
        let begins =
            text.starts_with("#!/usr/bin/env bash\n# ") && text.contains("\nset -euo pipefail\n");
        assert!(begins, "{}: begins with its purpose, and ends at faults", path.display());
        let parsed = said(Command::new("bash").arg("-n").arg(&path));
        assert_eq!(parsed.code, 0, "{}", parsed.err);
        if let Ok(checked) = Command::new("shellcheck").args(["-S", "warning"]).arg(&path).output()
        {
            assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
        }
    }
    for (name, path) in launchers.iter().zip(&launchers_here) {
        let text = fs::read_to_string(path).expect("a script");
        assert!(text.contains("\n# Tested"), "{name}: says what it was tested on");
        if *name != "two-hosts.sh" || has_namespaces() {
            let place = Place::new();
            let without = ends(&mut script(&place, name, &[], &[]), &place, 2, &[]);
            assert!(without.err.contains("config") || without.err.contains("usage: "), "{name}");
        }
    }
}

#[test]
fn mpirun_script_passes_arguments_and_forwards_signals() {
    if is_missing("mpirun") {
        return;
    }
    let place = Place::new();
    let run = |arguments: &[&str], variables: &[(&str, &str)], code, tells: &[(&str, &str)]| {
        let mut command = script(&place, "mpirun.sh", arguments, variables);
        ends(&mut command, &place, code, tells);
    };
    let trains = "\n<train><my config.toml><--set><train.name=\"a b\">\n";
    let tells = [("said.0", "rank 0 of 2\n"), ("said.1", "rank 1 of 2\n"), ("said.1", trains)];
    run(&["-n", "2", "my config.toml", "--set", "train.name=\"a b\""], &[], 0, &tells);
    // Any command may follow `--`; mpirun returns the exit code of the rank.
    let timed = ["-n", "2", "--", "mlperf", "run", "a b", "--out=c"];
    run(&timed, &[("FAILS", "1")], 8, &[("said.1", "\n<mlperf><run><a b><--out=c>\n")]);
    // Kubeflow's host file, with the name of this host.
    place.write("hostfile", "localhost slots=3\n");
    let hosts = [("OMPI_MCA_orte_default_hostfile", "hostfile")];
    run(&["x"], &hosts, 0, &[("said.2", "rank 2 of 3\n")]);
    let place = Place::new();
    is_interrupted(&script(&place, "mpirun.sh", &["-n", "2", "x"], &[]), &place, [0, 1]);
}

#[test]
fn two_hosts_script_starts_ranks_and_reports_exit_codes() {
    if !has_namespaces() {
        return;
    }
    let place = Place::new();
    let arguments = ["-r", "2", "./onegraph", "it's", "two words"];
    ends(&mut script(&place, "two-hosts.sh", &arguments, &[]), &place, 0, &[]);
    for (rank, local, host) in [(0, 0, "a"), (1, 1, "a"), (2, 0, "b"), (3, 1, "b")] {
        let expected = format!(
            "rank {rank} of 4\nlocal {local} of 2, host host-{host}\n\
             master 10.77.0.1:29500, token of 32 characters\n<it's><two words>\n"
        );
        assert_eq!(place.text(&format!("said.{rank}")), expected);
    }
    let mut command = script(&place, "two-hosts.sh", &["./onegraph"], &[("FAILS", "1")]);
    let failed = ends(&mut command, &place, 8, &[]);
    assert_has(&failed.out, &["[host-b 1] error: planted\n"]);
    assert!(failed.out.ends_with("exit codes of the ranks: 0 8\n"), "{}", failed.out);
}

/// A job is requeued if its ranks have saved or one was lost, and if it can continue; otherwise it
/// is not.
#[test]
fn slurm_job_is_requeued_after_save_or_lost_rank() {
    let place = Place::new();
    let srun = "#!/usr/bin/env bash\nwhile [[ $1 == --* ]]; do shift; done\n\
                RANK=0 WORLD_SIZE=1 \"$@\"\nexit \"$CODE\"\n";
    program(&place, "bin/srun", srun);
    program(&place, "bin/scontrol", "#!/usr/bin/env bash\necho \"$@\" >requeued\n");
    let path = std::env::var("PATH").expect("a PATH");
    let path = format!("{}:{path}", place.join("bin").display());
    let trains = ["my config", "--set", "a=b c"];
    let own = "token of 32 characters\n<train><my config><--set><a=b c><--resume><auto>\n";
    let eval = ["--", "eval", "--run", "a b"];
    let resumed = ["--", "train", "c", "--resume=auto"];
    for (arguments, code, restarts, again, told) in [
        (&trains[..], 0, "0", false, own),
        (&trains, 6, "19", true, own),
        (&trains, 137, "20", false, own),
        (&trains, 3, "0", false, own),
        (&eval, 8, "0", false, "characters\n<eval><--run><a b>\n"),
        (&resumed, 8, "0", true, "characters\n<train><c><--resume=auto>\n"),
    ] {
        let code_of = code.to_string();
        let variables = [("PATH", path.as_str()), ("CODE", &code_of), ("SLURM_JOB_ID", "7")];
        let mut command = script(&place, "slurm.sbatch", arguments, &variables);
        ends(command.env("SLURM_RESTART_COUNT", restarts), &place, code, &[("said.0", told)]);
        let requeued = fs::read_to_string(place.join("requeued")).ok();
        assert_eq!(requeued.as_deref(), again.then_some("requeue 7\n"), "{command:?}");
        let _ = fs::remove_file(place.join("requeued"));
    }
}

/// A training job on the second of two hosts, then an endpoint that serves its weights.
#[test]
fn sagemaker_script_starts_ranks_and_serves_weights() {
    if is_missing("jq") {
        return;
    }
    let place = Place::new();
    let hosts = r#"{"current_host": "algo-2", "hosts": ["algo-1", "algo-2"]}"#;
    let parameters = r#"{"config": "my config.toml", "train.name": "it's \"two\"\nlines",
                        "train.steps": 3, "sagemaker_region": "x"}"#;
    let job = |place: &Place, fails: &str| {
        place.write("ml/input/config/resourceconfig.json", hosts);
        place.write("ml/input/config/hyperparameters.json", parameters);
        let variables =
            [("SM_NUM_GPUS", "2"), ("TRAINING_JOB_ARN", "arn:of:job"), ("FAILS", fails)];
        script(place, "sagemaker/train", &[], &variables)
    };
    let arguments = format!(
        "master algo-1:29500, token of 64 characters\n<train><my config.toml><--set>\
         <train.run_dir={}><--set><train.name=it's \"two\"\nlines><--set><train.steps=3>\
         <--resume><auto>\n",
        place.join("ml/checkpoints").display()
    );
    let ranks = [("said.2", "rank 2 of 4\nlocal 0 of 2"), ("said.3", "rank 3 of 4\nlocal 1 of 2")];
    let all = [("said.2", arguments.as_str()), ("said.3", &arguments)];
    ends(&mut job(&place, ""), &place, 0, &[ranks, all].concat());
    assert!(!place.join("ml/output/failure").exists());
    let reason = [("ml/output/failure", "rank 3 on algo-2: exit code 8: error: planted\n")];
    ends(&mut job(&place, "3"), &place, 8, &reason);
    let place = Place::new();
    is_interrupted(&job(&place, ""), &place, [2, 3]);
    assert!(!place.join("ml/output/failure").exists(), "an interruption is no failure");

    // Without SageMaker's files, the script reads the variables of SageMaker's toolkit.
    let place = Place::new();
    let toolkit = [
        ("SM_HOSTS", r#"["algo-1"]"#),
        ("SM_CURRENT_HOST", "algo-1"),
        ("SM_NUM_GPUS", "0"),
        ("SM_HPS", r#"{"config": "tiny"}"#),
    ];
    for (step, weights) in [("3", "weights"), ("2", "best")] {
        let checkpoint = format!("checkpoints/step_{step}");
        place.write(&format!("ml/checkpoints/tiny/{checkpoint}/model.safetensors"), weights);
    }
    place.write("ml/checkpoints/tiny/last_checkpoint", "checkpoints/step_3\n");
    let best = r#"{"ap":1,"checkpoint":"checkpoints/step_2"}"#;
    place.write("ml/checkpoints/tiny/best.json", best);
    place.write("ml/checkpoints/tiny/config.toml", "");
    let kept = [("said.0", "rank 0 of 1\n"), ("ml/model/model.safetensors", "best")];
    ends(&mut script(&place, "sagemaker/train", &[], &toolkit), &place, 0, &kept);
    let options = [("SAGEMAKER_BIND_TO_PORT", "9000"), ("ONEGRAPH_SERVE", "--max-batch 4")];
    let words = format!(
        "\n<serve><--weights><{}><--host><0.0.0.0><--port><9000><--max-batch><4>\n",
        place.join("ml/model/model.safetensors").display()
    );
    let mut serve = script(&place, "sagemaker/serve", &[], &options);
    ends(&mut serve, &place, 0, &[("said.none", &words)]);
}

/// In the SageMaker example job, the config is a preset, all other parameters are config keys, and
/// paths are channels.
#[test]
fn example_job_names_known_preset_keys_and_channels() {
    let text = fs::read_to_string(scripts().join("sagemaker/training-job.json")).expect("a job");
    let job: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let channels = as_list(&job["InputDataConfig"]).iter();
    let channels: Vec<String> = channels
        .map(|of| format!("/opt/ml/input/data/{}", of["ChannelName"].as_str().expect("a name")))
        .collect();
    for (name, value) in job["HyperParameters"].as_object().expect("parameters") {
        let value = value.as_str().expect("SageMaker accepts only text");
        match name.as_str() {
            "config" => assert!(configs::preset(value).is_some(), "{value}"),
            name => assert!(engine::config::schema().key(name).is_some(), "{name}"),
        }
        assert!(!value.starts_with('/') || channels.iter().any(|of| of == value), "{value}");
    }
}
