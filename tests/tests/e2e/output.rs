//! The commands' output for users and programs: run directory, report, metrics, predictions.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::common::{
    BAD_CONFIG, FAILED, Place, as_count, as_list, as_number, assert_has, good, micro,
};
use rustix::fs::{CWD, Mode, mkfifoat};
use score::STAT_NAMES;
use serde_json::Value;

/// The losses of Mask R-CNN in the order of the log.
const LOSSES: [&str; 5] =
    ["loss_classifier", "loss_box_reg", "loss_mask", "loss_objectness", "loss_rpn_box_reg"];

#[test]
fn run_directory_has_fixed_files_and_is_never_overwritten() {
    let place = Place::new();
    let out = place.good("train micro");
    assert_eq!(out.matches("Average Precision").count(), 12, "six lines of AP, twice");
    assert!(out.ends_with("report: runs/micro/report.html\n"), "{out}");
    let is_event_file = |name: &String| name.starts_with("events.out.tfevents.");
    let (events, names): (Vec<_>, Vec<_>) =
        place.names("runs/micro").into_iter().partition(is_event_file);
    assert_eq!(events.len(), 1, "one event file a session: {events:?}");
    let expected = [
        "best.json",
        "checkpoints",
        "config.toml",
        "inference",
        "last_checkpoint",
        "log.txt",
        "metrics.jsonl",
        "pictures",
        "predictions.png",
        "report.html",
        "report.json",
    ];
    assert_eq!(names, expected);
    let first = place.bytes("runs/micro/metrics.jsonl");
    place.good(&micro("--set train.steps=1"));
    place.good(&micro("--set train.steps=1"));
    assert_eq!(place.names("runs"), ["data", "micro", "micro-2", "micro-3"]);
    assert_eq!(place.bytes("runs/micro/metrics.jsonl"), first, "the first run was touched");
    let (height, width) = png_size(&place.bytes("runs/micro/predictions.png"));
    assert!(height > 64 && width > 2 * 64, "{height}x{width}: two images, enlarged");
}

#[test]
fn report_and_metrics_have_documented_fields() {
    let place = Place::trained("--set train.eval_every_steps=4");
    let report = place.report("micro");
    assert_eq!(report["steps"], 10);
    assert_eq!(report["device"], "cpu");
    for key in ["seconds", "images_per_second"] {
        assert!(report[key].as_f64().is_some_and(|v| v > 0.0), "{key}: {}", report[key]);
    }
    assert_eq!(report["config_sha256"].as_str().map(str::len), Some(64));
    for kind in ["bbox", "segm"] {
        let stats = report[kind].as_object().expect("twelve numbers");
        let mut names: Vec<&str> = STAT_NAMES.to_vec();
        names.sort_unstable();
        assert_eq!(stats.keys().collect::<Vec<_>>(), names);
        // Shapes are at most half as wide and high as the 64-pixel images, so none is large; the
        // undefined score is null.
        assert_eq!(stats["APl"], Value::Null);
        let ap = as_number(&stats["AP"]);
        assert!((0.0..=1.0).contains(&ap), "{ap}");
    }
    let metrics = place.metrics("runs/micro");
    let evaluated: Vec<u64> =
        metrics.iter().filter(|r| r.get("bbox").is_some()).map(|r| as_count(&r["step"])).collect();
    assert_eq!(evaluated, [4, 8, 10]);
    let steps = place.steps("runs/micro");
    for (i, record) in steps.iter().enumerate() {
        assert_eq!(record["step"], i as u64 + 1);
        assert_eq!(record["epoch"], i as u64 / 8, "16 images at 2 a step");
        let part = |name: &&str| record[*name].as_f64().expect("a loss");
        let sum: f64 = LOSSES.iter().map(part).sum();
        assert!((as_number(&record["loss"]) - sum).abs() < 1e-5);
        assert_eq!((&record["applied"], &record["images"]), (&true.into(), &2.into()));
    }
    // Within warmup_steps = 5, the rate rises to 0.02 from 0.001 (warmup_factor) times 0.02.
    let lr = |i: usize| as_number(&steps[i]["lr"]);
    assert!((lr(0) - 2e-5).abs() < 1e-9 && (lr(9) - 0.02).abs() < 1e-8, "{} {}", lr(0), lr(9));
}

/// The program prints the commit of its build, from any directory.
#[test]
fn report_commit_matches_build() {
    let place = Place::new();
    let program = place.join("onegraph");
    fs::copy(env!("CARGO_BIN_EXE_onegraph-under-test"), &program).expect("a copy");
    let author = ["-c", "user.name=a", "-c", "user.email=a@b"];
    for arguments in [&["init", "-q"][..], &["commit", "-q", "--allow-empty", "-m", "m"]] {
        let mut git = Command::new("git");
        let status = git.args(author).args(arguments).current_dir(place.path()).status();
        assert!(status.expect("git runs").success(), "{arguments:?}");
    }
    let mut command = Command::new(&program);
    let arguments = micro("--set train.steps=1");
    command.args(arguments.split_whitespace()).current_dir(place.path());
    let said = good(command.env("RAYON_NUM_THREADS", "1"));
    assert_has(&said.err, &["device cpu (1 thread), "]);
    let report = place.report("micro");
    let built = engine::provenance::commit().unwrap_or("unknown");
    assert_eq!((&report["commit"], &report["threads"]), (&built.into(), &1.into()));
}

#[test]
fn plan_uses_configured_image_size() {
    let place = Place::new();
    for (side, more) in [("64", ""), ("96", "--set input.max_size=90")] {
        let plan = place.good(&format!("inspect plan micro {more}"));
        let sized = format!("inspect plan micro --height 64 --width {side}");
        assert_eq!(plan, place.good(&sized), "{more}");
        assert_ne!(plan, place.good("inspect plan micro --height 64 --width 128"));
    }
}

#[test]
fn printed_config_loads_and_prints_unchanged() {
    let place = Place::new();
    let printed = place.shows(
        "train micro --set solver.learning_rate=0.01 --print-config",
        &["learning_rate = 0.01"],
    );
    assert!(place.names(".").is_empty(), "printing the config had side effects");
    place.write("mine.toml", &printed);
    assert_eq!(place.good("train mine.toml --print-config"), printed);
}

#[test]
fn reached_target_ends_run_and_is_reported() {
    let place = Place::trained("--set train.eval_every_steps=3 --target box=0.0,mask=0.0");
    let report = place.report("micro");
    assert_eq!((&report["steps"], &report["target_reached"]), (&3.into(), &true.into()));
    assert_eq!(place.text("runs/micro/last_checkpoint").trim(), "checkpoints/step_00000003");
    // Resuming a completed run has no effect; with a higher target it continues.
    place.good("train --resume runs/micro");
    assert_eq!(place.report("micro")["state"], "target_reached");
    assert_eq!(place.report("micro")["steps"], 3);
    place.good("train --resume runs/micro --set train.steps=4 --target mask=1.0");
    let resumed = place.report("micro");
    assert_eq!((&resumed["steps"], &resumed["target_reached"]), (&4.into(), &false.into()));
    place.good(&micro("--set train.eval_every_steps=3 --target box=0.0,mask=1.0"));
    let report = place.report("micro-2");
    assert_eq!((&report["steps"], &report["target_reached"]), (&10.into(), &false.into()));
}

#[test]
fn faster_rcnn_outputs_only_boxes() {
    let place = Place::new();
    place.good(&micro("--set model.kind=faster_rcnn"));
    let page = place.text("runs/micro/report.html");
    assert!(page.contains("Boxes (bbox)") && !page.contains("Masks (segm)"));
    assert!(!page.contains("data:image/") && page.ends_with("</html>\n"));
    let report = place.report("micro");
    assert!(report["bbox"]["AP"].is_f64() && report["segm"].is_null(), "{report}");
    assert_eq!(place.names("runs/micro/inference"), ["bbox.json"]);
    assert!(place.steps("runs/micro").iter().all(|r| r["loss_mask"].is_null()));
}

#[test]
fn predictions_score_like_evaluation_and_are_drawn() {
    let place = Place::trained("--set train.steps=60 --set eval.batch_size=3");
    let val = "runs/data/micro/val-8x64-seed0";
    place.good(&format!("predict --run runs/micro --out p --min-score 0.1 {val}/images"));
    let predicted = place.json("p/predictions.json");
    let results = as_list(&predicted);
    assert!(!results.is_empty(), "nothing found");
    // The evaluation wrote the same detections, computed in different batches: `predict` writes
    // boxes and masks to one file, the evaluation to separate files.
    let key = |r: &Value| (r["image_id"].to_string(), r["score"].to_string());
    for (file, field) in [("bbox.json", "bbox"), ("segm.json", "segmentation")] {
        let written = place.json(&format!("runs/micro/inference/{file}"));
        let written = as_list(&written);
        assert_eq!(written.len(), results.len());
        for (a, b) in written.iter().zip(results) {
            assert_eq!(
                (key(a), &a["category_id"], &a[field]),
                (key(b), &b["category_id"], &b[field])
            );
        }
    }
    let gt = format!("--gt {val}/annotations.json");
    let lines = place.good(&format!("eval {gt} --detections runs/micro/inference/bbox.json"));
    let evaluated = place.good("eval --run runs/micro");
    assert_eq!(lines.lines().filter(|l| l.contains("@[")).count(), 12);
    let (numbers, classes) = lines.split_once("\n\n").expect("a table of classes");
    assert!(evaluated.starts_with(numbers), "{evaluated}\nis not\n{numbers}");
    assert!(evaluated.contains(classes), "{evaluated}\nlacks\n{classes}");
    place.good(&format!("eval {gt} --detections p/predictions.json"));

    let pictures: Vec<_> = place.names("p").into_iter().filter(|n| n.ends_with(".png")).collect();
    assert_eq!(pictures.len(), 8);
    assert_eq!(pictures[0], "0000_000000000001.png");
    for picture in &pictures {
        assert_eq!(png_size(&place.bytes(&format!("p/{picture}"))), (512, 512), "{picture}");
    }
}

/// Tests every file that a command writes to a user-specified path.
#[test]
fn outputs_follow_symlinks_and_keep_pipes() {
    let place = Place::trained("--set train.steps=2");
    let val = "runs/data/micro/val-8x64-seed0/images";
    let (onegraph, bench) =
        (env!("CARGO_BIN_EXE_onegraph-under-test"), env!("CARGO_BIN_EXE_bench-under-test"));
    let export = "export --run runs/micro --format torchvision --names-only --out";
    let plan = "--plan --preset micro --gpus 2 --padded 64x64";
    for (program, arguments, file) in [
        (onegraph, "inspect plan micro --svg".into(), "p.svg"),
        (onegraph, "inspect program micro --svg".into(), "g.svg"),
        (onegraph, export.into(), "m.pth"),
        (onegraph, export.into(), "m.safetensors"),
        (onegraph, format!("predict --run runs/micro {val} --out"), "out/predictions.json"),
        (bench, "--preset micro --steps 1 --device cpu --json".into(), "s.json"),
        (
            bench,
            "infer --preset micro --batch 1 --images 1 --seconds 0 --device cpu --json".into(),
            "i.json",
        ),
        (bench, "data --preset micro --batches 2 --json".into(), "d.json"),
        (bench, format!("{plan} --json"), "n.json"),
        (bench, "curves a=runs/micro --svg".into(), "c.svg"),
    ] {
        let run = || {
            let named = file.strip_suffix("/predictions.json").unwrap_or(file);
            let mut command = Command::new(program);
            command.args(arguments.split_whitespace()).arg(named).current_dir(place.path());
            good(&mut command);
        };
        let (real, link) = (place.join(&format!("real/{file}")), place.join(file));
        for folder in [&real, &link].map(|path| path.parent().expect("a folder")) {
            fs::create_dir_all(folder).expect("a folder");
        }
        // The link refers to a file that does not exist yet.
        symlink(&real, &link).expect("a link");
        run();
        assert!(link.is_symlink() && real.is_file(), "{arguments}");
        let expected = fs::read(&real).expect("a file").len();
        fs::remove_file(&link).expect("a link");
        mkfifoat(CWD, &link, Mode::RUSR | Mode::WUSR).expect("a pipe");
        let pipe = link.clone();
        let reader = std::thread::spawn(move || fs::read(pipe).expect("bytes").len());
        run();
        let read = reader.join().expect("no panic");
        assert!(expected > 0 && 2 * read > expected, "{arguments}: {read} of {expected} bytes");
        assert!(!link.is_file(), "{arguments}");
    }
    place.write("file", "");
    let into_file = "inspect plan micro --svg file/plan.svg";
    let into_folder = "inspect plan micro --svg out";
    place.bad(into_file, BAD_CONFIG, &["file is a file"]);
    place.bad(into_folder, FAILED, &["out: it is a directory"]);
    assert!(place.names(".").iter().all(|name| !name.ends_with(".partial")), "left behind");
    // A file that onegraph did not write is not replaced.
    place.write("theirs/predictions.json", r#"[{"image_id": 1, "category_id": 2}]"#);
    let predict = format!("predict --run runs/micro --out theirs {val}");
    place.bad(&predict, BAD_CONFIG, &["theirs/predictions.json was not written by onegraph"]);
}

/// Decodes a picture that must be PNG; returns its height and width.
fn png_size(bytes: &[u8]) -> (usize, usize) {
    assert_eq!(bytes[..8], *b"\x89PNG\r\n\x1a\n");
    let info = dali::decode::probe(bytes).expect("a PNG");
    let (height, width) = (info.height as usize, info.width as usize);
    let mut rgb = vec![0; 3 * height * width];
    dali::decode::decode_rgb_into(bytes, &mut rgb).expect("all of it decodes");
    assert!(rgb.iter().any(|v| *v != rgb[0]), "it shows something");
    (height, width)
}
