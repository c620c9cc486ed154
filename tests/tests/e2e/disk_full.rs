//! The disk becomes full while a run logs, saves, evaluates and reports.

use std::process::{Command, Stdio};

use crate::common::{self, Place, Said, assert_has, said};

/// `micro` with a checkpoint every two steps and an evaluation every four.
const TRAIN: &str = "train micro --set train.steps=8 --set train.checkpoint_every_steps=2 \
                     --set train.eval_every_steps=4 --set eval.draw_images=0 \
                     --set train.run_dir=disk";

/// Runs a shell script in a place with a file system of `kib` KiB at `disk`, which is copied to
/// `left` at the end; in the script, `$ONEGRAPH` is the command. `None` if the system does not
/// allow this.
fn with_disk(place: &Place, kib: usize, script: &str) -> Option<Said> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        command.current_dir(place.path()).stdin(Stdio::null());
        command
    };
    std::fs::create_dir_all(place.join("disk")).expect("a folder");
    let mount = format!("mount -t tmpfs -o size={kib}k none disk");
    if !unshare().arg(&mount).output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: `unshare` mounts nothing here");
        return None;
    }
    let mut command = unshare();
    command.arg(format!("{mount}\n{script}\ncode=$?\ncp -r disk left\nexit $code"));
    command.env("ONEGRAPH", place.command("").get_program());
    Some(said(&mut command))
}

/// Generates the data outside of the small disk.
fn draw_data(place: &Place) {
    place.good(&TRAIN.replace("run_dir=disk", "run_dir=elsewhere").replace("steps=8", "steps=1"));
}

/// Checks that every line of `metrics.jsonl` and every record of the event files is complete.
fn assert_whole_records(place: &Place, run: &str) {
    assert!(place.text(&format!("{run}/metrics.jsonl")).ends_with('\n'));
    place.metrics(run);
    assert!(place.text(&format!("{run}/log.txt")).ends_with('\n'));
    let names = place.names(run).into_iter();
    for name in names.filter(|name| name.starts_with("events.")) {
        let bytes = place.bytes(&format!("{run}/{name}"));
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().expect("8 bytes"));
            // An event is preceded by its length and the length's checksum, and followed by its own
            // checksum.
            rest = &rest[12 + length as usize + 4..];
        }
    }
}

#[test]
fn full_disk_skips_checkpoint_and_run_finishes() {
    let place = Place::new();
    draw_data(&place);
    let Some(said) = with_disk(&place, 100, &format!("$ONEGRAPH {TRAIN}")) else { return };
    assert_eq!(said.code, 1, "{}", said.err);
    let full = "No space left on device";
    let of = |step: u64| format!("no checkpoint after step {step}: disk/micro/checkpoints");
    for step in [2, 4, 6] {
        assert!(said.err.contains(&of(step)), "{}", said.err);
    }
    assert!(said.err.contains("iter 8/8") && said.out.contains("Average Precision"));
    assert_eq!(said.err.matches("the log has gaps").count(), 1, "{}", said.err);
    let last = said.err.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: disk/micro/checkpoints") && last.contains(full), "{last}");
    let nothing = "the state after step 8 could not be saved; last checkpoint: none";
    assert_has(last, &[nothing]);
    assert_eq!(place.names("left/micro/checkpoints"), [""; 0], "nothing half-written");
    assert_whole_records(&place, "left/micro");
}

#[test]
fn next_checkpoint_is_saved_after_disk_space_returns() {
    let place = Place::new();
    draw_data(&place);
    // A second process fills the disk, until the run has reported that it is full.
    let steps = "--set train.steps=4000 --set train.eval_every_steps=0 \
                 --set train.checkpoint_every_epochs=0";
    let script = format!(
        "head -c 3900K /dev/zero > disk/other
         $ONEGRAPH {TRAIN} {steps} --set train.checkpoint_every_steps=20 2> said &
         run=$!
         for i in $(seq 600); do grep -q 'no checkpoint after step' said && break; sleep 0.1; done
         rm disk/other
         for i in $(seq 600); do [ -e disk/micro/last_checkpoint ] && break; sleep 0.1; done
         kill -TERM $run
         wait $run"
    );
    let Some(said) = with_disk(&place, 4000, &script) else { return };
    let err = place.text("said");
    assert_eq!(said.code, common::INTERRUPTED, "{err}");
    assert_has(&err, &["no checkpoint after step 20: disk/micro/checkpoints"]);
    assert_whole_records(&place, "left/micro");
    place.good("eval --run left/micro");
}

#[test]
fn predictions_are_written_without_space_for_pictures() {
    let place = Place::new();
    draw_data(&place);
    place.good(&TRAIN.replace("run_dir=disk", "run_dir=runs"));
    let images = place.names("runs/data/micro");
    let set = images.iter().find(|name| name.starts_with("val-")).expect("a drawn set");
    let predict = "predict --run runs/micro --out disk --min-score 0";
    let script = format!("$ONEGRAPH {predict} runs/data/micro/{set}/images");
    let Some(said) = with_disk(&place, 200, &script) else { return };
    assert_eq!(said.code, 1, "{}", said.err);
    assert_eq!(said.err.matches("no more pictures are drawn").count(), 1, "{}", said.err);
    assert_has(&said.out, &["on 8 images"]);
    assert!(place.json("left/predictions.json").is_array());
    // An image with a name of the maximum length also gets a picture.
    let long = format!("{}.jpg", "n".repeat(251));
    let first = place.names(&format!("runs/data/micro/{set}/images"))[0].clone();
    let first = place.join(&format!("runs/data/micro/{set}/images/{first}"));
    std::fs::copy(first, place.join(&long)).expect("a copy");
    place.good(&format!("predict --run runs/micro --out named {long}"));
}

#[test]
fn scores_are_printed_before_report_fails() {
    let place = Place::new();
    draw_data(&place);
    // The disk has space for the checkpoints of 262 KiB each, but not additionally for a page.
    let script = format!(
        "$ONEGRAPH {TRAIN} --set train.checkpoint_every_steps=0 --set train.keep_checkpoints=1 \
         --set train.keep_best=0 --set train.checkpoint_every_epochs=0 \
         --set train.eval_every_steps=0"
    );
    let Some(said) = with_disk(&place, 340, &script) else { return };
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.out.contains("Average Precision"), "{}", said.err);
    let last = said.err.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("error: disk/micro/report.") && last.contains("No space left"),
        "{last}"
    );
    assert_eq!(place.names("left/micro/checkpoints"), ["step_00000008"]);
}
