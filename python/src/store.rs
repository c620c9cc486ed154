//! Read access to a store.

use std::path::PathBuf;

use dali::store::{Segmentation, Store as Stored};
use engine::remote::local;
use numpy::ndarray::{Array2, Array3};
use numpy::{IntoPyArray, PyArrayMethods};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use score::Rle;

use crate::error;

/// An open store; images are decoded on access.
#[pyclass(module = "onegraph", frozen)]
pub(crate) struct Store {
    store: Stored,
}

#[pymethods]
impl Store {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let path = local(&path).map_err(error)?;
        Ok(Self { store: Stored::open(&path).map_err(error)? })
    }

    #[getter]
    fn classes(&self) -> Vec<String> {
        self.store.header().categories.iter().map(|category| category.name.clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.store.len()
    }

    fn __repr__(&self) -> String {
        format!("Store of {} images, {}", self.store.len(), self.store.path().display())
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyDict>> {
        let len = self.store.len() as isize;
        let at = if index < 0 { index + len } else { index };
        if !(0..len).contains(&at) {
            return Err(PyIndexError::new_err(format!("image {index} of {len}")));
        }
        let at = at as usize;
        let record = self.store.image(at);
        let (height, width) = (record.height as usize, record.width as usize);
        let mut rgb = Vec::new();
        py.detach(|| self.store.decode_rgb(at, &mut rgb)).map_err(error)?;
        let objects: Vec<_> = record.objects.map(|object| self.store.object(object)).collect();
        let corners = objects.iter().flat_map(|object| {
            let [x, y, w, h] = object.bbox_xywh;
            [x, y, x + w, y + h]
        });
        let boxes = Array2::from_shape_vec((objects.len(), 4), corners.collect());
        let mut bits = Vec::with_capacity(objects.len() * height * width);
        for object in &objects {
            let mask = mask(&object.segmentation, record.height, record.width)?;
            bits.extend(mask.decode().into_iter().map(|bit| bit != 0));
        }
        let labels: Vec<i64> = objects.iter().map(|object| object.label.into()).collect();
        let crowd: Vec<bool> = objects.iter().map(|object| object.crowd).collect();
        let pixels = Array3::from_shape_vec((height, width, 3), rgb).map_err(error)?;
        let masks = bits.into_pyarray(py).reshape([objects.len(), height, width])?;
        let image = PyDict::new(py);
        image.set_item("id", record.image_id)?;
        image.set_item("file_name", self.store.file_name(at))?;
        image.set_item("image", pixels.into_pyarray(py))?;
        image.set_item("boxes", boxes.map_err(error)?.into_pyarray(py))?;
        image.set_item("labels", labels.into_pyarray(py))?;
        image.set_item("crowd", crowd.into_pyarray(py))?;
        image.set_item("masks", masks)?;
        let keypoints: Vec<f32> =
            objects.iter().flat_map(|object| object.keypoints.as_flattened()).copied().collect();
        let per_object = objects.first().map_or(0, |object| object.keypoints.len());
        let keypoints = keypoints.into_pyarray(py).reshape([objects.len(), per_object, 3])?;
        image.set_item("keypoints", keypoints)?;
        Ok(image)
    }
}

/// The mask of an object; an empty mask if the object has only a box.
fn mask(segmentation: &Segmentation<'_>, height: u32, width: u32) -> PyResult<Rle> {
    match segmentation {
        Segmentation::Runs(counts) => Ok(Rle { height, width, counts: counts.to_vec() }),
        Segmentation::Polygons(rings) if rings.is_empty() => {
            Ok(Rle { height, width, counts: vec![height * width] })
        }
        Segmentation::Polygons(rings) => {
            let rings: Vec<Vec<f64>> =
                rings.iter().map(|ring| ring.iter().map(|x| f64::from(*x)).collect()).collect();
            Rle::from_polygons(height, width, &rings).map_err(error)
        }
    }
}
