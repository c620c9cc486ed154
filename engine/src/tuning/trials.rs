//! The process that measures: each product of a config's programs with each choice, told line by
//! line, so that whoever reads knows which one ended it.

use std::collections::BTreeMap;
use std::sync::Arc;

use configs::Config;
use dali::order::PaddedShape;
use device::{Alone, Choice, Device, Ranks, Target};
use graph::Program;
use kernels::choices::{Asked, products};
use kernels::on_device::RunError;
use kernels::tuning::{Clock, Trial};
use kernels::{OpRef, Precision, TensorDesc};
use serde::{Deserialize, Serialize};

use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::model::{Division, ImageSize, ModelSpec, Part, SlotShape, training_program};
use crate::train::training_programs;

/// A line of the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    /// A product whose choices will be measured.
    Product(Product),
    /// A run of this choice begins; of none, the run that all choices are compared with.
    Begin(Option<usize>),
    /// The median of a choice, in milliseconds.
    Done {
        /// Its place in the product's list.
        choice: usize,
        /// The median.
        ms: f64,
    },
    /// A choice that computes something else.
    Refused {
        /// Its place in the product's list.
        choice: usize,
        /// The difference.
        reason: String,
    },
    /// All is measured.
    End,
}

/// A product of the programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Product {
    /// Its place among all of them.
    pub(crate) index: usize,
    /// Their number.
    pub(crate) of: usize,
    /// Its name.
    pub(crate) name: String,
    /// Launches in the programs.
    pub(crate) launches: usize,
    /// The model's choice.
    pub(crate) model: Choice,
    /// The choices that are measured, the model's among them.
    pub(crate) choices: Vec<Choice>,
}

/// Where a process takes up the work: a product's place, and a choice's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Start {
    /// The product.
    pub(crate) product: usize,
    /// Its first choice.
    pub(crate) choice: usize,
}

/// The padded shapes of the programs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shapes<'a> {
    /// All of a training set.
    Of(&'a DataSet),
    /// One, without data.
    Padded(PaddedShape),
}

/// Foreground classes without data, where the config leaves them to it: COCO's.
const CLASSES: usize = 80;
/// Objects of an image without data.
const OBJECTS: usize = 100;

/// One product of the programs.
struct Work {
    op: OpRef,
    inputs: Vec<TensorDesc>,
    launches: usize,
    asked: Asked,
}

/// Measures from `start` on, and tells each event before anything can go wrong after it.
///
/// # Errors
/// A config that describes no programs of fp16; the device's errors.
pub(crate) fn run_trials(
    (config, shapes): (&Config, Shapes<'_>),
    (device, ranks): (&dyn Device, usize),
    (start, repeats): (Start, usize),
    tell: &mut dyn FnMut(&Event),
) -> Result<(), EngineError> {
    let works = works((config, shapes), device, ranks)?;
    let clock = Clock::new(device)?;
    for (index, work) in works.iter().enumerate().skip(start.product) {
        let Asked { name, taken, proposals } = &work.asked;
        let mut choices = proposals.clone();
        if !choices.contains(taken) {
            choices.push(taken.clone());
        }
        tell(&Event::Product(Product {
            index,
            of: works.len(),
            name: name.clone(),
            launches: work.launches,
            model: taken.clone(),
            choices: choices.clone(),
        }));
        tell(&Event::Begin(None));
        let mut trial =
            Trial::new(device, &clock, work.op.as_ref(), &work.inputs).map_err(of_device)?;
        let first = if index == start.product { start.choice } else { 0 };
        for (i, choice) in choices.iter().enumerate().skip(first) {
            tell(&Event::Begin(Some(i)));
            let measured = trial.median_ms(&clock, &work.asked, choice, repeats);
            tell(&match measured.map_err(of_device)? {
                Ok(ms) => Event::Done { choice: i, ms },
                Err(reason) => Event::Refused { choice: i, reason },
            });
        }
    }
    tell(&Event::End);
    Ok(())
}

/// The device's error; an op of a program has launches, and takes its own tensors.
fn of_device(fault: RunError) -> EngineError {
    match fault {
        RunError::Device(fault) => fault.into(),
        other => EngineError::Usage(other.to_string()),
    }
}

/// The products of the programs of a run, each once, in the order of their names.
fn works(
    (config, shapes): (&Config, Shapes<'_>),
    device: &dyn Device,
    count: usize,
) -> Result<Vec<Work>, EngineError> {
    if config.train.precision != Precision::Fp16 {
        return Err(EngineError::Usage(format!(
            "train.precision is {}: tables of tuning are for fp16, and other precisions do not \
             read them",
            config.train.precision.name()
        )));
    }
    let target = Target::Gpu(device.gpu().in_precision(config.train.precision));
    let ranks = Ranks { rank: 0, count };
    let division = Division::new(&config.train, &target, ranks, Arc::new(Alone))?;
    let mut works: BTreeMap<String, Work> = BTreeMap::new();
    for program in programs((config, shapes), &target, &division)? {
        add_products(&program, device, &mut works);
    }
    Ok(works.into_values().collect())
}

fn programs(
    (config, shapes): (&Config, Shapes<'_>),
    target: &Target,
    division: &Division,
) -> Result<Vec<Program>, EngineError> {
    let PaddedShape { height, width } = match shapes {
        Shapes::Of(data) => return training_programs(config, data, target, division),
        Shapes::Padded(shape) => shape,
    };
    let divisor = config.input.size_divisor;
    if !height.is_multiple_of(divisor) || !width.is_multiple_of(divisor) {
        return Err(EngineError::Usage(format!(
            "--padded {height}x{width}: both sides must be multiples of input.size_divisor, which \
             is {divisor}"
        )));
    }
    let parts = [Part::updating(division), Part::early(division)];
    let parts = parts.into_iter().take(if division.passes > 1 { 2 } else { 1 });
    let programs = parts.map(|part| {
        let spec = ModelSpec {
            config,
            num_classes: config.model.classes_or(CLASSES),
            images: division.images,
            padded: ImageSize { height, width },
            slot: SlotShape::imagined(height, width, OBJECTS),
            target: target.clone(),
            part,
            observe: false,
        };
        Ok(training_program(&spec)?.program)
    });
    programs.collect()
}

fn add_products(program: &Program, device: &dyn Device, works: &mut BTreeMap<String, Work>) {
    for node in program.nodes() {
        let descs = |list: &[graph::TensorId]| -> Vec<TensorDesc> {
            list.iter().map(|tensor| program.desc(*tensor).clone()).collect()
        };
        let inputs = descs(&node.inputs);
        if !node.op.traits().on_tensor_cores || !node.updates.is_empty() {
            continue;
        }
        let outputs = descs(&node.outputs);
        for asked in products(node.op.as_ref(), device.gpu(), &inputs, &outputs, &[]) {
            let new = || Work {
                op: node.op.clone(),
                inputs: inputs.clone(),
                launches: 0,
                asked: asked.clone(),
            };
            works.entry(asked.name.clone()).or_insert_with(new).launches += 1;
        }
    }
}
