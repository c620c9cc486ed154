//! Family tv_convnext_ops: the ops of ConvNeXt, and a block composed of them.

use kernels::Role;
use kernels::ops::conv2d::Conv2d;
use kernels::ops::gelu::Gelu;
use kernels::ops::layer_norm::LayerNorm;
use kernels::ops::scaled_residual::ScaledResidual;

use crate::convert::{Ran, channels_last, channels_second, host};
use crate::support::{Case, Report, Tensor, each_case};

/// Three times the largest error of PyTorch's own f32 implementation, on whole backbones.
const TOLERANCE: f64 = 2.3e-6;

#[test]
fn torchvision_convnext_ops_match_golden() {
    each_case("tv_convnext_ops", TOLERANCE, |report, case| {
        match case.attribute("kind").as_str().expect("a word") {
            "depthwise" => depthwise(report, case),
            "layer_norm" => layer_norm(report, case),
            "gelu" => gelu(report, case),
            "layer_scale" => layer_scale(report, case),
            "block" => block(report, case),
            other => panic!("{}: a case of kind {other}", case.name()),
        }
    });
}

fn own_filters(channels: usize, kernel: usize) -> Conv2d {
    Conv2d { bias: true, groups: channels, ..Conv2d::new(1, kernel / 2) }
}

fn depthwise(report: &mut Report, case: Case<'_>) {
    let (x, dy) = (host(Role::Activation, &case.f32("x")), case.f32("dy").data);
    let (w, b) = (channels_last(&case.f32("w")), host(Role::Master, &case.f32("b")));
    let op = own_filters(case.usize("c"), case.usize("kernel"));
    let ran = Ran::new(case.name(), op, vec![x, host(Role::Weight, &w), b]);
    report.compare(case, "y", ran.f32(0));
    report.compare(case, "dx", &ran.grad(&dy, 0).data);
    let dw = channels_second(&ran.grad(&dy, 1));
    report.compare(case, "dw", &dw.data);
    report.compare(case, "db", &ran.grad(&dy, 2).data);
}

fn layer_norm(report: &mut Report, case: Case<'_>) {
    let dy = case.f32("dy").data;
    let vector = |name: &str| host(Role::Master, &case.f32(name));
    let inputs = vec![host(Role::Activation, &case.f32("x")), vector("weight"), vector("bias")];
    let ran = Ran::new(case.name(), LayerNorm { eps: case.float("eps") as f32 }, inputs);
    report.compare(case, "y", ran.f32(0));
    for (input, name) in ["dx", "dweight", "dbias"].into_iter().enumerate() {
        report.compare(case, name, &ran.grad(&dy, input).data);
    }
}

fn gelu(report: &mut Report, case: Case<'_>) {
    let ran = Ran::new(case.name(), Gelu, vec![host(Role::Activation, &case.f32("x"))]);
    report.compare(case, "y", ran.f32(0));
    let dx = ran.grad(&case.f32("dy").data, 0);
    report.compare(case, "dx", &dx.data);
}

/// The vector [C] stored in the file as [C, 1, 1].
fn scale(tensor: Tensor<f32>) -> Tensor<f32> {
    Tensor { shape: vec![tensor.data.len()], data: tensor.data }
}

fn layer_scale(report: &mut Report, case: Case<'_>) {
    let dy = case.f32("dy").data;
    let map = |name: &str| host(Role::Activation, &case.f32(name));
    let inputs = vec![map("residual"), map("x"), host(Role::Master, &scale(case.f32("scale")))];
    let ran = Ran::new(case.name(), ScaledResidual { drop: None }, inputs);
    report.compare(case, "y", ran.f32(0));
    report.compare(case, "dx", &ran.grad(&dy, 1).data);
    report.compare(case, "dscale", &ran.grad(&dy, 2).data);
    // The residual gets the unchanged gradient.
    report.compare(case, "dresidual", &dy);
}

/// Runs the ops of a block in sequence, and their gradients in reverse order.
fn block(report: &mut Report, case: Case<'_>) {
    let (x, dy) = (case.f32("x"), case.f32("dy").data);
    let weight = |name: &str| case.f32(&format!("weights/{name}"));
    let vector = |name: &str| host(Role::Master, &weight(name));
    let linear = |name: &str| {
        let w = weight(name);
        host(Role::Weight, &Tensor { shape: vec![w.shape[0], 1, 1, w.shape[1]], data: w.data })
    };
    let of = |ran: &Ran| {
        let tensor = Tensor { shape: ran.shape(0).to_vec(), data: ran.f32(0).to_vec() };
        host(Role::Activation, &tensor)
    };
    let run = |op: Conv2d, inputs| Ran::new(case.name(), op, inputs);
    let w = host(Role::Weight, &channels_last(&weight("block.0.weight")));
    let own = own_filters(case.usize("channels"), 7);
    let conv = run(own, vec![host(Role::Activation, &x), w, vector("block.0.bias")]);
    let eps = case.float("eps") as f32;
    let inputs = vec![of(&conv), vector("block.2.weight"), vector("block.2.bias")];
    let norm = Ran::new(case.name(), LayerNorm { eps }, inputs);
    let point = || Conv2d { bias: true, ..Conv2d::new(1, 0) };
    let up = vec![of(&norm), linear("block.3.weight"), vector("block.3.bias")];
    let up = run(point(), up);
    let gelu = Ran::new(case.name(), Gelu, vec![of(&up)]);
    let down = vec![of(&gelu), linear("block.5.weight"), vector("block.5.bias")];
    let down = run(point(), down);
    let factor = host(Role::Master, &scale(weight("layer_scale")));
    let inputs = vec![host(Role::Activation, &x), of(&down), factor];
    let end = Ran::new(case.name(), ScaledResidual { drop: None }, inputs);
    report.compare(case, "y", end.f32(0));

    let mut grad = |name: &str, got: &Tensor<f32>| {
        let name = format!("grads/{name}");
        report.compare(case, &name, &got.data);
    };
    grad("layer_scale", &end.grad(&dy, 2));
    let g = end.grad(&dy, 1).data;
    grad("block.5.weight", &down.grad(&g, 1));
    grad("block.5.bias", &down.grad(&g, 2));
    let g = gelu.grad(&down.grad(&g, 0).data, 0).data;
    grad("block.3.weight", &up.grad(&g, 1));
    grad("block.3.bias", &up.grad(&g, 2));
    let g = up.grad(&g, 0).data;
    grad("block.2.weight", &norm.grad(&g, 1));
    grad("block.2.bias", &norm.grad(&g, 2));
    let g = norm.grad(&g, 0).data;
    grad("block.0.weight", &channels_second(&conv.grad(&g, 1)));
    grad("block.0.bias", &conv.grad(&g, 2));
    let sum = conv.grad(&g, 0).data.iter().zip(&dy).map(|(a, b)| a + b).collect::<Vec<f32>>();
    report.compare(case, "dx", &sum);
}
