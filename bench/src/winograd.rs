//! `bench winograd`: 3x3 convolutions on the CPU as plain products and in tiles of 2x2 outputs
//! (`train.winograd`): their time, and their error against sums in f64.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use kernels::case::uniform;
use kernels::cpu::{CpuArgs, HostTensor, TensorMut};
use kernels::isa::{Products, has_bf16};
use kernels::ops::conv2d::Conv2d;
use kernels::ops::product::{GradInput, GradWeight};
use kernels::{Finish, Op, Role, TensorDesc};
use serde_json::{Value, json};

use crate::report::{commit, cpu, percentile, write_json};

#[derive(Debug, Args)]
pub(crate) struct WinogradArgs {
    /// Runs of each product, in turn.
    #[arg(long, default_value_t = 7)]
    repeats: usize,
    /// Write the figures here.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The 3x3 layers of R50-FPN on one image of 256x256 with 100 detections: name, maps, their side,
/// and channels.
const LAYERS: [(&str, [usize; 3]); 6] = [
    ("res2", [1, 64, 64]),
    ("res3", [1, 32, 128]),
    ("res4", [1, 16, 256]),
    ("P2, RPN on P2", [1, 64, 256]),
    ("P3, RPN on P3", [1, 32, 256]),
    ("mask head", [100, 14, 256]),
];

/// Elements of each result that are summed again in f64.
const SAMPLES: usize = 400;

pub(crate) fn run(args: &WinogradArgs) -> anyhow::Result<()> {
    let precisions = [("f32", false), ("bf16", true)];
    let precisions = precisions.into_iter().filter(|(_, bf16)| !bf16 || has_bf16());
    say!("{} | plain products, then in tiles", cpu());
    say!("{:<5} {:<14} {:<18} {:>21} {:>6}  {:>19}", "", "layer", "makes", "ms", "ratio", "error");
    let mut rows = Vec::new();
    for ((precision, bf16), (name, sizes)) in
        precisions.flat_map(|precision| LAYERS.map(|layer| (precision, layer)))
    {
        let layer = Layer::new(sizes);
        for product in layer.products() {
            // Inside the pool, as the executor runs ops.
            let measured = rayon::scope(|_| product.measure(bf16, args.repeats.max(1)));
            let ([plain, tiled], error) = measured?;
            let (makes, ratio) = (product.makes, tiled / plain);
            say!(
                "{precision:<5} {name:<14} {makes:<18} {plain:>10.3} {tiled:>10.3} {ratio:>6.2}  \
                 {:>9.2e} {:>9.2e}",
                error[0],
                error[1]
            );
            rows.push(json!({
                "precision": precision, "layer": name, "makes": makes, "sizes": sizes,
                "ms": {"plain": plain, "tiles": tiled},
                "error": {"plain": error[0], "tiles": error[1]},
            }));
        }
    }
    say!(
        "error: root mean square of {SAMPLES} elements' distance from f64, over that of their values."
    );
    if let Some(path) = &args.json {
        let value: Value = json!({"device": cpu(), "commit": commit(), "products": rows});
        write_json(path, &value)?;
    }
    Ok(())
}

/// A 3x3 convolution that keeps the map and its channels, with values for all of its tensors.
struct Layer {
    images: usize,
    side: usize,
    channels: usize,
    x: HostTensor,
    w: HostTensor,
    g: HostTensor,
}

/// One of the layer's three products.
struct Product<'a> {
    layer: &'a Layer,
    makes: &'static str,
    op: Box<dyn Op>,
    inputs: [HostTensor; 2],
    exact: fn(&Layer, usize) -> f64,
}

impl Layer {
    fn new([images, side, channels]: [usize; 3]) -> Self {
        let map = [images, side, side, channels];
        let values =
            |role, shape: &[usize], seed| uniform(&TensorDesc::new(role, shape), seed, -1.0, 1.0);
        let x = values(Role::Activation, &map, 1);
        let w = values(Role::Weight, &[channels, 3, 3, channels], 2);
        let g = values(Role::Gradient, &map, 3);
        Self { images, side, channels, x, w, g }
    }

    fn products(&self) -> [Product<'_>; 3] {
        let conv = Conv2d::new(1, 1);
        let (layer, finish) = (conv.layer(), Finish::default());
        let (x, w) = (self.x.desc.shape.clone(), self.w.desc.shape.clone());
        let grad_input = GradInput { layer, x, scale: false, counted: false, finish };
        let grad_weight = GradWeight { layer, w, scale: false, counted: false, bias_grad: false };
        let product = |makes, op, inputs: [&HostTensor; 2], exact| Product {
            layer: self,
            makes,
            op,
            inputs: inputs.map(HostTensor::clone),
            exact,
        };
        [
            product("output", Box::new(conv), [&self.x, &self.w], Self::output),
            product("input's gradient", Box::new(grad_input), [&self.g, &self.w], Self::grad_input),
            product(
                "weights' gradient",
                Box::new(grad_weight),
                [&self.x, &self.g],
                Self::grad_weight,
            ),
        ]
    }

    /// The position a tap away from one of an image's; `None` outside of the map.
    fn moved(&self, position: usize, tap: [usize; 2], back: bool) -> Option<usize> {
        let (image, at) = (position / (self.side * self.side), position % (self.side * self.side));
        let step = |from: usize, tap: usize| {
            let to = if back { (from + 1).checked_sub(tap) } else { (from + tap).checked_sub(1) };
            to.filter(|to| *to < self.side)
        };
        let [row, column] = [step(at / self.side, tap[0])?, step(at % self.side, tap[1])?];
        Some((image * self.side + row) * self.side + column)
    }

    fn weight(&self, filter: usize, [r, s]: [usize; 2], channel: usize) -> f64 {
        f64::from(self.w.as_f32()[((filter * 3 + r) * 3 + s) * self.channels + channel])
    }

    fn output(&self, element: usize) -> f64 {
        let (position, filter) = (element / self.channels, element % self.channels);
        let (x, c) = (self.x.as_f32(), self.channels);
        let tap = |tap: [usize; 2]| {
            let Some(from) = self.moved(position, tap, false) else { return 0.0 };
            (0..c).map(|i| f64::from(x[from * c + i]) * self.weight(filter, tap, i)).sum()
        };
        TAPS.map(tap).iter().sum()
    }

    fn grad_input(&self, element: usize) -> f64 {
        let (position, channel) = (element / self.channels, element % self.channels);
        let (g, c) = (self.g.as_f32(), self.channels);
        let tap = |tap: [usize; 2]| {
            let Some(from) = self.moved(position, tap, true) else { return 0.0 };
            (0..c).map(|k| f64::from(g[from * c + k]) * self.weight(k, tap, channel)).sum()
        };
        TAPS.map(tap).iter().sum()
    }

    fn grad_weight(&self, element: usize) -> f64 {
        let c = self.channels;
        let (filter, tap, channel) = (element / (9 * c), TAPS[element / c % 9], element % c);
        let (x, g) = (self.x.as_f32(), self.g.as_f32());
        let product = |position: usize| {
            let from = self.moved(position, tap, false)?;
            Some(f64::from(g[position * c + filter]) * f64::from(x[from * c + channel]))
        };
        (0..self.images * self.side * self.side).filter_map(product).sum()
    }
}

/// The taps of a 3x3 kernel.
const TAPS: [[usize; 2]; 9] =
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2]];

impl Product<'_> {
    /// Median milliseconds and relative error of both ways.
    fn measure(&self, bf16: bool, repeats: usize) -> anyhow::Result<([f64; 2], [f64; 2])> {
        let descs = self.inputs.each_ref().map(|input| input.desc.clone());
        let out = self.op.infer(&descs, &[])?;
        let mut workspace = vec![f32::NAN; self.op.cpu_workspace_len(&descs, &out)];
        let mut results = [(); 2].map(|()| HostTensor::poisoned(out[0].clone()));
        let mut ms = [Vec::new(), Vec::new()];
        for _ in 0..=repeats {
            for ((ms, result), winograd) in ms.iter_mut().zip(&mut results).zip([false, true]) {
                let mut args = CpuArgs {
                    inputs: self.inputs.iter().map(HostTensor::view).collect(),
                    outputs: vec![TensorMut::new(&out[0], result.bytes_mut())],
                    updates: Vec::new(),
                    workspace: &mut workspace,
                };
                let started = Instant::now();
                Products { bf16, winograd }.within(|| self.op.run_cpu(&mut args));
                ms.push(1e3 * started.elapsed().as_secs_f64());
            }
        }
        // The first run touches its memory for the first time.
        Ok((ms.map(|ms| percentile(&ms[1..], 0.5)), results.map(|r| self.error(r.as_f32()))))
    }

    fn error(&self, values: &[f32]) -> f64 {
        let (mut distance, mut size) = (0.0, 0.0);
        for i in 0..SAMPLES {
            let element = i * 2_654_435_761 % values.len();
            let exact = (self.exact)(self.layer, element);
            distance += (f64::from(values[element]) - exact).powi(2);
            size += exact * exact;
        }
        (distance / size).sqrt()
    }
}
