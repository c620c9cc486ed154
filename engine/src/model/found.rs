//! A detected object, with the predictions of all heads.

use std::collections::BTreeMap;

use score::Rle;
use serde::{Deserialize, Serialize};

/// A detected object. Ranks exchange it in a format without field names, so serde must not skip
/// fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Class, from 1.
    pub label: usize,
    /// Score, 0 to 1.
    pub score: f32,
    /// x1, y1, x2, y2 in image pixels; the width is x2 - x1, regardless of the model's box
    /// convention.
    pub bbox: [f32; 4],
    /// Mask at image size, if the model predicts masks.
    pub mask: Option<Rle>,
    /// Keypoints, if the model predicts them: x, y in image pixels, in the convention of the
    /// annotations, and the score (`model.keypoint_head.score`).
    pub keypoints: Option<Vec<[f32; 3]>>,
    /// Predictions of custom heads, by name.
    pub further: BTreeMap<String, Vec<f32>>,
}

impl Found {
    /// An object without keypoints and predictions of custom heads.
    pub fn new(label: usize, score: f32, bbox: [f32; 4], mask: Option<Rle>) -> Self {
        Self { label, score, bbox, mask, keypoints: None, further: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team::{decode, encode};

    #[test]
    fn detections_are_unchanged_by_encoding_and_decoding() {
        let plain = Found::new(1, 0.5, [1.0, 2.0, 3.0, 4.0], None);
        let keypoints = Some(vec![[1.0, 2.0, 0.5]]);
        let further = BTreeMap::from([("depth".to_string(), vec![7.0])]);
        let mask = Some(Rle { counts: vec![1, 2, 1], height: 2, width: 2 });
        let full = Found { keypoints, further, mask, ..plain.clone() };
        let found = vec![plain.clone(), full, plain];
        let read: Vec<Found> = decode(&encode(&found).expect("a message")).expect("objects");
        assert_eq!(read, found);
    }
}
