//! Very large values, up to their limits, give a plan or an error message, never a panic, an abort
//! or a hang.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::{BAD_CONFIG, Place, bad, micro};

/// Time limit for planning the largest model on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn run(place: &Place, arguments: &[&str]) -> (Output, Duration) {
    let started = Instant::now();
    let output = place.command("").args(arguments).output().expect("the command starts");
    (output, started.elapsed())
}

#[test]
fn config_with_any_key_at_its_maximum_is_planned_or_rejected() {
    let place = Place::new();
    for key in engine::config::schema().keys() {
        let Some(max) = &key.max else { continue };
        let length = key.default.matches(',').count() + 1;
        let value = match key.default.starts_with('[') {
            true => format!("[{}]", vec![max.to_string(); length].join(", ")),
            false => max.to_string(),
        };
        let set = format!("{}={value}", key.name);
        for preset in ["micro", "torchvision_r50"] {
            let size = ["--height", "256", "--width", "256"];
            let arguments = [&["inspect", "plan", preset, "--set", &set][..], &size].concat();
            let (output, took) = run(&place, &arguments);
            let said = String::from_utf8_lossy(&output.stderr);
            let code = output.status.code();
            assert!(matches!(code, Some(0 | BAD_CONFIG)), "{preset} {set}: {code:?}: {said}");
            assert!(code == Some(0) || said.lines().count() == 1, "{preset} {set}: {said}");
            assert!(took < PATIENCE, "{preset} {set}: {took:?}");
        }
    }
}

#[test]
fn too_large_batch_is_rejected_before_allocation() {
    let place = Place::new();
    let large = micro(
        "--set train.batch_size=2000 --set train.images_per_group=2000 --set input.max_size=512 \
         --set input.min_size=512",
    );
    let words =
        ["a batch of 2000 images needs", "GiB free", "train.images_per_group=", "would fit"];
    place.bad(&large, BAD_CONFIG, &words);
    let large = micro(
        "--set eval.batch_size=500 --set model.fpn.channels=256 --set input.min_size=1024 --set \
         input.max_size=1024",
    );
    place.bad(&large, BAD_CONFIG, &["a batch of detections needs", "lower eval.batch_size"]);
    let wide = micro("--set model.box_head.hidden=[262144,65535]");
    place.bad(&wide, BAD_CONFIG, &["GiB free", "a smaller model"]);
}

#[test]
fn address_space_limit_is_respected() {
    let place = Place::new();
    let eval = micro("--set train.steps=1 --set model.detections.per_image=100000");
    let inner = place.command(&eval);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 4000000; exec \"$@\"", "sh"]).arg(inner.get_program());
    command.args(inner.get_args()).current_dir(place.path());
    bad(&mut command, BAD_CONFIG, &["a batch of detections needs"]);
}

#[test]
fn sizes_beyond_kernel_index_range_are_rejected() {
    let place = Place::new();
    let plan = |more: &str| format!("inspect plan torchvision_r50 --device cuda {more}");
    let large = plan("--height 16384 --width 16384");
    place.bad(&large, BAD_CONFIG, &["positions", "fewer or smaller images"]);
    for more in ["--objects 4294967295", "--height 100000", "--classes 4294967295"] {
        assert_eq!(place.run(&plan(more)).code, 2, "{more}");
    }
}
