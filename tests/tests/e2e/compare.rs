//! `onegraph compare`: the differences between runs, with confidence intervals.

use crate::common::{BAD_CONFIG, Place, as_list, assert_has, micro};

/// Scores differ as constructed: a run with a different seed and momentum is as good as the first,
/// a run with perfect detections is better, and a run on different images cannot be compared.
#[test]
fn compare_reports_differences_and_rejects_other_data() {
    let place = Place::new();
    let few = "--set train.steps=2 --set solver.warmup_steps=1 --set eval.draw_images=0";
    for (name, more) in [
        ("a", ""),
        ("b", "--set train.seed=1 --set solver.momentum=0.8"),
        ("other", "--set data.synthetic.val_images=4"),
        ("first", "--set eval.max_images=2"),
        ("never", "--set train.eval_at_end=false"),
    ] {
        place.good(&micro(&format!("{few} --set train.name={name} {more}")));
    }
    // Simulate a perfect model by using the annotations as detections.
    let annotations = place.json("runs/data/micro/val-8x64-seed0/annotations.json");
    let objects = as_list(&annotations["annotations"]);
    let perfect: Vec<serde_json::Value> = objects
        .iter()
        .map(|object| {
            let mut found = object.clone();
            found["score"] = 1.0.into();
            found.as_object_mut().expect("an object").remove("segmentation");
            found
        })
        .collect();
    place.good(&micro(&format!("{few} --set train.name=better")));
    place.write("runs/better/inference/bbox.json", serde_json::to_string(&perfect).expect("JSON"));
    let mend = "onegraph eval --run runs/better/checkpoints/step_00000002 --out";
    place.bad("compare runs/a runs/better", BAD_CONFIG, &["are not those of step", mend]);
    let mut report = place.report("better");
    report["bbox"]["AP"] = 1.0.into();
    place.write("runs/better/report.json", report.to_string());
    place.shows(
        "compare runs/a runs/b runs/better --html c.html --samples 200",
        &[
            "a and b\n  solver.momentum: 0.9 -> 0.8\n  train.seed: 0 -> 1\n",
            "a and better\ntheir configs are the same\n",
            "step                 2         2\n",
            "8 images): better is better\n",
            "8 images): no significant difference on these images\n",
            "AP of masks by class\n",
        ],
    );
    let page = place.text("c.html");
    assert_has(
        &page,
        &["better is better", "<th>train.seed</th><td>0</td><td>1</td>", "Training loss"],
    );
    let refused = "scored on different data";
    place.refuses(
        BAD_CONFIG,
        &[
            ("compare runs/a runs/other", &[refused, "the 4 images of"]),
            ("compare runs/a runs/first", &[refused, "the first 2 of the 8 images"]),
            ("compare runs/a runs/data", &["runs/data is not a run directory"]),
            ("compare runs/a runs/never", &["runs/never was never evaluated"]),
        ],
    );
    let text = place.good("compare runs/a ./runs/a --samples 2");
    assert!(text.starts_with("runs/a and ./runs/a\n"), "{text}");
    std::fs::remove_file(place.join("runs/b/inference/segm.json")).expect("it was there");
    let mend = "onegraph eval --run runs/b --out runs/b/inference";
    place.bad("compare runs/a runs/b", BAD_CONFIG, &["runs/b/inference/segm.json", mend]);
    place.good(mend.strip_prefix("onegraph ").expect("a command"));
    place.good("compare runs/a runs/b --samples 2");
}
