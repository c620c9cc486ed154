//! Checks of COCO's flat lists of keypoints (x, y, and a visibility or score) and of the sigmas of
//! OKS.

use hotcoco::params::{IouType, Params};

/// COCO's sigmas of its 17 person keypoints; for other keypoints 1/K each, as in Ultralytics.
pub(super) fn default_sigmas(count: usize) -> Vec<f64> {
    let of_people = Params::new(IouType::Keypoints).kpt_oks_sigmas;
    match of_people.len() == count {
        true => of_people,
        false => vec![1.0 / count as f64; count],
    }
}

/// Checks that sigmas are valid for this many keypoints.
pub(super) fn check_sigmas(sigmas: &[f64], count: usize) -> Result<(), String> {
    if sigmas.len() != count {
        return Err(format!(
            "objects have {count} keypoints, and {} sigmas were given; give one for each",
            sigmas.len()
        ));
    }
    match sigmas.iter().find(|sigma| !(sigma.is_finite() && **sigma > 0.0)) {
        Some(sigma) => Err(format!("a keypoint has the sigma {sigma}; it must be more than 0")),
        None => Ok(()),
    }
}

/// Checks that a list has `count` keypoints, or any integer number of keypoints if `None`. The
/// error is printed after the entry.
pub(super) fn check_list(list: &[f64], count: Option<usize>) -> Result<(), String> {
    let length = list.len();
    let why = match count {
        Some(count) if length != 3 * count => {
            format!("expected {}: three for each of {count} keypoints", 3 * count)
        }
        None if !length.is_multiple_of(3) => "expected three for each keypoint".to_string(),
        _ => {
            let odd = list.iter().find(|value| !value.is_finite());
            return odd.map_or(Ok(()), |value| Err(format!("has {value} in its keypoints")));
        }
    };
    Err(format!("has keypoints of {length} numbers, {why}"))
}

/// The bounding box `x, y, width, height` of all keypoints in a checked list; `None` if the list is
/// empty.
pub(super) fn extent(list: &[f64]) -> Option<[f64; 4]> {
    let (points, _) = list.as_chunks::<3>();
    let low = |axis: usize| points.iter().map(|p| p[axis]).reduce(f64::min);
    let high = |axis: usize| points.iter().map(|p| p[axis]).reduce(f64::max);
    let (x, y) = (low(0)?, low(1)?);
    Some([x, y, high(0)? - x, high(1)? - y])
}
