//! Tests wgmma with every operand layout that a descriptor can express.

use crate::cuda::Gpu;
use crate::results::run;

/// Bytes of operand A at the start of the shared memory image; operand B follows.
const LEFT: usize = 8192;
/// Offset of operand A in wgmma's register layout, thread by thread; it follows the shared memory
/// image.
const FRAGMENTS: usize = 16384;

/// A 64 x 64 x 16 wgmma; operand A is in registers if its layout is `None`. A layout is the swizzle
/// width in bytes, and whether the operand is transposed.
struct Case {
    left: Option<(usize, bool)>,
    right: (usize, bool),
    kind: &'static str,
    negated: [i32; 2],
}

/// A small integer as f16 or bf16.
fn bits(value: i32, is_brain: bool) -> u16 {
    if is_brain {
        return ((value as f32).to_bits() >> 16) as u16;
    }
    let (sign, size) = (u16::from(value < 0) << 15, value.unsigned_abs());
    if size == 0 {
        return 0;
    }
    let exponent = 31 - size.leading_zeros();
    sign | (exponent as u16 + 15) << 10 | (size << (10 - exponent)) as u16 & 0x3ff
}

/// Offset of element (row, k) of a 64 x 16 operand, and the descriptor's bits without the address.
fn layout((width, transposed): (usize, bool), row: usize, k: usize) -> (usize, u64) {
    let code = [(16, 0), (32, 3), (64, 2), (128, 1)].iter().find(|of| of.0 == width);
    let code: u64 = code.expect("a swizzle").1;
    // `each`: elements in a row of a core matrix, which has 8 rows of `width` bytes. `down` and
    // `across`: bytes from one core matrix to the next, across its rows and along them.
    let (line, along) = if transposed { (k, row) } else { (row, k) };
    let (each, down) = (width / 2, 8 * width);
    let across = if transposed { 16 } else { 64 } / 8 * down;
    let at = line / 8 * down + line % 8 * width + along / each * across + along % each * 2;
    let swizzled = at ^ (at >> 7 & (width / 16 - 1)) << 4;
    // Without a swizzle, the meaning of the descriptor's leading and stride offsets is exchanged
    // for transposed operands.
    let (leading, stride) = if transposed && width == 16 { (down, across) } else { (across, down) };
    (swizzled, (leading as u64 >> 4) << 16 | (stride as u64 >> 4) << 32 | code << 62)
}

/// A kernel that copies the image to shared memory, executes the wgmma twice (without and with
/// accumulation), and stores the accumulators of each thread.
fn kernel(case: &Case, [left, right]: [u64; 2], count: usize) -> String {
    let list = |name: &str, count| (0..count).map(|i| format!("%{name}{i}")).collect::<Vec<_>>();
    let (sums, fragment) = (list("s", count).join(", "), list("a", 4).join(", "));
    let one = if case.kind.starts_with("f16") { "0x3c003c00" } else { "0x3f800000" };
    let mut body = String::new();
    for at in (0..FRAGMENTS).step_by(2048) {
        body += &format!("ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%items+{at}];\n");
        body += &format!("st.shared.v4.u32 [%row+{at}], {{%r4, %r5, %r6, %r7}};\n");
    }
    body += &format!("ld.global.v4.u32 {{{fragment}}}, [%items+{FRAGMENTS}];\n");
    (0..count).for_each(|i| body += &format!("mov.b32 %s{i}, {one};\n"));
    let (place, turn) = match case.left {
        Some((_, turned)) => ("%d2".into(), format!("{}, ", u8::from(turned))),
        None => (format!("{{{fragment}}}"), String::new()),
    };
    let ([a, b], turned) = (case.negated, u8::from(case.right.1));
    let wgmma = |adds: &str| {
        let (shape, kind) = ("wgmma.mma_async.sync.aligned.m64n64k16", case.kind);
        format!("{shape}.{kind} {{{sums}}}, {place}, %d3, {adds}, {a}, {b}, {turn}{turned};\n")
    };
    body += &format!("mov.u64 %d2, {left:#x};\nmov.u64 %d3, {right:#x};\n");
    body += "fence.proxy.async;\nbar.sync 0;\nwgmma.fence.sync.aligned;\n";
    body += "setp.ne.u32 %p1, %thread, %thread;\n";
    body += &(wgmma("%p1") + &wgmma("1"));
    body += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
    body += &format!("mul.wide.u32 %d4, %thread, {};\nadd.s64 %d4, %d4, %to;\n", 4 * count);
    (0..count).for_each(|i| body += &format!("st.global.u32 [%d4+{}], %s{i};\n", 4 * i));
    body
}

fn check(gpu: &Gpu, case: &Case) {
    let factor = |seed: usize| -> Vec<i32> {
        (0..64 * 16).map(|i| ((i + seed) * (i + 7) / 5 % 9) as i32 - 4).collect()
    };
    let (a, b) = (factor(3), factor(11));
    let mut image = vec![0u16; (FRAGMENTS + 2048) / 2];
    let (mut descriptors, is_brain) = ([0, 0], case.kind.contains("bf16"));
    for (row, k) in (0..64).flat_map(|row| (0..16).map(move |k| (row, k))) {
        let (at, described) = layout(case.right, row, k);
        image[(LEFT + at) / 2] = bits(b[16 * row + k], is_brain);
        descriptors[1] = described | LEFT as u64 >> 4;
        let value = bits(a[16 * row + k], is_brain);
        if let Some(left) = case.left {
            let (at, described) = layout(left, row, k);
            image[at / 2] = value;
            descriptors[0] = described;
        }
        let thread = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
        let register = row % 16 / 8 + k / 8 * 2;
        image[FRAGMENTS / 2 + 8 * thread + 2 * register + k % 2] = value;
    }
    let words = image.as_chunks().0.iter();
    let words: Vec<u32> = words.map(|[l, h]| u32::from(*l) | u32::from(*h) << 16).collect();
    let has_halves = case.kind.starts_with("f16");
    let count = if has_halves { 16 } else { 32 };
    let body = kernel(case, descriptors, count);
    let made = run(gpu, &body, 128, gpu.numbers(&words), 128 * count, &[]);
    for (row, column) in (0..64).flat_map(|row| (0..64).map(move |column| (row, column))) {
        let term = |k| a[16 * row + k] * b[16 * column + k];
        let sum: i32 = (0..16).map(term).sum::<i32>() * 2 * case.negated[0] * case.negated[1];
        let thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
        let (high, pair) = (row % 16 / 8, column % 2);
        let (found, wanted) = if has_halves {
            let word = made[thread * count + column / 8 * 2 + high];
            (word >> (16 * pair) & 0xffff, u32::from(bits(sum, false)))
        } else {
            let at = thread * count + column / 8 * 4 + high * 2 + pair;
            (made[at], (sum as f32).to_bits())
        };
        let Case { left, right, kind, .. } = case;
        assert_eq!(found, wanted, "{left:?} {right:?} {kind}: {row}, {column}");
    }
}

pub(crate) fn layouts(gpu: &Gpu) {
    let case = |left, right, kind, negated| check(gpu, &Case { left, right, kind, negated });
    for width in [16, 32, 64, 128] {
        for transposed in [false, true] {
            if width >= 32 || transposed {
                case(Some((128, true)), (width, transposed), "f32.f16.f16", [1, 1]);
                case(Some((width, transposed)), (32, false), "f32.f16.f16", [1, 1]);
            }
        }
    }
    case(Some((16, false)), (16, false), "f32.f16.f16", [1, 1]);
    case(None, (64, true), "f16.f16.f16", [-1, 1]);
    case(Some((32, false)), (16, false), "f16.f16.f16", [1, -1]);
    case(None, (128, true), "f32.bf16.bf16", [-1, -1]);
}
