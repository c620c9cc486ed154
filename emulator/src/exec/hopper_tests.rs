//! Results of Hopper's instructions, over layouts, kinds and seeds.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::{Fault, Launch, Options, Sums, run as execute};
use crate::memory::Memory;
use crate::ptx::Module;
use crate::random::Random;
use crate::tensor_map::TensorMap;

const OPTIONS: Options =
    Options { sums: Sums::Rounded, watch_shared: true, watch_global: true, count: false };

/// Runs a body that has the addresses of `given` and of its results in `%d0` and `%d1`, two more
/// parameters in `%d2` and `%d3`, and its thread's number in `%r0`.
fn run(
    body: &str,
    threads: u32,
    seed: u64,
    given: &[u8],
    more: impl Fn(u64) -> Vec<u64>,
) -> Result<Vec<u8>, Fault> {
    let text = format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 in, \
         .param .u64 out, .param .u64 a, .param .u64 b, .param .align 64 .b8 map[128])\n{{\n\
         .reg .pred %p<8>; .reg .b32 %r<64>, %s<64>, %a<4>; .reg .b64 %d<16>;\n\
         .shared .align 1024 .b8 near[16384]; .shared .align 8 .b8 gates[64];\n\
         mov.u32 %r0, %tid.x; ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out];\n\
         ld.param.u64 %d2, [a]; ld.param.u64 %d3, [b];\n{body}\nret; }}"
    );
    let memory = Arc::new(Memory::new(1 << 20));
    let (from, to) = (memory.allocate(given.len()).unwrap(), memory.allocate(1 << 15).unwrap());
    // SAFETY: the sources are the whole of a slice and of a vector.
    unsafe {
        assert!(memory.write(from, given.as_ptr(), given.len()));
        assert!(memory.write(to, vec![0u8; 1 << 15].as_ptr(), 1 << 15));
    }
    let module = Module::load(&text, &memory).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut parameters = vec![from, to];
    parameters.extend(more(from));
    parameters.resize(4, 0);
    parameters.resize(8, 0);
    parameters.extend(more(from).into_iter().skip(2));
    parameters.resize(24, 0);
    let launch = Launch {
        kernel: module.kernel("k").unwrap(),
        grid: [1; 3],
        block: [threads, 1, 1],
        dynamic_shared: 0,
        parameters: parameters.into_iter().flat_map(u64::to_le_bytes).collect(),
        declared: None,
    };
    execute(&launch, &memory, seed, OPTIONS)?;
    let mut bytes = vec![0; 1 << 15];
    // SAFETY: the target is the whole of the vector.
    assert!(unsafe { memory.read(to, bytes.as_mut_ptr(), bytes.len()) });
    Ok(bytes)
}

/// A small whole number as f16 or bf16.
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

/// Where element (row, k) of 64 x 16 is kept, and the bits of its descriptor but for the address.
fn layout(width: usize, transposed: bool, row: usize, k: usize) -> (usize, u64) {
    let code = [(16, 0), (32, 3), (64, 2), (128, 1)].iter().find(|of| of.0 == width).unwrap().1;
    // Elements of a line, 8 lines of a group, and how far adjacent groups and lines are.
    let (line, along) = if transposed { (k, row) } else { (row, k) };
    let (each, group) = (width / 2, 8 * width);
    let lines = if transposed { 16 } else { 64 };
    let (down, across) = (group, lines / 8 * group);
    let at = line / 8 * down + line % 8 * width + along / each * across + along % each * 2;
    let swizzled = at ^ (at >> 7 & (width / 16 - 1)) << 4;
    // Without a swizzle the stride leads along the rows, with one from a group to the next.
    let (leading, stride) = if transposed && width == 16 { (down, across) } else { (across, down) };
    (swizzled, (leading as u64 >> 4) << 16 | (stride as u64 >> 4) << 32 | code << 62)
}

/// A kernel that copies the image to shared memory, makes the product twice, of which the first
/// takes no sums, and stores the sums of each thread.
fn product(
    left: Option<(usize, bool)>,
    right: (usize, bool),
    kind: &str,
    negated: [i32; 2],
    count: usize,
) -> String {
    let list = |name: &str, count| (0..count).map(|i| format!("%{name}{i}")).collect::<Vec<_>>();
    let sums = list("s", count).join(", ");
    let one = if kind.starts_with("f16") { "0x3c003c00" } else { "0x3f800000" };
    let mut body = "mul.wide.u32 %d4, %r0, 16; mul.lo.s32 %r2, %r0, 16;\n".to_string();
    body += "add.s64 %d5, %d0, %d4; mov.u32 %r1, near; add.s32 %r2, %r2, %r1;\n";
    for i in 0..8 {
        let at = 2048 * i;
        body += &format!("ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%d5+{at}];\n");
        body += &format!("st.shared.v4.u32 [%r2+{at}], {{%r4, %r5, %r6, %r7}};\n");
    }
    body += &format!("ld.global.v4.u32 {{{}}}, [%d5+16384];\n", list("a", 4).join(", "));
    body += "fence.proxy.async; bar.sync 0;\n";
    (0..count).for_each(|i| body += &format!("mov.b32 %s{i}, {one};\n"));
    let (place, turns) = match left {
        Some((_, turned)) => ("%d2".into(), format!("{}, ", u8::from(turned))),
        None => (format!("{{{}}}", list("a", 4).join(", ")), String::new()),
    };
    body += &format!(
        "setp.ne.u32 %p1, %r0, %r0; wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n64k16.{kind} {{{sums}}}, {place}, %d3, %p1, {}, {}, \
         {turns}{};
        wgmma.mma_async.sync.aligned.m64n64k16.{kind} {{{sums}}}, {place}, %d3, 1, {}, {}, \
         {turns}{};
        wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
        mul.wide.u32 %d4, %r0, {}; add.s64 %d4, %d4, %d1;\n",
        negated[0],
        negated[1],
        u8::from(right.1),
        negated[0],
        negated[1],
        u8::from(right.1),
        4 * count
    );
    (0..count).for_each(|i| body += &format!("st.global.u32 [%d4+{}], %s{i};\n", 4 * i));
    body
}

/// Products of 64 x 64 x 16; a left factor without a layout is in registers.
fn check(left: Option<(usize, bool)>, right: (usize, bool), kind: &str, negated: [i32; 2]) {
    let mut random = Random::new(7);
    let mut factor = || -> Vec<i32> { (0..64 * 16).map(|_| random.below(9) as i32 - 4).collect() };
    let (a, b) = (factor(), factor());
    let is_brain = kind.contains("bf16");
    let mut image = vec![0u8; 16384 + 2048];
    let mut put = |at: usize, value: i32| {
        image[at..at + 2].copy_from_slice(&bits(value, is_brain).to_le_bytes());
    };
    let (mut descriptors, b_at) = ([0, 0], 8192);
    for row in 0..64 {
        for k in 0..16 {
            let (at, described) = layout(right.0, right.1, row, k);
            put(b_at + at, b[16 * row + k]);
            descriptors[1] = described | b_at as u64 >> 4;
            if let Some((width, transposed)) = left {
                let (at, described) = layout(width, transposed, row, k);
                put(at, a[16 * row + k]);
                descriptors[0] = described;
            }
            let lane = row % 8 * 4 + k % 8 / 2;
            let register = row % 16 / 8 + k / 8 * 2;
            let thread = row / 16 * 32 + lane;
            put(16384 + 16 * thread + 4 * register + k % 2 * 2, a[16 * row + k]);
        }
    }
    let has_halves = kind.starts_with("f16");
    let count = if has_halves { 16 } else { 32 };
    let body = product(left, right, kind, negated, count);
    let made = run(&body, 128, 3, &image, |_| descriptors.to_vec()).unwrap();
    for row in 0..64 {
        for column in 0..64 {
            let product = |k| a[16 * row + k] * b[16 * column + k];
            let sum: i32 = (0..16).map(product).sum::<i32>() * 2 * negated[0] * negated[1];
            let thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
            let (high, pair) = (row % 16 / 8, column % 2);
            let (at, found, wanted) = if has_halves {
                let at = 4 * (thread * count + column / 8 * 2 + high) + 2 * pair;
                let found = u16::from_le_bytes([made[at], made[at + 1]]);
                (at, u32::from(found), u32::from(bits(sum, false)))
            } else {
                let at = 4 * (thread * count + column / 8 * 4 + high * 2 + pair);
                let found = u32::from_le_bytes(made[at..at + 4].try_into().unwrap());
                (at, found, (sum as f32).to_bits())
            };
            assert_eq!(found, wanted, "{left:?} {right:?} {kind}: {row}, {column}, {at}");
        }
    }
}

#[test]
fn products_read_every_layout() {
    for width in [16, 32, 64, 128] {
        for transposed in [false, true] {
            if width >= 32 || transposed {
                check(Some((128, true)), (width, transposed), "f32.f16.f16", [1, 1]);
                check(Some((width, transposed)), (32, false), "f32.f16.f16", [1, 1]);
            }
        }
    }
    check(Some((16, false)), (16, false), "f32.f16.f16", [1, 1]);
    check(None, (64, true), "f16.f16.f16", [-1, 1]);
    check(Some((32, false)), (16, false), "f16.f16.f16", [1, -1]);
    check(None, (128, true), "f32.bf16.bf16", [-1, -1]);
}

fn map_of(address: u64, pieces: usize, tile: &[u32]) -> TensorMap {
    // Words: 3 planes of 5 rows of 40, whose strides have room between.
    TensorMap {
        address,
        kind: 2,
        extents: vec![40, 5, 3],
        strides: vec![176, 1024],
        tile: tile.to_vec(),
        pieces,
        fills_nan: false,
    }
}

fn tile_body(swizzle: u32) -> String {
    format!(
        "mov.u32 %r1, gates; mov.u32 %r2, near; setp.ne.u32 %p1, %r0, 0; @%p1 bra READY;
        mbarrier.init.shared::cta.b64 [%r1], 1; fence.mbarrier_init.release.cluster;
        READY: bar.sync 0; mov.u64 %d4, map; cvta.param.u64 %d4, %d4;
        @%p1 bra WAIT; mov.u32 %r3, 28; mov.u32 %r4, -1; mov.u32 %r5, 1;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 512;
        cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
            [%r2], [%d4, {{%r3, %r4, %r5}}], [%r1];
        WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra WAIT;
        shl.b32 %r6, %r0, 4; shr.u32 %r7, %r6, 7; and.b32 %r7, %r7, {swizzle};
        shl.b32 %r7, %r7, 4; xor.b32 %r7, %r7, %r6; add.s32 %r7, %r7, %r2;
        ld.shared.v4.u32 {{%r8, %r9, %r10, %r11}}, [%r7]; mul.wide.u32 %d5, %r6, 1;
        add.s64 %d5, %d5, %d1; st.global.v4.u32 [%d5], {{%r8, %r9, %r10, %r11}};"
    )
}

/// A tile of 16 x 4 x 2 whose corner lies outside, in a swizzle of 64 bytes, read back by its rule
/// and by another's.
#[test]
fn tiles_are_swizzled_and_filled_with_zeros() {
    let words: Vec<u32> = (0..3 * 256).collect();
    let given: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let map = |from: u64| {
        let mut more = vec![0, 0];
        more.extend(map_of(from, 4, &[16, 4, 2]).encode());
        more
    };
    let mut wanted = vec![];
    for (plane, row, column) in
        (0..2).flat_map(|p| (0..4).flat_map(move |r| (0..16).map(move |c| (p + 1, r - 1, c + 28))))
    {
        let is_inside = (0..5).contains(&row) && column < 40;
        wanted.push(if is_inside { (256 * plane + 44 * row + column) as u32 } else { 0 });
    }
    for seed in 0..16 {
        let read = |swizzle| {
            let made = run(&tile_body(swizzle), 32, seed, &given, map).unwrap();
            made[..512].as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect::<Vec<_>>()
        };
        assert_eq!(read(3), wanted);
        assert_ne!(read(1), wanted, "the rule of 32 bytes is another");
    }
}

/// A tile that comes and goes again: what is outside of the tensor is not written.
#[test]
fn tiles_are_stored_inside_of_the_tensor() {
    let body = "mov.u32 %r2, near; shl.b32 %r3, %r0, 4; add.s32 %r3, %r3, %r2; add.s32 %r4, %r0, 1;
        st.shared.v4.u32 [%r3], {%r4, %r4, %r4, %r4}; fence.proxy.async.shared::cta;
        bar.warp.sync -1; elect.sync _|%p1, -1; @!%p1 bra DONE;
        mov.u64 %d4, map; cvta.param.u64 %d4, %d4; mov.u32 %r5, 32; mov.u32 %r6, 3; mov.u32 %r7, 2;
        cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%d4, {%r5, %r6, %r7}], [%r2];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        ld.global.u32 %r8, [%d0+2704]; ld.global.u32 %r9, [%d0+2736];
        ld.global.u32 %r10, [%d0+2880]; ld.global.u32 %r11, [%d0+3056];
        st.global.v4.u32 [%d1], {%r8, %r9, %r10, %r11}; DONE:";
    let map = |from: u64| {
        let mut more = vec![0, 0];
        more.extend(map_of(from, 1, &[16, 4, 2]).encode());
        more
    };
    for seed in 0..8 {
        let made = run(body, 32, seed, &[0xee; 3072], map).unwrap();
        let words: Vec<u32> =
            made[..16].as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        // The corner; behind the row's 40 columns; the next row; behind the plane's five rows.
        assert_eq!(words, [1, 0xeeee_eeee, 5, 0xeeee_eeee]);
    }
}

/// One warp brings tiles through two stages, and four others add them up: barriers in memory say
/// when a stage is full, and when it is empty.
#[test]
fn a_pipeline_of_two_stages_is_in_order() {
    let body = "mov.u32 %r1, gates; mov.u32 %r2, near; setp.ne.u32 %p1, %r0, 0; @%p1 bra READY;
        mbarrier.init.shared::cta.b64 [%r1], 1; mbarrier.init.shared::cta.b64 [%r1+8], 1;
        mbarrier.init.shared::cta.b64 [%r1+16], 4; mbarrier.init.shared::cta.b64 [%r1+24], 4;
        fence.mbarrier_init.release.cluster;
        READY: bar.sync 0; mov.u32 %r3, 0; mov.u32 %r9, 0; and.b32 %r10, %r0, 31;
        setp.ge.u32 %p2, %r0, 128; @%p2 bra BRING;
        setmaxnreg.inc.sync.aligned.u32 160;
        NEXT: and.b32 %r4, %r3, 1; shr.u32 %r5, %r3, 1; and.b32 %r5, %r5, 1;
        mad.lo.s32 %r6, %r4, 8, %r1; mad.lo.s32 %r7, %r4, 512, %r2; mad.lo.s32 %r7, %r0, 4, %r7;
        { .reg .pred p; LAB: mbarrier.try_wait.parity.shared::cta.b64 p, [%r6], %r5;
          @p bra OUT; bra LAB; OUT: }
        ld.shared.u32 %r8, [%r7]; mul.lo.s32 %r9, %r9, 3; add.s32 %r9, %r9, %r8;
        bar.warp.sync -1; setp.eq.u32 %p3, %r10, 0;
        @%p3 mbarrier.arrive.shared::cta.b64 _, [%r6+16];
        add.s32 %r3, %r3, 1; setp.lt.u32 %p4, %r3, 6; @%p4 bra NEXT;
        bar.sync 1, 128; mul.wide.u32 %d4, %r0, 4; add.s64 %d4, %d4, %d1;
        st.global.u32 [%d4], %r9; bra DONE;
        BRING: setp.ne.u32 %p5, %r10, 0; @%p5 bra DONE;
        MORE: and.b32 %r4, %r3, 1; shr.u32 %r5, %r3, 1; not.b32 %r5, %r5; and.b32 %r5, %r5, 1;
        mad.lo.s32 %r6, %r4, 8, %r1; mad.lo.s32 %r7, %r4, 512, %r2;
        { .reg .pred p; LAB: mbarrier.try_wait.parity.shared::cta.b64 p, [%r6+16], %r5;
          @p bra OUT; bra LAB; OUT: }
        mbarrier.arrive.expect_tx.shared::cta.b64 %d6, [%r6], 512;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%d0], 512, [%r6];
        add.s64 %d0, %d0, 512; add.s32 %r3, %r3, 1; setp.lt.u32 %p4, %r3, 6; @%p4 bra MORE;
        DONE:";
    let given: Vec<u8> = (0..6 * 128u32).flat_map(u32::to_le_bytes).collect();
    let wanted: Vec<u32> =
        (0..128).map(|i| (0..6).fold(0, |sum, tile| 3 * sum + 128 * tile + i)).collect();
    for seed in 0..64 {
        let made = run(body, 160, seed, &given, |_| vec![]).unwrap();
        let words: Vec<u32> =
            made[..512].as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        assert_eq!(words, wanted, "{seed}");
    }
}

/// Matrices that are stored and loaded again, and copies of four bytes.
#[test]
fn matrices_and_small_copies_come_back() {
    for turned in ["", ".trans"] {
        let body = format!(
            "mov.u32 %r1, near; and.b32 %r2, %r0, 15; shl.b32 %r2, %r2, 4; add.s32 %r1, %r1, %r2;
            mul.wide.u32 %d4, %r0, 4; add.s64 %d5, %d4, %d0; ld.global.u32 %r3, [%d5];
            stmatrix.sync.aligned.m8n8.x2{turned}.shared.b16 [%r1], {{%r3, %r0}};
            bar.warp.sync -1;
            ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {{%r4, %r5}}, [%r1];
            ldmatrix.sync.aligned.m8n8.x1.shared::cta.b16 {{%r6}}, [%r1];
            mov.u32 %r7, near; mad.lo.s32 %r7, %r0, 4, %r7;
            cp.async.ca.shared.global [%r7+1024], [%d5], 4; cp.async.wait_all;
            ld.shared.u32 %r7, [%r7+1024]; mul.wide.u32 %d4, %r0, 16; add.s64 %d4, %d4, %d1;
            st.global.v4.u32 [%d4], {{%r4, %r5, %r6, %r7}};"
        );
        let given: Vec<u8> = (0..64u16).flat_map(u16::to_le_bytes).collect();
        let made = run(&body, 32, 5, &given, |_| vec![]).unwrap();
        for lane in 0..32u32 {
            let at = 16 * lane as usize;
            let words: Vec<u32> =
                made[at..at + 16].as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
            let plain = (2 * lane) | (2 * lane + 1) << 16;
            let (row, column) = (lane / 4, 2 * (lane % 4));
            let crossed = (8 * column + row) | (8 * column + 8 + row) << 16;
            match turned {
                "" => assert_eq!([words[0], words[2], words[3]], [crossed, plain, plain]),
                _ => {
                    assert_eq!([words[0], words[1]], [plain, lane]);
                    assert_eq!([words[2], words[3]], [crossed, plain]);
                }
            }
        }
    }
}
