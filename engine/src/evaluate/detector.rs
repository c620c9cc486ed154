//! The detector: the planned detection pass of each padded shape, fed with images.

use std::sync::Arc;

use configs::Config;
use dali::order::PaddedShape;
use graph::{CpuExecutor, StateSet};

use super::postprocess::{ImageDetections, split};
use crate::dataset::network_size;
use crate::error::EngineError;
use crate::model::{ImageSize, Inject, ModelSpec, SlotShape, detection_program};

/// An image to detect on.
#[derive(Debug, Clone)]
pub struct Image {
    /// Id in the results.
    pub id: u64,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Pixels, height x width x 3.
    pub rgb: Vec<u8>,
}

/// Runs the detection pass.
#[derive(Debug)]
pub struct Detector {
    config: Config,
    shapes: Vec<PaddedShape>,
    classes: usize,
    batch_size: usize,
    executors: Vec<Option<CpuExecutor>>,
}

impl Detector {
    /// A detector for images of these padded shapes. Programs are planned when first needed.
    ///
    /// # Errors
    /// A config that describes no program, or a state of another model: found here, on the first
    /// shape.
    pub fn new(
        config: &Config,
        shapes: &[PaddedShape],
        classes: usize,
        batch_size: usize,
        state: &StateSet,
    ) -> Result<Self, EngineError> {
        let mut detector = Self {
            config: config.clone(),
            shapes: shapes.to_vec(),
            classes,
            batch_size: batch_size.max(1),
            executors: shapes.iter().map(|_| None).collect(),
        };
        if !shapes.is_empty() {
            let pixels = 3 * shapes[0].area();
            detector.plan(0, pixels, state)?;
        }
        Ok(detector)
    }

    /// Images a run.
    pub fn batch_size(&self) -> usize {
        self.batch_size
    }

    /// Detects on up to `batch_size` images that fit padded shape `shape`.
    ///
    /// # Errors
    /// A config that describes no program.
    pub fn run(
        &mut self,
        shape: usize,
        images: &[Image],
        state: &mut StateSet,
    ) -> Result<Vec<ImageDetections>, EngineError> {
        assert!(images.len() <= self.batch_size, "{} images in a batch", images.len());
        let pixels = images.iter().map(|i| i.rgb.len()).max().unwrap_or(0);
        self.plan(shape, pixels, state)?;
        let Some(executor) = &mut self.executors[shape] else { unreachable!("planned above") };
        let sizes = fill(executor, &self.config, images)?;
        rayon::scope(|_| executor.run(state));
        split(executor, &self.config, images, &sizes)
    }

    /// Plans a shape's program, or plans it anew for larger source images.
    fn plan(&mut self, shape: usize, pixels: usize, state: &StateSet) -> Result<(), EngineError> {
        let has_room = |e: &CpuExecutor| {
            let id = e.program().find("pixels");
            id.is_some_and(|id| e.program().desc(id).dim(1) >= pixels)
        };
        if self.executors[shape].as_ref().is_some_and(has_room) {
            return Ok(());
        }
        let PaddedShape { height, width } = self.shapes[shape];
        let spec = ModelSpec {
            config: &self.config,
            num_classes: self.classes,
            images: self.batch_size,
            padded: ImageSize { height, width },
            slot: SlotShape { pixels, objects: 1, parts: 1, coords: 1, runs: 1 },
            inject: Inject::default(),
        };
        let program = detection_program(&spec)?.program;
        self.executors[shape] = Some(CpuExecutor::new(Arc::new(program), state)?);
        Ok(())
    }
}

/// Writes the inputs; returns each image's network size (height, width).
fn fill(
    executor: &mut CpuExecutor,
    config: &Config,
    images: &[Image],
) -> Result<Vec<(u32, u32)>, EngineError> {
    let names = ["pixels", "image_sizes", "network_sizes", "flips", "num_images"];
    let [pixels, source, network, flips, count] = executor.inputs_mut(names)?;
    let row = pixels.desc.dim(1);
    let mut sizes = Vec::new();
    source.as_i32_mut().fill(1);
    network.as_i32_mut().fill(1);
    flips.as_i32_mut().fill(0);
    count.as_i32_mut()[0] = images.len() as i32;
    for (i, image) in images.iter().enumerate() {
        pixels.bytes_mut()[i * row..i * row + image.rgb.len()].copy_from_slice(&image.rgb);
        let (height, width) = network_size(config, image.height as u32, image.width as u32);
        let pair = 2 * i..2 * i + 2;
        let here = [image.height as i32, image.width as i32];
        source.as_i32_mut()[pair.clone()].copy_from_slice(&here);
        network.as_i32_mut()[pair].copy_from_slice(&[height as i32, width as i32]);
        sizes.push((height, width));
    }
    Ok(sizes)
}
