//! The records of a run: report, page, events, and the keys of its config.

use std::io::Read;
use std::process::Stdio;

use crate::common::{self, BAD_CONFIG, DIVERGED, Place, as_list, assert_has, files, micro};
use serde_json::Value;

/// Text that marks a page that reloads itself.
const RELOADS: &str = "http-equiv=\"refresh\"";

#[test]
fn report_has_data_command_commit_and_date() {
    let place = Place::new();
    let out = place.good("train micro --set eval.draw_images=2");
    let report = place.report("micro");
    let text = |pointer: &str| report.pointer(pointer).and_then(Value::as_str).expect(pointer);
    assert!(text("/data/train/path").ends_with("runs/data/micro/train-16x64-seed0/store"));
    assert_eq!(report["data"]["train"]["images"], 16);
    // The hash of the data, and the keypoints' hash.
    assert_eq!((&report["data"]["val"]["images"], text("/data/train/key").len()), (&8.into(), 129));
    assert!(text("/commands/0").ends_with(" train micro --set eval.draw_images=2"));
    assert_eq!((text("/state"), text("/data/val/key").len()), ("done", 129));
    assert!(!text("/commit").is_empty() && !text("/cpu").is_empty());
    let (started, written) = (text("/started"), text("/written"));
    for time in [started, written] {
        assert!(time.len() == 25 && time.as_bytes()[10] == b'T', "{time}");
    }
    assert!(started <= written, "{started} .. {written}");
    for kind in ["bbox", "segm"] {
        let classes = report["analysis"][kind]["classes"].as_array().map(Vec::len);
        assert_eq!(classes, Some(4), "{kind}");
    }
    // Each table follows its name.
    let names: Vec<&str> = out.lines().filter(|l| ["bbox", "segm"].contains(l)).collect();
    assert_eq!(names, ["bbox", "segm"]);
    let log = place.text("runs/micro/log.txt");
    assert_has(&log, &[" segm by class\n", " objects    AP   AP50  AR100\n"]);
    let timed = |line: &str| line.as_bytes()[4] == b'-' && line.as_bytes()[13] == b':';
    assert!(log.lines().all(timed), "{log}");
    let metrics = place.metrics("runs/micro");
    let evaluated = metrics.iter().find(|r| r.get("bbox").is_some()).expect("an evaluation");
    assert_eq!(evaluated["bbox"]["classes"].as_object().expect("by class").len(), 4);
}

#[test]
fn report_page_is_one_file_and_escapes_names() {
    let place = Place::new();
    place.shapes(6, "shapes");
    let annotations = place.text("shapes/annotations.json");
    let evil = annotations.replace("\"circle\"", "\"<script>alert(1)</script>\"");
    assert_ne!(evil, annotations, "the data has circles");
    place.write("shapes/evil.json", evil);
    let data = files("shapes/images", "shapes/evil.json");
    place.good(&format!("train micro --set train.steps=4 --set eval.draw_images=3 {data}"));
    let page = place.text("runs/micro/report.html");
    assert_has(&page, &["&lt;script&gt;alert(1)&lt;/script&gt;"]);
    assert!(!page.contains("<script"), "a name became a script");
    for outside in ["http://", "https://", "<link", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert_eq!(page.matches("data:image/jpeg;base64,").count(), 6, "three pairs");
    assert_has(
        &page,
        &["<h1>micro</h1>", "<polyline", "Confusion matrix", "batch_size = 2", "commit"],
    );
}

#[test]
fn resumed_run_reports_each_session() {
    let place = Place::trained("--set train.steps=6");
    let first = place.report("micro");
    assert_eq!(first["last_session"]["steps"], 6);
    place.good("train --resume runs/micro --set train.steps=10");
    let report = place.report("micro");
    assert_eq!((&report["steps"], &report["last_session"]["steps"]), (&10.into(), &4.into()));
    let commands = as_list(&report["commands"]);
    assert_eq!((commands.len(), &commands[0]), (2, &first["commands"][0]));
    assert_eq!(report["started"], first["started"]);
    // Resuming a completed run does not change its figures.
    place.good("train --resume runs/micro");
    let again = place.report("micro");
    assert_eq!((&again["steps"], &again["last_session"]["steps"]), (&10.into(), &0.into()));
    assert_eq!(again["images_per_second"], report["images_per_second"]);
    assert_has(&place.text("runs/micro/report.html"), &["all 3 sessions"]);
    assert_has(&place.text("runs/micro/log.txt"), &["no step was left to train"]);
}

/// If the losses become non-finite after an evaluation, the report still contains the evaluation.
#[test]
fn diverged_run_reports_last_evaluation() {
    let place = Place::trained("--set train.steps=4 --set eval.draw_images=1");
    let scores = place.report("micro")["segm"].clone();
    let wild = "--set solver.learning_rate=1e6 --set solver.clip_norm=0 --set train.steps=900 \
                --set solver.warmup_steps=0 --override";
    place.bad(&format!("train --resume runs/micro {wild}"), DIVERGED, &["learning_rate"]);
    let report = place.report("micro");
    assert_eq!((&report["state"], &report["evaluated_step"]), (&"diverged".into(), &4.into()));
    assert!(report["steps"].as_u64() > Some(4) && scores.is_object());
    assert_eq!((&report["segm"], &report["best"]["step"]), (&scores, &4.into()));
    let page = place.text("runs/micro/report.html");
    assert_has(&page, &["the losses became non-finite", ", after step 4</h2>"]);
    assert_eq!(page.matches("data:image/jpeg").count(), 2);
}

/// A run that is killed during training has a report.
#[test]
fn report_exists_after_first_evaluation() {
    let place = Place::new();
    let steps = "--set train.steps=1000000 --set train.eval_every_steps=4";
    let mut command = place.command(&micro(steps));
    let mut child = command.stderr(Stdio::null()).spawn().expect("the command starts");
    let since = std::time::Instant::now();
    let read = || std::fs::read_to_string(place.join("runs/micro/report.json")).ok();
    let evaluated = |text: &String| text.contains("\"evaluated_step\": 4");
    while !read().as_ref().is_some_and(evaluated) && since.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let table = place.good("runs");
    assert!(table.starts_with("run    state ") && table.contains("\nmicro  running "), "{table}");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let listed: Value = serde_json::from_str(&place.good("runs --json")).expect("JSON");
    assert_eq!((&listed[0]["run"], &listed[0]["state"]), (&"runs/micro".into(), &"killed".into()));
    assert!(listed[0]["step"].as_u64() >= Some(4) && listed[0]["last"]["bbox"].is_number());
    let report = place.report("micro");
    assert_eq!(report["state"], "training");
    assert!(report["evaluated_step"].as_u64() >= Some(4) && report["bbox"].is_object());
    let page = place.text("runs/micro/report.html");
    assert!(page.contains("not ended when this was written") && page.contains(RELOADS));
    let last = place.text("runs/micro/last_checkpoint");
    let step = last.trim().rsplit('_').next().expect("a step").trim_start_matches('0');
    place.good(&format!("train --resume runs/micro --set train.steps={step} --override"));
    let taken = format!("taken over from process {} on host", child.id());
    assert_has(&place.text("runs/micro/log.txt"), &[&taken]);
    assert!(!place.text("runs/micro/report.html").contains(RELOADS), "it has ended");
}

#[test]
fn scores_and_pictures_reach_terminal_and_tensorboard() {
    let place = Place::trained("--set train.steps=2");
    let events = place.events("runs/micro");
    let report = place.report("micro");
    for kind in ["bbox", "segm"] {
        let stats = report[kind].as_object().expect("twelve numbers");
        assert_eq!(stats.len(), 12);
        for (stat, value) in stats {
            let is_there = events.contains(&format!("eval/{kind}_{stat}\u{15}"));
            assert_eq!(is_there, value.is_f64(), "{kind} {stat}");
        }
    }
    let train = ["train/step_ms", "train/loss_mask"];
    assert_has(&events, &[&["eval/predictions", "PNG\r\n"][..], &train].concat());
    let out = place.good("eval --run runs/micro");
    assert_eq!(out.matches("Average Precision").count(), 12);
    let (numbers, classes) = out.split_once("\nbbox by class\n").expect("a table");
    assert!(numbers.contains("segm\n") && !classes.contains("Average"));
    let lines: Vec<&str> = classes.lines().collect();
    let names = ["square", "triangle", "circle", "cross"];
    for (line, name) in lines[1..].iter().zip(names) {
        assert!(line.starts_with(name) && line.len() == lines[0].len(), "{classes}");
    }
    assert_eq!(lines[6], "segm by class");
    let gt = "runs/data/micro/val-8x64-seed0/annotations.json";
    let files = place.good(&format!("eval --gt {gt} --detections runs/micro/inference/segm.json"));
    let (_, classes) = files.split_once("\nsegm by class\n").expect("a table");
    assert!(names.iter().all(|name| classes.contains(name)), "{files}");
}

/// `train.accuracies` adds accuracies to the metrics, TensorBoard and the page;
/// `train.log_parameters` adds the mean and norm of each weight and gradient to TensorBoard. By
/// default none of these are recorded.
#[test]
fn accuracies_and_statistics_are_recorded_if_requested() {
    let place = Place::new();
    let set = "--set train.accuracies=true --set train.log_parameters=true";
    for (name, more) in [("asked", set), ("plain", "")] {
        let steps = "--set train.steps=2 --set train.log_every_steps=1";
        place.good(&micro(&format!("{steps} --set train.name={name} {more}")));
    }
    let [asked, plain] = ["runs/asked", "runs/plain"].map(|run| {
        let text = |file: &str| place.text(&format!("{run}/{file}"));
        [text("metrics.jsonl"), place.events(run), text("report.html")]
    });
    let parameter = "roi_heads.box_predictor.cls_score.weight";
    let tags = ["weight_mean", "weight_norm", "gradient_mean", "gradient_norm"];
    let tags = tags.map(|tag| (format!("{tag}/{parameter}\u{15}"), 0));
    let names = ["fast_rcnn/cls_accuracy", "rpn/proposal_recall", "roi_head/num_bg_samples"];
    for (name, in_metrics) in names.map(|name| (name.to_string(), 2)).into_iter().chain(tags) {
        assert!(!plain.iter().any(|text| text.contains(&name)), "{name}");
        let [metrics, events, _] = asked.each_ref().map(|text| text.matches(&name).count());
        assert_eq!((metrics, events), (in_metrics, 2), "{name}");
    }
    assert_has(&asked[2], &["Accuracies", "rpn/proposal_recall"]);
    let first = &place.records("runs/asked")[0];
    let [fg, bg] = ["fg", "bg"].map(|of| first[&format!("roi_head/num_{of}_samples")].as_f64());
    assert!(fg.expect("a count") >= 0.0 && bg.expect("a count") > 0.0, "{first}");
}

/// Each log line includes machine metrics, but no GPU metrics if there is no GPU; the first step
/// records its time.
#[test]
fn system_metrics_are_recorded() {
    let place = Place::new();
    let steps = "--set train.steps=5 --set train.log_every_steps=2 --device cpu";
    let said = place.prints(&micro(steps), &[]);
    assert_eq!(said.err.matches(" s after the start of the command").count(), 1, "{}", said.err);
    let mut steps = place.records("runs/micro");
    steps.retain(|record| record["loss"].is_f64());
    let has = |name: &str| {
        let field = format!("system/{name}");
        steps.iter().map(|step| step[&field].is_f64()).collect::<Vec<_>>()
    };
    for name in ["cpu_percent", "memory_mib", "batches_ready"] {
        assert_eq!(has(name), [false, true, false, true, true], "{name}");
    }
    assert_eq!(has("first_step_seconds"), [true, false, false, false, false]);
    assert!(!has("gpu_percent").contains(&true));
    let [cpu, mib] = ["cpu_percent", "memory_mib"]
        .map(|name| steps[1][&format!("system/{name}")].as_f64().expect("a number"));
    // CPU time is counted in ticks of 10 ms, so it may be 0 for two short steps.
    assert!((0.0..1e5).contains(&cpu) && mib > 5.0, "{cpu} {mib}");
}

/// `[[train.log]]` periodically writes statistics of the matching tensors and of model parts to the
/// metrics and event files; a pattern without a match is rejected with the most similar names.
#[test]
fn tensor_collections_are_recorded() {
    let place = Place::new();
    let rules = "[[train.log]]\nof = \"gradients\"\nevery = 2\n\
                 reduce = [\"l2\", \"histogram\"]\n\
                 [[train.log]]\nevery = 3\n\
                 [[train.log]]\ntensors = \"P*\"\nof = \"activations\"\nevery = 4\n";
    std::fs::write(place.join("own.toml"), format!("extends = \"micro\"\n{rules}")).expect("room");
    place.good("train own.toml --device cpu --set train.steps=4 --set train.name=own");
    let lines = place.records("runs/own");
    let step = |i: usize| lines.iter().find(|l| l["step"] == i && l["loss"].is_f64()).expect("one");
    let log = |of: &str| lines.iter().filter(|line| line["log"] == of).collect::<Vec<_>>();
    let steps = |of: &str| log(of).iter().map(|l| l["step"].as_u64()).collect::<Vec<_>>();
    assert_eq!(steps("gradients"), [Some(2), Some(4)]);
    assert_eq!((steps("weights"), steps("activations")), (vec![Some(3)], vec![Some(4)]));
    let gradients = log("gradients")[0];
    let head = &gradients["tensors"]["roi_heads.box_predictor.cls_score.weight"];
    assert_eq!(head["histogram"]["counts"].as_array().map(Vec::len), Some(32), "{gradients}");
    // Parts are disjoint and cover the model, so their norms combine to the norm of the step.
    let parts = gradients["parts"].as_object().expect("parts");
    let squares: f64 = parts.values().filter_map(|part| part["l2"].as_f64()).map(|n| n * n).sum();
    let all = step(2)["grad_norm"].as_f64().expect("a norm");
    assert!((squares.sqrt() / all - 1.0).abs() < 1e-4, "{parts:?} {all}");
    assert_eq!(parts.len(), 5);
    assert!(log("weights")[0]["parts"]["backbone"]["mean"].is_f64());
    assert!(log("activations")[0]["tensors"]["P2"]["l2"].as_f64().expect("a norm") > 0.0);
    let events = place.events("runs/own");
    assert_has(&events, &["gradients_l2/mask_head", "weights_mean/backbone", "activations_l2/P2"]);
    let wrong = "[[train.log]]\ntensors = \"roi_head.*\"\n";
    std::fs::write(place.join("wrong.toml"), format!("extends = \"micro\"\n{wrong}"))
        .expect("room");
    let words = ["train.log[0].tensors", "matches no weight", "roi_heads.*"];
    place.bad("train wrong.toml --device cpu", BAD_CONFIG, &words);
}

/// Each checkpoint is logged with the hash of its weights file; repeating the run gives the same
/// hash, a different seed a different one.
#[test]
fn checkpoint_is_logged_with_weights_hash() {
    let place = Place::new();
    let run = |name: &str, more: &str| {
        let steps = "--set train.steps=2 --set train.checkpoint_every_steps=1";
        place.good(&micro(&format!("{steps} --set train.name={name} {more}")));
        let log = place.text(&format!("runs/{name}/log.txt"));
        [1, 2].map(|step| {
            let folder = format!("checkpoints/step_{step:08}");
            let meta = place.json(&format!("runs/{name}/{folder}/checkpoint.json"));
            let hash = meta["sha256"]["model.safetensors"].as_str().expect("a hash").to_string();
            let line = format!("step {step}: saved {folder}  weights {}", &hash[..16]);
            assert_eq!(log.matches(&line).count(), 1, "{line}\n{log}");
            hash
        })
    };
    let first = run("first", "");
    assert_eq!(run("again", ""), first);
    assert_ne!(run("other", "--set train.seed=1")[1], first[1]);
}

#[test]
fn config_key_is_explained_listed_and_traced() {
    let place = Place::new();
    place.shows(
        "config train.batch_size",
        &["an integer, 1 to 4096", "unit     images", "default  16", "tiny: 8"],
    );
    let list = place.good("config");
    assert_eq!(list.lines().count(), engine::config::schema().keys().len());
    for (line, key) in list.lines().zip(engine::config::schema().keys()) {
        assert!(line.ends_with(key.meaning.as_str()), "a pipe has no width: {line}");
    }
    let table: Vec<&str> = list.lines().filter(|line| line.starts_with("eval.")).collect();
    let listed = place.good("config eval");
    let names = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.split(' ').next()).map(str::to_string).collect()
    };
    assert_eq!(names(&listed), names(&table.join("\n")));
    let set = "config train.steps --in quickstart --set train.steps=7";
    place.shows(set, &["value    7, set by --set\n"]);
    let words = ["no key is called `batchsize`", "did you mean", "train.batch_size"];
    place.refuses(
        BAD_CONFIG,
        &[
            ("config batchsize", &words),
            ("config finetune_r18", &["finetune_r18 is a preset, not a key"]),
        ],
    );
    // Keys are found by the last part of their name, by the name of an inner table, and by the
    // names that other projects use.
    for (name, begin) in [
        ("optimizer", "solver.optimizer\n"),
        ("anchors", "model.anchors.sizes "),
        ("early_stop", "train.patience\n"),
        ("extends", "extends\n"),
    ] {
        let text = place.good(&format!("config {name}"));
        assert!(text.starts_with(begin), "{name}: {text}");
    }
    assert_eq!(place.good("config beta").lines().count(), 2, "both are listed");
    place.bad(
        "config mosaic",
        BAD_CONFIG,
        &["samples sizes, crops, aspect ratios, flips, rotations and colours"],
    );
    let cut = place.good("config solver.warmup_steps --in tiny --set train.steps=60");
    assert!(cut.contains("value    30, half of train.steps\n"), "{cut}");
    let mut empty = place.command("config");
    let said = common::said(empty.arg(""));
    assert_eq!(said.code, BAD_CONFIG);
    assert_has(&said.err, &["no key is called ``; `onegraph config` lists"]);
}

#[test]
fn closed_stdout_pipe_is_not_an_error() {
    let place = Place::new();
    for mut command in [
        place.command("config"),
        place.command("inspect program micro"),
        place.command("inspect plan torchvision_r50"),
        place.bench("data --preset micro --batches 2"),
    ] {
        let is_bench = command.get_args().any(|word| word == "data");
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "{command:?}: {said}");
        assert!(is_bench || said.is_empty(), "{command:?}: {said}");
        assert!(!said.contains("panicked"), "{command:?}: {said}");
    }
}
