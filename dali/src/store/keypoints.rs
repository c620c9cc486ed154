//! Keypoints of a store's objects: names, skeleton, and the pairs that a horizontal flip of the
//! image exchanges.

use serde::{Deserialize, Serialize};

/// Maximum number of keypoints, more than any skeleton has; limits the memory that a file can
/// request.
pub const MAX_KEYPOINTS: usize = 1024;

/// Names and skeleton of the keypoints of every object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keypoints {
    /// Names in the order of an object's keypoints; 1 to [`MAX_KEYPOINTS`].
    pub names: Vec<String>,
    /// Pairs connected by a line, counted from 0.
    pub skeleton: Vec<[usize; 2]>,
}

impl Keypoints {
    /// For each keypoint, the index of its partner in a horizontally flipped image, or its own
    /// index. The partner's name differs by `left` instead of `right`, or by `l` instead of `r` as
    /// a separate word, in upper or lower case (`left_eye`, `LeftEye`, `eye.l`, `L_eye`). Partners
    /// are mutual.
    #[must_use]
    pub fn flipped(&self) -> Vec<usize> {
        let words: Vec<Vec<String>> = self.names.iter().map(|name| words(name)).collect();
        let joined: Vec<String> = words.iter().map(|words| words.concat()).collect();
        let partner = |own: usize| {
            let by_words = || {
                let wanted = words[own].iter().map(|word| flipped_word(word));
                let wanted: Vec<String> = wanted.collect();
                words.iter().position(|words| *words == wanted)
            };
            let by_parts = || {
                let wanted = flipped_parts(&joined[own]);
                joined.iter().position(|name| *name == wanted)
            };
            by_words().filter(|other| *other != own).or_else(by_parts).unwrap_or(own)
        };
        let partners: Vec<usize> = (0..words.len()).map(partner).collect();
        // If names are repeated, only the first has a partner.
        let is_mutual = |own: &usize| partners[partners[*own]] == *own;
        (0..words.len()).map(|own| if is_mutual(&own) { partners[own] } else { own }).collect()
    }

    /// For each keypoint, the index of its partner in a flipped image: from `pairs` of names if
    /// given, else derived from the names ([`Self::flipped`]).
    ///
    /// # Errors
    /// A message if a pair has an unknown keypoint, or a keypoint that is already in a pair.
    pub fn partners(&self, pairs: Option<&[[String; 2]]>) -> Result<Vec<usize>, String> {
        let Some(pairs) = pairs else { return Ok(self.flipped()) };
        let mut partners: Vec<usize> = (0..self.names.len()).collect();
        for pair in pairs {
            let mut at = [0; 2];
            for (at, name) in at.iter_mut().zip(pair) {
                let place = self.names.iter().position(|known| known == name);
                *at = place.ok_or_else(|| format!("names `{name}`, which is not a keypoint"))?;
            }
            let [a, b] = at;
            if a == b || partners[a] != a || partners[b] != b {
                return Err(format!("names `{}` or `{}` twice", pair[0], pair[1]));
            }
            partners.swap(a, b);
        }
        Ok(partners)
    }

    /// Names of keypoints that contain a word for left or right, but have no partner.
    #[must_use]
    pub fn one_sided(&self, partners: &[usize]) -> Vec<&str> {
        let has_side = |name: &str| {
            let is_side = |word: &String| {
                ["l", "r"].contains(&word.as_str())
                    || ["left", "right"].iter().any(|side| word.starts_with(side))
            };
            words(name).iter().any(is_side)
        };
        let alone = self.names.iter().enumerate().filter(|(own, _)| partners[*own] == *own);
        alone.map(|(_, name)| name.as_str()).filter(|name| has_side(name)).collect()
    }

    /// For each of `names`, the index of the keypoint with this name; `None` if the sets of names
    /// differ.
    #[must_use]
    pub fn order_of(&self, names: &[String]) -> Option<Vec<usize>> {
        if self.names == names {
            return Some((0..names.len()).collect());
        }
        let place = |name| self.names.iter().position(|known| known == name);
        let order: Vec<usize> = names.iter().map(place).collect::<Option<_>>()?;
        let is_there = |place| order.contains(&place);
        (order.len() == self.names.len() && (0..order.len()).all(is_there)).then_some(order)
    }

    /// Checks the keypoints in a header; an error means that onegraph did not write the header.
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

/// True if a keypoint has a finite position, and a visibility of 0, 1 or 2.
pub(crate) fn is_sound([x, y, visibility]: &[f32; 3]) -> bool {
    x.is_finite() && y.is_finite() && [0.0, 1.0, 2.0].contains(visibility)
}

/// True if one of an object's keypoints is annotated.
pub(crate) fn is_labelled(keypoints: &[[f32; 3]]) -> bool {
    keypoints.iter().any(|[_, _, visibility]| *visibility > 0.0)
}

/// The words of a name, in lower case: split at punctuation, digits, and before capitals.
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

fn flipped_word(word: &str) -> String {
    match word {
        "l" => "r".to_string(),
        "r" => "l".to_string(),
        word => flipped_parts(word),
    }
}

/// The text with `left` and `right` swapped.
fn flipped_parts(text: &str) -> String {
    let swapped = text.split("left").map(|part| part.replace("right", "left"));
    swapped.collect::<Vec<_>>().join("right")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flipped(names: &[&str]) -> Vec<usize> {
        let names = names.iter().map(ToString::to_string).collect();
        Keypoints { names, skeleton: vec![] }.flipped()
    }

    #[test]
    fn left_and_right_keypoints_pair_in_any_spelling() {
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
            ["l_eye", "r_eye"],
            ["Left Eye", "Right Eye"],
            ["eye_L", "eye_R"],
            ["leftEye", "rightEye"],
        ] {
            assert_eq!(flipped(&[pair[0], "nose", pair[1]]), [2, 1, 0], "{pair:?}");
        }
    }

    #[test]
    fn unpaired_keypoint_is_its_own_flip_partner() {
        let names = ["nose", "left_eye", "left_ear", "rear", "real", "", "right_ear", "left_ear"];
        assert_eq!(flipped(&names), [0, 1, 6, 3, 4, 5, 2, 7]);
        assert!(flipped(&[]).is_empty());
    }

    #[test]
    fn configured_flip_pairs_override_names() {
        let known = |names: &str| Keypoints {
            names: names.split(' ').map(String::from).collect(),
            skeleton: vec![],
        };
        let (numbers, pair) = (known("1 2 3"), |a: &str, b: &str| [a.to_string(), b.to_string()]);
        assert_eq!(numbers.partners(None), Ok(vec![0, 1, 2]));
        assert_eq!(numbers.partners(Some(&[pair("3", "1")])), Ok(vec![2, 1, 0]));
        assert_eq!(known("l r").partners(Some(&[])), Ok(vec![0, 1]));
        for pairs in [vec![pair("1", "4")], vec![pair("1", "1")], vec![pair("1", "2"); 2]] {
            let error = numbers.partners(Some(&pairs)).expect_err("not pairs");
            assert!(error.contains("not a keypoint") || error.ends_with("twice"), "{error}");
        }
        let lone = known("nose left_eye r_ear LeftHip bright tail right_eye");
        assert_eq!(lone.one_sided(&lone.flipped()), ["r_ear", "LeftHip"]);
    }

    #[test]
    fn person_keypoint_flip_matches_detectron2() {
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
        assert_eq!(flipped(&names), [0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 16, 15]);
    }
}
