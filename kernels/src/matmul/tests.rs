//! GEMMs and convolutions against plain f64 sums, and bit-identical for any number of threads.

use super::*;
use crate::Role;
use crate::case::uniform;
use crate::isa::{GemmSettings, Isa, has_bf16};

fn values(len: usize, seed: u32) -> Vec<f32> {
    uniform(Role::Activation, &[len], seed, -1.0, 1.0).as_f32().to_vec()
}

#[derive(Clone)]
struct Operands {
    shape: ConvShape,
    x: Vec<f32>,
    w: Vec<f32>,
    g: Vec<f32>,
    scale: Vec<f32>,
}

impl Operands {
    fn new(
        [n, h, w, c]: [usize; 4],
        [k, kernel, stride, pad]: [usize; 4],
        [dilation, groups]: [usize; 2],
    ) -> Self {
        let reach = dilation * (kernel - 1) + 1;
        let extent = |e| out_extent(e, reach, stride, pad).expect("a kernel that fits");
        let shape = ConvShape {
            images: n,
            height: h,
            width: w,
            channels: c,
            filters: k,
            kernel_h: kernel,
            kernel_w: kernel,
            stride,
            pad,
            dilation,
            groups,
            out_height: extent(h),
            out_width: extent(w),
        };
        Self {
            shape,
            x: values(n * h * w * c, 1),
            w: values(k * shape.filter_len(), 2),
            g: values(shape.out_positions() * k, 3),
            scale: values(k, 4),
        }
    }

    /// Calls `f(output position, filter, input element, weight element)` for every multiply-add.
    fn multiply_adds(&self, mut f: impl FnMut(usize, usize, usize, usize)) {
        let s = self.shape;
        for position in 0..s.out_positions() {
            let (q, p) = (position % s.out_width, position / s.out_width % s.out_height);
            let image = position / (s.out_width * s.out_height);
            for (r, t) in (0..s.kernel_h).flat_map(|r| (0..s.kernel_w).map(move |t| (r, t))) {
                let (h, w) = (p * s.stride + r * s.dilation, q * s.stride + t * s.dilation);
                let inside = |i: usize, extent| i >= s.pad && i - s.pad < extent;
                if !inside(h, s.height) || !inside(w, s.width) {
                    continue;
                }
                let pixel = (image * s.height + h - s.pad) * s.width + w - s.pad;
                let channels = s.group_channels();
                for (k, c) in (0..s.filters).flat_map(|k| (0..channels).map(move |c| (k, c))) {
                    let weight = ((k * s.kernel_h + r) * s.kernel_w + t) * channels + c;
                    let channel = k / s.group_filters() * channels + c;
                    f(position, k, pixel * s.channels + channel, weight);
                }
            }
        }
    }

    fn run(&self) -> [Vec<f32>; 3] {
        let s = &self.shape;
        let mut y = vec![f32::NAN; self.g.len()];
        let mut dx = vec![f32::NAN; self.x.len()];
        let mut dw = vec![f32::NAN; self.w.len()];
        let mut workspace = vec![f32::NAN; gather_workspace_len(s).max(reduce_workspace_len(s))];
        let epilogue =
            Epilogue { scale: Some(&self.scale), bias: None, residual: None, relu: false };
        conv_forward(s, &self.x, &self.w, epilogue, &mut y, &mut workspace);
        let none = Epilogue::default();
        conv_grad_input(s, &self.g, &self.w, Some(&self.scale), none, &mut dx, &mut workspace);
        conv_grad_weight(s, &self.x, &self.g, Some(&self.scale), &mut dw, &mut workspace);
        [y, dx, dw]
    }

    fn exact(&self) -> [Vec<f64>; 3] {
        self.sums(&|v| v)
    }

    /// The exact results with rounded operands; the input gradient rounds a weight after its scale.
    fn sums(&self, round: &dyn Fn(f32) -> f32) -> [Vec<f64>; 3] {
        let zeros = |v: &Vec<f32>| vec![0.0f64; v.len()];
        let (mut y, mut dx, mut dw) = (zeros(&self.g), zeros(&self.x), zeros(&self.w));
        let filters = self.shape.filters;
        self.multiply_adds(|position, k, x, w| {
            let at = |v: &[f32], i: usize| f64::from(round(v[i]));
            let scale = f64::from(self.scale[k]);
            y[position * filters + k] += at(&self.x, x) * at(&self.w, w) * scale;
            let scaled = f64::from(round(self.w[w] * self.scale[k]));
            dx[x] += at(&self.g, position * filters + k) * scaled;
            dw[w] += at(&self.g, position * filters + k) * at(&self.x, x) * scale;
        });
        [y, dx, dw]
    }
}

const WINOGRAD: GemmSettings = GemmSettings { winograd: true, ..GemmSettings::PLAIN };

/// Each case with direct convolution, and with Winograd if it is supported.
fn ways() -> impl Iterator<Item = (Operands, GemmSettings)> {
    shapes().into_iter().flat_map(|case| {
        let tiled = (winograd::workspace_len(&case.shape) > 0).then_some(WINOGRAD);
        let ways = [Some(GemmSettings::PLAIN), tiled].into_iter().flatten();
        ways.map(move |products| (case.clone(), products)).collect::<Vec<_>>()
    })
}

/// Tiles may differ in width, but each sum adds its terms in the same order.
#[test]
fn gemm_is_bit_identical_for_every_fma_instruction_set() {
    let fused: Vec<Isa> = Isa::all().into_iter().filter(|isa| isa.name() != "portable").collect();
    for (case, products) in ways() {
        let run = |isa: &Isa| isa.within(|| products.within(|| case.run()));
        let results: Vec<_> = fused.iter().map(run).collect();
        for (isa, result) in fused.iter().zip(&results) {
            for (a, b) in result.iter().flatten().zip(results[0].iter().flatten()) {
                assert_eq!(a.to_bits(), b.to_bits(), "{}: {:?}", isa.name(), case.shape);
            }
        }
    }
}

fn shapes() -> Vec<Operands> {
    let grouped = [
        ([1, 5, 6, 12], [8, 3, 1, 1], [1, 4]),
        ([2, 7, 6, 128], [64, 3, 2, 1], [1, 16]),
        ([1, 6, 5, 64], [128, 3, 1, 1], [1, 2]),
        ([1, 9, 8, 5], [7, 3, 1, 2], [2, 1]),
        ([1, 7, 9, 64], [64, 3, 1, 1], [3, 8]),
        ([1, 5, 5, 96], [96, 1, 1, 0], [1, 3]),
        ([1, 16, 13, 256], [256, 3, 1, 2], [2, 32]),
        ([1, 2, 3, 2048], [64, 1, 1, 0], [1, 2]),
    ];
    let plain = [
        ([1, 1, 1, 1], [1, 1, 1, 0]),
        ([2, 5, 7, 11], [13, 1, 1, 0]),
        ([2, 5, 7, 11], [13, 1, 2, 0]),
        ([2, 7, 5, 13], [17, 3, 1, 1]),
        ([2, 7, 5, 24], [16, 3, 2, 1]),
        ([1, 8, 8, 5], [7, 2, 2, 0]),
        ([1, 13, 11, 3], [17, 7, 2, 3]),
        ([1, 5, 5, 1], [1, 5, 3, 4]),
        ([1, 4, 4, 300], [40, 3, 1, 1]),
        ([3, 9, 9, 16], [33, 2, 3, 0]),
        ([1, 6, 7, 70], [66, 3, 2, 1]),
        ([1, 5, 6, 70], [66, 1, 2, 0]),
        ([1, 9, 1, 4], [600, 1, 1, 0]),
        ([1, 20, 1, 2100], [530, 1, 1, 0]),
        ([1, 40, 41, 9], [8, 3, 1, 2]),
        // Rows that map to the same L1 sets: rows of the input, also outside the map, and of the
        // gradient.
        ([1, 4, 5, 1024], [40, 1, 2, 1]),
        ([1, 4, 5, 40], [1024, 1, 1, 0]),
        ([2, 15, 17, 80], [64, 3, 1, 1]),
        ([1, 14, 17, 32], [48, 3, 1, 1]),
        ([1, 19, 16, 64], [96, 3, 1, 0]),
        ([1, 14, 15, 272], [96, 3, 1, 1]),
        ([1, 14, 14, 64], [288, 3, 1, 2]),
    ]
    .map(|(x, w)| (x, w, [1, 1]));
    plain.into_iter().chain(grouped).map(|(x, w, gaps)| Operands::new(x, w, gaps)).collect()
}

#[test]
fn gemm_matches_plain_sums() {
    for (case, products) in ways() {
        let sums = case.exact();
        for isa in Isa::all() {
            let results = isa.within(|| products.within(|| case.run()));
            for (name, (got, exact)) in ["y", "dx", "dw"].iter().zip(results.iter().zip(&sums)) {
                let largest = exact.iter().fold(1.0f64, |m, v| m.max(v.abs()));
                for (i, (got, exact)) in got.iter().zip(exact).enumerate() {
                    let error = (f64::from(*got) - exact).abs() / largest;
                    assert!(error < 2e-6, "{:?}: {name}[{i}] is {got}, not {exact}", case.shape);
                }
            }
        }
    }
}

/// Results differ in some bits, which shows that the tests above do run Winograd.
#[test]
fn winograd_results_differ_from_direct_convolution() {
    let tiled = ways().filter(|(_, products)| products.winograd).map(|(case, _)| {
        let (tiled, plain) = (WINOGRAD.within(|| case.run()), case.run());
        let differ: Vec<bool> = tiled.iter().zip(&plain).map(|(a, b)| a != b).collect();
        let sums = winograd::weights_workspace_len(&case.shape) > 0;
        assert_eq!(differ, [true, true, sums], "{:?}", case.shape);
        sums
    });
    let sums: Vec<bool> = tiled.collect();
    assert_eq!(sums, [true, false, true, true, true]);
}

/// bf16 results equal exact sums with rounded operands, except for odd numbers of channels, which
/// stay in f32; they are bit-identical for any number of threads.
#[test]
fn bf16_gemm_rounds_only_its_operands() {
    if !has_bf16() {
        println!("SKIPPED: this processor does not multiply bf16");
        return;
    }
    let pool = |threads| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool")
    };
    let (one, five) = (pool(1), pool(5));
    let in_bf16 = GemmSettings { bf16: true, ..GemmSettings::PLAIN };
    let round = |v: f32| half::bf16::from_f32(v).to_f32();
    let mut rounded = [0; 3];
    for case in shapes() {
        let results = one.install(|| in_bf16.within(|| case.run()));
        let again = five.install(|| in_bf16.within(|| case.run()));
        let many = for_many(|| in_bf16.within(|| case.run()));
        assert!(results == again && results == many, "{:?}", case.shape);
        let (exact, of_rounded) = (case.exact(), case.sums(&round));
        for (at, got) in results.iter().enumerate() {
            let largest = exact[at].iter().fold(1.0f64, |m, v| m.max(v.abs()));
            let error = |sums: &[f64]| {
                let errors = got.iter().zip(sums).map(|(got, sum)| (f64::from(*got) - sum).abs());
                errors.fold(0.0, f64::max) / largest
            };
            let (of_exact, of_rounded) = (error(&exact[at]), error(&of_rounded[at]));
            assert!(of_exact.min(of_rounded) < 2e-6, "{:?}: {of_exact} {of_rounded}", case.shape);
            rounded[at] += usize::from(of_rounded < 2e-6 && of_exact > 1e-5);
        }
    }
    assert!(rounded.iter().all(|count| *count >= 8), "{rounded:?} of {} shapes", shapes().len());
}

/// Winograd rounds operands to bf16 after the transform: twice the error of direct bf16, and
/// bit-identical for any number of threads.
#[test]
fn bf16_winograd_rounds_transformed_operands() {
    if !has_bf16() {
        println!("SKIPPED: this processor does not multiply bf16");
        return;
    }
    let pool = |threads| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool")
    };
    let (one, five) = (pool(1), pool(5));
    for (case, _) in ways().filter(|(_, products)| products.winograd) {
        let in_bf16 = GemmSettings { bf16: true, ..WINOGRAD };
        let run = || in_bf16.within(|| case.run());
        let [got, again] = [&one, &five].map(|pool| pool.install(run));
        assert!(got == again && got == for_many(run), "{:?}", case.shape);
        for (got, exact) in got.iter().zip(case.exact()) {
            let squares =
                |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
            let distance = squares(&mut got.iter().zip(&exact).map(|(a, b)| f64::from(*a) - b));
            let error = (distance / squares(&mut exact.iter().copied())).sqrt();
            assert!((1e-3..6e-3).contains(&error), "{:?}: {error}", case.shape);
        }
    }
}

/// Scale, bias, residual, ReLU in this order, at full and partial width, over several blocks of the
/// reduction; checked against the plain sums that the test above has verified.
#[test]
fn epilogue_matches_formula() {
    for (case, products) in ways() {
        let (s, k) = (case.shape, case.shape.filters);
        let (bias, residual) = (values(k, 5), values(case.g.len(), 6));
        let epilogue = Epilogue {
            scale: Some(&case.scale),
            bias: Some(&bias),
            residual: Some(&residual),
            relu: true,
        };
        let mut workspace = vec![f32::NAN; gather_workspace_len(&s)];
        let (mut plain, mut y) = (vec![f32::NAN; case.g.len()], vec![f32::NAN; case.g.len()]);
        products.within(|| {
            conv_forward(&s, &case.x, &case.w, Epilogue::default(), &mut plain, &mut workspace);
            conv_forward(&s, &case.x, &case.w, epilogue, &mut y, &mut workspace);
        });
        for (i, (y, sum)) in y.iter().zip(plain).enumerate() {
            let expected = (sum * case.scale[i % k] + bias[i % k] + residual[i]).max(0.0);
            assert_eq!(*y, expected, "{s:?}: element {i}");
        }
    }
}

/// The result of `f` on 64 threads.
fn for_many<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(64).build().expect("a thread pool");
    pool.install(f)
}

#[test]
fn gemm_is_bit_identical_for_any_thread_count() {
    let pool = |threads| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool")
    };
    let (one, five) = (pool(1), pool(5));
    for (case, products) in ways() {
        let [a, b] = [&one, &five].map(|pool| pool.install(|| products.within(|| case.run())));
        let many = for_many(|| products.within(|| case.run()));
        for other in [b, many] {
            for (a, b) in a.iter().flatten().zip(other.iter().flatten()) {
                assert_eq!(a.to_bits(), b.to_bits(), "{:?}", case.shape);
            }
        }
    }
}
