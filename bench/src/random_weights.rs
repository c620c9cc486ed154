//! Random weights with which activations stay in the range of fp16, even in deep models.

use std::sync::Arc;

use engine::config::Config;
use engine::dataset::DataSet;
use engine::model::{Division, Param, ParamKind};
use engine::runtime::{Backend, ModelState};
use engine::train::Trainer;
use engine::weights::{LoadReport, fold};
use kernels::cpu::HostTensor;

/// Scales of frozen norms: at the end of a residual branch, and elsewhere.
const SCALES: [f32; 2] = [0.3, 0.8];

/// Reduces the scales of frozen norms that were not loaded from a file. With their initial value 1
/// and random weights, activations grow with each residual sum and exceed the range of fp16. The
/// PyTorch baseline scripts apply the same scales.
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

/// A trainer with random weights, scaled by [`calm`].
pub(crate) fn trainer(
    config: &Config,
    data: &DataSet,
    backend: &Backend,
) -> anyhow::Result<Trainer> {
    trainer_of(config, data, backend, Division::single(&config.train, &backend.target(config)))
}

/// A trainer as returned by [`trainer`], for one rank of `division`.
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
