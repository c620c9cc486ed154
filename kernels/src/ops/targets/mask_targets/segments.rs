//! The objects of a batch in the loader's layout.

use super::MaskTargetsInputs;
use crate::coco::Crop;
use crate::cpu::TensorRef;

/// Polygons and runs of every image.
pub(super) struct Segments<'a> {
    /// `segm_index`, `segm_parts`, `coords`, `runs`: inputs of [`MaskTargets`](super::MaskTargets).
    index: TensorRef<'a>,
    parts: TensorRef<'a>,
    coords: TensorRef<'a>,
    runs: TensorRef<'a>,
}

/// The outline of an object.
pub(super) enum Outline<'a> {
    /// Polygons, `x0, y0, x1, y1, ..` in source pixels.
    Polygons(Vec<&'a [f32]>),
    /// Column-major run lengths, zeros first; the object is the union of all lists.
    Runs(Vec<&'a [i32]>),
}

impl<'a> Segments<'a> {
    /// Reads the four tensors.
    pub(super) fn of(inputs: &MaskTargetsInputs<&TensorRef<'a>>) -> Self {
        let MaskTargetsInputs { segm_index, segm_parts, coords, runs, .. } = *inputs;
        Self { index: *segm_index, parts: *segm_parts, coords: *coords, runs: *runs }
    }

    /// The outline of an object of an image.
    pub(super) fn outline(&self, image: usize, object: usize) -> Outline<'a> {
        let objects = self.index.shape()[1];
        assert!(object < objects, "object {object} of {objects} in image {image}");
        let at = 3 * (image * objects + object);
        let entry = &self.index.i32()[at..at + 3];
        let capacity = self.parts.shape()[1];
        let [first, number] = [entry[1] as usize, entry[2] as usize];
        assert!(first + number <= capacity, "parts {first}+{number} of {capacity}, image {image}");
        let at = 2 * (image * capacity + first);
        let parts = self.parts.i32()[at..at + 2 * number].chunks_exact(2);
        let range = |part: &[i32], values: usize| {
            let [offset, len] = [part[0] as usize, part[1] as usize];
            assert!(offset + len <= values, "values {offset}+{len} of {values}, image {image}");
            image * values + offset..image * values + offset + len
        };
        if entry[0] == 0 {
            let (values, capacity) = (self.coords.f32(), self.coords.shape()[1]);
            Outline::Polygons(parts.map(|p| &values[range(p, capacity)]).collect())
        } else {
            let (values, capacity) = (self.runs.i32(), self.runs.shape()[1]);
            Outline::Runs(parts.map(|p| &values[range(p, capacity)]).collect())
        }
    }
}

impl Outline<'_> {
    /// The object's pixels at source size: the union of the crops.
    pub(super) fn crops(&self, [height, width]: [usize; 2]) -> Vec<Crop> {
        match self {
            Self::Polygons(polygons) => {
                let polygons: Vec<Vec<f64>> =
                    polygons.iter().map(|p| p.iter().map(|&v| f64::from(v)).collect()).collect();
                vec![Crop::of_polygons(&polygons, height, width)]
            }
            Self::Runs(parts) => {
                let lengths = |runs: &[i32]| -> Vec<usize> {
                    runs.iter().map(|&len| usize::try_from(len).unwrap_or(0)).collect()
                };
                let crop = |runs| Crop::of_runs(lengths(runs).into_iter(), height, width);
                parts.iter().map(|runs| crop(runs)).collect()
            }
        }
    }
}
