//! Export of the detection pass of a trained model as an ONNX file (`docs/deploy.md`).

use device::Target;
use kernels::DType;
use onnx::{Input, Output, Request, translate};
use serde_json::json;

use crate::classes::NO_CATEGORY;
use crate::error::EngineError;
use crate::evaluate::TrainedModel;
use crate::model::{
    ImageSize, ModelSpec, Part, SlotShape, classes_of, detection_program, detector,
};

/// Outputs that all detectors have: name in the file, name in the Program, and description. Outputs
/// of additional heads keep their Program names, except `mask_probs`.
const DETECTIONS: [(&str, &str, &str); 3] = [
    ("boxes", "det_boxes", "x1, y1, x2, y2 in pixels of the network input, by descending score"),
    ("scores", "det_scores", "0 to 1"),
    ("labels", "det_labels", "class of each detection, from 1; 0 in unused rows"),
];

/// A padded square that holds every resized image.
pub fn square(config: &crate::config::Config) -> ImageSize {
    let side = config.input.max_size.next_multiple_of(config.input.size_divisor);
    ImageSize { height: side, width: side }
}

/// The bytes of an ONNX file with the model, for batches of images that are padded to `padded`.
///
/// # Errors
/// [`EngineError::Usage`] for a shape that images are never padded to, and for a model with an op
/// that cannot be expressed in ONNX (the message names it); device errors.
pub fn onnx_bytes(model: &mut TrainedModel, padded: ImageSize) -> Result<Vec<u8>, EngineError> {
    let ImageSize { height, width } = padded;
    let divisor = model.config.input.size_divisor;
    if !height.is_multiple_of(divisor) || !width.is_multiple_of(divisor) || height * width == 0 {
        return Err(EngineError::Usage(format!(
            "--shape {height}x{width}: this model's images are padded to multiples of {divisor}"
        )));
    }
    let classes = model.classes();
    let config = model.config.clone();
    let spec = ModelSpec {
        config: &config,
        num_classes: classes_of(&model.params),
        images: 1,
        padded,
        slot: SlotShape { pixels: 0, objects: 1, parts: 1, coords: 1, runs: 1 },
        target: Target::Cpu,
        part: Part::whole(),
        observe: false,
    };
    let program = detection_program(&spec)?.program;
    let further = detector(&config.model).outputs().into_iter().map(|of| match of {
        "mask_probs" => ("masks", "mask_probs", "probabilities over each box"),
        own => (own, own, ""),
    });
    let output = |of_detections| move |(name, of, doc)| Output { name, of, of_detections, doc };
    let count = ("num_detections", "det_counts", "number of detections of each image");
    let outputs: Vec<_> = DETECTIONS.into_iter().chain(further).map(output(true)).collect();
    let outputs = [outputs, vec![output(false)(count)]].concat();
    let request = Request {
        program: &program,
        state: model.state.fetch()?,
        inputs: &[
            Input {
                name: "images",
                dtype: DType::F32,
                shape: &[3, height, width],
                of: &["pixels"],
                doc: "RGB, 0 to 255, resized by the model's rule, at the top left",
            },
            Input {
                name: "image_sizes",
                dtype: DType::I32,
                shape: &[2],
                of: &["views", "network_sizes"],
                doc: "height and width of each image without padding",
            },
        ],
        outputs: &outputs,
        version: env!("CARGO_PKG_VERSION"),
        metadata: &[("onegraph", facts(&spec, &classes))],
    };
    translate(&request).map_err(|refusal| EngineError::Usage(refusal.to_string()))
}

/// The metadata that a program needs to use the file, as JSON.
fn facts(spec: &ModelSpec<'_>, classes: &[(String, u64)]) -> String {
    let ModelSpec { config, num_classes, padded, .. } = *spec;
    let (input, detections) = (&config.input, &config.model.detections);
    // The model may have more classes than the data.
    let class = |i: usize| match classes.get(i) {
        Some((name, id)) if name != NO_CATEGORY => json!({"id": id, "name": name}),
        _ => json!({"id": null, "name": null}),
    };
    let facts = json!({
        "classes": (0..num_classes).map(class).collect::<Vec<_>>(),
        "size_divisor": input.size_divisor,
        "height": padded.height,
        "width": padded.width,
        "min_size": input.min_size,
        "max_size": input.max_size,
        "resize_rounding": input.resize_rounding,
        "resize_filter": input.resize_filter,
        "channel_order": input.channel_order,
        "pixel_scale": input.pixel_scale,
        "mean": input.mean,
        "std": input.std,
        "score_threshold": detections.score_threshold,
        "class_agnostic_nms_threshold": detections.class_agnostic_nms_threshold,
        "inclusive_boxes": config.model.boxes.legacy_plus_one,
        "mask_threshold": detections.mask_threshold,
        "paste_rule": detections.paste_rule,
    });
    facts.to_string()
}
