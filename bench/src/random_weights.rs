//! Random weights with which a deep model's activations stay within fp16, as with trained ones.

use std::sync::Arc;

use engine::config::Config;
use engine::dataset::DataSet;
use engine::model::{Division, Param, ParamKind};
use engine::runtime::{Backend, ModelState};
use engine::train::Trainer;
use engine::weights::{LoadReport, fold};
use kernels::cpu::HostTensor;

/// Scale of a frozen norm at the end of a residual branch, and of any other.
const SCALES: [f32; 2] = [0.3, 0.8];

/// Reduces the scales of frozen norms that were not loaded from a file. At 1, their initial value,
/// activations of random weights grow with each residual sum, beyond the range of fp16; the
/// baseline scripts do the same.
pub(crate) fn calm(
    config: &Config,
    params: &[Param],
    loaded: Option<&LoadReport>,
    state: &mut ModelState,
) -> anyhow::Result<()> {
    let initial = |name: &String| {
        loaded.is_none_or(|report| report.initial().any(|(initial, _)| initial == name))
    };
    let norms = params.iter().filter(|p| p.kind == ParamKind::Frozen).map(|p| &p.name);
    let weights: Vec<_> = norms.filter(|n| n.ends_with(".weight") && initial(n)).collect();
    if weights.is_empty() {
        return Ok(());
    }
    state.change(|set| {
        for name in weights {
            let [branch_end, other] = SCALES;
            let scale = if name.ends_with("bn3.weight") { branch_end } else { other };
            let values = set.get_mut(name).map(HostTensor::as_f32_mut);
            values.into_iter().flatten().for_each(|v| *v = scale);
        }
        fold(set, params, config.model.backbone.norm_eps);
        Ok(())
    })?;
    Ok(())
}

/// A trainer with random weights that are scaled like this.
pub(crate) fn trainer(
    config: &Config,
    data: &DataSet,
    backend: &Backend,
) -> anyhow::Result<Trainer> {
    trainer_of(config, data, backend, Division::single(&config.train, &backend.target(config)))
}

/// The same, with this division of steps.
pub(crate) fn trainer_of(
    config: &Config,
    data: &DataSet,
    backend: &Backend,
    division: Division,
) -> anyhow::Result<Trainer> {
    let mut trainer = Trainer::of_rank(config, data, backend, division, Arc::default())?;
    let params = trainer.params().to_vec();
    let loaded = trainer.loaded().cloned();
    calm(config, &params, loaded.as_ref(), trainer.state())?;
    Ok(trainer)
}
