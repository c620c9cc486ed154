//! Repeat factors: images with objects of rare classes occur more often in an epoch.

use crate::config::{Config, ConfigError, RepeatRule};

use crate::dataset::DataSet;
use crate::error::EngineError;

/// Maximum number of copies of an image in an epoch; image keys have 12 bits for the number of the
/// copy.
const MOST: f64 = 4095.0;

/// The mean number of occurrences of each image in an epoch, at least 1; empty if nothing is
/// repeated. As in detectron2, a class's factor depends on the share of images with the class, and
/// an image has the maximum over its classes. If the epoch has fewer than `data.min_epoch_images`
/// images, all factors are scaled up.
///
/// # Errors
/// [`ConfigError::Invalid`] if an image would occur more than 4,095 times in an epoch.
pub(super) fn repeat_factors(config: &Config, data: &DataSet) -> Result<Vec<f64>, EngineError> {
    let (threshold, least) = (config.data.repeat_threshold, config.data.min_epoch_images);
    let mut factors = match threshold {
        0.0 => vec![1.0; data.images.len()],
        _ => {
            let images = data.images.iter();
            let classes: Vec<Vec<u32>> = images.map(|&image| classes_of(data, image)).collect();
            factors(&classes, threshold, config.data.repeat)
        }
    };
    let more = least as f64 / factors.iter().sum::<f64>();
    if more > 1.0 {
        factors.iter_mut().for_each(|factor| *factor *= more);
    } else if threshold == 0.0 {
        return Ok(vec![]);
    }
    let most = factors.iter().fold(0.0f64, |most, factor| most.max(*factor));
    if most <= MOST {
        return Ok(factors);
    }
    let (key, value, mend) = match more > 1.0 {
        true => ("data.min_epoch_images", least.to_string(), "lower it"),
        false => (
            "data.repeat_threshold",
            threshold.to_string(),
            "lower it, or set data.repeat = \"sqrt\"",
        ),
    };
    let problem = format!(
        "is {value}, which would repeat an image {most:.0} times in an epoch; the maximum is \
         {MOST}; {mend}"
    );
    Err(ConfigError::Invalid { file: "config".into(), key: key.into(), problem }.into())
}

/// The distinct labels in an image.
fn classes_of(data: &DataSet, image: usize) -> Vec<u32> {
    let objects = data.store.image(image).objects;
    let mut labels: Vec<u32> = objects.map(|object| data.store.object(object).label).collect();
    labels.sort_unstable();
    labels.dedup();
    labels
}

fn factors(classes: &[Vec<u32>], threshold: f64, rule: RepeatRule) -> Vec<f64> {
    let most = classes.iter().flatten().max().map_or(0, |&label| label as usize + 1);
    let mut counts = vec![0u64; most];
    classes.iter().flatten().for_each(|&label| counts[label as usize] += 1);
    let of_class = |&label: &u32| {
        let share = counts[label as usize] as f64 / classes.len() as f64;
        match rule {
            RepeatRule::Sqrt => (threshold / share).sqrt(),
            RepeatRule::Linear => threshold / share,
        }
    };
    let of_image = |labels: &Vec<u32>| labels.iter().map(of_class).fold(1.0, f64::max);
    classes.iter().map(of_image).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by hand for 8 images: six have class 1, two class 2, one class 3, and one has no
    /// objects.
    #[test]
    fn repeat_factor_follows_rarest_class() {
        let mut classes = vec![vec![1]; 8];
        (classes[0], classes[1], classes[7]) = (vec![1, 2], vec![2, 3], vec![]);
        let found = factors(&classes, 0.5, RepeatRule::Linear);
        assert_eq!(found, [2.0, 4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        let found = factors(&classes, 0.5, RepeatRule::Sqrt);
        assert_eq!(found[..3], [2.0f64.sqrt(), 2.0, 1.0]);
    }
}
