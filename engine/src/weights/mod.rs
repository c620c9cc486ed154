//! Weights: initial values, the state of a model, and exchange with other projects.
//!
//! `container` reads and writes file formats, two of which use `pickle`. `dialect` translates names
//! and class rows. `conventions` compares properties of models that are not visible in tensors, and
//! decides if a file may be loaded.

mod averages;
mod container;
mod conventions;
mod dialect;
mod export;
mod extent;
mod file;
mod finetune;
mod fits;
mod init;
mod layout;
mod load;
mod names;
mod pickle;
mod published;
mod report;

pub(crate) use averages::{are_scored, start_averages, swap_averages};
pub use container::{CATEGORIES, Values};
pub use conventions::differences;
pub(crate) use dialect::EPS;
pub use dialect::{Dialect, detectron2_settings};
pub use export::{Classes, ExportForm, export_weights, fold_eps, save_weights};
pub use extent::Extent;
pub use file::WeightsFile;
pub(crate) use finetune::map_keypoints;
pub use finetune::{MappedClasses, map_classes};
pub use fits::check_agreement;
pub(crate) use layout::torchvision_shape;
pub use layout::{from_torchvision, to_torchvision};
pub use load::{load_weights, weights_from_tensors};
pub use published::published;
pub use report::{LoadReport, Mismatch, Named, Tolerance};

use graph::{Program, StateSet};
use kernels::cpu::{HostData, HostTensor};
use kernels::frozen_bn::fold_frozen_bn;
use kernels::{DType, TensorDesc};

use crate::model::{Param, ParamKind};

/// Initial state of a program: parameters have their initial values for `seed`, everything else is
/// zero.
pub fn initial_state(program: &Program, params: &[Param], seed: u64, bn_eps: f64) -> StateSet {
    let mut state = StateSet::new();
    for (_, tensor) in program.states() {
        state.insert(&tensor.name, zeros(&tensor.desc));
    }
    for param in params {
        let values = init::values(param, seed);
        let desc = TensorDesc::new(kernels::Role::Master, &param.shape);
        state.insert(&param.name, HostTensor::f32(desc, values));
    }
    fold(&mut state, params, bn_eps);
    state
}

/// Recomputes the folded scale and shift of every frozen batch norm.
pub fn fold(state: &mut StateSet, params: &[Param], eps: f64) {
    let suffix = ".running_var";
    let norms = params.iter().filter(|p| p.kind == ParamKind::Frozen);
    for bn in norms.filter_map(|p| p.name.strip_suffix(suffix)) {
        let get = |what: &str| match state.get(&format!("{bn}.{what}")) {
            Some(t) => t.as_f32(),
            None => panic!("frozen batch norm {bn} lacks {what}"),
        };
        let (scale, shift) = fold_frozen_bn(
            get("weight"),
            get("bias"),
            get("running_mean"),
            get("running_var"),
            eps,
        );
        for (what, values) in [("scale", scale), ("shift", shift)] {
            if let Some(t) = state.get_mut(&format!("folded/{bn}.{what}")) {
                t.as_f32_mut().copy_from_slice(&values);
            }
        }
    }
}

/// A tensor of zeros.
pub(crate) fn zeros(desc: &TensorDesc) -> HostTensor {
    let data = match desc.role.cpu_dtype() {
        DType::I32 => HostData::I32(vec![0; desc.len()]),
        DType::U8 => HostData::U8(vec![0; desc.len()]),
        DType::F32 | DType::F16 => HostData::F32(vec![0.0; desc.len()]),
    };
    HostTensor { desc: desc.clone(), data }
}

#[cfg(test)]
mod tests;
