//! Golden families `resize_transform` (input images) and `paste_masks` (output masks).

use dali::order::resized_size;
use engine::config::{PasteRule, ResizeFilter, ResizeRounding};
use kernels::cpu::HostTensor;
use kernels::ops::preprocess::Preprocess;
use kernels::ops::transform_boxes::TransformBoxes;
use kernels::resize::nearest_source;
use kernels::{Role, TensorDesc};

use crate::convert::{Ran, count, floats, index, numbered, numbers, sizes, views};
use crate::formulas::paste;
use crate::support::{Case, Report, Tensor, each_case};

/// Tolerance for f32 from the README of the golden data.
const TOLERANCE: f64 = 2e-5;
/// torchvision's defaults (ImageNet), for cases that do not contain mean and std.
const MEAN: [f64; 3] = [0.485, 0.456, 0.406];
const STD: [f64; 3] = [0.229, 0.224, 0.225];

#[test]
fn mask_paste_matches_golden() {
    each_case("paste_masks", TOLERANCE, |report, case| {
        let size = [1, 2].map(|axis| case.f32("soft").shape[axis]);
        paste(report, case, size, PasteRule::IntegerBox, "binary");
    });
}

#[test]
fn resize_matches_golden() {
    each_case("resize_transform", TOLERANCE, |report, case| {
        let source = sizes(case, "sizes_hw");
        let (min_size, max_size) = (case.usize("min_size"), case.usize("max_size"));
        let resized: Vec<[usize; 2]> = source
            .iter()
            .map(|&[h, w]| {
                let size = resized_size(
                    h as u32,
                    w as u32,
                    min_size,
                    max_size,
                    ResizeRounding::FloorScale,
                );
                [size.0 as usize, size.1 as usize]
            })
            .collect();
        report.exact(case.name(), "resized_hw", &resized, &sizes(case, "resized_hw"));
        let images = Images { source, resized };
        images.pixels(report, case);
        images.boxes(report, case);
        images.masks(report, case);
    });
}

/// The batch that `op`, which reads bytes, would compute from images of f32 values in 0..1;
/// `others` are the op's inputs after the pixels. Each value is split into three digits in base
/// 255, which is exact because the op is linear.
pub(crate) fn preprocessed(
    name: &str,
    op: Preprocess,
    images: &[Vec<f32>],
    others: &[HostTensor; 2],
) -> Tensor<f32> {
    let longest = images.iter().map(Vec::len).max().unwrap_or(0);
    let digit = |value: f32, place: usize| {
        assert!((0.0..=1.0).contains(&value), "{name}: a pixel of {value}");
        let mut rest = f64::from(value);
        let mut digit = 0.0;
        for _ in 0..=place {
            rest = (rest - digit) * 255.0;
            digit = rest.floor();
        }
        digit as u8
    };
    let [first, second, third] = [0, 1, 2].map(|place| {
        let desc = TensorDesc::new(Role::Pixels, &[images.len(), longest]);
        let mut pixels = Vec::new();
        for image in images {
            pixels.extend(image.iter().map(|value| digit(*value, place)));
            // The memory after an image must not be read.
            pixels.resize(pixels.len() + longest - image.len(), 255);
        }
        let mean = if place == 0 { op.mean } else { [0.0; 3] };
        let pixel_scale = op.pixel_scale / 255f32.powi(place as i32);
        let inputs = [HostTensor::u8(desc, pixels)].into_iter().chain(others.iter().cloned());
        Ran::new(name, Preprocess { mean, pixel_scale, ..op }, inputs.collect())
    });
    let digits = first.f32(0).iter().zip(second.f32(0)).zip(third.f32(0));
    let data = digits.map(|((a, b), c)| a + (b + c)).collect();
    Tensor { shape: first.shape(0).to_vec(), data }
}

/// The images of a case: (height, width) in the file and of the network input.
struct Images {
    source: Vec<[usize; 2]>,
    resized: Vec<[usize; 2]>,
}

impl Images {
    fn len(&self) -> usize {
        self.source.len()
    }

    /// The views as op input.
    fn views(&self) -> HostTensor {
        let sizes = self.source.iter().zip(&self.resized);
        views(sizes.map(|(source, resized)| [source, resized].map(|size| size.map(|v| v as i32))))
    }

    /// Compares the normalised, resized and padded pixels.
    fn pixels(&self, report: &mut Report, case: Case<'_>) {
        let names: Vec<String> = (0..self.len()).map(|i| format!("image{i}_hwc")).collect();
        let images: Vec<Vec<f32>> = names.iter().map(|name| case.f32(name).data).collect();
        let divisible = case.usize("size_divisible");
        let padded = |axis: usize| {
            let largest = self.resized.iter().map(|size| size[axis]).max().unwrap_or(0);
            largest.next_multiple_of(divisible)
        };
        let three = |name: &str, default: [f64; 3]| -> [f32; 3] {
            let stated = case.attributes().get(name).map(|_| numbers(case, name));
            std::array::from_fn(|i| stated.as_ref().map_or(default[i], |v| v[i]) as f32)
        };
        let op = Preprocess {
            height: padded(0),
            width: padded(1),
            channels: 3,
            mean: three("image_mean", MEAN),
            std: three("image_std", STD),
            pixel_scale: 1.0 / 255.0,
            bgr: false,
            filter: ResizeFilter::Bilinear,
            colours: false,
        };
        let others = [self.views(), count(self.len())];
        let got = preprocessed(case.name(), op, &images, &others);
        let batch = case.f32("batch");
        report.exact(case.name(), "shape of batch", &got.shape, &batch.shape);
        report.close(case.name(), "batch", &got.data, &batch.data);
    }

    /// Compares the boxes scaled with their image.
    fn boxes(&self, report: &mut Report, case: Case<'_>) {
        let boxes: Vec<Vec<f32>> =
            (0..self.len()).map(|i| case.f32(&format!("boxes{i}")).data).collect();
        let longest = boxes.iter().map(Vec::len).max().unwrap_or(0);
        let mut values = Vec::new();
        for own in &boxes {
            values.extend(own);
            values.resize(values.len() + longest - own.len(), f32::NAN);
        }
        let n = self.len();
        let counts = boxes.iter().map(|own| own.len() as i32 / 4).collect();
        let inputs = vec![
            floats(Role::Box, &[n, longest / 4, 4], values),
            index(&[n], counts),
            self.views(),
        ];
        let ran = Ran::new(case.name(), TransformBoxes { plus_one: false }, inputs);
        for (image, own) in boxes.iter().enumerate() {
            let got = &ran.f32(0)[image * longest..][..own.len()];
            let name = format!("boxes{image}_resized");
            report.compare(case, &name, got);
        }
    }

    /// Compares masks resized by nearest-neighbour sampling, as for mask targets.
    fn masks(&self, report: &mut Report, case: Case<'_>) {
        for (image, name) in numbered(case, "masks").iter().enumerate() {
            let masks = case.u8(name);
            let ([h, w], [new_h, new_w]) = (self.source[image], self.resized[image]);
            let mut got = Vec::with_capacity(masks.shape[0] * new_h * new_w);
            for mask in masks.data.chunks_exact(h * w) {
                for y in (0..new_h).map(|y| nearest_source(y, h, new_h)) {
                    got.extend((0..new_w).map(|x| mask[y * w + nearest_source(x, w, new_w)]));
                }
            }
            let name = format!("masks{image}_resized");
            report.equal(case, &name, &got);
        }
    }
}
