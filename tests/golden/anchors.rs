//! Golden families `anchors` and `matcher`.

use kernels::Role;
use kernels::boxes::{AnchorLevel, Thresholds, cell_anchors, match_iou};
use kernels::ops::anchors::Anchors;
use kernels::ops::roi_candidates::RoiCandidates;

use crate::convert::{Ran, count, floats, index, numbered, numbers, repeated, sizes};
use crate::support::{Case, Report, Tensor, each_case};

/// Anchor side of the finest level; the sides 32, 64, .. per level are in the README of the golden
/// data, but not in its files.
const FINEST_SIZE: f32 = 32.0;
/// Height / width, from the README of the golden data.
const RATIOS: [f32; 3] = [0.5, 1.0, 2.0];

#[test]
fn anchors_match_golden() {
    // The tolerance is 0, because the values are integers, exact in f32.
    each_case("anchors", 0.0, |report, case| {
        let padded: Vec<usize> = numbers(case, "padded_hw").iter().map(|&v| v as usize).collect();
        let strides = sizes(case, "strides_hw");
        let mut levels = Vec::new();
        for (level, [height, width]) in sizes(case, "feature_hw").into_iter().enumerate() {
            let size = FINEST_SIZE * 2.0f32.powi(level as i32);
            let cells = cell_anchors(&[size], &RATIOS);
            let base = format!("base_level{level}");
            report.equal(case, &base, cells.as_flattened());
            let stride = [padded[0] / height, padded[1] / width];
            report.exact(case.name(), "strides_hw", &stride, &strides[level]);
            let [stride_h, stride_w] = stride.map(|s| s as f32);
            levels.push(AnchorLevel { height, width, stride_h, stride_w, cells });
        }
        assert_eq!(levels.len(), numbered(case, "base_level").len(), "{}", case.name());
        let ran = Ran::new(case.name(), Anchors { levels }, vec![]);
        report.equal(case, "anchors", ran.f32(0));
    });
}

/// The matcher settings, parsed from the name of a tensor of matches: `rpn_0p7_0p3_lowq`,
/// `roi_0p5_0p5`.
struct Rule {
    tensor: String,
    thresholds: Thresholds,
    low_quality: bool,
    rpn: bool,
}

impl Rule {
    fn parse(tensor: &str) -> Option<Self> {
        let mut parts = tensor.split('_');
        let rpn = match parts.next()? {
            "rpn" => true,
            "roi" => false,
            _ => return None,
        };
        let mut number = || parts.next()?.replace('p', ".").parse::<f32>().ok();
        let thresholds = Thresholds { fg_iou: number()?, bg_iou: number()? };
        let low_quality = match parts.next() {
            Some("lowq") => true,
            Some("nolowq") | None => false,
            Some(_) => return None,
        };
        Some(Rule { tensor: tensor.to_owned(), thresholds, low_quality, rpn })
    }
}

#[test]
fn anchor_matching_matches_golden() {
    // Only indices.
    each_case("matcher", 0.0, |report, case| {
        let recorded =
            case.tensors().filter(|name| !["iou", "gt", "pred"].contains(&name.as_str()));
        for tensor in recorded {
            let rule = Rule::parse(&tensor);
            let rule = rule.unwrap_or_else(|| panic!("{tensor}: unknown kind"));
            matches(report, case, &rule);
        }
    });
}

fn matches(report: &mut Report, case: Case<'_>, rule: &Rule) {
    let iou = case.f32("iou");
    let want = case.i32(&rule.tensor).data;
    let got = match_iou(&iou.data, iou.shape[1], rule.thresholds, rule.low_quality);
    report.exact(case.name(), &rule.tensor, &got, &want);
    // In cases with ties the recorded boxes are not those from which the recorded overlaps were
    // computed (README of the golden data).
    if case.name().ends_with("_ties") {
        return;
    }
    // Only the RoI heads' op runs here: `model_rpn_matches_golden` compares the labels of the RPN's
    // op.
    if !rule.rpn {
        roi_candidates(report, case, rule, [&case.f32("gt"), &case.f32("pred")], &want);
    }
}

/// Compares candidate labels from the RoI heads' op; object g gets class g + 1, so that a label
/// identifies the matched object.
fn roi_candidates(
    report: &mut Report,
    case: Case<'_>,
    rule: &Rule,
    [gt, pred]: [&Tensor<f32>; 2],
    want: &[i32],
) {
    let Thresholds { fg_iou, bg_iou } = rule.thresholds;
    let op = RoiCandidates { fg_iou, bg_iou, plus_one: false };
    let (gts, rows) = (gt.shape[0], pred.shape[0]);
    let classes = index(&[1, gts], (1..=gts as i32).collect());
    let inputs = vec![
        floats(Role::Box, &[1, rows, 4], pred.data.clone()),
        index(&[1, rows], (0..rows as i32).collect()),
        repeated(1, rows as i32),
        floats(Role::Box, &[1, gts, 4], gt.data.clone()),
        classes,
        count(gts),
        count(1),
    ];
    let ran = Ran::new(case.name(), op, inputs);
    // Match -1, 0, 1, .. becomes label 0, 1, 2, ..; -2 becomes label -1.
    let labels: Vec<i32> = want.iter().map(|&m| m + 1).collect();
    let name = format!("{} labels (op)", rule.tensor);
    report.exact(case.name(), &name, &ran.i32(1)[..rows], &labels);
    let matched: Vec<i32> = want.iter().map(|&m| m.max(0)).collect();
    let name = format!("{} matched (op)", rule.tensor);
    report.exact(case.name(), &name, &ran.i32(2)[..rows], &matched);
}
