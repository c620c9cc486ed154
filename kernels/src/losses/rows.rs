//! Weights of rows within their group of images, and sums in a fixed order.

use rayon::prelude::*;

/// Weight of each row in the loss.
#[derive(Debug)]
pub(crate) struct RowWeights<'a> {
    images_per_group: usize,
    num_images: usize,
    image_idx: &'a [i32],
    /// Weight of a row, by group.
    groups: Vec<f64>,
}

impl<'a> RowWeights<'a> {
    /// Counts the rows of each group that satisfy `counts`. Rows without an image, or of an image
    /// at or past `num_images`, belong to no group.
    pub(crate) fn new(
        images_per_group: usize,
        num_images: &[i32],
        image_idx: &'a [i32],
        counts: impl Fn(usize) -> bool,
    ) -> Self {
        let num_images = usize::try_from(num_images[0]).unwrap_or(0);
        let groups = num_images.div_ceil(images_per_group);
        let mut weights =
            Self { images_per_group, num_images, image_idx, groups: vec![0.0; groups] };
        for row in (0..image_idx.len()).filter(|&row| counts(row)) {
            if let Some(group) = weights.group(row) {
                weights.groups[group] += 1.0;
            }
        }
        for count in &mut weights.groups {
            *count = 1.0 / (count.max(1.0) * groups as f64);
        }
        weights
    }

    /// [`Self::new`] with an optional fixed divisor: `rows_per_image` for each image of a group,
    /// regardless of the number of counted rows.
    pub(crate) fn over(
        rows_per_image: Option<usize>,
        images_per_group: usize,
        num_images: &[i32],
        image_idx: &'a [i32],
        counts: impl Fn(usize) -> bool,
    ) -> Self {
        let mut weights = Self::new(images_per_group, num_images, image_idx, counts);
        let Some(rows) = rows_per_image else { return weights };
        let groups = weights.groups.len() as f64;
        for (group, weight) in weights.groups.iter_mut().enumerate() {
            let images = images_per_group.min(weights.num_images - group * images_per_group);
            *weight = 1.0 / ((rows * images) as f64 * groups);
        }
        weights
    }

    /// The weight of each row in the group of `row`; 0 for a row of no group.
    pub(crate) fn of(&self, row: usize) -> f64 {
        self.group(row).map_or(0.0, |group| self.groups[group])
    }

    fn group(&self, row: usize) -> Option<usize> {
        let image = usize::try_from(self.image_idx[row]).ok()?;
        (image < self.num_images).then_some(image / self.images_per_group)
    }
}

/// Sum of `value` over the rows, in f64. Tasks have a fixed number of rows and are added in order,
/// so that the result does not depend on the number of threads.
pub(crate) fn sum_rows(
    rows: usize,
    rows_a_task: usize,
    value: impl Fn(usize) -> f64 + Sync,
) -> f32 {
    let tasks = rows.div_ceil(rows_a_task);
    let sums: Vec<f64> = (0..tasks)
        .into_par_iter()
        .map(|task| {
            let first = task * rows_a_task;
            (first..rows.min(first + rows_a_task)).map(&value).sum()
        })
        .collect();
    sums.iter().sum::<f64>() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_batch_has_zero_loss() {
        let weights = RowWeights::new(2, &[0], &[0, 1], |_| true);
        assert_eq!([weights.of(0), weights.of(1)], [0.0, 0.0]);
        assert_eq!(sum_rows(0, 256, |_| 1.0), 0.0);
        assert_eq!(sum_rows(1000, 256, |row| row as f64), 499_500.0);
    }
}
