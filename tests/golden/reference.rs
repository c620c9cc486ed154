//! Narrow models of detectron2's and of the MLPerf reference's, which are recorded from raw images
//! on.

use std::collections::BTreeMap;

use engine::config::Config;
use engine::dataset::inclusive_box;
use engine::model::roi_heads::seen_keypoints;
use engine::model::{SlotShape, training_program};
use engine::weights::{Dialect, Values, WeightsFile};
use kernels::view::View;
use tests::SAMPLES;

use crate::model_setup::{Build, Fixture, Loaded, row, usizes, write_images, write_polygons};
use crate::recorded::Settings;
use crate::samples::{KeyedStep, Rois, sampled, write_anchors};
use crate::support::{Family, Report, golden_dir};
use crate::{d2_config, mlperf_model};

/// README of the golden data.
pub(crate) const TOLERANCE: f64 = 2e-5;

/// A model: the family of each part, and its case of `d2_empty`.
pub(crate) struct Files {
    pub(crate) name: &'static str,
    pub(crate) weights: &'static str,
    pub(crate) inputs_losses: &'static str,
    pub(crate) features: &'static str,
    pub(crate) rpn: &'static str,
    pub(crate) roi: &'static str,
    pub(crate) grads: &'static str,
    pub(crate) eval: &'static str,
}

macro_rules! files {
    ($name:literal) => {
        Files {
            name: $name,
            weights: concat!($name, "_weights"),
            inputs_losses: concat!($name, "_inputs_losses"),
            features: concat!($name, "_features"),
            rpn: concat!($name, "_rpn"),
            roi: concat!($name, "_roi"),
            grads: concat!($name, "_grads"),
            eval: concat!($name, "_eval"),
        }
    };
}

/// `mask_rcnn_R_50_FPN`.
pub(crate) const FPN: Files = files!("d2_fpn");
/// `cascade_mask_rcnn_R_50_FPN`.
pub(crate) const CASCADE: Files = files!("d2_cascade");
/// `keypoint_rcnn_R_50_FPN`.
pub(crate) const KEYPOINT: Files = files!("d2_keypoint");
/// `mask_rcnn_R_50_C4`.
pub(crate) const C4: Files = files!("d2_c4");
/// `mask_rcnn_R_50_DC5`.
pub(crate) const DC5: Files = files!("d2_dc5");
/// With the heads of the new baselines, and group norms in all parts.
pub(crate) const GN: Files = files!("d2_gn");
/// With these heads, and batch norms, whose statistics are running ones in evaluation.
pub(crate) const LSJ: Files = files!("d2_lsj");
/// The MLPerf reference's.
pub(crate) const MLPERF: Files = files!("mlperf_model");

/// Detectron2's models whose training is compared.
pub(crate) const TRAINED: [&Files; 6] = [&FPN, &CASCADE, &KEYPOINT, &C4, &DC5, &GN];

pub(crate) struct Reference {
    pub(crate) of: &'static Files,
    pub(crate) config: Config,
    pub(crate) inputs: Family,
    tensors: BTreeMap<String, Values>,
    pub(crate) classes: usize,
    /// (height, width) in the file and in the network.
    pub(crate) images: Vec<(usize, usize)>,
    pub(crate) network: Vec<(usize, usize)>,
    pub(crate) flips: Vec<i32>,
    /// Images whose objects are left out.
    pub(crate) emptied: Vec<usize>,
}

impl Reference {
    pub(crate) fn open(of: &'static Files) -> Option<Self> {
        let weights = Family::open(of.weights)?;
        let inputs = Family::open(of.inputs_losses)?;
        let file = WeightsFile::open(&golden_dir().join(format!("{}.safetensors", of.weights)));
        let (meta, sgd) = (weights.case("state_dict"), inputs.case("sgd5"));
        let (settings, dialect) = match of.name == MLPERF.name {
            true => (mlperf_model::settings(meta, sgd), Dialect::Benchmark),
            false => {
                let recorded = Settings(meta.attribute("cfg"), "");
                if recorded.flag("MODEL.ROI_MASK_HEAD.CLS_AGNOSTIC_MASK")
                    && recorded.flag("MODEL.MASK_ON")
                {
                    let refused = file.err().map(|error| error.to_string()).unwrap_or_default();
                    assert!(refused.contains("masks that all classes share are not"), "{refused}");
                    return None;
                }
                (d2_config::settings(meta, sgd), Dialect::Detectron2)
            }
        };
        let file = file.expect("the weights are read under the reference's names");
        assert_eq!(file.dialect(), dialect);
        let (config, classes, images, network, flips) = settings;
        let tensors = file.tensors(config.model.backbone.norm_eps);
        Some(Self { of, tensors, classes, flips, emptied: vec![], config, inputs, images, network })
    }

    pub(crate) fn num_images(&self) -> usize {
        self.images.len()
    }

    /// The stages of a cascade, as names in the golden data have them; a plain model names none.
    pub(crate) fn stages(&self) -> Vec<Option<usize>> {
        match self.config.model.cascade.fg_iou.len() {
            0 => vec![None],
            further => (0..=further).map(Some).collect(),
        }
    }

    pub(crate) fn load(&self, given: &[&str], build: Build, flips: &[i32]) -> Loaded {
        let fixture = Fixture {
            config: &self.config,
            tensors: self.tensors.clone(),
            classes: self.classes,
            network: &self.network,
            slot: self.slot(),
        };
        let mut loaded = fixture.load(given, build);
        let sizes = [&self.images[..], &self.network];
        write_images(&mut loaded.executor, self.inputs.case("inputs"), sizes, flips);
        loaded
    }

    fn slot(&self) -> SlotShape {
        let case = self.inputs.case("inputs");
        let most = |f: &dyn Fn(usize) -> usize| (0..self.num_images()).map(f).max().unwrap_or(0);
        SlotShape {
            pixels: most(&|i| 3 * self.images[i].0 * self.images[i].1),
            objects: most(&|i| self.labels(i).len()),
            parts: most(&|i| match self.has_keypoints() {
                true => 1,
                false => case.i32(&format!("raw_poly_offsets{i}")).data.len() - 1,
            }),
            coords: most(&|i| match self.has_keypoints() {
                true => 1,
                false => case.f32(&format!("raw_poly_xy{i}")).data.len(),
            }),
            runs: 1,
        }
    }

    /// True of the MLPerf reference: labels are recorded, boxes have inclusive corners, and samples
    /// ascend.
    fn is_mlperf(&self) -> bool {
        self.config.model.boxes.legacy_plus_one
    }

    fn labels(&self, image: usize) -> Vec<i32> {
        let case = self.inputs.case("inputs");
        match self.is_mlperf() {
            true => case.i32(&format!("labels{image}")).data,
            false => case.i32(&format!("classes{image}")).data.iter().map(|c| c + 1).collect(),
        }
    }

    /// The training step with its inputs written, but for those of `given`.
    fn training(&self, given: &[&str]) -> Loaded {
        let mut loaded = self.load(given, training_program, &self.flips);
        let (e, case, slot) = (&mut loaded.executor, self.inputs.case("inputs"), self.slot());
        for (i, &(height, width)) in self.images.iter().enumerate() {
            row(e, "image_keys", i, 4, &[i as i32, 0, i as i32, 0]);
            let corners = |b: &[f32; 4]| match self.is_mlperf() {
                true => inclusive_box(*b, height as u32, width as u32).expect("a box"),
                false => [b[0], b[1], b[0] + b[2], b[1] + b[3]],
            };
            let xywh = case.f32(&format!("boxes_xywh{i}")).data;
            let boxes: Vec<[f32; 4]> = xywh.as_chunks().0.iter().map(corners).collect();
            let labels = self.labels(i);
            let objects = if self.emptied.contains(&i) { 0 } else { labels.len() };
            row(e, "gt_boxes", i, 4 * slot.objects, boxes[..objects].as_flattened());
            row(e, "gt_classes", i, slot.objects, &labels[..objects]);
            row(e, "gt_counts", i, 1, &[objects as i32]);
            if self.has_keypoints() {
                let seen = self.keypoints(i);
                row(e, "keypoints", i, slot.objects * seen.len() / labels.len(), &seen);
                continue;
            }
            write_polygons(e, case, slot, i);
        }
        loaded
    }

    pub(crate) fn has_keypoints(&self) -> bool {
        self.config.model.kind.has_keypoints()
    }

    /// The keypoints of an image as the network sees them, which are recorded too.
    fn keypoints(&self, image: usize) -> Vec<f32> {
        let case = self.inputs.case("inputs");
        let raw = case.f32(&format!("raw_keypoints{image}")).data;
        let [(h, w), (nh, nw)] = [self.images[image], self.network[image]];
        let mut view = View::whole([h as i32, w as i32], [nh as i32, nw as i32]);
        view.x.mirrored = self.flips[image];
        let partners = usizes(case.attribute("keypoint_flip_indices"));
        // detectron2's reader has added half a pixel to the recorded ones already.
        let raw = raw.as_chunks::<3>().0.chunks_exact(partners.len());
        let seen = raw.flat_map(|object| seen_keypoints(object, &partners, &view, 0.0));
        let seen: Vec<f32> = seen.collect::<Vec<_>>().into_flattened();
        let recorded = case.f32(&format!("gt_keypoints{image}")).data;
        let recorded: Vec<f32> =
            recorded.chunks_exact(3).flat_map(|p| [p[0], p[1], p[2].min(1.0)]).collect();
        let mut report = Report::new(self.of.inputs_losses, TOLERANCE);
        report.close("inputs", &format!("gt_keypoints{image}"), &seen, &recorded);
        seen
    }

    pub(crate) fn keyed(&self) -> KeyedStep {
        KeyedStep { free: self.training(&[]), given: self.training(&SAMPLES) }
    }

    /// The first step with samples by the golden data's keys.
    pub(crate) fn observed(&self) -> KeyedStep {
        let mut step = self.keyed();
        step.run(&self.config);
        step
    }

    /// The label of a class of detectron2, whose last is the background.
    pub(crate) fn label(&self, class: i32) -> i32 {
        if class as usize == self.classes { 0 } else { class + 1 }
    }

    /// The first step with the recorded anchors and RoIs in place of the samplers' choice.
    pub(crate) fn recorded_step(&self) -> Option<Loaded> {
        let (rpn, roi) = (Family::open(self.of.rpn)?, Family::open(self.of.roi)?);
        let (rpn, roi) = (rpn.case("rpn"), roi.case("roi"));
        let mut loaded = self.training(&SAMPLES);
        let e = &mut loaded.executor;
        let mut rois = Rois::default();
        for i in 0..self.num_images() {
            let batch = self.config.model.rpn.batch_size_per_image;
            write_anchors(e, i, batch, sampled(rpn, "", i));
            let mut places = sampled(roi, "", i);
            let labels = if self.is_mlperf() {
                places.sort_unstable();
                roi.i32(&format!("sampled_labels_{i}")).data
            } else {
                let classes = roi.i32(&format!("sampled_classes_{i}")).data;
                classes.iter().map(|class| self.label(*class)).collect()
            };
            let boxes = roi.f32(&format!("sampled_boxes_{i}")).data;
            let matched = roi.i32(&format!("candidate_matched_idxs_{i}")).data;
            for ((bbox, label), at) in boxes.chunks_exact(4).zip(labels).zip(places) {
                rois.push(bbox, i, label, matched[at as usize].max(0));
            }
        }
        rois.write(e);
        loaded.executor.run(&mut loaded.state);
        Some(loaded)
    }
}
