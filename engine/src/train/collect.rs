//! Computes the statistics of `[[train.log]]`, per tensor and per part of the model.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde_json::{Value, json};

use crate::config::{LogOf, LogRule, Reduce};
use crate::events::Histogram;
use crate::metrics::float;
use crate::model::part_of;

/// Number of bins of a histogram, all of equal width.
const BINS: usize = 32;

/// The statistics that a `[[train.log]]` rule selects, after one step.
#[derive(Debug)]
pub(super) struct Collected {
    rule: LogRule,
    /// Moments of each tensor, by name.
    tensors: Vec<(String, Moments)>,
}

/// Moments of values, and optionally a histogram.
#[derive(Debug, Clone, PartialEq)]
struct Moments {
    count: u64,
    sum: f64,
    squares: f64,
    min: f64,
    max: f64,
    /// Number of values in each bin; empty unless requested.
    bins: Vec<u64>,
    /// Limits of the histogram: minimum and maximum of the finite values.
    ends: [f64; 2],
}

impl Moments {
    /// Moments of `values`, each multiplied by `scale`. NaNs affect count and sums, but not the
    /// extremes.
    pub(super) fn of(values: &[f32], scale: f64, with_bins: bool) -> Self {
        let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
        let (bins, ends) = (vec![], [0.0; 2]);
        let mut all = Self { count: 0, sum: 0.0, squares: 0.0, min, max, bins, ends };
        let scaled = || values.iter().map(|value| scale * f64::from(*value));
        for value in scaled() {
            all.sum += value;
            all.squares += value * value;
            (all.min, all.max) = (all.min.min(value), all.max.max(value));
        }
        all.count = values.len() as u64;
        if with_bins {
            let finite = || scaled().filter(|value| value.is_finite());
            let (low, high) = finite().fold((min, max), |(a, b), v| (a.min(v), b.max(v)));
            all.bins = vec![0; BINS];
            all.ends = if low <= high { [low, high] } else { [0.0; 2] };
            let width = (high - low) / BINS as f64;
            for value in finite() {
                let bin = if width > 0.0 { ((value - low) / width) as usize } else { 0 };
                all.bins[bin.min(BINS - 1)] += 1;
            }
        }
        all
    }

    /// Moments of the union of both sets of values, without bins.
    fn and(&self, other: &Self) -> Self {
        Self {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            bins: vec![],
            ends: [0.0; 2],
        }
    }

    /// A statistic of these values; `None` for a histogram.
    fn number(&self, reduce: Reduce) -> Option<f64> {
        let count = self.count as f64;
        let mean = self.sum / count;
        match reduce {
            Reduce::Mean => Some(mean),
            Reduce::L2 => Some(self.squares.sqrt()),
            Reduce::Min => Some(self.min),
            Reduce::Max => Some(self.max),
            Reduce::Std => Some((self.squares / count - mean * mean).max(0.0).sqrt()),
            Reduce::Histogram => None,
        }
    }

    /// The histogram in TensorBoard's format; `None` without bins.
    fn histogram(&self) -> Option<Histogram> {
        let [low, high] = self.ends;
        let width = (high - low) / BINS as f64;
        let limits = (1..=BINS).map(|bin| low + width * bin as f64).collect();
        let counts = self.bins.iter().map(|count| *count as f64).collect();
        let moments = [self.min, self.max, self.count as f64, self.sum, self.squares];
        (!self.bins.is_empty()).then_some(Histogram { moments, limits, counts })
    }
}

impl Collected {
    /// Computes the statistics of tensors, given by name; `scale` multiplies each value.
    pub(super) fn of(rule: &LogRule, tensors: &[(String, Vec<f32>)], scale: f64) -> Self {
        let bins = rule.reduce.contains(&Reduce::Histogram);
        let tensors = tensors.par_iter();
        let tensors =
            tensors.map(|(name, values)| (name.clone(), Moments::of(values, scale, bins)));
        Self { rule: rule.clone(), tensors: tensors.collect() }
    }

    /// Moments of each part of the model, over all its tensors; empty for activations, which have
    /// no part.
    fn parts(&self) -> BTreeMap<&str, Moments> {
        let mut parts: BTreeMap<&str, Moments> = BTreeMap::new();
        let with_part = self.tensors.iter().filter(|_| self.rule.of != LogOf::Activations);
        for (name, moments) in with_part {
            let entry = parts.entry(part_of_model(name));
            entry.and_modify(|sum| *sum = sum.and(moments)).or_insert_with(|| moments.clone());
        }
        parts
    }

    /// Each statistic with its TensorBoard tag.
    pub(super) fn scalars(&self) -> Vec<(String, f32)> {
        let parts = self.parts();
        let tensors = self.tensors.iter().map(|(name, moments)| (name.as_str(), moments));
        let all = tensors.chain(parts.iter().map(|(name, moments)| (*name, moments)));
        let of = self.rule.of.name();
        let tagged = all.flat_map(|(name, moments)| {
            self.rule.reduce.iter().filter_map(move |reduce| {
                let tag = format!("{of}_{}/{name}", reduce.name());
                Some((tag, moments.number(*reduce)? as f32))
            })
        });
        tagged.collect()
    }

    /// Each histogram with its TensorBoard tag.
    pub(super) fn histograms(&self) -> impl Iterator<Item = (String, Histogram)> {
        let of = self.rule.of.name();
        let tensors = self.tensors.iter();
        tensors
            .filter_map(move |(name, moments)| Some((format!("{of}/{name}"), moments.histogram()?)))
    }

    /// The record for `metrics.jsonl`.
    pub(super) fn json(&self, step: u64) -> Value {
        let object = |moments: &Moments| {
            let [min, max] = moments.ends.map(|value| float(value as f32));
            let field = |reduce: &Reduce| {
                let value = match moments.number(*reduce) {
                    Some(number) => float(number as f32),
                    None if moments.bins.is_empty() => return None,
                    None => json!({"min": min, "max": max, "counts": moments.bins}),
                };
                Some((reduce.name().to_string(), value))
            };
            Value::Object(self.rule.reduce.iter().filter_map(field).collect())
        };
        let tensors = self.tensors.iter().map(|(name, moments)| (name.clone(), object(moments)));
        let tensors: serde_json::Map<_, _> = tensors.collect();
        let parts = self.parts();
        let parts = parts.iter().map(|(name, moments)| (name.to_string(), object(moments)));
        let parts: serde_json::Map<_, _> = parts.collect();
        json!({"step": step, "log": self.rule.of.name(), "tensors": tensors, "parts": parts})
    }
}

/// The part of the model that a parameter belongs to.
fn part_of_model(name: &str) -> &str {
    let of_body = name.starts_with("backbone.").then_some("backbone");
    part_of(name).or(of_body).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> LogRule {
        let reduce = [Reduce::Mean, Reduce::L2, Reduce::Min, Reduce::Max, Reduce::Std];
        let reduce = reduce.into_iter().chain([Reduce::Histogram]).collect();
        LogRule { reduce, of: LogOf::Gradients, ..LogRule::default() }
    }

    /// Statistics, computed by hand, of the tensors (3, -1) and (1, 5) at a scale of 2, and of the
    /// part of the model with both tensors.
    #[test]
    fn collected_statistics_match_hand_computed_values() {
        let tensors = [
            ("roi_heads.box_head.fc6.weight".to_string(), vec![3.0, -1.0]),
            ("roi_heads.box_predictor.cls_score.bias".to_string(), vec![1.0, 5.0]),
        ];
        let collected = Collected::of(&rule(), &tensors, 2.0);
        let json = collected.json(7);
        let first = &json["tensors"]["roi_heads.box_head.fc6.weight"];
        assert_eq!((&json["step"], &json["log"]), (&json!(7), &json!("gradients")));
        assert_eq!((&first["mean"], &first["std"]), (&json!(2.0), &json!(4.0)));
        assert_eq!((&first["min"], &first["max"]), (&json!(-2.0), &json!(6.0)));
        assert_eq!(first["l2"], json!(f64::from(40f32.sqrt())));
        let bins = first["histogram"]["counts"].as_array().expect("bins");
        assert_eq!(first["histogram"]["max"], json!(6.0));
        assert_eq!((bins.len(), &bins[0], &bins[BINS - 1]), (BINS, &json!(1), &json!(1)));
        let part = &json["parts"]["box_head"];
        assert_eq!((&part["mean"], &part["l2"]), (&json!(4.0), &json!(12.0)));
        assert_eq!((&part["min"], &part["max"]), (&json!(-2.0), &json!(10.0)));
        assert!(part["histogram"].is_null(), "{part}");
        let scalars = collected.scalars();
        assert!(scalars.contains(&("gradients_l2/box_head".into(), 12.0)), "{scalars:?}");
        assert_eq!(scalars.len(), 15);
    }

    #[test]
    fn non_finite_values_affect_mean_but_not_histogram() {
        let moments = Moments::of(&[1.0, f32::NAN, f32::INFINITY], 1.0, true);
        assert_eq!(moments.bins.iter().sum::<u64>(), 1);
        assert!(moments.number(Reduce::Mean).expect("a number").is_nan());
        let equal = Moments::of(&[4.0; 5], 1.0, true);
        assert_eq!((equal.bins[0], equal.number(Reduce::Std)), (5, Some(0.0)));
    }
}
