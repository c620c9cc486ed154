//! Replaces the random samples of a training step by recorded samples, or by samples chosen by the
//! keys of the golden data.

use engine::config::Config;
use graph::CpuExecutor;
use kernels::boxes::sample;
use kernels::isa::GemmSettings;

use crate::models::Loaded;
use crate::support::Case;

/// A step that samples the candidates with the smallest keys, as in the golden data.
pub(crate) struct KeyedStep {
    /// The step with its usual random sampling, run to compute the candidates.
    pub(crate) free: Loaded,
    /// The step whose samples are inputs.
    pub(crate) given: Loaded,
}

impl KeyedStep {
    /// Replaces the GEMM settings.
    pub(crate) fn taking(self, products: GemmSettings) -> Self {
        Self { free: self.free.taking(products), given: self.given.taking(products) }
    }

    /// Runs one step; afterwards both programs have the state after the step.
    pub(crate) fn run(&mut self, config: &Config) {
        let Self { free, given } = self;
        free.state.clone_from(&given.state);
        free.executor.run(&mut free.state);
        draw(config, free, &mut given.executor);
        given.executor.run(&mut given.state);
    }
}

/// Chooses samples from a step's tensors by the key `(index * 2654435761) mod 2^32` of each
/// candidate.
fn draw(config: &Config, from: &Loaded, to: &mut CpuExecutor) {
    let key = |place: usize| (place as u32).wrapping_mul(2_654_435_761);
    let i32 = |name: &str| from.i32(name);
    let boxes = from.f32("roi_candidates");
    let counts = i32("roi_candidate_counts");
    let (anchors, labels) = (i32("rpn_labels"), i32("roi_candidate_labels"));
    let matched = i32("roi_candidate_matched");
    let (rpn, roi) = (&config.model.rpn, &config.model.roi);
    let mut rois = Rois::default();
    for (image, count) in counts.iter().enumerate() {
        let of = |list: usize| image * (list / counts.len())..(image + 1) * (list / counts.len());
        let own = &anchors[of(anchors.len())];
        let (positives, negatives) =
            sample(own, rpn.batch_size_per_image, rpn.positive_fraction, key);
        let idx: Vec<i32> = positives.iter().chain(&negatives).map(|i| *i as i32).collect();
        write_anchors(to, image, rpn.batch_size_per_image, idx);

        let first = of(labels.len()).start;
        let own = &labels[first..][..*count as usize];
        let (mut chosen, negatives) =
            sample(own, roi.batch_size_per_image, roi.positive_fraction, key);
        chosen.extend(negatives);
        chosen.sort_unstable();
        for at in chosen.iter().map(|i| first + i) {
            rois.push(&boxes[4 * at..4 * at + 4], image, labels[at], matched[at]);
        }
    }
    rois.write(to);
}

/// The recorded samples of an image, positives first.
pub(crate) fn sampled(case: Case<'_>, what: &str, image: usize) -> Vec<i32> {
    let of = |sign| case.i32(&format!("{what}{sign}_idx_{image}")).data;
    [of("pos"), of("neg")].concat()
}

/// Writes the sampled anchors of an image, whose row has space for `batch` anchors.
pub(crate) fn write_anchors(e: &mut CpuExecutor, image: usize, batch: usize, mut idx: Vec<i32>) {
    idx.resize(batch, -1);
    row(e, "rpn_sample_idx", image, batch, &idx);
}

/// Sampled RoIs, image by image.
#[derive(Default)]
pub(crate) struct Rois {
    all: List,
    positives: List,
}

#[derive(Default)]
struct List {
    boxes: Vec<f32>,
    image_idx: Vec<i32>,
    labels: Vec<i32>,
    matched: Vec<i32>,
}

impl Rois {
    pub(crate) fn push(&mut self, bbox: &[f32], image: usize, label: i32, matched: i32) {
        self.all.push(bbox, image, label, matched);
        if label > 0 {
            self.positives.push(bbox, image, label, matched);
        }
    }

    pub(crate) fn write(self, e: &mut CpuExecutor) {
        self.all.write(e, "roi");
        self.positives.write(e, "mask_roi");
    }
}

impl List {
    fn push(&mut self, bbox: &[f32], image: usize, label: i32, matched: i32) {
        self.boxes.extend(bbox);
        self.image_idx.push(image as i32);
        self.labels.push(label);
        self.matched.push(matched);
    }

    fn write(mut self, e: &mut CpuExecutor, what: &str) {
        let count = self.labels.len() as i32;
        let boxes = e.input_mut(&format!("{what}s")).expect("an input");
        let capacity = boxes.desc.dim(0);
        for list in [&mut self.image_idx, &mut self.labels, &mut self.matched] {
            list.resize(capacity, -1);
        }
        row(e, &format!("{what}s"), 0, 4 * capacity, &self.boxes);
        row(e, &format!("{what}_image_idx"), 0, capacity, &self.image_idx);
        row(e, &format!("{what}_labels"), 0, capacity, &self.labels);
        row(e, &format!("{what}_matched"), 0, capacity, &self.matched);
        row(e, &format!("num_{what}s"), 0, 1, &[count]);
    }
}

/// Writes the first elements of row `i` of an input with rows of `len` elements; the rest of the
/// row becomes 0.
pub(crate) fn row<T: bytemuck::Pod>(
    executor: &mut CpuExecutor,
    name: &str,
    i: usize,
    len: usize,
    values: &[T],
) {
    let tensor = executor.input_mut(name).unwrap_or_else(|e| panic!("{e}"));
    let all: &mut [T] = bytemuck::cast_slice_mut(tensor.bytes_mut());
    let row = &mut all[i * len..(i + 1) * len];
    row.fill(T::zeroed());
    row[..values.len()].copy_from_slice(values);
}
