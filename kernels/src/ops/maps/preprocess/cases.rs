//! Cases of `preprocess` for the table of ops.

use super::{COLOURS, Preprocess, ResizeFilter};
use crate::case::boxes::view;
use crate::case::{OpCase, floats, index, integers};
use crate::cpu::HostTensor;
use crate::view::View;
use crate::{Role, TensorDesc};

/// No image in use, one pixel, primes up and down, mirrors, windows, a fourth channel, and a COCO
/// image at training size; Pillow's filter on the like, and where it shrinks by ten;
/// colours on some.
pub fn cases() -> Vec<OpCase> {
    let primes =
        [([5, 7], [11, 13], 0), ([13, 11], [5, 7], 1), ([1, 17], [13, 1], 2), ([2, 2], [3, 3], 0)];
    let cases = [
        case([8, 8], &[([5, 7], [8, 8], 0), ([3, 3], [4, 4], 1)], 0),
        case([1, 1], &[([1, 1], [1, 1], 1)], 1),
        case([16, 19], &primes, 3),
    ];
    let turned = case([1088, 800], &[([480, 640], [1066, 800], 9)], 1);
    let coco = case([800, 1088], &[([480, 640], [800, 1066], 1)], 1);
    let small = [([5, 7], [11, 13], 4), ([13, 11], [5, 7], 15)];
    let padded = [[16, 22], [16, 19]].map(|size| with_channels(4, case(size, &small, 2)));
    let pil =
        [([8, 8], [5, 7], [8, 8]), ([16, 19], [13, 11], [5, 7]), ([40, 44], [400, 23], [39, 43])]
            .map(|(size, source, network)| {
                let images = [(source, network, 1), (source, network, 14), (source, network, 0)];
                with_filter(ResizeFilter::Pil, case(size, &images, 2))
            });
    let pil_coco = with_filter(ResizeFilter::Pil, with_channels(4, coco.clone()));
    let coloured = [&padded[0], &pil[0], &pil[1], &coco].map(|case| with_colours(case.clone()));
    let plain = cases.into_iter().chain(padded).chain([turned, coco]);
    plain.chain(pil).chain([pil_coco]).chain(coloured).collect()
}

/// Source, network, and which axes are mirrored: bit 0 columns, bit 1 rows; bit 2 cuts a window;
/// bit 3 swaps rows and columns.
type Sizes = ([usize; 2], [usize; 2], i32);

/// The case with this many channels.
fn with_channels(channels: usize, case: OpCase) -> OpCase {
    changed(case, &format!("{channels} channels"), |op| Preprocess { channels, ..op })
}

/// The case with this filter.
fn with_filter(filter: ResizeFilter, case: OpCase) -> OpCase {
    changed(case, &format!("{filter:?}"), |op| Preprocess { filter, ..op })
}

/// The case with a map of colours for each image, beyond a byte's ends here and there.
fn with_colours(case: OpCase) -> OpCase {
    let mut case = changed(case, "colours", |op| Preprocess { colours: true, ..op });
    let shape = [case.inputs[0].desc.shape[0], COLOURS];
    let row = [0.9, 0.5, -0.3, -40.0, -0.2, 1.3, 0.1, 20.0, 0.3, 0.3, 0.4, 0.0];
    let scaled = |(i, v): (usize, f32)| v * (1.0 + (i / COLOURS) as f32 / 4.0);
    let values: Vec<f32> = (0..shape[0]).flat_map(|_| row).enumerate().map(scaled).collect();
    case.inputs.push(floats(Role::Scalar, &shape, values));
    case
}

fn changed(case: OpCase, what: &str, change: impl Fn(Preprocess) -> Preprocess) -> OpCase {
    let Some(op) = (case.op.as_ref() as &dyn std::any::Any).downcast_ref::<Preprocess>() else {
        unreachable!("a case of this op")
    };
    OpCase::new(format!("{}, {what}", case.label), change(*op), case.inputs)
}

fn case([height, width]: [usize; 2], images: &[Sizes], count: i32) -> OpCase {
    let capacity = images.iter().map(|(s, ..)| 3 * s[0] * s[1]).max().unwrap_or(0);
    let shape = [images.len(), capacity];
    let values = integers(&shape, 1, 0, 256).as_i32().iter().map(|&v| v as u8).collect();
    let pixels = HostTensor::u8(TensorDesc::new(Role::Pixels, &shape), values);
    let view = |&(source, network, turns): &Sizes| {
        let [source, network] = [source, network].map(|size| size.map(|v| v as i32));
        view(source, network, turns).row().to_vec()
    };
    let views: Vec<i32> = images.iter().flat_map(view).collect();
    let views = index(&[images.len(), View::LEN], views);
    let inputs = vec![pixels, views, index(&[1], [count])];
    let op = Preprocess {
        height,
        width,
        channels: 3,
        mean: [0.485, 0.456, 0.406],
        std: [0.229, 0.224, 0.225],
        pixel_scale: 1.0 / 255.0,
        bgr: images.len() > 1,
        filter: ResizeFilter::Bilinear,
        colours: false,
    };
    OpCase::new(format!("{count} of {} images", images.len()), op, inputs)
}
