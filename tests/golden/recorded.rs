//! Recorded settings, read by name; and the test that a converter drops none of them: each value
//! is changed in turn, and must give another result or a failure that names it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use crate::models::all;
use crate::support::Family;

/// Attributes that say what a generator found or how it ran, and not what it computed with.
const FINDINGS: [&str; 27] = [
    "buffers",
    "columns",
    "config_yaml",
    "detections",
    "f32_relative_deviation_per_step",
    "frozen_parameters",
    "full_shapes",
    "lists_are",
    "loss_columns",
    "lr_per_step",
    "margins_f64",
    "n_before",
    "n_proposals_after_batch_topn",
    "n_roi_pos",
    "n_rpn_neg",
    "n_rpn_pos",
    "names",
    "narrow",
    "ngt",
    "note",
    "num_gt",
    "parameters",
    "same_decisions_f32_f64",
    "seed",
    "source",
    "trained_parameters",
    "worst_relative_f32_error",
];

/// A table of settings, whose names are dotted paths behind that of a part.
#[derive(Clone, Copy)]
pub(crate) struct Settings<'a>(pub(crate) &'a Value, pub(crate) &'a str);

impl<'a> Settings<'a> {
    pub(crate) fn part(self, name: &'a str) -> Self {
        Settings(self.0, name)
    }

    /// A name with the part's.
    pub(crate) fn full(self, name: &str) -> String {
        format!("{}.{name}", self.1).trim_start_matches('.').to_string()
    }

    fn find(self, name: &str) -> Option<&'a Value> {
        self.0.pointer(&format!("/{}", self.full(name).replace('.', "/")))
    }

    pub(crate) fn get(self, name: &str) -> &'a Value {
        self.find(name).unwrap_or_else(|| panic!("{} is missing", self.full(name)))
    }

    fn read<T>(self, name: &str, read: impl Fn(&'a Value) -> Option<T>) -> T {
        let value = self.get(name);
        read(value).unwrap_or_else(|| panic!("{} is {value}", self.full(name)))
    }

    pub(crate) fn float(self, name: &str) -> f64 {
        self.read(name, Value::as_f64)
    }

    pub(crate) fn f32(self, name: &str) -> f32 {
        self.float(name) as f32
    }

    pub(crate) fn usize(self, name: &str) -> usize {
        self.read(name, Value::as_u64) as usize
    }

    pub(crate) fn flag(self, name: &str) -> bool {
        self.read(name, Value::as_bool)
    }

    pub(crate) fn text(self, name: &str) -> &'a str {
        self.read(name, Value::as_str)
    }

    pub(crate) fn list(self, name: &str) -> &'a [Value] {
        self.read(name, Value::as_array)
    }

    pub(crate) fn f32s(self, name: &str) -> Vec<f32> {
        let number = |i| self.f32(&format!("{name}.{i}"));
        (0..self.list(name).len()).map(number).collect()
    }

    pub(crate) fn usizes(self, name: &str) -> Vec<usize> {
        self.f32s(name).into_iter().map(|v| v as usize).collect()
    }

    /// A list of `N` numbers.
    pub(crate) fn array<const N: usize>(self, name: &str) -> [f32; N] {
        let list = self.f32s(name);
        list.try_into().unwrap_or_else(|_| panic!("{} is not {N} numbers", self.full(name)))
    }

    /// Fails unless the value is that of the product, which has no key for it.
    pub(crate) fn is(self, name: &str, want: impl Into<Value>) {
        let (got, want) = (self.get(name), want.into());
        assert!(is_same(got, &want), "{} is {got}, not {want}", self.full(name));
    }

    /// Fails unless all of these that are recorded are the same.
    pub(crate) fn agree(self, names: &[&str]) {
        let found: Vec<&Value> = names.iter().filter_map(|name| self.find(name)).collect();
        let same = found.windows(2).all(|pair| is_same(pair[0], pair[1]));
        assert!(same, "{} differ: {found:?}", names.join(", "));
    }
}

fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

/// Another value of the same type.
fn changed(value: &Value) -> Value {
    match value {
        Value::Null => 1.into(),
        Value::Bool(flag) => (!flag).into(),
        Value::String(text) => format!("{text}?").into(),
        Value::Array(_) | Value::Object(_) => vec!["?"].into(),
        Value::Number(number) => match number.as_u64() {
            Some(number) => (number + 1).into(),
            None => (1.5 * number.as_f64().unwrap_or(0.0) + 0.25).into(),
        },
    }
}

/// Paths of all values that hold no other.
fn leaves(path: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().for_each(|(i, v)| leaves(&format!("{path}/{i}"), v, found));
        }
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(key, _)| !FINDINGS.contains(&key.as_str()));
            fields.for_each(|(key, v)| leaves(&format!("{path}/{key}"), v, found));
        }
        _ => found.push(path.to_string()),
    }
}

fn message(why: &(dyn Any + Send)) -> &str {
    let text = why.downcast_ref::<String>().map(String::as_str);
    text.or(why.downcast_ref::<&str>().copied()).unwrap_or_default()
}

/// The settings that a message names, as dotted paths without places in a list.
fn names(message: &str) -> impl Iterator<Item = &str> {
    let words = message.split(|c: char| !(c.is_alphanumeric() || "._".contains(c)));
    let is_place = |c: char| c == '.' || c.is_ascii_digit();
    words.map(move |word| word.strip_prefix("cfg.").unwrap_or(word).trim_end_matches(is_place))
}

/// Changes each value of these cases, (family, case).
fn change_each(
    families: &mut [Family],
    cases: &[(usize, &str)],
    convert: impl Fn(&[Family]) -> String,
) {
    let before = convert(families);
    for &(family, case) in cases {
        let mut paths = vec![];
        leaves("", families[family].case(case).attributes(), &mut paths);
        for path in paths {
            let swap = |families: &mut [Family], value: Value| {
                let place = families[family].attributes_mut(case).pointer_mut(&path);
                std::mem::replace(place.expect("a path of this case"), value)
            };
            let value = families[family].case(case).attributes().pointer(&path);
            let other = changed(value.expect("a path of this case"));
            let value = swap(families, other.clone());
            let found = catch_unwind(AssertUnwindSafe(|| convert(families)));
            swap(families, value);
            let words = path.split('/').skip(1).filter(|word| word.parse::<usize>().is_err());
            let name = words.filter(|word| *word != "cfg").collect::<Vec<_>>().join(".");
            let counts = match &found {
                Ok(after) => *after != before,
                Err(why) => names(message(why.as_ref())).any(|own| own == name),
            };
            let why = found.as_ref().err().map(|why| message(why.as_ref()));
            assert!(
                counts,
                "{case}: {path} = {other} changes nothing, or fails without its name: {why:?}"
            );
        }
    }
}

/// All models whose settings are recorded.
#[test]
fn each_recorded_value_counts() {
    for of in all() {
        let parts = ["weights", "steps"].map(|part| of.open(part));
        let Some(mut families) = parts.into_iter().collect::<Option<Vec<_>>>() else { return };
        change_each(&mut families, &[(0, "state_dict"), (1, of.steps)], |families| {
            let [meta, steps] = [families[0].case("state_dict"), families[1].case(of.steps)];
            format!("{:?}", of.setup(meta, steps))
        });
    }
}
