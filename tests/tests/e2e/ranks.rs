//! Runs of several processes on CPUs, started by a real mpirun.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::mpirun::{Running, mpirun};
use crate::common::{BAD_CONFIG, BAD_DATA, Place, Said, said};

/// Quickstart's model and schedule on few images, with a partial last batch in each epoch.
const QUICKSTART: &str = "train quickstart --set train.images_per_group=2 --set train.steps=12 \
                          --set data.synthetic.train_images=20 --set data.synthetic.val_images=9 \
                          --set solver.warmup_steps=5 --set eval.batch_size=2 \
                          --set train.eval_every_steps=6 --set eval.draw_images=1 --device cpu \
                          --set eval.loss=true";

/// [`QUICKSTART`] of `steps` steps, without a warm-up, which would not end.
fn quickstart_of(steps: usize) -> String {
    let cut = QUICKSTART.replace("train.steps=12", &format!("train.steps={steps}"));
    cut.replace("warmup_steps=5", "warmup_steps=0")
}

/// `mpirun -np RANKS onegraph ARGUMENTS` in the folder.
fn mpirun_of(place: &Place, ranks: usize, arguments: &str) -> Command {
    let of_one = place.command(arguments);
    let mut command = mpirun();
    command.args(["-np", &ranks.to_string()]);
    command.arg(of_one.get_program()).args(of_one.get_args()).current_dir(place.path());
    command
}

fn run(place: &Place, ranks: usize, arguments: &str) -> Said {
    match ranks {
        1 => place.run(arguments),
        _ => said(&mut mpirun_of(place, ranks, arguments)),
    }
}

/// One, two and four ranks read the same images and end with the same weights, so with the same
/// scores, and leave one run's files each.
#[test]
fn one_two_and_four_processes_end_with_the_same_weights() {
    let place = Place::new();
    let summaries: Vec<String> = [1, 2, 4]
        .map(|ranks| {
            let name = format!("r{ranks}");
            let set = format!("{QUICKSTART} --set train.run_dir=runs --set train.name={name}");
            let said = run(&place, ranks, &set);
            assert_eq!(said.code, 0, "{ranks} ranks\n{}", said.err);
            assert_eq!(place.metrics("runs/r1"), place.metrics(&format!("runs/{name}")));
            let summary = said.out.lines().filter(|line| line.contains("Average"));
            summary.collect::<Vec<_>>().join("\n")
        })
        .into();
    assert_eq!(place.names("runs"), ["data", "r1", "r2", "r4"], "one directory a run");
    let names = |run: &str| {
        let mut names = place.names(&format!("runs/{run}"));
        // Named after its time and process.
        names.retain(|name| !name.starts_with("events."));
        names
    };
    assert_eq!(summaries[0].lines().count(), 24, "boxes and masks\n{}", summaries[0]);
    for (name, summary) in ["r2", "r4"].iter().zip(&summaries[1..]) {
        assert_eq!(*summary, summaries[0]);
        assert!(place.state("runs/r1", 12) == place.state(&format!("runs/{name}"), 12));
        assert_eq!(names("r1"), names(name));
    }
    evaluated_by_ranks_as_by_one(&place);
}

/// Ranks that share the images of `onegraph eval` print and write what one process does.
fn evaluated_by_ranks_as_by_one(place: &Place) {
    let eval = "eval --run runs/r1 --device cpu";
    let of = |ranks: usize, more: &str| {
        let said = run(place, ranks, &format!("{eval} --out {more}"));
        assert_eq!(said.code, 0, "{ranks} ranks\n{}", said.err);
        said.out
    };
    let file = |out: &str, name: &str| place.bytes(&format!("{out}/{name}.json"));
    let one = of(1, "one");
    assert!(file("one", "bbox").len() > 1000 && file("one", "segm") != file("one", "bbox"));
    for (ranks, more) in [(2, "two"), (4, "four")] {
        assert_eq!(of(ranks, more), one, "in every digit");
        for name in ["bbox", "segm"] {
            assert!(file(more, name) == file("one", name), "{name} of {ranks}");
        }
    }
    let part = |arguments| Part { before: &[], folder: place.path(), arguments };
    let other = format!("{eval} --set model.detections.per_image=3");
    let said = said(parts(place, [part(eval), part(&other)]).current_dir(place.path()));
    assert_eq!(said.code, BAD_CONFIG, "{}", said.err);
    assert!(only_error(&said).contains("differs from rank 0 in model.detections.per_image"));
}

/// The figures of a bench are those of all ranks, printed and written by one; an option that makes
/// no sense over ranks is refused in one line.
#[test]
fn a_step_of_two_ranks_is_measured_together() {
    let place = Place::new();
    let bench = |arguments: &str| {
        let mut command = mpirun();
        command.args(["-np", "2", env!("CARGO_BIN_EXE_bench-under-test")]);
        said(command.args(arguments.split_whitespace()).current_dir(place.path()))
    };
    let step = "--preset micro --set train.images_per_group=1 --steps 4 --warmup 1 --device cpu";
    let told = bench(&format!("{step} --efficiency --json two.json"));
    assert_eq!(told.code, 0, "{}", told.err);
    for (words, times) in
        [("of 4 steps", 1), ("rank 0 on ", 1), ("rank 1 on ", 1), ("efficiency ", 1)]
    {
        assert_eq!(told.out.matches(words).count(), times, "{words}\n{}", told.out);
    }
    let figures = place.json("two.json");
    let number = |at: &str| figures.pointer(at).and_then(|value| value.as_f64()).expect(at);
    assert_eq!((number("/ranks/count"), number("/ranks/hosts"), number("/steps")), (2.0, 1.0, 4.0));
    assert_eq!(figures["all_reduce"], "mpi over 2 ranks");
    let slowest = format!("/ranks/each/{}/step_ms", figures["ranks"]["slowest"]);
    assert_eq!(figures.pointer(&slowest), Some(&figures["step_ms"]));
    let total = number("/images_per_second");
    let all = [0, 1].map(|rank| number(&format!("/ranks/each/{rank}/images_per_second")));
    assert!(total > 0.0 && total <= all[0] + all[1] + 1e-9, "{total} of {all:?}");
    let efficiency = total / (2.0 * number("/ranks/one_rank_images_per_second"));
    assert!((number("/ranks/efficiency") - efficiency).abs() < 1e-9, "{figures}");
    for (wrong, words) in [
        (format!("{step} --all-reduce"), "sum their gradients in any case"),
        (format!("{step} --seconds 3"), "give --steps, and leave out --seconds"),
        (step.replace("group=1", "group=2"), "2 ranks cannot share a batch of 2 images"),
        ("data --preset micro".into(), "`bench data` is the work of one"),
    ] {
        let said = bench(&wrong);
        assert_eq!(said.code, BAD_CONFIG, "{wrong}: {}", said.err);
        assert!(only_error(&said).contains(words), "{wrong}: {}", said.err);
    }
}

/// Only the first rank scores; when its verdict ends the run, the others stop after the same step,
/// and the run is that of one process and of one that waits for its scores.
#[test]
fn a_late_verdict_ends_all_ranks_after_the_same_step() {
    let place = Place::new();
    let target = "--set train.eval_every_steps=4 --set train.target_box=0";
    for (ranks, name, overlap) in [(1, "one", true), (2, "two", true), (2, "waits", false)] {
        let set = format!(
            "{QUICKSTART} {target} --set train.run_dir=runs --set train.name={name} \
             --set eval.overlap={overlap}"
        );
        let said = run(&place, ranks, &set);
        assert_eq!(said.code, 0, "{name}\n{}", said.err);
        assert_eq!(said.err.contains("while it was scored are dropped"), overlap, "{}", said.err);
        assert!(!said.err.contains("was asked to stop"), "{}", said.err);
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

/// A timed run of two ranks has one log, as one process writes it.
#[test]
fn two_ranks_write_the_log_of_a_timed_run() {
    let place = Place::new();
    let run_in = |ranks: usize, out: &str| {
        let set = format!(
            "mlperf run micro --out {out} --system box --org ours --seed 3 --keep-caches \
             --device cpu --set train.target_box=0 --set train.target_mask=0 \
             --set train.eval_every_epochs=1 --set train.images_per_group=1 --set train.steps=8"
        );
        let said = run(&place, ranks, &set);
        assert_eq!(said.code, 0, "{}", said.err);
        assert_eq!(said.out.matches("success").count(), 1, "one rank tells\n{}", said.out);
        let log = place.text(&format!("{out}/results/box/maskrcnn/result_0.txt"));
        let keys = log.lines().filter_map(|line| line.split("\"key\": ").nth(1));
        keys.map(|key| key.split(',').next().unwrap_or_default().to_string()).collect::<Vec<_>>()
    };
    let (one, two) = (run_in(1, "one"), run_in(2, "two"));
    assert!(one.len() > 25 && one == two, "{one:?}\n{two:?}");
    let state = |out: &str| {
        let last = place.text(&format!("{out}/runs/result_0/last_checkpoint"));
        place.bytes(&format!("{out}/runs/result_0/{}/state.safetensors", last.trim()))
    };
    assert!(state("one") == state("two"));
}

/// The command of one rank of two.
struct Part<'a> {
    /// Before the command: a shell and what it does first.
    before: &'a [&'a str],
    folder: &'a Path,
    arguments: &'a str,
}

/// Two ranks that differ.
fn parts(place: &Place, parts: [Part<'_>; 2]) -> Command {
    let mut command = mpirun();
    for (rank, part) in parts.iter().enumerate() {
        let of_one = place.command(part.arguments);
        command.args(if rank == 0 { &[][..] } else { &[":"] }).args(["-np", "1", "-wdir"]);
        command.arg(part.folder).args(part.before).arg(of_one.get_program());
        command.args(of_one.get_args());
    }
    command
}

/// Two ranks of which the second has further arguments.
fn unequal(place: &Place, more: &str) -> Said {
    let all = format!("{QUICKSTART} {more}");
    let part = |arguments| Part { before: &[], folder: place.path(), arguments };
    said(parts(place, [part(QUICKSTART), part(&all)]).current_dir(place.path()))
}

fn only_error(said: &Said) -> &str {
    let errors: Vec<&str> = said.err.lines().filter(|line| line.contains("error: ")).collect();
    let [error] = errors[..] else { panic!("one line\n{}", said.err) };
    error
}

/// A reason why no rank can train is reported once, before any data is drawn.
#[test]
fn ranks_that_cannot_train_together_are_refused_in_one_line() {
    let place = Place::new();
    let differences = [
        ("solver.learning_rate=0.001", "differs from rank 0 in solver.learning_rate: `0.001` and "),
        ("train.seed=7", "differs from rank 0 in train.seed: `7` and `0`"),
        ("train.name=other", "differs from rank 0 in train.name: `\"other\"` and none"),
    ];
    for (set, words) in differences {
        let said = unequal(&place, &format!("--set {set}"));
        assert_eq!(said.code, BAD_CONFIG, "{}", said.err);
        let error = only_error(&said);
        assert!(error.starts_with("rank 0: error: rank 1 on host "), "{error}");
        assert!(error.contains(words), "{error}");
    }
    let said = run(&place, 3, QUICKSTART);
    assert_eq!(said.code, BAD_CONFIG, "{}", said.err);
    let error = only_error(&said);
    assert!(error.contains("3 ranks cannot share a batch of 8 images"), "{error}");
    assert!(error.contains("start 1, 2, 4 ranks"), "{error}");
    assert!(!place.join("runs/data").exists(), "nothing was drawn");
}

/// A command that ranks may not share is refused in a line of rank 0, which comes last.
#[test]
fn a_refusal_is_told_by_a_first_rank_that_comes_late() {
    let place = Place::new();
    let part =
        |before| Part { before, folder: place.path(), arguments: "predict --run a --out b c" };
    let late = ["sh", "-c", "sleep 2; exec \"$0\" \"$@\""];
    let said = said(parts(&place, [part(&late), part(&[])]).current_dir(place.path()));
    assert_eq!(said.code, BAD_CONFIG, "{}", said.err);
    let error = only_error(&said);
    assert!(
        error.starts_with("rank 0: error: ") && error.contains("is the work of one"),
        "{error}"
    );
}

/// Rank 1 reads from a disk of its own, which loses the store while it is in use.
#[test]
fn a_rank_whose_store_is_cut_ends_all() {
    let place = Place::new();
    place.good(&quickstart_of(1));
    let train = format!("{} --set train.log_every_steps=1", quickstart_of(2000));
    let other = place.join("other");
    let own = |arguments: &str| {
        let part = |folder| Part { before: &[], folder, arguments };
        Running::start_by(&place, parts(&place, [part(place.path()), part(&other)]))
    };
    let of_store = |cut: &dyn Fn(&Path)| {
        let store = other.join("runs/data/shapes/train-20x128-seed0/store");
        fs::read_dir(store).expect("a store").for_each(|file| cut(&file.expect("a file").path()));
    };
    let empty = |path: &Path| {
        fs::OpenOptions::new().write(true).truncate(true).open(path).expect("it is cut");
    };
    fs::create_dir(&other).expect("a folder");
    let mut copy = Command::new("cp");
    let copied = copy.args(["-r", "runs", "other"]).current_dir(place.path()).status();
    assert!(copied.is_ok_and(|status| status.success()));
    let mut run = own(&train);
    run.wait_for("iter 1/");
    of_store(&empty);
    let ended = run.end_within(Duration::from_secs(10));
    assert_eq!(ended.code, BAD_DATA, "{}", ended.said);
    assert!(ended.said.contains("rank 0: error: rank 1 on host "), "{}", ended.said);
    assert!(ended.said.contains("error: a file of a store was cut or lost"), "{}", ended.said);
}

/// On a full disk the run goes on to its scores; then rank 0 ends with its fault, and the others
/// quote it.
#[test]
fn a_full_disk_of_rank_0_is_told_by_all() {
    let place = Place::new();
    let train = format!("{QUICKSTART} --set eval.draw_images=0");
    place.good(&quickstart_of(1));
    fs::create_dir(place.join("disk")).expect("a folder");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    command.arg("mount -t tmpfs -o size=100k none disk || exit 99; exec \"$0\" \"$@\"");
    let all = mpirun_of(&place, 2, &format!("{train} --set train.run_dir=disk"));
    command.arg(all.get_program()).args(all.get_args()).current_dir(place.path());
    let said = said(&mut command);
    if said.code == 99 || said.err.contains("unshare:") {
        println!("SKIPPED: `unshare` mounts nothing here");
        return;
    }
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.out.contains("Average Precision"), "{}", said.err);
    let nothing = "nothing is saved after step 12; last checkpoint: none";
    let of = |rank: &str| said.err.lines().any(|l| l.starts_with(rank) && l.contains(nothing));
    assert!(of("rank 0: error: disk/"), "{}", said.err);
    assert!(of("rank 1: error: rank 0 on host "), "{}", said.err);
}

/// A connection to rank 0, which may have said that it waits just before it listens.
fn connected(port: u16) -> TcpStream {
    for _ in 0..100 {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            return stream;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("rank 0 does not listen");
}

/// Rank 0 turns strangers away while it waits, names the rank that does not come, and starts with
/// one that comes late.
#[test]
fn strangers_are_refused_and_a_rank_that_never_comes_is_named() {
    let place = Place::new();
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let train = quickstart_of(1);
    let start = |before: &[&str], more: &str| {
        let arguments = format!("{train} {more}");
        let part = |before| Part { before, folder: place.path(), arguments: &arguments };
        let mut command = parts(&place, [part(&[]), part(before)]);
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        Running::start_by(&place, command)
    };
    let late = "while [ ! -e come ]; do sleep 0.1; done; exec \"$0\" \"$@\"";
    let mut run = start(&["sh", "-c", late], "");
    run.wait_for("waiting for the others");
    for garbage in [&b""[..], b"GET / HTTP/1.0\r\n\r\n", &[255; 5000]] {
        let mut stranger = connected(port);
        // Refused before all of it is written, or after.
        let _ = stranger.write_all(garbage).and_then(|()| stranger.shutdown(Shutdown::Write));
        let _ = stranger.read_to_end(&mut Vec::new());
        run.wait_for("refused a connection from 127.0.0.1:");
    }
    place.write("come", "");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.said);

    let never = ["sh", "-c", "sleep 100"];
    let ended = start(&never, "--set ranks.join_timeout_seconds=2").end();
    assert_eq!(ended.code, BAD_CONFIG, "{}", ended.said);
    let words = "rank 0: error: rank 1 of 2 did not come within 2 s; ";
    assert!(ended.said.contains(words), "{}", ended.said);
}

/// `--ranks N` becomes mpirun; runs at the same time do not meet.
#[test]
fn ranks_2_starts_two_processes_beside_another_run() {
    let place = Place::new();
    let train = quickstart_of(2);
    let mut command = place.command(&format!("{train} --set train.name=own --ranks 2"));
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
        command.env(name, "1");
    }
    let other = Running::start(&place, 2, &format!("{train} --set train.name=other"));
    let own = said(&mut command);
    let other = other.end();
    assert_eq!((own.code, other.code), (0, 0), "{}{}", own.err, other.said);
    assert!(own.err.contains("2 ranks on 1 host"), "{}", own.err);
    assert!(place.state("runs/own", 2) == place.state("runs/other", 2));
}
