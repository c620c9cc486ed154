//! Faults of a run of several processes: a rank that dies, hangs or cannot go on, and requests to
//! stop. `ONEGRAPH_RANK_FAULTS` repeats each fault so many times and prints how long the others
//! took to end.

use std::thread::sleep;
use std::time::Duration;

use crate::common::mpirun::{Ended, Running, assert_names};
use crate::common::{DIVERGED, INTERRUPTED, Place, RANK_LOST};
use rustix::process::Signal;

/// `ranks.timeout_seconds`: survivors of a loss end within it.
const LIMIT: Duration = Duration::from_secs(10);

/// Quickstart on few images, for longer than any test waits.
const ENDLESS: &str = "train quickstart --set train.images_per_group=2 --set train.steps=2000 \
                       --set data.synthetic.train_images=20 --set data.synthetic.val_images=9 \
                       --set solver.warmup_steps=5 --set eval.draw_images=0 \
                       --set train.log_every_steps=1 --set train.run_dir=runs --device cpu";

/// Repeats a fault in a new place, and prints the seconds from the fault to the end of the last
/// rank.
fn repeat(name: &str, fault: impl Fn(&Place) -> Ended) {
    let times = std::env::var("ONEGRAPH_RANK_FAULTS").ok().and_then(|times| times.parse().ok());
    let mut seconds = Vec::new();
    let mut last = None;
    for _ in 0..times.unwrap_or(1) {
        let ended = fault(&Place::new());
        seconds.push(ended.seconds);
        last = Some(ended);
    }
    seconds.sort_by(f64::total_cmp);
    let Some(last) = last else { return };
    let (median, max) = (seconds[seconds.len() / 2], seconds[seconds.len() - 1]);
    println!(
        "{name} | {} times | {median:.1} s | {max:.1} s | ranks {:?}, mpirun {} | {}",
        seconds.len(),
        last.codes,
        last.code,
        last.errors().join(" / ")
    );
}

/// Sends a signal to one of two ranks while they train.
fn in_training(place: &Place, victim: usize, signal: Signal) -> Ended {
    let saving = "--set train.checkpoint_every_steps=1";
    let mut run = Running::start(place, 2, &format!("{ENDLESS} {saving}"));
    run.wait_for("iter 3/");
    run.signal(victim, signal);
    run.end_within(LIMIT)
}

#[test]
fn a_rank_killed_in_training_is_named() {
    repeat("rank 1 killed in training", |place| {
        let ended = in_training(place, 1, Signal::KILL);
        assert_names(&ended, 1, "its connection closed");
        assert_eq!(ended.code, 137, "{}", ended.said);
        ended
    });
}

#[test]
fn rank_0_killed_in_training_is_named() {
    repeat("rank 0 killed in training", |place| {
        let ended = in_training(place, 0, Signal::KILL);
        assert_names(&ended, 0, "its connection closed");
        ended
    });
}

/// mpirun wakes the stopped rank once another has left; it then ends by itself, and saves nothing.
#[test]
fn a_rank_stopped_in_training_is_named() {
    repeat("rank 1 stopped in training", |place| {
        let ended = in_training(place, 1, Signal::STOP);
        assert_names(&ended, 1, "no sign of life for ");
        assert_eq!(ended.codes.get(&1), Some(&RANK_LOST), "{}", ended.said);
        ended
    });
}

#[test]
fn rank_0_stopped_in_training_is_named() {
    repeat("rank 0 stopped in training", |place| {
        let ended = in_training(place, 0, Signal::STOP);
        assert_names(&ended, 0, "no sign of life for ");
        assert_eq!(ended.codes.get(&0), Some(&RANK_LOST), "{}", ended.said);
        assert!(ended.said.contains("this rank (0, on host "), "{}", ended.said);
        ended
    });
}

/// Sends a signal to one of two ranks while they evaluate.
fn in_evaluation(place: &Place, victim: usize, signal: Signal) -> Ended {
    let often = "--set train.eval_every_steps=2 --set eval.batch_size=1";
    let many = ENDLESS.replace("val_images=9", "val_images=400");
    let mut run = Running::start(place, 2, &format!("{many} {often}"));
    run.wait_for("iter 2/");
    sleep(Duration::from_millis(500));
    run.signal(victim, signal);
    // One that is asked to stop lets the others evaluate their share.
    run.end_within(if signal == Signal::USR1 { LIMIT * 6 } else { LIMIT })
}

#[test]
fn a_rank_lost_in_an_evaluation_is_named() {
    for victim in [1, 0] {
        repeat(&format!("rank {victim} killed in evaluation"), |place| {
            let ended = in_evaluation(place, victim, Signal::KILL);
            assert_names(&ended, victim, "it was last ");
            ended
        });
    }
    repeat("rank 0 stopped in evaluation", |place| {
        let ended = in_evaluation(place, 0, Signal::STOP);
        assert_names(&ended, 0, "no sign of life for ");
        ended
    });
}

#[test]
fn an_evaluation_is_the_last_when_one_rank_is_asked_to_stop() {
    repeat("SIGUSR1 on rank 1 in evaluation", |place| {
        let ended = in_evaluation(place, 1, Signal::USR1);
        assert_eq!(ended.codes, [(0, INTERRUPTED), (1, INTERRUPTED)].into(), "{}", ended.said);
        assert_eq!(place.names("runs/quickstart/checkpoints"), ["step_00000002"]);
        ended
    });
}

#[test]
fn a_rank_lost_while_another_draws_is_named() {
    let many = ENDLESS.replace("train_images=20", "train_images=4000");
    for (victim, signal) in [(1, Signal::KILL), (0, Signal::KILL), (0, Signal::STOP)] {
        repeat(&format!("rank {victim}: signal {} while drawing", signal.as_raw()), |place| {
            let mut run = Running::start(place, 2, &many);
            run.wait_for("drawing 4000 images");
            run.signal(victim, signal);
            let ended = run.end_within(LIMIT);
            assert_names(&ended, victim, "");
            if victim == 1 {
                assert_eq!(place.names("runs/data/shapes"), [""; 0], "nothing half-made");
            }
            ended
        });
    }
}

/// Whichever rank is asked, all save at one step and leave; one line reports it.
#[test]
fn all_ranks_save_and_leave_when_one_is_asked_to() {
    for asked in [Some(0), Some(1), None] {
        let name = asked.map_or("mpirun".into(), |rank| format!("rank {rank}"));
        repeat(&format!("SIGUSR1 on {name}"), |place| {
            let mut run = Running::start(place, 2, ENDLESS);
            run.wait_for("iter 2/");
            match asked {
                Some(rank) => run.signal(rank, Signal::USR1),
                None => run.signal_mpirun(Signal::USR1),
            }
            let ended = run.end_within(LIMIT);
            assert_eq!(ended.codes, [(0, INTERRUPTED), (1, INTERRUPTED)].into(), "{}", ended.said);
            assert_eq!(ended.code, INTERRUPTED, "{}", ended.said);
            let told = ["SIGUSR1: stopping", "another rank was asked to stop: all stop after step"];
            let told = told.map(|words| ended.said.matches(words).count());
            assert_eq!(told, if asked == Some(1) { [0, 1] } else { [1, 0] }, "{}", ended.said);
            assert_eq!(ended.said.matches("interrupted; go on with").count(), 1, "{}", ended.said);
            let saved = place.names("runs/quickstart/checkpoints");
            assert!(saved.iter().all(|name| name.starts_with("step_")), "{saved:?}");
            ended
        });
    }
}

/// A run whose rank died goes on from its last checkpoint with another number of ranks, and ends
/// as one that nothing befell.
#[test]
fn a_run_that_lost_a_rank_goes_on_with_another_number_of_ranks() {
    let place = Place::new();
    let run = |ranks: usize, more: &str| {
        let steps = "--set train.steps=8 --set train.checkpoint_every_steps=3";
        let all = format!("{} {steps} {more}", ENDLESS.replace(" --set train.steps=2000", ""));
        Running::start(&place, ranks, &all)
    };
    let whole = run(1, "--set train.name=whole").end();
    assert_eq!(whole.code, 0, "{}", whole.said);
    for (name, ranks) in [("more", 4), ("fewer", 1)] {
        let mut broken = run(2, &format!("--set train.name={name}"));
        broken.wait_for("iter 5/");
        broken.signal(1, Signal::KILL);
        assert_names(&broken.end_within(LIMIT), 1, "its connection closed");
        let resumed = run(ranks, &format!("--set train.name={name} --resume auto")).end();
        assert_eq!(resumed.code, 0, "{}", resumed.said);
        assert!(resumed.said.contains("resuming after step 3 from"), "{}", resumed.said);
        assert!(place.state("runs/whole", 8) == place.state(&format!("runs/{name}"), 8));
    }
}

/// Non-finite losses are reported once, with a step that runs again.
#[test]
fn non_finite_losses_are_told_by_one_rank() {
    repeat("non-finite losses", |place| {
        let wild = ENDLESS.replace("warmup_steps=5", "warmup_steps=0");
        let ended = Running::start(place, 2, &format!("{wild} --set solver.learning_rate=1e6"));
        let ended = ended.end();
        assert_eq!(ended.codes, [(0, DIVERGED), (1, DIVERGED)].into(), "{}", ended.said);
        let errors = ended.errors();
        let [error] = errors[..] else { panic!("one line\n{}", ended.said) };
        assert!(error.starts_with("rank 0: error: step "), "{error}");
        let (_, file) = error.split_once("onegraph replay ").expect("a file to replay");
        let (file, _) = file.split_once(')').expect("its end");
        assert!(place.good(&format!("replay {file}")).contains("images"), "{error}");
        ended
    });
}
