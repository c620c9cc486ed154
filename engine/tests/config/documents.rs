//! Tests that `docs/config.md` matches the schema, and that a printed config can be loaded again.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use configs::preset_names;
use engine::config::{Config, reference, schema};

#[test]
fn config_reference_matches_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/config.md");
    if std::env::var("ONEGRAPH_DOCS").is_ok_and(|value| value == "write") {
        std::fs::write(&path, reference()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(
        written == reference(),
        "docs/config.md differs from the schema; write it again: \
         ONEGRAPH_DOCS=write cargo test --release -p engine --test config"
    );
}

#[test]
fn every_key_has_documentation_and_a_valid_default() {
    for key in schema().keys() {
        assert!(key.meaning.ends_with('.'), "{}: {}", key.name, key.meaning);
        let more = match key.name.starts_with("data.synthetic.") {
            true => "data.synthetic.kind=shapes",
            false => "train.seed=0",
        };
        let set = match key.name.strip_prefix("solver.groups.") {
            Some(name) => {
                let other = if name == "lr_factor" { "weight_decay" } else { "lr_factor" };
                format!("solver.groups=[{{{other} = 1, {name} = {}}}]", key.default)
            }
            // Skipped: a data set without files would be invalid.
            None if key.in_list => continue,
            None => format!("{}={}", key.name, key.default),
        };
        let texts = [more.to_string(), set];
        let config = Config::load("torchvision_r50", &texts);
        assert!(config.is_ok(), "{texts:?}: {config:?}");
    }
    let words = &schema().key("model.kind").unwrap().words;
    assert_eq!(words[1], ("faster_rcnn".to_string(), "Boxes only.".to_string()));
    assert_eq!(schema().key("input.min_size").unwrap().unit.as_deref(), Some("pixels"));
    assert_eq!(schema().key("model.rpn.beta").unwrap().default, "0.11111111");
    assert_eq!(schema().key("train.name").unwrap().default, "\"none\"");
}

#[test]
fn printed_config_has_every_key_and_round_trips() {
    for name in preset_names() {
        let groups = "solver.groups=[{match = '*.bias', lr_factor = 2}]";
        let classes = "loss_weights.classes.hot dog=2.5";
        let set = ["train.run_dir=a \"b\"\nc".to_string(), groups.into(), classes.into()];
        let config = Config::load(name, &set).unwrap();
        let text = config.to_commented_toml().unwrap();
        assert_eq!(Config::from_toml("printed", &text).unwrap(), config, "{name}:\n{text}");
        let batch_size = "# Images per step, over all ranks and micro-steps. Default 16.\n\
                          # Values: an integer, 1 to 4096 (images).\nbatch_size = ";
        assert!(text.contains(batch_size), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for key in schema().keys() {
            let (table, last) = key.name.rsplit_once('.').unwrap();
            // Keys of a table in a list are printed on one line, so they are not checked.
            let is_absent = table == "data.synthetic" && config.data.synthetic.is_none();
            if is_absent || key.in_list {
                continue;
            }
            let shown = text.contains(&format!("\n{last} = ")) || text.contains(&key.name);
            assert!(shown, "{name} does not show {}", key.name);
        }
    }
}

#[test]
fn similar_keys_are_suggested() {
    assert_eq!(schema().similar("larning_rate")[0], "solver.learning_rate");
    assert_eq!(schema().similar("train.batchsize")[0], "train.batch_size");
    assert!(schema().similar("threshold").contains(&"model.rpn.nms_threshold"));
    for short in ["lr", "solver.lr"] {
        assert_eq!(schema().similar(short), ["solver.learning_rate"], "{short}");
    }
    assert_eq!(schema().keys_of_table("eval").count(), 9);
    assert_eq!(schema().keys_of_table("").count() + schema().keys_of_table("eva").count(), 0);
    assert!(schema().similar("qqqqqqqq").is_empty());
}

#[test]
fn every_config_value_is_traced_to_its_file() {
    let texts = ["train.seed=3".to_string()];
    let (config, origins) = Config::load_with_origins("quickstart", &texts).unwrap();
    assert_eq!(config, Config::load("quickstart", &texts).unwrap());
    let file = |key| origins.get(key).map(|origin| origin.file.as_str());
    assert_eq!(file("train.seed"), Some("--set"));
    assert_eq!(file("train.steps"), Some("preset quickstart"));
    assert_eq!(file("train.batch_size"), Some("preset tiny"));
    assert_eq!(origins.get("eval.batch_size"), None);
}
