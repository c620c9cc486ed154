//! Golden families `maxpool` and `upsample_add`.

use kernels::Role;
use kernels::ops::max_pool::MaxPool;
use kernels::ops::upsample_add::UpsampleAdd;

use crate::convert::{Ran, host};
use crate::support::each_case;

/// Error of one f32 addition, or of the sum of the gradients of a window or block: 1.1e-7 measured,
/// with margin for blocks with more terms.
const TOLERANCE: f64 = 1e-6;

#[test]
fn max_pool_matches_golden() {
    each_case("maxpool", TOLERANCE, |report, case| {
        let (kernel, stride) = (case.usize("kernel"), case.usize("stride"));
        let op = MaxPool { kernel, stride, pad: case.usize("pad"), argmax: true };
        let ran = Ran::new(case.name(), op, vec![host(Role::Activation, &case.f32("x"))]);
        report.equal(case, "y", ran.f32(0));
        report.equal(case, "argmax_hw", ran.i32(1));
        let dx = ran.grad(&case.f32("dy").data, 0).data;
        report.compare(case, "dx", &dx);
    });
}

#[test]
fn upsample_add_matches_golden() {
    each_case("upsample_add", TOLERANCE, |report, case| {
        let inputs = ["lateral", "top"].map(|name| host(Role::Activation, &case.f32(name)));
        let ran = Ran::new(case.name(), UpsampleAdd, inputs.to_vec());
        report.compare(case, "y", ran.f32(0));
        let dy = case.f32("dy").data;
        for (input, name) in ["dlateral", "dtop"].into_iter().enumerate() {
            report.compare(case, name, &ran.grad(&dy, input).data);
        }
    });
}
