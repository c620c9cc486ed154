//! Detection with a trained model.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use engine::checkpoint::choose;
use engine::cli::DeviceArgs;
use engine::evaluate::Image;
use engine::predictor::{Prediction, Predictor as Model};
use engine::progress::Progress;
use engine::remote::trained;
use engine::run_dir::Choice;
use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArray3, PyArrayMethods, PyReadonlyArray3};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::{error, overrides, prepare};

/// A trained model.
#[pyclass(module = "onegraph", frozen)]
pub(crate) struct Predictor {
    model: Mutex<Model>,
    #[pyo3(get)]
    classes: Vec<String>,
}

#[pymethods]
impl Predictor {
    #[new]
    #[pyo3(signature = (path, device = "auto", config = None, checkpoint = "best", **set))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        device: &str,
        config: Option<PathBuf>,
        checkpoint: &str,
        set: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        prepare()?;
        let set = overrides(set)?;
        let device = DeviceArgs::of(device).map_err(error)?;
        let choice = Choice::of(checkpoint).map_err(error)?;
        let opened = py.detach(|| {
            let backend = device.open()?;
            let path = trained(&path, choice)?;
            if path.is_file() {
                return Model::from_weights(&path, config.as_deref(), &set, &backend);
            }
            let (path, line) = choose(&path, choice)?;
            Progress::loud().say(&line);
            Model::from_run(&path, &set, &backend)
        });
        let model = opened.map_err(error)?;
        let classes = model.classes().iter().map(|(name, _)| name.clone()).collect();
        Ok(Self { model: Mutex::new(model), classes })
    }

    /// Detects objects on one image or on a list of images; each is a path or an array.
    fn predict<'py>(&self, py: Python<'py>, image: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
        let list = image.cast::<PyList>().ok();
        let images = match list {
            Some(list) => list.iter().map(|image| self.image(&image)).collect::<PyResult<_>>()?,
            None => vec![self.image(image)?],
        };
        let sizes: Vec<_> = images.iter().map(|image| (image.height, image.width)).collect();
        let found = py.detach(|| self.model().predict_all(images));
        let mut all = Vec::new();
        for (found, size) in found.into_iter().zip(sizes) {
            all.push(Py::new(py, Detections { objects: found.map_err(error)?, size })?);
        }
        match list {
            Some(_) => Ok(all.into_pyobject(py)?.into_any().unbind()),
            None => Ok(all.swap_remove(0).into_any()),
        }
    }

    fn __repr__(&self) -> String {
        format!("Predictor of {} classes", self.classes.len())
    }
}

impl Predictor {
    fn model(&self) -> std::sync::MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn image(&self, image: &Bound<'_, PyAny>) -> PyResult<Image> {
        if let Ok(path) = image.extract::<PathBuf>() {
            let read = || self.model().read(&path);
            let (read, doubt) = image.py().detach(read).map_err(error)?;
            if let Some(doubt) = doubt {
                let text = format!("{} {doubt}", path.display());
                image.py().import("warnings")?.call_method1("warn", (text,))?;
            }
            return Ok(read);
        }
        let pixels = image.extract::<PyReadonlyArray3<'_, u8>>().map_err(|_| {
            let text = "an image must be a path or a uint8 array of shape (height, width, 3)";
            error(format!("{text} in RGB, not {}", described(image)))
        })?;
        let pixels = pixels.as_array();
        let [height, width, channels] = pixels.shape() else { unreachable!("of three axes") };
        if *channels != 3 {
            return Err(error(format!(
                "an image must have 3 channels (RGB); this is {}",
                described(image)
            )));
        }
        let rgb = pixels.iter().copied().collect();
        Image::from_rgb(0, *height, *width, rgb).map_err(error)
    }
}

/// The shape and type of an array, or the type of any other object.
fn described(value: &Bound<'_, PyAny>) -> String {
    let kind = value.get_type().to_string();
    match (value.getattr("shape"), value.getattr("dtype")) {
        (Ok(shape), Ok(dtype)) => format!("{kind} of {dtype}, shape {shape}"),
        _ => kind,
    }
}

/// Objects detected on an image, by decreasing score.
#[pyclass(module = "onegraph", frozen)]
pub(crate) struct Detections {
    objects: Vec<Prediction>,
    size: (usize, usize),
}

#[pymethods]
impl Detections {
    #[getter]
    fn boxes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let corners: Vec<f32> = self.objects.iter().flat_map(|object| object.bbox).collect();
        let boxes = Array2::from_shape_vec((self.objects.len(), 4), corners).map_err(error)?;
        Ok(boxes.into_pyarray(py))
    }

    #[getter]
    fn scores<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        self.objects.iter().map(|object| object.score).collect::<Vec<_>>().into_pyarray(py)
    }

    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        let labels = self.objects.iter().map(|object| object.label as i64);
        labels.collect::<Vec<_>>().into_pyarray(py)
    }

    #[getter]
    fn category_ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        let ids = self.objects.iter().map(|object| object.category_id as i64);
        ids.collect::<Vec<_>>().into_pyarray(py)
    }

    #[getter]
    fn names(&self) -> Vec<String> {
        self.objects.iter().map(|object| object.name.clone()).collect()
    }

    #[getter]
    fn masks<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyArray3<bool>>>> {
        let (height, width) = self.size;
        let masks = self.objects.iter().map(|object| object.mask.as_ref());
        let Some(masks) = masks.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let bits = py.detach(|| {
            masks.iter().flat_map(|mask| mask.decode()).map(|bit| bit != 0).collect::<Vec<_>>()
        });
        bits.into_pyarray(py).reshape([masks.len(), height, width]).map(Some)
    }

    #[getter]
    fn keypoints<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyArray3<f32>>>> {
        let points = self.objects.iter().map(|object| object.keypoints.as_ref());
        let Some(points) = points.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let per_object = points.first().map_or(0, |points| points.len());
        let values: Vec<f32> =
            points.iter().flat_map(|points| points.as_flattened()).copied().collect();
        values.into_pyarray(py).reshape([points.len(), per_object, 3]).map(Some)
    }

    #[getter]
    fn rles<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let all = PyList::empty(py);
        for object in &self.objects {
            let Some(mask) = &object.mask else { return Ok(None) };
            let rle = PyDict::new(py);
            rle.set_item("size", [mask.height, mask.width])?;
            rle.set_item("counts", mask.to_leb())?;
            all.append(rle)?;
        }
        Ok(Some(all))
    }

    fn __len__(&self) -> usize {
        self.objects.len()
    }

    fn __repr__(&self) -> String {
        let named = |object: &Prediction| format!("{} {:.2}", object.name, object.score);
        let objects: Vec<String> = self.objects.iter().map(named).collect();
        format!("Detections([{}])", objects.join(", "))
    }
}
