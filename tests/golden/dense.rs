//! Golden families `conv2d`, `tv_group_conv`, `conv_transpose2x2s2`, `linear` and `frozen_bn`.

use kernels::Role;
use kernels::cpu::HostTensor;
use kernels::frozen_bn::fold_frozen_bn;
use kernels::ops::conv_transpose::ConvTranspose;
use kernels::ops::conv2d::Conv2d;
use kernels::ops::linear::Linear;

use crate::convert::{Ran, channels_last, channels_second, flag, floats, host};
use crate::support::{Case, Report, Tensor, each_case};

/// From the README of the golden data, for dense ops in f32.
const TOLERANCE: f64 = 2e-5;

fn activation(case: Case<'_>, name: &str) -> HostTensor {
    host(Role::Activation, &case.f32(name))
}

/// Three times the largest error of PyTorch's own f32 implementation.
const GROUP_TOLERANCE: f64 = 8.1e-7;

#[test]
fn conv2d_matches_golden() {
    convs("conv2d", TOLERANCE, |_| 1);
}

#[test]
fn torchvision_grouped_conv_matches_golden() {
    convs("tv_group_conv", GROUP_TOLERANCE, |case| case.usize("groups"));
}

fn convs(name: &'static str, tolerance: f64, groups: impl Fn(Case<'_>) -> usize) {
    each_case(name, tolerance, |report, case| {
        let (bias, groups) = (case.has("b"), groups(case));
        let plain = Conv2d::new(case.usize("stride"), case.usize("pad"));
        let op = Conv2d { bias, groups, ..plain };
        let mut inputs =
            vec![activation(case, "x"), host(Role::Weight, &channels_last(&case.f32("w")))];
        if bias {
            inputs.push(host(Role::Master, &case.f32("b")));
        }
        let ran = Ran::new(case.name(), op, inputs);
        weighted_op(report, case, &ran, channels_second);
    });
}

#[test]
fn conv_transpose2x2s2_matches_golden() {
    each_case("conv_transpose2x2s2", TOLERANCE, |report, case| {
        let inputs = vec![
            activation(case, "x"),
            host(Role::Weight, &channels_last(&case.f32("w"))),
            host(Role::Master, &case.f32("b")),
        ];
        let op = ConvTranspose { pad: 0, relu: flag(case, "relu"), counted: false, masked: false };
        let ran = Ran::new(case.name(), op, inputs);
        weighted_op(report, case, &ran, channels_second);
    });
}

#[test]
fn linear_matches_golden() {
    each_case("linear", TOLERANCE, |report, case| {
        let (x, mut w) = (case.f32("x"), case.f32("w"));
        // If x is a map, the file's weight columns are in NCHW order, but onegraph's are in NHWC
        // order.
        let map = x.shape.len() == 4;
        if map {
            let [h, wide, c] = [x.shape[1], x.shape[2], x.shape[3]];
            w = channels_last(&Tensor { shape: vec![w.shape[0], c, h, wide], data: w.data });
        }
        let inputs = vec![
            host(Role::Activation, &x),
            host(Role::Weight, &w),
            host(Role::Master, &case.f32("b")),
        ];
        let op = Linear { relu: flag(case, "relu"), counted: false };
        let ran = Ran::new(case.name(), op, inputs);
        let back = if map { channels_second } else { Tensor::clone };
        weighted_op(report, case, &ran, back);
    });
}

/// Compares y of an op with inputs x, w and b and, if the case has dy, also dx, dw and db. `back`
/// converts the op's weights to the file's order.
fn weighted_op(
    report: &mut Report,
    case: Case<'_>,
    ran: &Ran,
    back: impl Fn(&Tensor<f32>) -> Tensor<f32>,
) {
    let y = case.f32("y");
    report.exact(case.name(), "shape of y", ran.shape(0), &y.shape);
    report.close(case.name(), "y", ran.f32(0), &y.data);
    if case.has("dy") {
        let dy = case.f32("dy").data;
        report.compare(case, "dx", &ran.grad(&dy, 0).data);
        report.compare(case, "dw", &back(&ran.grad(&dy, 1)).data);
        if case.has("db") {
            report.compare(case, "db", &ran.grad(&dy, 2).data);
        }
    }
}

/// Frozen batch norm has no separate op: it is the epilogue of a convolution, here of a 1x1
/// identity convolution.
#[test]
fn frozen_bn_matches_golden() {
    each_case("frozen_bn", TOLERANCE, |report, case| {
        let values = ["weight", "bias", "running_mean", "running_var"].map(|n| case.f32(n).data);
        let [weight, bias, mean, var] = &values;
        let (scale, bias) = fold_frozen_bn(weight, bias, mean, var, case.float("eps"));
        let c = scale.len();
        let mut identity = vec![0.0; c * c];
        identity.iter_mut().step_by(c + 1).for_each(|w| *w = 1.0);
        let mode = case.attribute("mode").as_str().expect("mode is a word");
        let residual = case.has("residual");
        assert_eq!(residual, mode.contains("add"), "{}: mode {mode}", case.name());
        let relu = mode.contains("relu");
        let op = Conv2d { scale: true, bias: true, residual, relu, ..Conv2d::new(1, 0) };
        let mut inputs = vec![
            activation(case, "x"),
            floats(Role::Weight, &[c, 1, 1, c], identity),
            floats(Role::Master, &[c], scale),
            floats(Role::Master, &[c], bias),
        ];
        if residual {
            inputs.push(activation(case, "residual"));
        }
        let ran = Ran::new(case.name(), op, inputs);
        let dy = case.f32("dy").data;
        report.compare(case, "y", ran.f32(0));
        report.compare(case, "dx", &ran.grad(&dy, 0).data);
        if residual {
            let got = ran.grad(&dy, 4).data;
            report.compare(case, "dresidual", &got);
        }
    });
}
