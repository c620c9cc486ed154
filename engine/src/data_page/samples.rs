//! Pictures of the network's inputs: pixels, boxes and masks, computed by the ops of a training
//! step.

use std::sync::Arc;

use crate::config::Config;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use dali::loader::{Element, PlainMemory, Slot, fill_slot};
use image::RgbImage;
use kernels::cpu::HostTensor;
use kernels::on_cpu::run;
use kernels::ops::mask_targets::MaskTargets;
use kernels::ops::preprocess::Preprocess;
use kernels::ops::transform_boxes::TransformBoxes;
use kernels::view::View;
use kernels::{Op, Role, TensorDesc};
use score::{Rle, encode_mask};

use crate::dataset::DataSet;
use crate::draw::{jpeg, picture_of_truth_at};
use crate::error::EngineError;
use crate::evaluate::{Found, Image, ImageDetections, MAX_DRAWN};
use crate::model::{detector, further_arrays, loss_layout};
use crate::picture::escape;
use crate::train::fill_rows;

/// Number of images on the page, evenly spaced over the data set.
const IMAGES: usize = 24;
const EPOCHS: u32 = 3;
/// Long side of a picture, in pixels.
const SIDE: u32 = 260;
/// JPEG qualities, tried in this order until the pictures fit into `BYTES`.
const QUALITIES: [u8; 3] = [75, 50, 25];
/// Maximum total size of the pictures on the page.
const BYTES: usize = 1_800_000;
/// Side of the mask targets, in pixels.
const MASK_SIDE: usize = 112;

/// The page's section that shows images as the network gets them in the first epochs.
pub(super) fn section(config: &Config, data: &DataSet) -> Result<String, EngineError> {
    let layout = loss_layout(&further_arrays(config), 1, data.slot_shape())?;
    let mut slot = Slot::plain(Arc::new(layout));
    let filler = fill_rows(data, data.views(config), detector(&config.model));
    let names: Vec<String> = data.categories().into_iter().map(|(name, _)| name).collect();
    let count = IMAGES.min(data.images.len());
    let mut figures = Vec::new();
    for image in (0..count).map(|i| data.images[i * data.images.len() / count]) {
        let mut pictures = Vec::new();
        let mut caption = escape(data.store.file_name(image));
        for epoch in 0..EPOCHS {
            fill_slot(&data.store, &[image], epoch, &mut slot, &filler)?;
            let (pixels, objects) = seen(config, &slot)?;
            caption += &format!(" · {}x{}", pixels.width, pixels.height);
            pictures.push(picture_of_truth_at(&pixels, &objects, &names, SIDE));
        }
        figures.push((caption, pictures));
    }
    let figures = encoded(&figures)?;
    Ok(format!(
        "<h2>Network inputs</h2>\n<p>{count} images in the first {EPOCHS} epochs, with boxes and \
         masks, as a training step computes them, before normalization. Captions: file, and sizes \
         after resizing, width by height.</p>\n\
         <div class=\"pairs\">{figures}</div>\n"
    ))
}

/// HTML figures with embedded JPEGs, at the best quality for which all fit into `BYTES`.
fn encoded(figures: &[(String, Vec<RgbImage>)]) -> Result<String, EngineError> {
    let mut html = String::new();
    for quality in QUALITIES {
        html.clear();
        for (caption, pictures) in figures {
            html += "<figure class=\"pair three\"><div>";
            for picture in pictures {
                let data = BASE64_STANDARD.encode(jpeg(picture, quality)?);
                html += &format!("<img alt=\"an epoch\" src=\"data:image/jpeg;base64,{data}\">");
            }
            html += &format!("</div><figcaption>{caption}</figcaption></figure>\n");
        }
        if html.len() <= BYTES {
            break;
        }
    }
    Ok(html)
}

/// The image and the objects of a slot that holds one image, in network pixels.
fn seen(
    config: &Config,
    slot: &Slot<PlainMemory>,
) -> Result<(Image, ImageDetections), EngineError> {
    let views: &[i32] = slot.view("views")?;
    let [height, width] = View::of(views, 0).network().map(|side| side as usize);
    let colours = config.input.augment.changes_colours();
    let op = Preprocess {
        height,
        width,
        channels: 3,
        mean: [0.0; 3],
        std: [1.0; 3],
        pixel_scale: 1.0,
        bgr: false,
        filter: config.input.resize_filter,
        colours,
    };
    let of = |names: &[&str]| names.iter().map(|name| tensor(slot, name)).collect::<Vec<_>>();
    let mut inputs = of(&["pixels", "views", "num_images"]);
    if colours {
        inputs.push(tensor(slot, "colours"));
    }
    let rgb = output(&op, &inputs).as_f32().iter().map(|v| v.round() as u8).collect();
    let plus_one = config.model.boxes.legacy_plus_one;
    let boxes = output(&TransformBoxes { plus_one }, &of(&["gt_boxes", "gt_counts", "views"]));
    let all = slot.view::<i32>("gt_counts")?[0] as usize;
    let boxes: Vec<[f32; 4]> = kernels::boxes::as_boxes(boxes.as_f32())[..all].to_vec();
    let count = all.min(MAX_DRAWN);
    let index = |values: Vec<i32>| HostTensor::i32(desc(Role::Index, &[values.len()]), values);
    let rois = HostTensor::f32(desc(Role::Box, &[count, 4]), boxes[..count].concat());
    let mut inputs = vec![
        rois,
        index(vec![0; count]),
        index((0..count as i32).collect()),
        index(vec![count as i32]),
    ];
    inputs.extend(of(&["segm_index", "segm_parts", "coords", "runs", "views"]));
    let crate::config::MaskHead { target_rule: rule, target_min_side: min_side, .. } =
        config.model.mask_head;
    let masks = output(&MaskTargets { side: MASK_SIDE, rule, plus_one, min_side }, &inputs);
    let mut masks = masks.as_f32().chunks_exact(MASK_SIDE * MASK_SIDE);
    let (classes, parts): (&[i32], &[i32]) = (slot.view("gt_classes")?, slot.view("segm_index")?);
    let found = boxes.iter().enumerate().map(|(i, bbox)| {
        let mask = masks.next().filter(|_| parts[3 * i + 2] > 0);
        let mask = mask.map(|mask| pasted(mask, *bbox, [height, width]));
        Found::new(classes[i] as usize, 1.0, *bbox, mask)
    });
    let objects = ImageDetections { image_id: 0, objects: found.collect() };
    Ok((Image { id: 0, height, width, rgb }, objects))
}

/// Pastes a box's mask target into the image.
fn pasted(target: &[f32], [x1, y1, x2, y2]: [f32; 4], [height, width]: [usize; 2]) -> Rle {
    let place = |at: usize, low: f32, high: f32| {
        let share = (at as f32 + 0.5 - low) / (high - low).max(1.0);
        (0.0..1.0).contains(&share).then_some((share * MASK_SIDE as f32) as usize)
    };
    let range = |low: f32, high: f32, side: usize| {
        (low.max(0.0) as usize).min(side)..(high.max(low + 1.0).max(0.0) as usize + 1).min(side)
    };
    let mut bitmap = vec![0; height * width];
    for y in range(y1, y2, height) {
        for x in range(x1, x2, width) {
            let at = place(y, y1, y2).zip(place(x, x1, x2));
            bitmap[y * width + x] =
                at.map_or(0, |(y, x)| u8::from(target[y * MASK_SIDE + x] >= 0.5));
        }
    }
    encode_mask(height as u32, width as u32, &bitmap)
}

fn desc(role: Role, shape: &[usize]) -> TensorDesc {
    TensorDesc::new(role, shape)
}

/// An array of a slot that holds one image, as an input tensor of an op.
fn tensor(slot: &Slot<PlainMemory>, name: &str) -> HostTensor {
    let found = slot.arrays().find(|(array, _)| array.name == name);
    let Some((array, bytes)) = found else { panic!("a step's slot has {name}") };
    let mut shape = array.extents.clone();
    if array.per_image {
        shape.insert(0, 1);
    }
    match array.element {
        Element::U8 => HostTensor::u8(desc(Role::Pixels, &shape), bytes.to_vec()),
        Element::I32 => {
            HostTensor::i32(desc(Role::Index, &shape), bytemuck::cast_slice(bytes).to_vec())
        }
        Element::F32 => {
            HostTensor::f32(desc(Role::Scalar, &shape), bytemuck::cast_slice(bytes).to_vec())
        }
    }
}

/// The first output of an op; panics on an error, since the loader has filled the inputs as the op
/// requires.
fn output(op: &dyn Op, inputs: &[HostTensor]) -> HostTensor {
    match run(op, inputs) {
        Ok(mut outputs) => outputs.swap_remove(0),
        Err(fault) => panic!("{}: {fault}", op.name()),
    }
}
