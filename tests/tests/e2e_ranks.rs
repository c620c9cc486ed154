//! Runs of several processes on CPUs, started by a real mpirun.

#![cfg(feature = "mpi")]

mod common;

use std::process::Command;

use common::{Place, Said, said};

/// Quickstart's model and schedule on few images, with a partial last batch in each epoch.
const QUICKSTART: &str = "train quickstart --set train.images_per_group=2 --set train.steps=12 \
                          --set data.synthetic.train_images=20 --set data.synthetic.val_images=9 \
                          --set solver.warmup_steps=5 --set eval.batch_size=2 \
                          --set train.eval_every_steps=6 --set eval.draw_images=1 --device cpu";

/// `mpirun -np RANKS onegraph ARGUMENTS` in the folder.
fn mpirun(place: &Place, ranks: usize, arguments: &str) -> Command {
    let of_one = place.command(arguments);
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-np", &ranks.to_string()]);
    command.arg(of_one.get_program()).args(of_one.get_args()).current_dir(place.path());
    command
}

fn run(place: &Place, ranks: usize, arguments: &str) -> Said {
    match ranks {
        1 => place.run(arguments),
        _ => said(&mut mpirun(place, ranks, arguments)),
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
    assert_eq!(summaries[0].lines().count(), 24, "boxes and masks\n{}", summaries[0]);
    for (name, summary) in ["r2", "r4"].iter().zip(&summaries[1..]) {
        assert_eq!(*summary, summaries[0]);
        assert!(place.state("runs/r1", 12) == place.state(&format!("runs/{name}"), 12));
        assert_eq!(place.names("runs/r1"), place.names(&format!("runs/{name}")));
    }
}
