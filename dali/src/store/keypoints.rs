//! The keypoints of a store's objects: their names, the lines between them, and which of them
//! change places when an image is mirrored.

use serde::{Deserialize, Serialize};

/// More keypoints than any skeleton has; it bounds what a file can make a store take.
pub const MAX_KEYPOINTS: usize = 1024;

/// The keypoints that each object has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keypoints {
    /// Their names, in the order of an object's keypoints; at least one, at most
    /// [`MAX_KEYPOINTS`].
    pub names: Vec<String>,
    /// Pairs that a line connects, counted from 0.
    pub skeleton: Vec<[usize; 2]>,
}

impl Keypoints {
    /// For each keypoint the one whose place it takes when the image is mirrored left to right: of
    /// the same name but for `left` and `right`, or `l` and `r` as a word of their own, in any case
    /// (`left_eye`, `LeftEye`, `eye.l`, `L_eye`); itself if there is none. Doing it twice changes
    /// nothing.
    #[must_use]
    pub fn mirrored(&self) -> Vec<usize> {
        let words: Vec<Vec<String>> = self.names.iter().map(|name| words(name)).collect();
        let joined: Vec<String> = words.iter().map(|words| words.concat()).collect();
        let partner = |own: usize| {
            let by_words = || {
                let wanted = words[own].iter().map(|word| mirrored_word(word));
                let wanted: Vec<String> = wanted.collect();
                words.iter().position(|words| *words == wanted)
            };
            let by_parts = || {
                let wanted = mirrored_parts(&joined[own]);
                joined.iter().position(|name| *name == wanted)
            };
            by_words().filter(|other| *other != own).or_else(by_parts).unwrap_or(own)
        };
        let partners: Vec<usize> = (0..words.len()).map(partner).collect();
        // Only the first of equal names has a partner.
        let is_mutual = |own: &usize| partners[partners[*own]] == *own;
        (0..words.len()).map(|own| if is_mutual(&own) { partners[own] } else { own }).collect()
    }

    /// The fault of a header that no writer makes.
    pub(super) fn check(&self) -> Result<(), String> {
        let count = self.names.len();
        if !(1..=MAX_KEYPOINTS).contains(&count) {
            return Err(format!("it names {count} keypoints, not 1 to {MAX_KEYPOINTS}"));
        }
        match self.skeleton.iter().flatten().find(|end| **end >= count) {
            Some(end) => Err(format!("its skeleton has the keypoint {end} of {count}")),
            None => Ok(()),
        }
    }
}

/// True if a keypoint has a finite place, and a visibility of 0, 1 or 2.
pub(crate) fn is_sound([x, y, visibility]: &[f32; 3]) -> bool {
    x.is_finite() && y.is_finite() && [0.0, 1.0, 2.0].contains(visibility)
}

/// True if one of an object's keypoints is annotated.
pub(crate) fn is_labelled(keypoints: &[[f32; 3]]) -> bool {
    keypoints.iter().any(|[_, _, visibility]| *visibility > 0.0)
}

/// The words of a name, in small letters: cut at signs, digits, and where a capital begins one.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words: Vec<String> = Vec::new();
    let mut before = None;
    for (i, &letter) in letters.iter().enumerate() {
        let kind = |c: char| (c.is_alphabetic(), c.is_numeric());
        let is_next_small = letters.get(i + 1).is_some_and(|next| next.is_lowercase());
        let begins = before.is_none_or(|last: char| {
            kind(last) != kind(letter)
                || letter.is_uppercase() && (last.is_lowercase() || is_next_small)
        });
        before = Some(letter);
        if !letter.is_alphanumeric() {
            continue;
        }
        match words.last_mut() {
            Some(word) if !begins => word.extend(letter.to_lowercase()),
            _ => words.push(letter.to_lowercase().collect()),
        }
    }
    words
}

fn mirrored_word(word: &str) -> String {
    match word {
        "l" => "r".to_string(),
        "r" => "l".to_string(),
        word => mirrored_parts(word),
    }
}

/// The text with `left` for each `right`, and the reverse.
fn mirrored_parts(text: &str) -> String {
    let swapped = text.split("left").map(|part| part.replace("right", "left"));
    swapped.collect::<Vec<_>>().join("right")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirrored(names: &[&str]) -> Vec<usize> {
        let names = names.iter().map(ToString::to_string).collect();
        Keypoints { names, skeleton: vec![] }.mirrored()
    }

    #[test]
    fn left_and_right_change_places_in_any_spelling() {
        for pair in [
            ["left_eye", "right_eye"],
            ["LeftEye", "RightEye"],
            ["LEFT EYE", "RIGHT EYE"],
            ["eye.l", "eye.r"],
            ["L_ankle", "R_ankle"],
            ["l-eye", "r-eye"],
            ["eyeL", "eyeR"],
            ["LEye", "REye"],
            ["L1", "R1"],
            ["lefteye", "righteye"],
            ["Left hand, left side", "Right hand, right side"],
            ["\u{e9}paule left", "\u{e9}paule right"],
            ["Left_Eye", "right-eye"],
        ] {
            assert_eq!(mirrored(&[pair[0], "nose", pair[1]]), [2, 1, 0], "{pair:?}");
        }
    }

    #[test]
    fn a_keypoint_without_a_partner_stays() {
        let names = ["nose", "left_eye", "left_ear", "rear", "real", "", "right_ear", "left_ear"];
        assert_eq!(mirrored(&names), [0, 1, 6, 3, 4, 5, 2, 7]);
        assert!(mirrored(&[]).is_empty());
    }

    #[test]
    fn people_mirror_as_in_detectron2() {
        let names = [
            "nose",
            "left_eye",
            "right_eye",
            "left_ear",
            "right_ear",
            "left_shoulder",
            "right_shoulder",
            "left_elbow",
            "right_elbow",
            "left_wrist",
            "right_wrist",
            "left_hip",
            "right_hip",
            "left_knee",
            "right_knee",
            "left_ankle",
            "right_ankle",
        ];
        assert_eq!(mirrored(&names), [0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 16, 15]);
    }
}
