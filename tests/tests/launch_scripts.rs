//! The scripts that start many processes, with programs that print their arguments and variables in
//! place of onegraph, srun and scontrol.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{INTERRUPTED, Place, Said, has_namespaces, is_missing, said, with_default_signals};
use rustix::process::{Pid, Signal, kill_process};

/// Tells its rank and arguments, one a line; with a file `hold` it waits to be asked to leave.
const STAND_IN: &str = r#"#!/usr/bin/env bash
rank=${OMPI_COMM_WORLD_RANK:-${RANK:-none}}
trap 'exit 6' USR1
{
    echo "rank $rank of ${OMPI_COMM_WORLD_SIZE:-${WORLD_SIZE:-none}}"
    echo "local ${LOCAL_RANK:-} of ${LOCAL_WORLD_SIZE:-}, host $(hostname)"
    echo "master ${MASTER_ADDR:-}:${MASTER_PORT:-}, token of ${#ONEGRAPH_TOKEN} characters"
    printf '<%s>\n' "$@"
} > "said.$rank.part" && mv "said.$rank.part" "said.$rank"
[[ $rank != "${FAILS:-}" ]] || { echo "error: planted" >&2; exit 8; }
if [[ -e hold ]]; then
    for ((i = 0; i < 600; i++)); do sleep 0.05; done
    exit 9
fi
"#;

fn scripts() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the checkout").join("configs/launch")
}

fn program(place: &Place, name: &str, text: &str) -> PathBuf {
    let path = place.write(name, text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a file of ours");
    path
}

/// The script in this folder, with the stand-in.
fn script(place: &Place, name: &str) -> Command {
    let stand_in = program(place, "onegraph", STAND_IN);
    let mut command = Command::new(scripts().join(name));
    command.current_dir(place.path()).env("ONEGRAPH_BIN", stand_in).stdin(Stdio::null());
    command.env("ONEGRAPH_ML", place.join("ml"));
    for (name, value) in [
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        // mpirun ends twice this after a rank has failed.
        ("OMPI_MCA_odls_base_sigkill_timeout", "1"),
    ] {
        command.env(name, value);
    }
    command
}

/// Asks a script whose ranks have all begun to end, and takes its exit code.
fn interrupted(place: &Place, command: &mut Command, ranks: &[usize]) -> Option<i32> {
    place.write("hold", "");
    let quiet = with_default_signals(command).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = quiet.expect("the script starts");
    let begun = |rank: &usize| place.join(&format!("said.{rank}")).exists();
    until(&mut child, "all ranks begin", |_| ranks.iter().all(begun));
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, Signal::TERM).expect("it runs still");
    until(&mut child, "it ends", |child| child.try_wait().expect("our child").is_some());
    child.wait().expect("it has ended").code()
}

fn until(child: &mut Child, what: &str, is_so: impl Fn(&mut Child) -> bool) {
    let started = Instant::now();
    while !is_so(child) {
        if started.elapsed() > Duration::from_secs(60) {
            let _ = child.kill();
            panic!("waited 60 s until {what}");
        }
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_script_is_a_program_that_parses_and_tells_its_use() {
    for name in ["mpirun.sh", "two-hosts.sh", "slurm.sbatch", "sagemaker/train", "sagemaker/serve"]
    {
        let path = scripts().join(name);
        let parsed = said(Command::new("bash").arg("-n").arg(&path));
        assert_eq!(parsed.code, 0, "{}", parsed.err);
        let text = fs::read_to_string(&path).expect("a script");
        assert!(text.starts_with("#!/usr/bin/env bash\n# "), "{name}: begins with its purpose");
        assert!(text.contains("\nset -euo pipefail\n"), "{name}: goes on after faults");
        assert!(text.contains("\n# Tried"), "{name}: says on what it was tried");
        if name == "two-hosts.sh" && !has_namespaces() {
            continue;
        }
        let without = said(&mut script(&Place::new(), name));
        assert_eq!(without.code, 2, "{name}: {}", without.err);
        assert!(without.err.contains("config") || without.err.contains("usage: "), "{name}");
    }
}

#[test]
fn mpirun_starts_ranks_with_their_arguments_and_asks_them_to_leave() {
    if is_missing("mpirun") {
        return;
    }
    let place = Place::new();
    let arguments = ["-n", "2", "my config.toml", "--set", "train.name=\"a b\""];
    let ended = said(script(&place, "mpirun.sh").args(arguments));
    assert_eq!(ended.code, 0, "{}", ended.err);
    for rank in ["0", "1"] {
        let told = place.text(&format!("said.{rank}"));
        assert!(told.contains(&format!("rank {rank} of 2\n")), "{told}");
        let all = "<train>\n<my config.toml>\n<--set>\n<train.name=\"a b\">\n";
        assert!(told.ends_with(all), "{told}");
    }

    // After `--`, any command.
    let timed = ["-n", "2", "--", "mlperf", "run", "a b", "--out=c"];
    let ended = said(script(&place, "mpirun.sh").args(timed));
    assert_eq!(ended.code, 0, "{}", ended.err);
    let told = place.text("said.1");
    assert!(told.ends_with("characters\n<mlperf>\n<run>\n<a b>\n<--out=c>\n"), "{told}");
    let nothing = said(script(&place, "mpirun.sh").args(["-n", "2", "--"]));
    assert!(nothing.code == 2 && nothing.err.contains("no command"), "{}", nothing.err);

    let failed = said(script(&place, "mpirun.sh").args(["-n", "2", "x"]).env("FAILS", "1"));
    assert_eq!(failed.code, 8, "mpirun gives the rank's own code: {}", failed.err);

    let place = Place::new();
    let code = interrupted(&place, script(&place, "mpirun.sh").args(["-n", "2", "x"]), &[0, 1]);
    assert_eq!(code, Some(INTERRUPTED));
}

/// The host file is one of Kubeflow's, with this host's name.
#[test]
fn mpirun_takes_ranks_from_a_host_file() {
    if is_missing("mpirun") {
        return;
    }
    let place = Place::new();
    let file = place.write("hostfile", "localhost slots=3\n");
    let mut command = script(&place, "mpirun.sh");
    let ended = said(command.arg("x").env("OMPI_MCA_orte_default_hostfile", &file));
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(place.text("said.2").starts_with("rank 2 of 3\n"));
    place.write("hostfile", "nothing\n");
    let bad = said(command.env("OMPI_MCA_orte_default_hostfile", &file));
    assert_eq!(bad.code, 2);
    assert!(bad.err.contains("hostfile: no line of the form"), "{}", bad.err);
}

#[test]
fn two_hosts_have_names_and_addresses_of_their_own() {
    if !has_namespaces() {
        return;
    }
    let place = Place::new();
    let mut command = script(&place, "two-hosts.sh");
    let ended = said(command.args(["-r", "2", "./onegraph", "it's", "two words"]));
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    for (rank, local, host) in [(0, 0, "a"), (1, 1, "a"), (2, 0, "b"), (3, 1, "b")] {
        let told = place.text(&format!("said.{rank}"));
        let expected = format!(
            "rank {rank} of 4\nlocal {local} of 2, host host-{host}\n\
             master 10.77.0.1:29500, token of 32 characters\n<it's>\n<two words>\n"
        );
        assert_eq!(told, expected);
    }
    let mut command = script(&place, "two-hosts.sh");
    let failed = said(command.arg("./onegraph").env("FAILS", "1"));
    assert_eq!(failed.code, 8, "{}", failed.err);
    assert!(failed.out.contains("[host-b 1] error: planted\n"), "{}", failed.out);
    assert!(failed.out.ends_with("exit codes of the ranks: 0 8\n"), "{}", failed.out);

    let place = Place::new();
    let code = interrupted(&place, script(&place, "two-hosts.sh").arg("./onegraph"), &[0, 1]);
    assert_eq!(code, Some(INTERRUPTED));
}

#[test]
fn a_slurm_job_whose_ranks_saved_or_were_lost_is_queued_again() {
    let place = Place::new();
    let srun = "#!/usr/bin/env bash\nwhile [[ $1 == --* ]]; do shift; done\n\
                RANK=0 WORLD_SIZE=1 \"$@\"\nexit \"$CODE\"\n";
    program(&place, "bin/srun", srun);
    program(&place, "bin/scontrol", "#!/usr/bin/env bash\necho \"$@\" >requeued\n");
    let path = std::env::var("PATH").expect("a PATH");
    let path = format!("{}:{path}", place.join("bin").display());
    let run_as = |arguments: &[&str], code: &str, restarts: &str| -> Said {
        let _ = fs::remove_file(place.join("requeued"));
        let mut command = script(&place, "slurm.sbatch");
        command.args(arguments).env("PATH", &path).env("CODE", code);
        said(command.env("SLURM_JOB_ID", "7").env("SLURM_RESTART_COUNT", restarts))
    };
    let run = |code: &str, restarts: &str| run_as(&["my config", "--set", "a=b c"], code, restarts);
    for (code, restarts, again) in
        [("0", "0", false), ("6", "0", true), ("8", "19", true), ("137", "0", true)]
    {
        assert_eq!(run(code, restarts).code.to_string(), code);
        assert_eq!(place.join("requeued").exists(), again, "{code}");
    }
    assert_eq!(place.text("requeued"), "requeue 7\n");
    for (code, restarts) in [("8", "20"), ("3", "0")] {
        run(code, restarts);
        assert!(!place.join("requeued").exists(), "{code} after {restarts} restarts");
    }
    let told = place.text("said.0");
    assert!(told.contains("token of 32 characters\n"), "{told}");
    assert!(told.ends_with("<my config>\n<--set>\n<a=b c>\n<--resume>\n<auto>\n"), "{told}");

    // Any command; what cannot continue is not begun again.
    for (command, again) in
        [(["eval", "--run", "a b"], false), (["train", "c", "--resume=auto"], true)]
    {
        let code = run_as(&[&["--"], &command[..]].concat(), "8", "0").code;
        assert_eq!((code, place.join("requeued").exists()), (8, again), "{command:?}");
        let words = command.map(|word| format!("<{word}>\n")).concat();
        let told = place.text("said.0");
        assert!(told.ends_with(&format!("characters\n{words}")), "{told}");
    }
    assert_eq!(run_as(&["--"], "0", "0").code, 2);
}

const HOSTS: &str = r#"{"current_host": "algo-2", "hosts": ["algo-1", "algo-2"]}"#;

/// A job of SageMaker's on the second of two hosts.
fn job(place: &Place) -> Command {
    place.write("ml/input/config/resourceconfig.json", HOSTS);
    let parameters = r#"{"config": "my config.toml", "train.name": "it's \"two\"\nlines",
                        "train.steps": 3, "sagemaker_region": "x"}"#;
    place.write("ml/input/config/hyperparameters.json", parameters);
    let mut command = script(place, "sagemaker/train");
    command.envs([("SM_NUM_GPUS", "2"), ("TRAINING_JOB_ARN", "arn:of:job")]);
    command
}

#[test]
fn sagemaker_starts_the_ranks_of_its_host() {
    if is_missing("jq") {
        return;
    }
    let place = Place::new();
    let ended = said(&mut job(&place));
    assert_eq!(ended.code, 0, "{}", ended.err);
    for (rank, local) in [(2, 0), (3, 1)] {
        let told = place.text(&format!("said.{rank}"));
        assert!(told.starts_with(&format!("rank {rank} of 4\nlocal {local} of 2")), "{told}");
        assert!(told.contains("master algo-1:29500, token of 64 characters\n"), "{told}");
        let all = format!(
            "<train>\n<my config.toml>\n<--set>\n<train.run_dir={}>\n<--set>\n\
             <train.name=it's \"two\"\nlines>\n<--set>\n<train.steps=3>\n<--resume>\n<auto>\n",
            place.join("ml/checkpoints").display()
        );
        assert!(told.ends_with(&all), "{told}");
    }
    assert!(!place.join("ml/output/failure").exists());

    let failed = said(job(&place).env("FAILS", "3"));
    assert_eq!(failed.code, 8, "{}", failed.err);
    let reason = "rank 3 on algo-2: exit code 8: error: planted\n";
    assert_eq!(place.text("ml/output/failure"), reason);

    let place = Place::new();
    assert_eq!(interrupted(&place, &mut job(&place), &[2, 3]), Some(INTERRUPTED));
    assert!(!place.join("ml/output/failure").exists(), "an interruption is no failure");
}

/// Without SageMaker's files, what its toolkit has set; a rank that does not leave is ended.
#[test]
fn sagemaker_reads_the_toolkits_variables_and_keeps_the_weights() {
    if is_missing("jq") {
        return;
    }
    let place = Place::new();
    let toolkit = |place: &Place| {
        let mut command = script(place, "sagemaker/train");
        command.envs([("SM_HOSTS", r#"["algo-1"]"#), ("SM_CURRENT_HOST", "algo-1")]);
        command.envs([("SM_HPS", r#"{"config": "tiny"}"#), ("SM_NUM_GPUS", "0")]);
        command
    };
    let run = "ml/checkpoints/tiny";
    place.write(&format!("{run}/last_checkpoint"), "checkpoints/step_3\n");
    place.write(&format!("{run}/checkpoints/step_3/model.safetensors"), "weights");
    place.write(&format!("{run}/config.toml"), "");
    let ended = said(&mut toolkit(&place));
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(place.text("said.0").starts_with("rank 0 of 1\n"));
    assert_eq!(place.text("ml/model/model.safetensors"), "weights");
    place.write(&format!("{run}/checkpoints/step_2/model.safetensors"), "best");
    place.write(&format!("{run}/best.json"), r#"{"ap":1,"checkpoint":"checkpoints/step_2"}"#);
    assert_eq!(said(&mut toolkit(&place)).code, 0);
    assert_eq!(place.text("ml/model/model.safetensors"), "best");

    for (parameters, words) in [
        (r#"{"command": "eval --run a"}"#, "<eval>\n<--run>\n<a>\n"),
        (
            r#"{"command": "mlperf run --org me", "config": "a b", "train.steps": 3}"#,
            "<mlperf>\n<run>\n<--org>\n<me>\n<a b>\n<--set>\n<train.steps=3>\n",
        ),
    ] {
        let ended = said(toolkit(&place).env("SM_HPS", parameters));
        assert_eq!(ended.code, 0, "{}", ended.err);
        let told = place.text("said.0");
        assert!(told.ends_with(&format!("characters\n{words}")), "{told}");
    }

    let bad = said(toolkit(&place).env("SM_HPS", "{}"));
    assert_eq!(bad.code, 2);
    assert!(place.text("ml/output/failure").contains("no hyperparameter named config"));

    place.write("hold", "");
    let mut command = toolkit(&place);
    command.envs([("SM_NUM_GPUS", "2"), ("FAILS", "1"), ("ONEGRAPH_REAP_SECONDS", "1")]);
    assert_eq!(said(&mut command).code, 8, "the first failure counts, and nothing hangs");
}

/// An endpoint serves what a job has left in the model's folder.
#[test]
fn sagemaker_serves_the_weights_of_a_job() {
    let place = Place::new();
    let serve = || script(&place, "sagemaker/serve");
    let missing = said(&mut serve());
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("needs model.safetensors with"), "{}", missing.err);
    place.write("ml/model/model.safetensors", "weights");
    place.write("ml/model/config.toml", "");
    let options = [("SAGEMAKER_BIND_TO_PORT", "9000"), ("ONEGRAPH_SERVE", "--max-batch 4")];
    let ended = said(serve().envs(options));
    assert_eq!(ended.code, 0, "{}", ended.err);
    let words = format!(
        "<serve>\n<--weights>\n<{}>\n<--host>\n<0.0.0.0>\n<--port>\n<9000>\n<--max-batch>\n<4>\n",
        place.join("ml/model/model.safetensors").display()
    );
    let told = place.text("said.none");
    assert!(told.ends_with(&words), "{told}");
}

/// The example of a job: its config is a preset, its other parameters are keys, and paths are those
/// of its channels.
#[test]
fn sagemakers_job_names_what_there_is() {
    let text = fs::read(scripts().join("sagemaker/training-job.json")).expect("a job");
    let job: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let channels = job["InputDataConfig"].as_array().expect("channels").iter();
    let channels: Vec<String> = channels
        .map(|of| format!("/opt/ml/input/data/{}", of["ChannelName"].as_str().expect("a name")))
        .collect();
    for (name, value) in job["HyperParameters"].as_object().expect("parameters") {
        let value = value.as_str().expect("SageMaker takes text alone");
        match name.as_str() {
            "config" => assert!(configs::preset(value).is_some(), "{value}"),
            name => assert!(configs::key(name).is_some(), "{name}"),
        }
        assert!(!value.starts_with('/') || channels.iter().any(|of| of == value), "{value}");
    }
}

/// The job of Kubeflow's uses what the image holds, and the image what the checkout does.
#[test]
fn the_image_and_the_job_fit_each_other() {
    let read = |name: &str| fs::read_to_string(scripts().join(name)).expect(name);
    let (image, job) = (read("Dockerfile"), read("kubeflow-mpijob.yaml"));
    let checkout = scripts().join("../..");
    for line in image.lines().filter(|line| line.starts_with("COPY configs/")) {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        for source in &words[..words.len() - 1] {
            assert!(checkout.join(source).exists(), "COPY {source}");
        }
    }
    assert!(image.contains("\nUSER $RUN_AS\n") && image.contains("\nARG RUN_AS=onegraph\n"));
    for shared in ["/opt/onegraph/.ssh", "/opt/onegraph/sshd_config", "mpirun.sh"] {
        assert!(image.contains(shared) && job.contains(shared), "{shared}");
    }
    let documents: Vec<&str> = job.split("\n---\n").collect();
    assert_eq!(documents.len(), 2);
    for document in documents {
        for line in document.lines() {
            let indent = line.len() - line.trim_start().len();
            assert!(indent % 2 == 0 && !line.contains('\t'), "{line}");
        }
        assert!(document.contains("apiVersion: ") && document.contains("\nkind: "));
    }
    let preset = job.split("args: [").nth(1).and_then(|rest| rest.split(',').next());
    let preset = preset.expect("the launcher's arguments");
    assert!(checkout.join(format!("configs/{preset}.toml")).exists(), "{preset}");
}
