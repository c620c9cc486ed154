//! Golden families `maxpool` and `upsample_add`.

use kernels::Role;
use kernels::ops::max_pool::MaxPool;
use kernels::ops::upsample_add::UpsampleAdd;

use crate::convert::{Ran, host};
use crate::support::{Family, Report};

/// One f32 addition, or the sum of a window's or a block's gradients: 1.1e-7 measured, with room
/// for blocks of more terms.
const TOLERANCE: f64 = 1e-6;

#[test]
fn golden_maxpool() {
    let Some(family) = Family::open("maxpool") else { return };
    let mut report = Report::new("maxpool", TOLERANCE);
    for case in family.cases() {
        let (kernel, stride) = (case.usize("kernel"), case.usize("stride"));
        let op = MaxPool { kernel, stride, pad: case.usize("pad"), argmax: true };
        let ran = Ran::new(case.name(), op, vec![host(Role::Activation, &case.f32("x"))]);
        report.exact(case.name(), "y", ran.f32(0), &case.f32("y").data);
        report.exact(case.name(), "argmax_hw", ran.i32(1), &case.i32("argmax_hw").data);
        let dx = ran.grad(&case.f32("dy").data, 0).data;
        report.close(case.name(), "dx", &dx, &case.f32("dx").data);
        report.done_case();
    }
    report.finish();
}

#[test]
fn golden_upsample_add() {
    let Some(family) = Family::open("upsample_add") else { return };
    let mut report = Report::new("upsample_add", TOLERANCE);
    for case in family.cases() {
        let inputs = ["lateral", "top"].map(|name| host(Role::Activation, &case.f32(name)));
        let ran = Ran::new(case.name(), UpsampleAdd, inputs.to_vec());
        report.close(case.name(), "y", ran.f32(0), &case.f32("y").data);
        let dy = case.f32("dy").data;
        for (input, name) in ["dlateral", "dtop"].into_iter().enumerate() {
            report.close(case.name(), name, &ran.grad(&dy, input).data, &case.f32(name).data);
        }
        report.done_case();
    }
    report.finish();
}
