//! Sets every numeric key of the schema to invalid values.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use configs::preset_names;
use engine::config::{Config, Key, schema};

/// Values, as TOML, that are invalid for all or most keys.
const NONSENSE: [&str; 13] = [
    "0",
    "-1",
    "2147483648",
    "4294967296",
    "9007199254740992",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "1e308",
    "-1e308",
    "nan",
    "inf",
    "-inf",
];
/// Time limit for loading a config, which normally takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

fn is_numeric(key: &&Key) -> bool {
    [" number", " integer"].iter().any(|word| key.kind.contains(word))
}

/// An override that sets the key; for a list, the value is repeated to the required length.
fn set(key: &Key, value: &str) -> String {
    let value = match key.default.strip_prefix('[') {
        Some(list) => format!("[{}]", vec![value; list.matches(',').count() + 1].join(", ")),
        None => value.to_string(),
    };
    format!("{}={value}", key.name)
}

#[test]
fn every_numeric_key_has_limits() {
    let numeric: Vec<&Key> = schema().keys().iter().filter(is_numeric).collect();
    assert!(numeric.len() > 80, "{} keys", numeric.len());
    for key in numeric {
        let (Some(min), Some(max)) = (&key.min, &key.max) else {
            panic!("{}: give its range in configs/src/schema", key.name)
        };
        assert!(min.as_f64() <= max.as_f64(), "{}: {min} to {max}", key.name);
    }
}

#[test]
fn invalid_number_in_any_key_prints_one_line_error() {
    let (mut refused, mut taken) = (0, 0);
    for preset in preset_names() {
        for key in schema().keys().iter().filter(is_numeric) {
            for value in NONSENSE {
                let text = set(key, value);
                let started = Instant::now();
                match Config::load(preset, std::slice::from_ref(&text)) {
                    Ok(config) => {
                        taken += 1;
                        let saved = config.to_toml().unwrap();
                        assert_eq!(Config::from_toml("saved", &saved).unwrap(), config, "{text}");
                    }
                    Err(error) => {
                        refused += 1;
                        let error = error.to_string();
                        assert!(error.contains(": `") && !error.contains('\n'), "{text}: {error}");
                    }
                }
                assert!(started.elapsed() < PATIENCE, "{preset} {text}: {:?}", started.elapsed());
            }
        }
    }
    assert!(refused > 9 * 700 && taken > 100, "{refused} refused, {taken} taken");
}

#[test]
fn only_seeds_ids_clip_norm_and_loss_scale_exceed_32_bits() {
    for key in schema().keys().iter().filter(is_numeric) {
        let max = key.max.as_ref().and_then(serde_json::Number::as_f64).unwrap();
        let is_free = key.name.ends_with("seed")
            || key.name == "data.ids"
            || matches!(key.name.as_str(), "solver.clip_norm" | "solver.initial_loss_scale");
        assert!(is_free || max < f64::from(u32::MAX), "{} up to {max}", key.name);
    }
}

#[test]
fn out_of_range_value_error_has_limits() {
    let load = |text: &str| Config::load("micro", &[text.to_string()]).unwrap_err().to_string();
    assert_eq!(
        load("train.batch_size=4294967296"),
        "--set: `train.batch_size` is 4294967296; it must be between 1 and 4096"
    );
    assert_eq!(
        load("train.steps=9223372036854775807"),
        "--set: `train.steps` is 9223372036854775807; it must be between 0 and 1000000000"
    );
    let mut config = Config::default();
    config.input.pixel_scale = f32::NAN;
    assert!(config.validate().is_err());
    config = Config::default();
    config.solver.learning_rate = f64::INFINITY;
    assert!(config.validate().unwrap_err().to_string().contains("solver.learning_rate"));
    assert_eq!(schema().key("train.batch_size").unwrap().values(), "an integer, 1 to 4096");
}

#[test]
fn sizes_whose_product_exceeds_memory_are_rejected() {
    let load = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| text.to_string()).collect();
        Config::load("tiny", &texts).unwrap_err().to_string()
    };
    let large = ["train.batch_size=4096", "train.images_per_group=4096"];
    let text = load(&[&["input.max_size=16384"], &large[..]].concat());
    assert!(text.contains("`input.max_size` is too large: images x side x side"), "{text}");
    let text = load(&["model.box_head.hidden=[1048576, 1048577]"]);
    assert!(text.contains("between 1 and 1048576"), "{text}");
    let text = load(&["model.roi.batch_size_per_image=65536", "model.fpn.channels=65536"]);
    assert!(text.contains("`model.") && text.contains("elements; the limit is"), "{text}");
}

#[test]
fn every_preset_loads_with_batch_size_48() {
    for name in preset_names() {
        let config = Config::load(name, &["train.batch_size=48".into()]);
        assert!(config.is_ok(), "{name}: {config:?}");
    }
}
