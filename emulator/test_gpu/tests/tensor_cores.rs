//! Measures the error of tensor core sums, whose terms are aligned and truncated where fp32
//! arithmetic rounds. [`CUT_PER_PRODUCT`] is based on this error.

use device::Device;
use kernels::Role;
use kernels::case::normal;
use kernels::on_device::OpRun;
use kernels::ops::gemm_op::GradWeight;
use kernels::ops::layer::Layer;
use test_gpu::CUT_PER_PRODUCT;

/// Rows and columns of the GEMM: one small tile.
const SIDE: usize = 64;
/// Lengths of the sums.
const PRODUCTS: [usize; 2] = [512, 4_096];

/// Maximum error, divided by the root mean square, of a GEMM with normally distributed values. The
/// GEMM is a layer's weight gradient; its longer sums use split-k.
fn worst(settings: &str, k: usize) -> f64 {
    let inputs = [(Role::Activation, 3), (Role::Gradient, 4)]
        .map(|(role, seed)| normal(role, &[k, SIDE], seed, 1.0));
    let device = test_gpu::open(&format!("A100:1 {settings}"));
    let stream = device.stream().expect("a stream");
    let (layer, w) = (Layer::Linear, vec![SIDE, SIDE]);
    let op = GradWeight { layer, w, scale: false, counted: false };
    let run = OpRun::new(&device, stream, device.gpu(), &op, &inputs, &[]).expect("memory");
    run.launch().expect("a launch");
    let got = run.outputs().expect("no fault").remove(0);
    let mut exact = vec![0.0; SIDE * SIDE];
    let halves = |row: &[f32]| -> Vec<f64> {
        row.iter().map(|x| half::f16::from_f32(*x).to_f64()).collect()
    };
    let rows = inputs[0].as_f32().chunks_exact(SIDE).zip(inputs[1].as_f32().chunks_exact(SIDE));
    for (x, g) in rows.map(|(x, g)| (halves(x), halves(g))) {
        for (row, g) in exact.chunks_exact_mut(SIDE).zip(&g) {
            row.iter_mut().zip(&x).for_each(|(sum, x)| *sum += g * x);
        }
    }
    let rms = (exact.iter().map(|e| e * e).sum::<f64>() / exact.len() as f64).sqrt();
    let errors = got.as_f32().iter().zip(&exact).map(|(g, e)| (f64::from(*g) - e).abs());
    errors.fold(0.0, f64::max) / rms
}

/// The truncation error grows with the length of the sum, faster than rounding errors, and stays
/// within [`CUT_PER_PRODUCT`].
#[test]
fn truncation_error_grows_with_sum_length() {
    let errors = PRODUCTS.map(|k| ["", "SUMS=a100"].map(|settings| worst(settings, k)));
    for (k, [rounded, cut]) in PRODUCTS.into_iter().zip(errors) {
        let each = cut / k as f64;
        println!("{k:>6} products: {rounded:.2e} rounded, {cut:.2e} cut, {each:.1e} each");
        assert!(cut > 1.5 * rounded, "{k}: {cut} {rounded}");
        assert!(each < CUT_PER_PRODUCT, "{k}: {each}");
    }
    assert!(errors.is_sorted_by(|a, b| a[1] < b[1]), "{errors:?}");
}
