//! A model for detection only: its parameters, and their values on the device.

use crate::config::Config;

use crate::error::EngineError;
use crate::model::{ModelSpec, Param, detection_program};
use crate::runtime::{Backend, ModelState, gemm_settings};
use crate::weights::{Extent, LoadReport, WeightsFile, fold, initial_state, load_weights};

/// The parts of a model that a detector needs.
#[derive(Debug)]
pub struct DetectionModel {
    /// Its parameters.
    pub params: Vec<Param>,
    /// Their values.
    pub state: ModelState,
    /// Report on the loaded file, tensor by tensor.
    pub loaded: Option<LoadReport>,
}

impl DetectionModel {
    /// A model with `classes` foreground classes. Parameters missing from the weights file get
    /// initial values, drawn with `train.seed`; the caller checks `loaded` to decide if this is
    /// acceptable.
    ///
    /// # Errors
    /// A config that describes no valid program, or a device error.
    pub fn new(
        config: &Config,
        classes: usize,
        weights: Option<(&WeightsFile, Extent)>,
        backend: &Backend,
    ) -> Result<Self, EngineError> {
        let spec = ModelSpec::smallest(config, classes, backend.target(config));
        let built = detection_program(&spec)?;
        let eps = config.model.backbone.norm_eps;
        let mut state = initial_state(&built.program, &built.params, config.train.seed, eps);
        let mut loaded = None;
        if let Some((file, extent)) = weights {
            loaded = Some(load_weights(file, extent, config, &built.params, &mut state));
            fold(&mut state, &built.params, eps);
        }
        let state = match backend {
            Backend::Cpu => ModelState::host(state, gemm_settings(config)?),
            Backend::Device(device) => {
                let precision = config.train.precision;
                ModelState::on_device(state, device.clone(), precision, &[&built.program])?
            }
        };
        Ok(Self { params: built.params, state, loaded })
    }
}
