//! Region proposal network: the dense head, proposals, and the losses on sampled anchors.
//!
//! Only the sampled anchors contribute to the loss, so the loss path recomputes their hidden
//! vectors from gathered patches: 3x3 patches for a head with one convolution; 5x5 for two, with
//! hidden values outside the map zeroed between the convolutions. The dense head only computes
//! proposals, which have no gradient, so hidden maps are not stored and there is no dense backward
//! pass. The gradients equal those of a dense head exactly. If there are more than two
//! convolutions, the loss path uses the dense outputs of all but the last two.

use std::sync::Arc;

use crate::config::{CellRule, Config, Fused, LossDivisor, PostNmsScope, StrideRule};
use graph::{GraphError, TensorId};
use kernels::boxes::{AnchorLevel, Box4, cell_anchors, cell_anchors_detectron, cell_anchors_exact};
use kernels::ops::anchors::Anchors;
use kernels::ops::bce_loss::{BceLoss, BceLossInputs};
use kernels::ops::clear_outside::ClearOutside;
use kernels::ops::conv2d::{Conv2d, Conv2dInputs};
use kernels::ops::decode_proposals::{DecodeProposals, DecodeProposalsInputs};
use kernels::ops::encode_boxes::{EncodeBoxes, EncodeBoxesInputs};
use kernels::ops::gather_anchors::{GatherAnchors, GatherAnchorsInputs};
use kernels::ops::gather_patches::GatherPatches;
use kernels::ops::linear::{Linear, LinearInputs};
use kernels::ops::match_anchors::{MatchAnchors, MatchAnchorsInputs};
use kernels::ops::nms_proposals::{NmsProposals, NmsProposalsInputs, ProposalScope};
use kernels::ops::rpn_head::{RpnHead, RpnHeadInputs};
use kernels::ops::sample_anchors::SampleAnchors;
use kernels::ops::select_columns::SelectColumns;
use kernels::ops::smooth_l1_loss::{SmoothL1Loss, SmoothL1LossInputs};
use kernels::ops::top_k_per_level::TopKPerLevel;

use crate::model::inputs::ImageInputs;
use crate::model::net::{ConvShape, Loss, Net, Truth, plain};
use crate::model::params::Init;

const HEAD: &str = "rpn.head";
const BOX_WEIGHTS: [f32; 4] = [1.0; 4];
const INIT: Init = Init::Normal { std: 0.01 };

/// Maximum number of final convolutions that the loss path computes from patches.
const SPARSE_CONVS: usize = 2;

/// The pyramid and its anchors.
#[derive(Debug)]
pub(super) struct Rpn {
    /// Inputs of `convs`: the pyramid, or the outputs of the convolutions before `convs`.
    maps: Vec<TensorId>,
    anchors: TensorId,
    anchors_per_cell: usize,
    /// Indices of the head's last convolutions, which the loss path computes from patches.
    convs: std::ops::Range<usize>,
}

/// Parameter name prefix of the head's convolution `i`.
fn conv_name(i: usize) -> String {
    format!("{HEAD}.conv.{i}.0")
}

/// The anchors of a cell with these sizes, for each level, relative to the cell.
pub(super) fn level_cells(config: &Config, sizes: &[f32]) -> Vec<Vec<Box4>> {
    let ratios = config.ratios_of_levels(&config.model.anchors.ratios);
    let sides = config.by_level(sizes).into_iter().zip(ratios);
    let levels = sides.zip(config.level_strides());
    let cells = levels.map(|((sizes, ratios), stride)| match config.model.anchors.cell_rule {
        CellRule::Centered => cell_anchors(&sizes, &ratios),
        CellRule::Detectron => cell_anchors_detectron(stride as f32, &sizes, &ratios),
        CellRule::Exact => cell_anchors_exact(&sizes, &ratios),
    });
    cells.collect()
}

/// Applies the head's convolutions `convs` to all maps.
fn dense_convs(
    net: &mut Net<'_>,
    maps: &mut [TensorId],
    convs: std::ops::Range<usize>,
) -> Result<(), GraphError> {
    for i in convs {
        for map in &mut *maps {
            let shape = ConvShape::new(net.channels(*map), 3, 1);
            *map = net.conv_bias(*map, &conv_name(i), shape, INIT, true, None)?;
        }
    }
    Ok(())
}

/// Proposals of each image: boxes [N, P, 4], anchor indices [N, P], and counts [N].
#[derive(Debug, Clone, Copy)]
pub(super) struct Proposals {
    pub(super) boxes: TensorId,
    pub(super) anchor_idx: TensorId,
    pub(super) counts: TensorId,
}

/// Weights of the head, shared by the dense head and the loss path.
#[derive(Debug, Clone)]
struct HeadWeights {
    convs: Vec<[TensorId; 2]>,
    logits: [TensorId; 2],
    deltas: [TensorId; 2],
}

impl Rpn {
    pub(super) fn new(net: &mut Net<'_>, mut maps: Vec<TensorId>) -> Result<Self, GraphError> {
        net.part("rpn.anchors");
        let config = &net.spec.config.model.anchors;
        let padded = net.spec.padded;
        let cells = level_cells(net.spec.config, &config.sizes);
        let anchors_per_cell = cells.first().map_or(0, Vec::len);
        let levels = maps.iter().zip(net.spec.config.level_strides()).zip(cells);
        let levels = levels
            .map(|((map, nominal), cells)| {
                let (height, width) =
                    (net.program.desc(*map).dim(1), net.program.desc(*map).dim(2));
                let stride = |padded: usize, map: usize| match config.stride_rule {
                    StrideRule::FloorPaddedOverMap => (padded / map) as f32,
                    StrideRule::Nominal => nominal as f32,
                };
                let (stride_h, stride_w) =
                    (stride(padded.height, height), stride(padded.width, width));
                AnchorLevel { height, width, stride_h, stride_w, cells }
            })
            .collect();
        let anchors = net.program.apply1(Anchors { levels }, [])?;
        net.observe("anchors", anchors);
        let convs = net.spec.config.model.rpn.convs;
        let convs = convs.saturating_sub(SPARSE_CONVS)..convs;
        net.part("rpn.head");
        dense_convs(net, &mut maps, 0..convs.start)?;
        Ok(Self { maps, anchors, anchors_per_cell, convs })
    }

    /// Proposals after NMS.
    pub(super) fn proposals(
        &self,
        net: &mut Net<'_>,
        images: ImageInputs,
        training: bool,
    ) -> Result<Proposals, GraphError> {
        let config = &net.spec.config.model;
        let plus_one = config.boxes.legacy_plus_one;
        let rpn = &config.rpn;
        let (pre, of_level, post) = if training {
            (rpn.pre_nms_top_n_train, rpn.post_nms_top_n_level_train, rpn.post_nms_top_n_train)
        } else {
            (rpn.pre_nms_top_n_test, rpn.post_nms_top_n_level_test, rpn.post_nms_top_n_test)
        };
        let decode = DecodeProposals {
            plus_one,
            min_size: config.rpn.min_size,
            score_threshold: config.rpn.score_threshold,
            weights: BOX_WEIGHTS,
        };
        let nms = NmsProposals {
            threshold: config.rpn.nms_threshold,
            post_top_n: post,
            level_top_n: of_level,
            plus_one,
            scope: match config.rpn.post_nms_scope {
                PostNmsScope::Image => ProposalScope::Image,
                PostNmsScope::Batch if training => {
                    ProposalScope::Batch { images: net.spec.config.train.images_per_group }
                }
                PostNmsScope::Batch => ProposalScope::Image,
                PostNmsScope::Level => ProposalScope::Level,
            },
        };
        let (logits, deltas) = self.dense_head(net)?;
        net.part("rpn.proposals");
        let [idx, levels] = net.program.apply(TopKPerLevel { k: pre }, logits.as_slice())?;
        let (anchors, network_sizes) = (self.anchors, images.network_sizes);
        let inputs = DecodeProposalsInputs { idx, anchors, network_sizes, logits, deltas };
        let [boxes, scores] = net.program.apply(decode, inputs)?;
        let inputs = NmsProposalsInputs { boxes, scores, levels, idx };
        let [boxes, scores, anchor_idx, counts] = net.program.apply(nms, inputs)?;
        net.observe("proposals", boxes);
        net.observe("proposal_scores", scores);
        net.observe("proposal_anchor_idx", anchor_idx);
        net.observe("proposal_counts", counts);
        Ok(Proposals { boxes, anchor_idx, counts })
    }

    fn dense_head(&self, net: &mut Net<'_>) -> Result<(Vec<TensorId>, Vec<TensorId>), GraphError> {
        net.part("rpn.head");
        let channels = self.channels(net);
        let cells = self.anchors_per_cell;
        // The last convolution is added below, as it may be fused with the predictors.
        let last = self.convs.end - 1;
        let mut hidden = self.maps.clone();
        dense_convs(net, &mut hidden, self.convs.start..last)?;
        if self.fuses_head(net) {
            return self.fused_head(net, hidden, INIT);
        }
        let (mut logits, mut deltas) = (Vec::new(), Vec::new());
        for (i, map) in hidden.into_iter().enumerate() {
            let conv = ConvShape::new(channels, 3, 1);
            let hidden = net.conv_bias(map, &conv_name(last), conv, INIT, true, None)?;
            let mut predict = |what: &str, width| {
                let shape = ConvShape::new(width, 1, 1);
                net.conv_bias(hidden, &format!("{HEAD}.{what}"), shape, INIT, false, None)
            };
            logits.push(predict("cls_logits", cells)?);
            deltas.push(predict("bbox_pred", 4 * cells)?);
            net.observe(&format!("logits_P{}", i + 2), logits[i]);
            net.observe(&format!("deltas_P{}", i + 2), deltas[i]);
        }
        Ok((logits, deltas))
    }

    /// Number of channels of the maps and of the head's convolutions.
    fn channels(&self, net: &Net<'_>) -> usize {
        self.maps.first().map_or(0, |map| net.channels(*map))
    }

    /// True if one op computes the last convolution and the predictors.
    fn fuses_head(&self, net: &Net<'_>) -> bool {
        let config = &net.spec.config;
        let channels = [self.channels(net); 2];
        config.fusion.has(Fused::RpnHead)
            && net.spec.is_in_fp16()
            && RpnHead::fits(self.maps.len(), self.anchors_per_cell, channels)
    }

    /// The last convolution and the predictors of [`Self::dense_head`] as one op, with the same
    /// parameters.
    fn fused_head(
        &self,
        net: &mut Net<'_>,
        maps: Vec<TensorId>,
        init: Init,
    ) -> Result<(Vec<TensorId>, Vec<TensorId>), GraphError> {
        let (channels, cells) = (self.channels(net), self.anchors_per_cell);
        let last = format!("conv.{}.0", self.convs.end - 1);
        let mut pair = |what: &str, channels_in, width, kernel| {
            let (name, shape) = (format!("{HEAD}.{what}"), ConvShape::new(width, kernel, 1));
            let weight = net.conv_weight(&name, channels_in, shape, init);
            [weight, net.bias(&name, width, Init::Constant(0.0))]
        };
        let [w, b] = pair(&last, channels, channels, 3);
        let [w_logits, b_logits] = pair("cls_logits", channels, cells, 1);
        let [w_deltas, b_deltas] = pair("bbox_pred", channels, 4 * cells, 1);
        let inputs = RpnHeadInputs { w, b, w_logits, b_logits, w_deltas, b_deltas, maps };
        let inputs: Vec<TensorId> = inputs.into();
        let mut logits = net.program.add(Arc::new(RpnHead), &inputs, &[])?;
        let deltas = logits.split_off(self.maps.len());
        for (i, (logits, deltas)) in logits.iter().zip(&deltas).enumerate() {
            net.observe(&format!("logits_P{}", i + 2), *logits);
            net.observe(&format!("deltas_P{}", i + 2), *deltas);
        }
        Ok((logits, deltas))
    }

    /// Losses on the sampled anchors. Call it after adding the dense head.
    pub(super) fn losses(&self, net: &mut Net<'_>, truth: &Truth) -> Result<[Loss; 2], GraphError> {
        let Truth { images, objects, gt_boxes, .. } = *truth;
        let config = &net.spec.config.model.rpn;
        let plus_one = net.spec.config.model.boxes.legacy_plus_one;
        let ipg = net.spec.config.train.images_per_group;
        let rows_per_image = match config.loss_divisor {
            LossDivisor::Sampled => None,
            LossDivisor::BatchSize => Some(config.batch_size_per_image),
        };
        net.part("rpn.targets");
        let matcher = MatchAnchors {
            fg_iou: config.fg_iou,
            bg_iou: config.bg_iou,
            low_quality: config.low_quality_matches,
            plus_one,
            straddle_filter: net.spec.config.model.anchors.straddle_filter,
        };
        let (anchors, num_images) = (self.anchors, images.num_images);
        let (gt_counts, network_sizes) = (objects.gt_counts, images.network_sizes);
        let inputs = MatchAnchorsInputs { anchors, gt_boxes, gt_counts, network_sizes, num_images };
        let [labels, matched_idx] = net.program.apply(matcher, inputs)?;
        net.observe("rpn_labels", labels);
        let idx = self.samples(net, labels, objects.image_keys)?;
        let inputs = GatherAnchorsInputs { anchors, idx, labels, matched_idx };
        let [boxes, image_idx, labels, matched] = net.program.apply(GatherAnchors, inputs)?;
        let encode = EncodeBoxes { weights: BOX_WEIGHTS, plus_one };
        let inputs = EncodeBoxesInputs { boxes, image_idx, matched, gt_boxes, labels };
        let [target, _matched_boxes] = net.program.apply(encode, inputs)?;

        net.part("rpn.losses");
        let (logits, pred) = self.sampled_head(net, idx)?;
        net.note("anchors", &[logits, labels]);
        let inputs = BceLossInputs { logits, labels, image_idx, num_images };
        let objectness = net.program.apply1(BceLoss { ipg, rows_per_image }, inputs)?;
        let smooth = SmoothL1Loss { beta: config.beta, ipg, rows_per_image };
        let inputs = SmoothL1LossInputs { pred, target, labels, image_idx, num_images };
        let box_reg = net.program.apply1(smooth, inputs)?;
        let weights = &net.spec.config.loss_weights;
        Ok([
            Loss { name: "loss_objectness", value: objectness, weight: weights.objectness },
            Loss { name: "loss_rpn_box_reg", value: box_reg, weight: weights.rpn_box_reg },
        ])
    }

    /// Sampled anchors [N, B].
    fn samples(
        &self,
        net: &mut Net<'_>,
        labels: TensorId,
        image_keys: TensorId,
    ) -> Result<TensorId, GraphError> {
        let config = &net.spec.config.model.rpn;
        let sampler = SampleAnchors {
            batch: config.batch_size_per_image,
            positive_fraction: config.positive_fraction,
            seed: net.spec.config.train.seed,
        };
        let [idx, counts] = net.program.apply(sampler, [labels, image_keys])?;
        net.observe("rpn_sample_idx", idx);
        net.observe("rpn_sample_counts", counts);
        Ok(idx)
    }

    /// Logits [N*B, 1] and deltas [N*B, 4] of the sampled anchors.
    fn sampled_head(
        &self,
        net: &mut Net<'_>,
        idx: TensorId,
    ) -> Result<(TensorId, TensorId), GraphError> {
        let HeadWeights { convs, logits, deltas } = self.head_weights(net);
        let anchors_per_cell = self.anchors_per_cell;
        let inputs: Vec<_> = self.maps.iter().copied().chain([idx]).collect();
        let gather = GatherPatches { anchors_per_cell, reach: convs.len() };
        let mut hidden = net.program.apply1(gather, inputs)?;
        let level_sizes = self.maps.iter().map(|map| net.program.desc(*map));
        let level_sizes = level_sizes.map(|map| [map.dim(1), map.dim(2)]).collect();
        let clear = ClearOutside { anchors_per_cell, level_sizes };
        for (i, &[w, b]) in convs.iter().enumerate() {
            // The last convolution only computes the anchor's cell, so it is a linear layer on the
            // patch.
            if i + 1 == convs.len() {
                let inputs = LinearInputs { x: hidden, w, b, count: None };
                hidden = net.program.apply1(Linear { relu: true, counted: false }, inputs)?;
                break;
            }
            let inputs = Conv2dInputs { bias: Some(b), ..plain(hidden, w) };
            let conv = Conv2d { relu: true, ..Conv2d::new(1, 0).reading(&inputs) };
            let values = net.program.apply1(conv, inputs)?;
            hidden = net.program.apply1(clear.clone(), [values, idx])?;
        }
        let mut predict = |[w, b]: [TensorId; 2], width| {
            let inputs = LinearInputs { x: hidden, w, b, count: None };
            let all = net.program.apply1(Linear { relu: false, counted: false }, inputs)?;
            let select = SelectColumns { width, modulo: true };
            net.program.apply1(select, [all, idx])
        };
        Ok((predict(logits, 1)?, predict(deltas, 4)?))
    }

    fn head_weights(&self, net: &Net<'_>) -> HeadWeights {
        let pair = |layer: &str| {
            ["weight", "bias"].map(|what| {
                let name = format!("{HEAD}.{layer}.{what}");
                match net.program.find(&name) {
                    Some(tensor) => tensor,
                    None => panic!("{name} is declared by the dense head, which comes first"),
                }
            })
        };
        HeadWeights {
            convs: self.convs.clone().map(|i| pair(&format!("conv.{i}.0"))).collect(),
            logits: pair("cls_logits"),
            deltas: pair("bbox_pred"),
        }
    }
}
