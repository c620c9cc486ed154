//! Runs with several processes on CPUs.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::ranks::{Ended, Running, mpirun, under_mpirun};
use crate::common::{BAD_CONFIG, GPUS, Place, assert_has, is_missing, said};

/// The model and schedule of quickstart on few images, with a partial last batch in each epoch.
const QUICKSTART: &str = "train quickstart --set train.images_per_group=2 --set train.steps=12 \
                          --set data.synthetic.train_images=20 --set data.synthetic.val_images=9 \
                          --set solver.warmup_steps=5 --set eval.batch_size=2 \
                          --set train.eval_every_steps=6 --set eval.draw_images=1 --device cpu \
                          --set eval.loss=true --set train.run_dir=runs";

/// Runs the command with this many ranks, all of which must succeed.
fn run(place: &Place, ranks: usize, arguments: &str) -> Ended {
    good(Running::start(place, ranks, arguments))
}

fn good(run: Running<'_>) -> Ended {
    let ended = run.end();
    assert!(ended.codes.iter().all(|code| *code == 0), "{:?}\n{}", ended.codes, ended.said);
    ended
}

/// Regardless of the number of processes and the launcher, runs read the same images, end with the
/// same weights and therefore the same scores, and write the same files as a single process.
#[test]
fn one_two_and_four_ranks_give_identical_weights() {
    let place = Place::new();
    let train = |name: &str| format!("{QUICKSTART} --set train.name={name}");
    let one = run(&place, 1, &train("one"));
    let beside = Place::new();
    // Concurrent runs do not interfere.
    let other = Running::by(&beside, beside.command(&format!("{} --ranks 2", train("two"))));
    let by_itself = Running::by(&place, place.command(&format!("{} --ranks 2", train("two"))));
    let mut runs = vec![("two", good(by_itself)), ("four", run(&place, 4, &train("four")))];
    good(other);
    if !is_missing("mpirun") {
        let by_mpirun = under_mpirun(&place, 2, &train("mpirun"));
        runs.push(("mpirun", good(Running::by(&place, by_mpirun))));
    }
    let files = |run: &str| {
        let mut names = place.names(&format!("runs/{run}"));
        // The names of event files contain time and process id.
        names.retain(|name| !name.starts_with("events."));
        names
    };
    let scores = |ended: &Ended| {
        let summary = ended.out.lines().filter(|line| line.contains("Average"));
        summary.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(scores(&one).lines().count(), 24, "boxes and masks\n{}", one.out);
    assert!(runs[0].1.said.contains("2 ranks on 1 host"), "{}", runs[0].1.said);
    for (name, ended) in &runs {
        assert_eq!(scores(ended), scores(&one), "{name}");
        assert_eq!(place.metrics(&format!("runs/{name}")), place.metrics("runs/one"), "{name}");
        assert!(place.state(&format!("runs/{name}"), 12) == place.state("runs/one", 12), "{name}");
        assert_eq!(files(name), files("one"));
    }
    assert_eq!(place.names("runs").len(), 2 + runs.len(), "data, and one directory a run");
    evaluated_by_ranks_as_by_one(&place);
}

/// `onegraph eval` with several ranks, which share the images, prints and writes the same as one
/// process.
fn evaluated_by_ranks_as_by_one(place: &Place) {
    let eval = "eval --run runs/one --device cpu";
    let file = |out: &str, name: &str| place.bytes(&format!("{out}/{name}.json"));
    let of = |ranks: usize, more: &str| run(place, ranks, &format!("{eval} --out {more}")).out;
    let one = of(1, "one");
    assert!(file("one", "bbox").len() > 1000 && file("one", "segm") != file("one", "bbox"));
    for (ranks, more) in [(2, "two"), (4, "four")] {
        assert_eq!(of(ranks, more), one, "in every digit");
        for name in ["bbox", "segm"] {
            assert!(file(more, name) == file("one", name), "{name} of {ranks}");
        }
    }
    let other = format!("{eval} --set model.detections.per_image=3");
    let ended = Running::of(place, vec![place.command(eval), place.command(&other)]).end();
    let error = ended.only_error(BAD_CONFIG);
    assert_has(error, &["differs from rank 0 in model.detections.per_image"]);
}

/// `bench` measures all ranks, and one rank prints and writes the figures; an option that is
/// invalid with several ranks is rejected with a one-line message.
#[test]
fn bench_measures_all_ranks_of_a_step() {
    let place = Place::new();
    let bench =
        |arguments: &str| Running::of(&place, vec![place.bench(arguments), place.bench(arguments)]);
    let step = "--preset micro --set train.images_per_group=1 --steps 4 --warmup 1 --device cpu";
    let told = good(bench(&format!("{step} --efficiency --json two.json"))).out;
    for (words, times) in
        [("of 4 steps", 1), ("rank 0 on ", 1), ("rank 1 on ", 1), ("efficiency ", 1)]
    {
        assert_eq!(told.matches(words).count(), times, "{words}\n{told}");
    }
    let figures = place.json("two.json");
    let number = |at: &str| figures.pointer(at).and_then(|value| value.as_f64()).expect(at);
    assert_eq!((number("/ranks/count"), number("/ranks/hosts"), number("/steps")), (2.0, 1.0, 4.0));
    assert_eq!(figures["all_reduce"], "sockets over 2 ranks");
    let slowest = format!("/ranks/each/{}/step_ms", figures["ranks"]["slowest"]);
    assert_eq!(figures.pointer(&slowest), Some(&figures["step_ms"]));
    let total = number("/images_per_second");
    let all = [0, 1].map(|rank| number(&format!("/ranks/each/{rank}/images_per_second")));
    assert!(total > 0.0 && total <= all[0] + all[1] + 1e-9, "{total} of {all:?}");
    let efficiency = total / (2.0 * number("/ranks/one_rank_images_per_second"));
    assert!((number("/ranks/efficiency") - efficiency).abs() < 1e-9, "{figures}");
    for (wrong, words) in [
        (format!("{step} --all-reduce"), "always all-reduce their gradients"),
        (format!("{step} --seconds 3"), "give --steps and leave out --seconds"),
        (step.replace("group=1", "group=2"), "2 ranks cannot share a batch of 2 images"),
        ("data --preset micro".into(), "`bench data` must run as a single process"),
    ] {
        let ended = bench(&wrong).end();
        assert!(ended.only_error(BAD_CONFIG).contains(words), "{wrong}: {}", ended.said);
    }
}

/// Only rank 0 computes scores. When they end the run, all ranks stop after the same step, and the
/// result equals that of a single process and of a run that waits for its scores.
#[test]
fn late_evaluation_result_stops_all_ranks_after_same_step() {
    let place = Place::new();
    let target = "--set train.eval_every_steps=4 --set train.target_box=0";
    for (ranks, name, overlap) in [(1, "one", true), (2, "two", true), (2, "waits", false)] {
        let set = format!("{target} --set train.name={name} --set eval.overlap={overlap}");
        let said = run(&place, ranks, &format!("{QUICKSTART} {set}")).said;
        assert_eq!(said.contains("during scoring are discarded"), overlap, "{said}");
        assert!(!said.contains("was asked to stop"), "{said}");
        let run = format!("runs/{name}");
        assert_eq!(place.metrics("runs/one"), place.metrics(&run));
        let saved = place.names(&format!("{run}/checkpoints"));
        assert_eq!(saved, ["step_00000003", "step_00000004"], "an epoch, and the last step");
        assert!(place.state("runs/one", 4) == place.state(&run, 4), "{name}");
        assert_eq!(place.json(&format!("{run}/report.json"))["state"], "target_reached");
        let pictures = |run: &str| place.bytes(&format!("{run}/predictions.png"));
        assert!(pictures("runs/one") == pictures(&run), "drawn with the weights of step 4");
    }
}

/// A reason why no rank can train is reported once, before data is generated.
#[test]
fn incompatible_ranks_print_one_line_error() {
    let place = Place::new();
    for (set, words) in [
        ("solver.learning_rate=0.001", "differs from rank 0 in solver.learning_rate: `0.001` and "),
        ("train.seed=7", "differs from rank 0 in train.seed: `7` and `0`"),
        ("train.name=other", "differs from rank 0 in train.name: `\"other\"` and none"),
    ] {
        let other = place.command(&format!("{QUICKSTART} --set {set}"));
        let ended = Running::of(&place, vec![place.command(QUICKSTART), other]).end();
        let error = ended.only_error(BAD_CONFIG);
        assert!(error.starts_with("rank 0: error: rank 1 on host "), "{error}");
        assert_has(error, &[words]);
    }
    let ended = Running::start(&place, 3, QUICKSTART).end();
    let error = ended.only_error(BAD_CONFIG);
    assert_has(error, &["3 ranks cannot share a batch of 8 images", "start 1, 2, 4 ranks"]);
    assert!(!place.join("runs/data").exists(), "nothing was drawn");
}

/// A command that starts with a delay.
fn late(place: &Place, arguments: &str) -> Command {
    let (of_one, mut late) = (place.command(arguments), Command::new("sh"));
    late.args(["-c", "sleep 2; exec \"$0\" \"$@\""]).arg(of_one.get_program());
    late.args(of_one.get_args()).current_dir(place.path()).env(GPUS, "");
    late
}

/// A command that does not support ranks is rejected in one line by rank 0, even if rank 0 starts
/// last.
#[test]
fn late_rank0_reports_rejection() {
    let place = Place::new();
    let predict = "predict --run a --out b c";
    let mut both = mpirun(1);
    for (of_one, more) in
        [(late(&place, predict), &[":", "-np", "1"][..]), (place.command(predict), &[])]
    {
        both.arg(of_one.get_program()).args(of_one.get_args()).args(more);
    }
    let mut ended =
        vec![Running::of(&place, vec![late(&place, predict), place.command(predict)]).end()];
    if !is_missing("mpirun") {
        ended.push(Running::by(&place, both).end());
    }
    for ended in ended {
        let error = ended.only_error(BAD_CONFIG);
        let is_of_first = error.starts_with("rank 0: error: ");
        assert!(is_of_first, "{error}");
        assert_has(
            error,
            &["`onegraph predict` must run as a single process: start it without a launcher"],
        );
    }
}

/// Rank 0 waits for a rank that starts late, and reports a rank that never joins or has the token
/// of a different run.
#[test]
fn late_rank_is_awaited_and_missing_rank_reported() {
    let place = Place::new();
    let train =
        QUICKSTART.replace("steps=12", "steps=1").replace("warmup_steps=5", "warmup_steps=0");
    good(Running::of(&place, vec![place.command(&train), late(&place, &train)]));

    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let port = port.port().to_string();
    let train = format!("{train} --set ranks.join_timeout_seconds=2");
    let meets = |token: &str| {
        let mut command = place.command(&train);
        command.envs([("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port)]);
        command.env("ONEGRAPH_TOKEN", token);
        command
    };
    let mut never = Command::new("sh");
    never.args(["-c", "exit 3"]).current_dir(Path::new("/"));
    for (other, refused) in [(never, false), (meets("the token of another run"), true)] {
        let ended = Running::of(&place, vec![meets("the token of this run"), other]);
        let ended = ended.end_within(Duration::from_secs(20));
        assert_eq!(ended.codes, [BAD_CONFIG; 2], "{}", ended.said);
        let words = "rank 0: error: rank 1 of 2 did not join within 2 s; ";
        assert_has(&ended.said, &[words]);
        let line = "rejected a connection from 127.0.0.1:";
        assert_eq!(ended.said.contains(line), refused, "{}", ended.said);
    }
    let alone = said(&mut place.command(&format!("{QUICKSTART} --ranks 2 --device cuda")));
    assert_ne!(alone.code, 0);
    assert_eq!(alone.err.matches("error: ").count(), 1, "{}", alone.err);
}
