//! Two processes that create the same data concurrently.

use std::process::{Child, Command, Stdio};

use crate::common::Place;
use dali::Store;

/// Pairs of concurrent processes; more with `ONEGRAPH_RACES`.
const RACES: usize = 3;

/// The command in a separate process-id namespace, where it is process 1 as in a container; `None`
/// if the system does not allow this.
fn in_a_namespace(place: &Place, arguments: &str) -> Option<Command> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
        command
    };
    let works = unshare().arg("true").output().is_ok_and(|output| output.status.success());
    if !works {
        println!("SKIPPED: `unshare` makes no namespaces here");
        return None;
    }
    let inner = place.command(arguments);
    let mut command = unshare();
    command.arg(inner.get_program()).args(inner.get_args());
    command.current_dir(place.path()).stdin(Stdio::null());
    Some(command)
}

fn start(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts")
}

/// Both succeed.
fn join(children: [Child; 2]) {
    for child in children {
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}\n{text}", output.status);
    }
}

/// The names in the folder that are not in `known`.
fn others(place: &Place, known: &[&str]) -> Vec<String> {
    place.names(".").into_iter().filter(|name| !known.contains(&name.as_str())).collect()
}

#[test]
fn two_processes_can_prepare_one_data_set() {
    let races = std::env::var("ONEGRAPH_RACES").ok().and_then(|text| text.parse().ok());
    let races = races.unwrap_or(RACES);
    for race in 0..races {
        let place = Place::new();
        let drawing = "prep --synthetic shapes --count 300 --size 48 --out drawn";
        let Some(first) = in_a_namespace(&place, drawing) else { return };
        let Some(second) = in_a_namespace(&place, drawing) else { return };
        join([start(first), start(second)]);
        let store = Store::open(&place.join("drawn/store")).expect("a whole store");
        store.verify_all().expect("whole pixels");
        assert_eq!(store.len(), 300);

        let files = "prep --images drawn/images --annotations drawn/annotations.json --out made";
        let Some(first) = in_a_namespace(&place, files) else { return };
        let Some(second) = in_a_namespace(&place, files) else { return };
        join([start(first), start(second)]);
        let store = Store::open(&place.join("made")).expect("a whole store");
        store.verify_all().expect("whole pixels");
        assert_eq!(others(&place, &["drawn", "made"]), [""; 0], "race {race}");
    }
    println!("{races} races");
}

#[test]
fn two_runs_share_generated_data() {
    let place = Place::new();
    let run = |name: &str| {
        let run = format!("--set train.steps=1 --set train.run_dir={name}");
        in_a_namespace(&place, &format!("train micro --set eval.draw_images=0 {run}"))
    };
    let (Some(first), Some(second)) = (run("a"), run("b")) else { return };
    join([start(first), start(second)]);
    let steps = [place.steps("a/micro"), place.steps("b/micro")];
    assert_eq!((steps[0].len(), &steps[0]), (1, &steps[1]));
}
