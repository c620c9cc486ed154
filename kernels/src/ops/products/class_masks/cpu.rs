//! CPU reference of `class_masks` and its gradients.

use rayon::prelude::*;

use super::{ClassMasksGradInputs, ClassMasksInputs};
use crate::TensorDesc;
use crate::counted::rows_in_use;
use crate::cpu::CpuArgs;
use crate::isa::{Isa, wide};
use crate::matmul::{ConvShape, Epilogue, conv_forward, filter_gradient, gather_workspace_len};
use crate::ops::bias_grad;

/// The product of one row with one filter.
fn row_shape(x: &TensorDesc) -> ConvShape {
    ConvShape::matrix(x.dim(1) * x.dim(2), x.dim(3), 1)
}

/// Class of each row in use; `None` if it has no mask.
fn classes(labels: &[i32], count: &[i32], num_classes: usize) -> Vec<Option<usize>> {
    let labels = &labels[..rows_in_use(count, labels.len())];
    let class = |(row, label): (usize, &i32)| {
        let class = usize::try_from(*label).ok().filter(|class| *class > 0)?;
        assert!(class < num_classes, "label {class} of {num_classes} classes in row {row}");
        Some(class)
    };
    labels.iter().enumerate().map(class).collect()
}

pub(super) fn forward(args: &mut CpuArgs<'_>) {
    let ClassMasksInputs { x, w, b, labels, count } = ClassMasksInputs::of(&args.inputs);
    let shape = row_shape(x.desc);
    let (pixels, channels) = (shape.out_positions(), shape.channels);
    let (x, w, b) = (x.f32(), w.f32(), b.f32());
    let logits = args.outputs[0].f32();
    logits.fill(0.0);
    if pixels == 0 {
        return;
    }
    let classes = classes(labels.i32(), count.i32(), b.len());
    let (rows, isa) = (logits.par_chunks_mut(pixels).zip(&classes).enumerate(), Isa::get());
    rows.for_each(|(row, (logits, class))| {
        let Some(class) = *class else { return };
        let x = &x[row * pixels * channels..][..pixels * channels];
        let w = &w[class * channels..][..channels];
        let epilogue = Epilogue { bias: Some(&b[class..=class]), ..Epilogue::default() };
        let mut workspace = vec![0.0; gather_workspace_len(&shape)];
        isa.within(|| conv_forward(&shape, x, w, epilogue, logits, &mut workspace));
    });
}

pub(super) fn grad(relu: bool, args: &mut CpuArgs<'_>) {
    let ClassMasksGradInputs { g, x, w, labels, count } = ClassMasksGradInputs::of(&args.inputs);
    let (num_classes, shape) = (w.desc.dim(0), row_shape(x.desc));
    let (pixels, channels) = (shape.out_positions(), shape.channels);
    let (g, x, w) = (g.f32(), x.f32(), w.f32());
    let classes = classes(labels.i32(), count.i32(), num_classes);
    let [dx, dw, db, ..] = &mut args.outputs[..] else { unreachable!("three outputs at least") };
    let (dx, isa) = (dx.f32(), Isa::get());
    if !dx.is_empty() {
        dx.par_chunks_mut(pixels * channels).enumerate().for_each(|(row, dx)| {
            let Some(&Some(class)) = classes.get(row) else { return dx.fill(0.0) };
            let filter = &w[class * channels..][..channels];
            let x = &x[row * pixels * channels..][..dx.len()];
            spread(isa, dx, &g[row * pixels..][..pixels], filter, relu.then_some(x));
        });
    }
    let rows_of = |class: usize| -> Vec<usize> {
        let own = classes.iter().enumerate().filter(|(_, own)| **own == Some(class));
        own.map(|(row, _)| row).collect()
    };
    let rows: Vec<Vec<usize>> = (0..num_classes).map(rows_of).collect();
    if channels > 0 {
        dw.f32().par_chunks_mut(channels).zip(&rows).for_each(|(dw, rows)| {
            filter_gradient(x, g, pixels, rows, dw);
        });
    }
    for (db, rows) in db.f32().iter_mut().zip(&rows) {
        *db = bias_grad::sum_of_rows(g, pixels, rows);
    }
}

wide! {
    /// `dx[pixel][c] = g[pixel] * filter[c]`; 0 where `x` is given and not positive.
    fn spread(dx: &mut [f32], g: &[f32], filter: &[f32], x: Option<&[f32]>) {
        let channels = filter.len();
        for (i, (dx, g)) in dx.chunks_exact_mut(channels).zip(g).enumerate() {
            match x {
                None => dx.iter_mut().zip(filter).for_each(|(dx, w)| *dx = g * w),
                Some(x) => {
                    let x = &x[i * channels..][..channels];
                    for ((dx, w), x) in dx.iter_mut().zip(filter).zip(x) {
                        *dx = if *x > 0.0 { g * w } else { 0.0 };
                    }
                }
            }
        }
    }
}
