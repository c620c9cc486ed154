//! Recipes that depend on the data: lengths in epochs, held-out images.

use crate::common::{BAD_CONFIG, Place, as_count, assert_has, micro, renumber, stores};

/// Config that trains long enough to detect at least one class.
const LEARNS: &str = "--set train.steps=150 --set solver.learning_rate=0.04 --set data.empty=keep";

/// The messages of a successful run.
fn prints(place: &Place, arguments: &str) -> String {
    place.prints(arguments, &[]).err
}

/// micro has 16 images in batches of 2: 8 steps per epoch.
#[test]
fn run_in_epochs_matches_run_in_steps() {
    let place = Place::new();
    let epochs = micro("--set train.epochs=0.5 --set solver.warmup_epochs=0.25");
    place.prints(&epochs, &["0.5 epochs = 4 steps of 8, warm-up of 2 (0.2 epochs)"]);
    let config = place.text("runs/micro/config.toml");
    for line in ["steps = 4", "epochs = 0.5", "warmup_steps = 2", "warmup_epochs = 0.25"] {
        assert!(config.lines().any(|found| found == line), "{line}: {config}");
    }
    place.good(&micro("--set train.steps=4 --set solver.warmup_steps=2 --set train.name=steps"));
    assert!(place.state("runs/micro", 4) == place.state("runs/steps", 4), "other weights");
    place.good("train --resume runs/micro --set train.epochs=0.75");
    place.prints(
        "train --resume runs/steps --set train.epochs=0.75",
        &["changed since the checkpoint: train.steps: 4 -> 6"],
    );
    assert!(place.state("runs/micro", 6) == place.state("runs/steps", 6), "other weights");
    let fewer = "train --resume runs/micro --set train.epochs=0.5";
    place.bad(fewer, BAD_CONFIG, &["train.steps is 4", "step 6"]);
}

/// A single annotation file is split into training and held-out images.
#[test]
fn held_out_images_are_not_trained() {
    let place = Place::new();
    place.shapes(24, "set");
    let files = "--set data.synthetic=none --set train.steps=2 --set data.train_images=set/images \
                 --set data.train_annotations=set/annotations.json --set solver.warmup_steps=0";
    let split = format!("{files} --set data.val_fraction=0.3");
    let err = prints(&place, &micro(&split));
    let report = place.report("micro");
    let [train, val] = ["train", "val"].map(|set| report["data"][set].clone());
    let count = |set: &serde_json::Value| as_count(&set["images"]);
    assert_eq!(count(&train) + count(&val), 24);
    assert!(count(&val) > 0 && train["path"] == val["path"] && train["key"] != val["key"]);
    let said = format!("{} images held out for validation", count(&val));
    assert_has(&err, &[&said]);
    let scored = place.run("eval --run runs/micro").err;
    assert_has(&scored, &[&format!("all {} images", count(&val))]);
    let both = micro(&format!("{split} --set data.val_store=set/store"));
    place.bad(&both, BAD_CONFIG, &["data.val_fraction", "conflicts with data.val_store", "either"]);
    let few = micro(&format!("{files} --set data.val_fraction=0.0001"));
    place.bad(&few, BAD_CONFIG, &["data.val_fraction = 0.0001", "none to validate on"]);
    let resume = "train --resume runs/micro --set train.steps=3 --set data.val_fraction=0.5";
    place.bad(resume, BAD_CONFIG, &["training data", "--override"]);
}

/// The preset `finetune` at the size of micro, starting from a micro model: the initial weights are
/// scored as step 0.
#[test]
fn finetune_starts_from_run_and_scores_initial_weights() {
    let place = Place::trained("--set train.steps=8 --set train.eval_at_end=false");
    assert!(place.report("micro")["bbox"].is_null(), "nothing is scored");
    assert!(!place.join("runs/micro/best.json").exists());
    let small = include_str!("../../../configs/micro.toml");
    let (model, _) = small.split_once("[solver]").expect("tables");
    let recipe = include_str!("../../../configs/finetune.toml");
    let (_, recipe) = recipe.split_once("[solver]").expect("tables");
    place.write("own.toml", format!("{model}[solver]{recipe}images_per_group = 2\n"));
    place.bad("train own.toml --init .", 1, &["no last_checkpoint"]);
    let err = place
        .prints(
            "train own.toml --set train.epochs=2 --init runs/micro --finetune",
            &["so all rows are kept: 4 classes"],
        )
        .err;
    let length = "2 epochs = 8 steps of 4, warm-up of 4 (1.0 epochs)";
    assert_has(
        &err,
        &[length, "learning rate 0.02 for 16 images -> 0.005 for 4", "step 0: evaluated"],
    );
    let records = place.records("runs/own");
    let scored = records.iter().filter(|line| line["bbox"].is_object());
    let steps: Vec<u64> = scored.map(|line| as_count(&line["step"])).collect();
    assert_eq!(steps, [0, 4, 8]);
    let weights = |run: &str, step: u64| {
        place.bytes(&format!("{run}/checkpoints/step_{step:08}/model.safetensors"))
    };
    assert!(weights("runs/own", 0) == weights("runs/micro", 8), "the start is the file's");
}

#[test]
fn run_without_validation_data_is_not_evaluated() {
    let place = Place::new();
    place.shapes(8, "set");
    let data =
        "--set data.synthetic=none --set data.train_store=set/store --set eval.draw_images=1";
    let run = format!("train micro {data} --set train.eval_every_steps=2");
    let err = place
        .prints(
            &format!("{run} --set train.steps=4"),
            &["no validation data, so nothing is scored"],
        )
        .err;
    assert_eq!(err.matches("evaluated in").count(), 0, "{err}");
    let report = place.report("micro");
    assert!(report["data"]["val"].is_null() && report["bbox"].is_null(), "{report}");
    assert_eq!(report["state"], "done");
    assert!(place.join("runs/micro/report.html").exists());
    place.good("train --resume runs/micro --set train.steps=6");
    // The run has scores once it has validation data.
    place.good("train --resume runs/micro --set train.steps=7 --set data.val_store=set/store");
    assert!(place.join("runs/micro/best.json").exists());
    for (key, value) in [("patience", "2"), ("target_box", "0.3"), ("target_mask", "0.3")] {
        let words = [&format!("train.{key}"), "no validation data", "data.val_fraction"];
        place.bad(&format!("{run} --set train.{key}={value}"), BAD_CONFIG, &words);
    }
}

/// The validation data lacks the first class, and numbers the others differently.
#[test]
fn validation_accepts_class_subset_with_other_ids() {
    let place = Place::new();
    place.shapes(8, "set");
    let mut some = place.json("set/annotations.json");
    renumber(&mut some, |id| (id != 1).then(|| 10 - id));
    place.write("some.json", some.to_string());
    place.good("prep --images set/images --annotations some.json --out some");
    let run = |val: &str| format!("train micro {} {LEARNS}", stores("set/store", val));
    place.good(&run("some"));
    let classes = |run: &str| {
        place.records(&format!("runs/{run}")).last().expect("a line")["bbox"]["classes"]
            .as_object()
            .expect("classes")
            .clone()
    };
    let found = classes("micro");
    assert_eq!(found.len(), 3, "{found:?}");
    place.good(&format!("{} --set train.name=all", run("set/store")));
    let all = classes("all");
    assert!(found.iter().all(|(name, ap)| all[name] == *ap), "{found:?} {all:?}");
    assert!(found.values().any(|ap| ap.as_f64().is_some_and(|ap| ap > 0.0)), "{found:?}");
    let [ours, theirs] = ["some", "set/store"]
        .map(|val| place.good(&format!("eval --run runs/all --set data.val_store={val}")));
    assert_ne!(ours, theirs, "another number of classes");
}

/// The annotations of the data set without these classes, as JSON.
fn without(place: &Place, ids: &[u64]) -> String {
    let mut some = place.json("set/annotations.json");
    renumber(&mut some, |id| (!ids.contains(&id)).then_some(id));
    some.to_string()
}

#[test]
fn class_selection_equals_data_with_only_those_classes() {
    let place = Place::new();
    place.shapes(12, "set");
    place.write("some.json", without(&place, &[1, 3]));
    place.good("prep --images set/images --annotations some.json --out some");
    place.write("rest.json", without(&place, &[2, 4]));
    place.good("prep --images set/images --annotations rest.json --out rest");
    let run = |name: &str, store: &str, set: &str| {
        format!(
            "train micro {} --set train.steps=4 --set solver.warmup_steps=1 \
             --set train.name={name} {set}",
            stores(store, store)
        )
    };
    let classes = place.json("some.json")["categories"].clone();
    let name = |at: usize| classes[at]["name"].as_str().expect("a name");
    let listed = format!("--set data.classes=[\"{}\",\"{}\"]", name(1), name(0));
    let err = prints(&place, &run("list", "set/store", &listed));
    let objects = |file: &str| place.json(file)["annotations"].as_array().expect("a list").len();
    let (all, some) = (objects("set/annotations.json"), objects("some.json"));
    let said = format!("2 of 4 classes (data.classes), {} objects of other classes", all - some);
    assert!(err.contains(&said), "{said}: {err}");
    place.good(&run("some", "some", ""));
    let metrics = |run: &str| place.metrics(&format!("runs/{run}"));
    assert!(place.state("runs/list", 4) == place.state("runs/some", 4), "other weights");
    assert_eq!(metrics("list"), metrics("some"), "other scores");
    let key = |run: &str| place.report(run)["data"]["train"].clone();
    assert_eq!((&key("list")["key"], &key("list")["classes"]), (&key("some")["key"], &2.into()));
    assert_eq!(place.good("eval --run runs/list"), place.good("eval --run runs/some"));
    let other = "--set data.train_store=some --set data.val_store=some";
    place.good(&format!("train --resume runs/list --set data.classes=[] {other}"));

    let wrong = run("x", "set/store", "--set data.classes=[\"traingle\"]");
    place.bad(&wrong, BAD_CONFIG, &["data.classes", "set/store", "`traingle`", "`triangle`"]);
    let other = run("x", "set/store", &format!("{listed} --set data.val_store=rest"));
    place.bad(&other, BAD_CONFIG, &["rest has no class", "nor any other", "most similar of its 2"]);
}

/// Two sets with equal image ids and different category ids, whose images are joined by dali.
#[test]
fn run_on_two_data_sets_resumes_bit_identically() {
    let place = Place::new();
    place.shapes(7, "set");
    place.good("prep --synthetic shapes --count 6 --size 64 --seed 3 --out more");
    let mut more = place.json("more/annotations.json");
    renumber(&mut more, |id| Some(40 - id));
    place.write("more.json", more.to_string());
    let own = "extends = \"micro\"\n[solver]\nwarmup_steps = 1\n[data]\nsynthetic = \"none\"\n";
    let sets = "train = [{ store = \"set/store\" }, { images = \"more/images\", annotations = \
                \"more.json\" }]\nval = [{ store = \"set/store\" }]\n";
    place.write("two.toml", format!("{own}{sets}"));
    place.prints(
        "train two.toml --set train.steps=3",
        &["4 classes in 2 sets", "set 1: set/store, 7 images", "set 2: runs/data/more-"],
    );
    place.good("train two.toml --set train.steps=2 --set train.name=early");
    place.good("train --resume runs/early --set train.steps=3");
    assert!(place.state("runs/two", 3) == place.state("runs/early", 3), "other weights");

    let data = &place.report("two")["data"]["train"];
    // For each data set the key has a hash of its objects and a hash of its keypoints.
    let key = data["key"].as_str().expect("a key").split(['+', ':']);
    let key: Vec<&str> = key.map(|hash| &hash[..12]).collect();
    let resume = "train --resume runs/early --set train.steps=4";
    place.good("prep --synthetic shapes --count 6 --size 64 --seed 4 --out other");
    let other =
        format!("{resume} --set data.train=[{{store=\"set/store\"}},{{store=\"other/store\"}}]");
    let said = format!("{} -> {}+", key.join("+"), key[..2].join("+"));
    place.bad(&other, BAD_CONFIG, &["training data", &said, "--override"]);
    let split = "--set data.val=[] --set data.val_fraction=0.3 --set train.name=split";
    let split = format!("train two.toml --set train.steps=1 --set solver.warmup_steps=0 {split}");
    assert_eq!(prints(&place, &split).matches("4 classes in 2 sets").count(), 1);
    let data = &place.report("split")["data"];
    let [train, val] = ["train", "val"].map(|set| as_count(&data[set]["images"]));
    assert_eq!((train + val, val > 0), (13, true));
    place.good("eval --run runs/split");

    let big = place.text("more.json").replace("\"image_id\":1,", "\"image_id\":1000000000000001,");
    let big = big.replace("\"id\":1,", "\"id\":1000000000000001,");
    place.write("more.json", big);
    let refused = "train two.toml --set train.steps=3";
    place.bad(refused, crate::common::BAD_DATA, &["1000000000000001", "below 10^15"]);
}
