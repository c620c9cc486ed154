//! Failures of a run with several processes: a rank that dies, hangs or cannot continue, and
//! requests to stop.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::common::ranks::{Ended, Running, under_mpirun};
use crate::common::{
    BAD_DATA, DIVERGED, FAILED, INTERRUPTED, Place, RANK_LOST, assert_has, is_missing,
};
use rustix::process::Signal;

/// Default of `ranks.timeout_seconds`, within which surviving ranks must end after a loss.
const LIMIT: Duration = Duration::from_secs(10);

/// Quickstart on few images, which runs for longer than any test waits.
const ENDLESS: &str = "train quickstart --set train.images_per_group=2 --set train.steps=2000 \
                       --set data.synthetic.train_images=20 --set data.synthetic.val_images=9 \
                       --set solver.warmup_steps=5 --set eval.draw_images=0 \
                       --set train.log_every_steps=1 --set train.run_dir=runs --device cpu";

const SAVING: &str = "--set train.checkpoint_every_steps=1";
const EVALUATING: &str = "--set train.eval_every_steps=2 --set eval.batch_size=1 \
                          --set data.synthetic.val_images=400";
const DRAWING: &str = "--set data.synthetic.train_images=4000";

/// Starts a run, and sends a signal to one rank once a line contains these words.
fn signalled(
    place: &Place,
    ranks: usize,
    more: &str,
    words: &str,
    (victim, signal): (usize, Signal),
) -> Ended {
    let mut run = Running::start(place, ranks, &format!("{ENDLESS} {more}"));
    run.wait_for(words);
    if more == EVALUATING {
        sleep(Duration::from_millis(500));
    }
    run.signal(victim, signal);
    // After a request to stop, the ranks still complete their shares of the evaluation.
    run.end_within(if signal == Signal::USR1 { LIMIT * 6 } else { LIMIT })
}

/// Number of ranks, additional config, and words of the line after which a rank is lost; the rank
/// and the signal; the words by which survivors report the loss.
type Loss = (usize, &'static str, &'static str, (usize, Signal), &'static str);

const CLOSED: &str = "its connection closed";
const SILENT: &str = "no heartbeat for ";

const IN_TRAINING: [Loss; 4] = [
    (4, SAVING, "iter 3/", (2, Signal::KILL), CLOSED),
    (2, SAVING, "iter 3/", (0, Signal::KILL), CLOSED),
    (2, SAVING, "iter 3/", (1, Signal::STOP), SILENT),
    (4, SAVING, "iter 3/", (0, Signal::STOP), SILENT),
];

const ELSEWHERE: [Loss; 6] = [
    (2, EVALUATING, "iter 2/", (1, Signal::KILL), "it was last "),
    (2, EVALUATING, "iter 2/", (0, Signal::KILL), "it was last "),
    (2, EVALUATING, "iter 2/", (0, Signal::STOP), SILENT),
    (2, DRAWING, "generating 4000 images", (1, Signal::KILL), ""),
    (2, DRAWING, "generating 4000 images", (0, Signal::KILL), ""),
    (2, DRAWING, "generating 4000 images", (0, Signal::STOP), ""),
];

fn all_name_the_lost_rank(losses: &[Loss]) {
    for &(ranks, more, words, (victim, signal), why) in losses {
        let place = Place::new();
        let ended = signalled(&place, ranks, more, words, (victim, signal));
        ended.assert_names(ranks, victim, why);
        // A stopped rank that continues after its loss was reported must not save.
        let of_victim = if signal == Signal::KILL { 137 } else { RANK_LOST };
        for (rank, code) in ended.codes.iter().enumerate() {
            let expected = if rank == victim { of_victim } else { RANK_LOST };
            assert_eq!(*code, expected, "rank {rank}\n{}", ended.said);
        }
        if more == SAVING {
            let told = ended.said.contains(&format!("this rank ({victim}, on host "));
            assert_eq!(told, signal == Signal::STOP, "{}", ended.said);
        }
        if more == DRAWING && victim == 1 {
            assert_eq!(place.names("runs/data/shapes"), [""; 0], "nothing half-made");
        }
    }
}

#[test]
fn killed_or_stopped_training_rank_is_reported() {
    all_name_the_lost_rank(&IN_TRAINING);
}

#[test]
fn rank_lost_in_evaluation_or_data_generation_is_reported() {
    all_name_the_lost_rank(&ELSEWHERE);
}

/// mpirun continues the stopped rank once a different rank has exited.
#[test]
fn killed_or_stopped_mpirun_rank_is_reported() {
    if is_missing("mpirun") {
        return;
    }
    for (signal, why, code) in [(Signal::KILL, CLOSED, 137), (Signal::STOP, SILENT, RANK_LOST)] {
        let place = Place::new();
        let mut run = Running::by(&place, under_mpirun(&place, 2, ENDLESS));
        run.wait_for("iter 3/");
        run.signal_of_mpirun(1, signal);
        let ended = run.end_within(LIMIT * 3);
        ended.assert_names(2, 1, why);
        assert_eq!(ended.codes, [code], "{}", ended.said);
    }
}

/// Rank 1 reads from a separate disk, which loses the store during the run.
#[test]
fn rank_with_truncated_store_stops_all() {
    let place = Place::new();
    place.good(&ENDLESS.replace("steps=2000", "steps=6"));
    fs::create_dir(place.join("other")).expect("a folder");
    let mut copy = Command::new("cp");
    let copied = copy.args(["-r", "runs", "other"]).current_dir(place.path()).status();
    assert!(copied.is_ok_and(|status| status.success()));
    let store = "runs/data/shapes/train-20x128-seed0/store";
    let commands = ["", "other"].map(|folder| {
        let mut command = place.command(&format!("{ENDLESS} --set train.name=again"));
        command.current_dir(place.join(folder));
        command
    });
    let mut run = Running::of(&place, commands.into());
    run.wait_for("iter 1/");
    for file in fs::read_dir(place.join("other").join(store)).expect("a store") {
        let path = file.expect("a file").path();
        fs::OpenOptions::new().write(true).truncate(true).open(path).expect("it is cut");
    }
    let ended = run.end_within(LIMIT);
    assert_eq!(ended.codes, [RANK_LOST, BAD_DATA], "{}", ended.said);
    assert_has(
        &ended.said,
        &["rank 0: error: rank 1 on host ", "error: a file of a store was truncated or lost"],
    );
}

/// On a full disk the run continues until its scores; then rank 0 ends with an error, which all
/// other ranks repeat.
#[test]
fn full_disk_on_rank0_is_reported_by_all() {
    let place = Place::new();
    let train = ENDLESS.replace("steps=2000", "steps=12").replace("=runs", "=disk");
    place.good(&ENDLESS.replace("steps=2000", "steps=6"));
    fs::create_dir(place.join("disk")).expect("a folder");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    command.arg("mount -t tmpfs -o size=100k none disk || exit 99; exec \"$0\" \"$@\"");
    let all = place.command(&format!("{train} --set data.synthetic.dir=runs/data --ranks 2"));
    command.arg(all.get_program()).args(all.get_args()).env(crate::common::GPUS, "");
    let ended = Running::by(&place, command).end();
    if ended.codes == [99] || ended.said.contains("unshare:") {
        println!("SKIPPED: `unshare` mounts nothing here");
        return;
    }
    assert_eq!(ended.codes, [FAILED], "{}", ended.said);
    assert!(ended.out.contains("Average Precision"), "{}", ended.said);
    let nothing = "the state after step 12 could not be saved; last checkpoint: none";
    let of = |rank: &str| ended.said.lines().any(|l| l.starts_with(rank) && l.contains(nothing));
    assert!(of("rank 0: error: disk/"), "{}", ended.said);
    assert!(of("rank 1: error: rank 0 on host "), "{}", ended.said);
}

/// Whichever rank gets the request to stop, all ranks save at the same step and exit; one line
/// reports this.
#[test]
fn signal_to_one_rank_saves_and_stops_all() {
    let saved_and_left = |place: &Place, ended: &Ended, told: [usize; 2]| {
        assert!(ended.codes.iter().all(|code| *code == INTERRUPTED), "{}", ended.said);
        let words =
            ["SIGUSR1: stopping", "another rank was asked to stop: all ranks stop once step"];
        assert_eq!(words.map(|words| ended.said.matches(words).count()), told, "{}", ended.said);
        assert_eq!(ended.said.matches("interrupted; continue with").count(), 1, "{}", ended.said);
        let saved = place.names("runs/quickstart/checkpoints");
        assert!(saved.iter().all(|name| name.starts_with("step_")), "{saved:?}");
    };
    for (asked, told) in [(0, [1, 0]), (1, [0, 1])] {
        let place = Place::new();
        let ended = signalled(&place, 2, "", "iter 2/", (asked, Signal::USR1));
        saved_and_left(&place, &ended, told);
    }
    // The process that started the ranks forwards the request to them.
    let place = Place::new();
    let own = place.command(&format!("{ENDLESS} --ranks 2"));
    let by_mpirun = (!is_missing("mpirun")).then(|| under_mpirun(&place, 2, ENDLESS));
    for (command, signal) in [(Some(own), Signal::TERM), (by_mpirun, Signal::USR1)]
        .into_iter()
        .filter_map(|(c, s)| Some((c?, s)))
    {
        let _ = fs::remove_dir_all(place.join("runs"));
        let mut run = Running::by(&place, command);
        run.wait_for("iter 2/");
        run.signal(0, signal);
        let ended = run.end_within(LIMIT * 3);
        let ended = Ended { said: ended.said.replace("SIGTERM: stopping", ""), ..ended };
        saved_and_left(&place, &ended, [1, 0]);
    }
}

#[test]
fn signal_during_evaluation_stops_all_after_it() {
    let place = Place::new();
    let ended = signalled(&place, 2, EVALUATING, "iter 2/", (1, Signal::USR1));
    assert_eq!(ended.codes, [INTERRUPTED; 2], "{}", ended.said);
    assert_eq!(place.names("runs/quickstart/checkpoints"), ["step_00000002"]);
}

/// A run that lost a rank continues from its last checkpoint with a different number of ranks, and
/// ends with the same results as an undisturbed run.
#[test]
fn run_that_lost_a_rank_resumes_with_other_rank_count() {
    let place = Place::new();
    let run = |ranks: usize, more: &str| {
        let steps = "--set train.steps=8 --set train.checkpoint_every_steps=3";
        let all = format!("{} {steps} {more}", ENDLESS.replace(" --set train.steps=2000", ""));
        Running::start(&place, ranks, &all)
    };
    let whole = run(1, "--set train.name=whole").end();
    assert_eq!(whole.codes, [0], "{}", whole.said);
    for (name, ranks) in [("more", 4), ("fewer", 1)] {
        let mut broken = run(2, &format!("--set train.name={name}"));
        broken.wait_for("iter 5/");
        broken.signal(1, Signal::KILL);
        broken.end_within(LIMIT).assert_names(2, 1, CLOSED);
        let resumed = run(ranks, &format!("--set train.name={name} --resume auto")).end();
        assert!(resumed.codes.iter().all(|code| *code == 0), "{}", resumed.said);
        assert_has(&resumed.said, &["resuming after step 3 from"]);
        assert!(place.state("runs/whole", 8) == place.state(&format!("runs/{name}"), 8));
    }
}

/// Non-finite losses are reported once, and the failed step is saved so that it can be replayed.
#[test]
fn non_finite_loss_is_reported_by_one_rank() {
    let place = Place::new();
    let wild = ENDLESS.replace("warmup_steps=5", "warmup_steps=0");
    let ended = Running::start(&place, 2, &format!("{wild} --set solver.learning_rate=1e6")).end();
    let error = ended.only_error(DIVERGED);
    assert!(error.starts_with("rank 0: error: step "), "{error}");
    let (_, file) = error.split_once("onegraph replay ").expect("a file to replay");
    let (file, _) = file.split_once(')').expect("its end");
    assert!(place.good(&format!("replay {file}")).contains("images"), "{error}");
}
