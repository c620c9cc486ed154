//! Test and benchmark cases of `preprocess`.

use super::{COLOURS, Preprocess, ResizeFilter};
use crate::case::boxes::view;
use crate::case::{OpCase, floats, index, integers};
use crate::cpu::HostTensor;
use crate::view::View;
use crate::{Role, TensorDesc};

/// No image in use, one pixel, prime sizes enlarged and reduced, flips, crop windows, a fourth
/// channel, and a COCO image at training size; similar cases and a reduction by ten with Pillow's
/// filter; some cases with colour transforms.
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

/// Source size, network size, and view bits: bits 0 and 1 flip columns and rows, bit 2 crops a
/// window, bit 3 swaps rows and columns.
type Sizes = ([usize; 2], [usize; 2], i32);

/// `case` with this number of output channels.
fn with_channels(channels: usize, case: OpCase) -> OpCase {
    changed(case, &format!("{channels} channels"), |op| Preprocess { channels, ..op })
}

/// `case` with this resize filter.
fn with_filter(filter: ResizeFilter, case: OpCase) -> OpCase {
    changed(case, &format!("{filter:?}"), |op| Preprocess { filter, ..op })
}

/// `case` with a colour transform per image; some results are outside a byte's range.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::boxes::views;
    use crate::case::hand::run;

    fn op(height: usize, width: usize) -> Preprocess {
        let (mean, std) = ([1.0, 2.0, 3.0], [1.0, 2.0, 4.0]);
        let filter = ResizeFilter::Bilinear;
        Preprocess {
            height,
            width,
            channels: 3,
            mean,
            std,
            pixel_scale: 1.0,
            bgr: false,
            filter,
            colours: false,
        }
    }

    fn inputs(pixels: Vec<u8>, source: [i32; 2], network: [i32; 2], turns: i32) -> Vec<HostTensor> {
        vec![
            HostTensor::u8(TensorDesc::new(Role::Pixels, &[1, pixels.len()]), pixels),
            views(source, network, &[turns]),
            index(&[1], [1]),
        ]
    }

    /// Two adjacent pixels, (1, 2, 3) and (5, 10, 7), enlarged to four pixels and padded.
    #[test]
    fn resized_pixels_match_hand_computed_values() {
        let inputs = inputs(vec![1, 2, 3, 5, 10, 7], [1, 2], [1, 4], 0);
        let x = run(&op(2, 5), &inputs);
        let (a, b) = ([0.0, 0.0, 0.0], [4.0, 4.0, 1.0]);
        let at = |f: f32| [0, 1, 2].map(|c: usize| a[c] + f * (b[c] - a[c]));
        let row = [at(0.0), at(0.25), at(0.75), at(1.0), [0.0; 3]].concat();
        assert_eq!(x[0].as_f32()[..15], row);
        assert!(x[0].as_f32()[15..].iter().all(|&v| v == 0.0));
    }

    /// The pixels (1, 2, 3) and (5, 10, 8): a blended value is rounded to a byte before
    /// normalisation.
    #[test]
    fn pil_filter_pixels_match_pillow() {
        let inputs = inputs(vec![1, 2, 3, 5, 10, 8], [1, 2], [1, 4], 0);
        let x = run(&Preprocess { filter: ResizeFilter::Pil, ..op(1, 4) }, &inputs);
        let bytes = [[1, 2, 3], [2, 4, 4], [4, 8, 7], [5, 10, 8]];
        let normal = bytes.map(|[r, g, b]| [r - 1, g - 2, b - 3].map(|v: i32| v as f32));
        let expected: Vec<f32> =
            normal.iter().flat_map(|[r, g, b]| [*r, g / 2.0, b / 4.0]).collect();
        assert_eq!(x[0].as_f32(), expected);
    }

    /// BGR reverses the channels of the source, but not the order of mean and std.
    #[test]
    fn bgr_order_matches_hand_computed_values() {
        let x =
            run(&Preprocess { bgr: true, ..op(1, 1) }, &inputs(vec![9, 8, 7], [1, 1], [1, 1], 0));
        assert_eq!(x[0].as_f32(), [6.0, 3.0, 1.5]);
    }

    /// Red becomes twice the blue, green half the green plus 20, and blue a value above 255, which
    /// is clipped: 14, 24 and 255 before normalisation, in RGB and in BGR order.
    #[test]
    fn colour_transform_matches_hand_computed_values() {
        let rows = [[0.0, 0.0, 2.0, 0.0], [0.0, 0.5, 0.0, 20.0], [100.0, 0.0, 0.0, 0.0]];
        let colours = floats(Role::Scalar, &[1, 12], rows.concat());
        let inputs = [inputs(vec![9, 8, 7], [1, 1], [1, 1], 0), vec![colours]].concat();
        for filter in [ResizeFilter::Bilinear, ResizeFilter::Pil] {
            let x = |bgr| run(&Preprocess { bgr, filter, colours: true, ..op(1, 1) }, &inputs);
            assert_eq!(x(false)[0].as_f32(), [13.0, 11.0, 63.0]);
            assert_eq!(x(true)[0].as_f32(), [254.0, 11.0, 2.75]);
        }
    }

    #[test]
    fn flip_reverses_columns_within_image() {
        for filter in [ResizeFilter::Bilinear, ResizeFilter::Pil] {
            assert_flip_reverses_columns(filter);
        }
    }

    fn assert_flip_reverses_columns(filter: ResizeFilter) {
        let pixels: Vec<u8> =
            integers(&[7 * 11 * 3], 5, 0, 256).as_i32().iter().map(|&v| v as u8).collect();
        let x = |flip| {
            let inputs = inputs(pixels.clone(), [7, 11], [9, 13], flip);
            run(&Preprocess { filter, ..op(10, 16) }, &inputs)[0].as_f32().to_vec()
        };
        let (plain, flipped) = (x(0), x(1));
        for i in 0..10 * 16 {
            let (row, col) = (i / 16, i % 16);
            let mirror = if col < 13 { 12 - col } else { col };
            assert_eq!(plain[3 * i..3 * i + 3], flipped[3 * (row * 16 + mirror)..][..3]);
        }
    }
}
