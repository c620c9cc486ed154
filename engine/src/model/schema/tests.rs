//! A new array only requires a new row in the table.

use std::sync::Arc;

use crate::config::Config;
use device::{Gpu, Target};
use graph::exec::device::Prepared;

use super::super::inputs::{ImageInputs, ObjectInputs};
use super::*;
use crate::runtime::same_layout;

const SHAPE: SlotShape =
    SlotShape { pixels: 3 * 32 * 32, objects: 9, parts: 9, coords: 200, runs: 50 };

batch_arrays! {
    /// Example inputs, as a keypoint head would need them.
    KeypointInputs {
        keypoints: Box [Extent::Images, Extent::Objects, Extent::Fixed(5)] Ones;
        batch_seed: Index [Extent::Fixed(2)] Zeros;
    }
}

fn target() -> Target {
    Target::Gpu(Gpu::a100())
}

fn spec(config: &Config) -> ModelSpec<'_> {
    ModelSpec { images: 2, slot: SHAPE, ..ModelSpec::smallest(config, 3, target()) }
}

/// A row of a `batch_arrays!` table declares a program input and an array of the slot. The array's
/// offset in the slot is the input's offset in the device's input buffer.
#[test]
fn custom_batch_array_needs_only_a_table_row() {
    let config = Config::load("micro", &[]).expect("the preset loads");
    let spec = spec(&config);
    let mut program = Program::new();
    ImageInputs::declare(&mut program, &spec);
    ObjectInputs::declare(&mut program, &spec);
    let inputs = KeypointInputs::declare(&mut program, &spec);
    assert_eq!(program.desc(inputs.keypoints).shape, [2, 9, 5]);
    assert_eq!(program.desc(inputs.batch_seed).shape, [2]);
    let groups = [ImageInputs::ARRAYS, ObjectInputs::ARRAYS, KeypointInputs::ARRAYS];
    let layout = Arc::new(slot_layout(&groups, spec.images, SHAPE).expect("names that differ"));
    let prepared = Prepared::new(Arc::new(program), target()).expect("nothing to run");
    same_layout(&prepared, &layout);
}

/// Slot layouts equal the layouts of the model's programs on a device.
#[test]
fn slot_layout_matches_program_inputs() {
    use super::super::{detection_layout, detection_program, training_layout, training_program};
    let config = Config::load("micro", &[]).expect("the preset loads");
    let spec = spec(&config);
    let training = training_program(&spec).expect("micro is sound").program;
    let detection = detection_program(&spec).expect("micro is sound").program;
    let layouts = [training_layout(2, SHAPE), detection_layout(2, SHAPE)];
    for (program, layout) in [training, detection].into_iter().zip(layouts) {
        let prepared = Prepared::new(Arc::new(program), target()).expect("a schedule");
        same_layout(&prepared, &layout.expect("names that differ"));
    }
}

/// A program that declares an additional input before the arrays is rejected, instead of reading
/// shifted bytes.
#[test]
#[should_panic(expected = "`pixels`")]
fn input_at_wrong_offset_is_rejected() {
    let config = Config::load("micro", &[]).expect("the preset loads");
    let spec = spec(&config);
    let mut program = Program::new();
    program.input("other", TensorDesc::new(Role::Index, &[1]));
    ImageInputs::declare(&mut program, &spec);
    let layout = slot_layout(&[ImageInputs::ARRAYS], spec.images, SHAPE).expect("a layout");
    same_layout(&Prepared::new(Arc::new(program), target()).expect("nothing to run"), &layout);
}
