//! Golden families `losses`, values and gradients of the training losses, and `tv_optim`'s
//! cross-entropy with class weights and label smoothing.

use kernels::Role;
use kernels::ops::bce_loss::BceLoss;
use kernels::ops::mask_bce_loss::MaskBceLoss;
use kernels::ops::select_columns::SelectColumns;
use kernels::ops::smooth_l1_loss::SmoothL1Loss;
use kernels::ops::softmax_cross_entropy::SoftmaxCrossEntropy;
use kernels::ops::weighted_cross_entropy::WeightedCrossEntropy;

use crate::convert::{Ran, count, flag, floats, host, index, repeated};
use crate::formulas::smooth_l1_of;
use crate::support::{Case, Report, Tensor, cases_of, each_case};

/// f32 against f64: 3e-7 measured, with margin for larger logits and more classes.
const TOLERANCE: f64 = 2e-6;
/// Images per group; all rows belong to image 0, so there is one group.
const IPG: usize = 1;

#[test]
fn losses_match_golden() {
    each_case("losses", TOLERANCE, |report, case| {
        if case.has("dpred_of_sum") {
            smooth_l1_rows(report, case);
        } else if case.has("softmax") {
            cross_entropy(report, case);
        } else if case.has("dlogits") {
            mask_bce(report, case);
        } else if case.has("dbox_regression") {
            fastrcnn(report, case);
        } else if case.has("x") && case.has("dx") {
            bce(report, case);
        } else {
            panic!("golden losses: {}: unknown kind", case.name());
        }
    });
}

/// Compares the elements with the formula, and the sum and its gradient with the op, which divides
/// by the number of rows.
fn smooth_l1_rows(report: &mut Report, case: Case<'_>) {
    let (beta, pred, target) = (case.float("beta") as f32, case.f32("pred"), case.f32("target"));
    report.compare(case, "loss", &smooth_l1_of(case, "pred").0);
    let rows = pred.shape[0];
    let ran = box_loss_op(case, [pred.data, target.data], beta, vec![1; rows]);
    let sum = [f64::from(ran.f32(0)[0]) * rows as f64];
    report.compare(case, "loss_sum", &sum);
    let grad = ran.grad(&[rows as f32], 0).data;
    report.compare(case, "dpred_of_sum", &grad);
}

/// Compares the mask loss, which accepts any targets, in all cases, and the objectness loss if all
/// targets are 0 or 1.
fn bce(report: &mut Report, case: Case<'_>) {
    let (x, target) = (case.f32("x"), case.f32("target"));
    let len = x.data.len();
    let (loss, dx) = (case.f32("loss").data, case.f32("dx").data);
    if target.data.iter().all(|&t| t == 0.0 || t == 1.0) {
        let labels = target.data.iter().map(|&t| t as i32).collect();
        let logits = floats(Role::Activation, &[len], x.data.clone());
        let inputs = vec![logits, index(&[len], labels), repeated(len, 0), count(1)];
        let ran = Ran::new(case.name(), BceLoss { ipg: IPG, rows_per_image: None }, inputs);
        report.close(case.name(), "loss", ran.f32(0), &loss);
        report.close(case.name(), "dx", &ran.grad(&[1.0], 0).data, &dx);
    }
    let inputs = mask_inputs(
        &Tensor { shape: vec![1, 1, len], data: x.data },
        vec![1],
        &Tensor { shape: vec![1, 1, len], data: target.data },
    );
    let ran = Ran::new(case.name(), MaskBceLoss { ipg: IPG }, inputs);
    report.close(case.name(), "loss (mask loss)", ran.f32(0), &loss);
    report.close(case.name(), "dx (mask loss)", &ran.grad(&[1.0], 0).data, &dx);
}

/// Compares the loss of each row in the channel of its label; all other channels have gradient 0.
fn mask_bce(report: &mut Report, case: Case<'_>) {
    let labels = case.i32("labels").data;
    let logits = own_channel(&case.f32("logits"), &labels);
    let inputs = mask_inputs(&logits, labels.clone(), &case.f32("target"));
    let ran = Ran::new(case.name(), MaskBceLoss { ipg: IPG }, inputs);
    report.compare(case, "loss", ran.f32(0));
    let grad = ran.grad(&[1.0], 0).data;
    let want = case.f32("dlogits");
    report.close(case.name(), "dlogits", &grad, &own_channel(&want, &labels).data);
    let size = |values: &[f32]| values.iter().map(|v| f64::from(v.abs())).sum::<f64>();
    report.close(case.name(), "no other channel", &[size(&grad)], &[size(&want.data) as f32]);
}

fn mask_inputs(
    logits: &Tensor<f32>,
    labels: Vec<i32>,
    target: &Tensor<f32>,
) -> Vec<kernels::cpu::HostTensor> {
    let rows = labels.len();
    vec![
        host(Role::Activation, logits),
        index(&[rows], labels),
        host(Role::Mask, target),
        repeated(rows, 0),
        count(rows),
        count(1),
    ]
}

/// The op has no softmax output: the softmax is derived from the gradient of the mean, which is the
/// softmax minus the one-hot targets, divided by the number of rows.
fn cross_entropy(report: &mut Report, case: Case<'_>) {
    let targets = case.i32("target").data;
    let ran = cross_entropy_op(case, &case.f32("x"), targets.clone());
    report.compare(case, "loss", ran.f32(0));
    let grad = ran.grad(&[1.0], 0).data;
    report.compare(case, "dx", &grad);
    let classes = grad.len() / targets.len();
    let mut softmax: Vec<f32> = grad.iter().map(|g| g * targets.len() as f32).collect();
    for (row, target) in softmax.chunks_exact_mut(classes).zip(&targets) {
        row[*target as usize] += 1.0;
    }
    report.compare(case, "softmax", &softmax);
}

pub(crate) fn cross_entropy_op(case: Case<'_>, logits: &Tensor<f32>, labels: Vec<i32>) -> Ran {
    let rows = labels.len();
    let logits = host(Role::Activation, logits);
    let inputs = vec![logits, index(&[rows], labels), repeated(rows, 0), count(1)];
    Ran::new(case.name(), SoftmaxCrossEntropy { ipg: IPG, rows_per_image: None }, inputs)
}

/// The loss of predicted deltas and their targets.
pub(crate) fn box_loss_op(
    case: Case<'_>,
    [pred, target]: [Vec<f32>; 2],
    beta: f32,
    labels: Vec<i32>,
) -> Ran {
    let rows = labels.len();
    let inputs = vec![
        floats(Role::Activation, &[rows, 4], pred),
        floats(Role::Box, &[rows, 4], target),
        index(&[rows], labels),
        repeated(rows, 0),
        count(1),
    ];
    Ran::new(case.name(), SmoothL1Loss { beta, ipg: IPG, rows_per_image: None }, inputs)
}

/// Compares the two losses of the box head; each row uses the deltas of its class.
fn fastrcnn(report: &mut Report, case: Case<'_>) {
    let labels = case.i32("labels").data;
    let ran = cross_entropy_op(case, &case.f32("class_logits"), labels.clone());
    report.compare(case, "loss_cls", ran.f32(0));
    let grad = ran.grad(&[1.0], 0).data;
    report.compare(case, "dclass_logits", &grad);

    let deltas = host(Role::Activation, &case.f32("box_regression"));
    let select = SelectColumns { width: 4, modulo: false };
    let classes = index(&[labels.len()], labels.clone());
    let own = Ran::new(case.name(), select, vec![deltas, classes]);
    let pairs = [own.f32(0).to_vec(), case.f32("regression_targets").data];
    let ran = box_loss_op(case, pairs, case.float("beta") as f32, labels);
    report.compare(case, "loss_box", ran.f32(0));
    let grad = own.grad(&ran.grad(&[1.0], 0).data, 0).data;
    report.compare(case, "dbox_regression", &grad);
}

/// The largest error of torch's own f32 results is 5.8e-7 (tv_README).
const WEIGHTED_TOLERANCE: f64 = 1e-6;

/// Label smoothing, class weights and ignored rows. The sum over rows equals torch's mean times the
/// sum of the rows' class weights.
#[test]
fn torchvision_cross_entropy_matches_golden() {
    cases_of("tv_optim", "ce_", WEIGHTED_TOLERANCE, |report, case| {
        weighted_cross_entropy(report, case);
    });
}

fn weighted_cross_entropy(report: &mut Report, case: Case<'_>) {
    let (logits, ignored) = (case.f32("x"), case.attributes()["ignore_index"].as_i64());
    let (rows, classes) = (logits.shape[0], logits.shape[1]);
    let targets = case.i32("target").data.into_iter();
    let labels: Vec<i32> =
        targets.map(|t| if Some(i64::from(t)) == ignored { -1 } else { t }).collect();
    let weights = match flag(case, "weighted") {
        true => case.f32("weight").data,
        false => vec![1.0; classes],
    };
    let counted = labels.iter().filter_map(|&label| usize::try_from(label).ok());
    let total: f64 = counted.map(|label| f64::from(weights[label])).sum();
    let op = WeightedCrossEntropy {
        ipg: IPG,
        class_weights: weights.into(),
        label_smoothing: case.float("label_smoothing") as f32,
    };
    let inputs =
        vec![host(Role::Activation, &logits), index(&[rows], labels), repeated(rows, 0), count(1)];
    let ran = Ran::new(case.name(), op, inputs);
    let is_mean = case.attribute("reduction") == "mean";
    let factor = if is_mean { 1.0 } else { total };
    let want: f64 = case.f32("loss").data.iter().map(|&v| f64::from(v)).sum();
    report.close(case.name(), "loss", &[factor * f64::from(ran.f32(0)[0])], &[want]);
    report.compare(case, "dx", &ran.grad(&[factor as f32], 0).data);
}

/// Selects the channel of each row's label from maps [M, S, S, K+1]; the result is [M, S, S].
fn own_channel(maps: &Tensor<f32>, labels: &[i32]) -> Tensor<f32> {
    let [rows, height, width, classes] = maps.shape[..] else { panic!("{:?}", maps.shape) };
    let channel = |i: usize| maps.data[i * classes + labels[i / (height * width)] as usize];
    let data = (0..rows * height * width).map(channel).collect();
    Tensor { shape: vec![rows, height, width], data }
}
