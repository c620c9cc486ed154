//! Results of instructions in corner cases that onegraph's kernels never reach.

use crate::cuda::{Gpu, cuStreamSynchronize, function, launch, ok};
use crate::kernels::text_of;
use crate::maps::TENSOR;
use crate::{FaultProgram, Program};

/// Runs a kernel body in one block, with an address in `%from` and a tensor map; returns the
/// output.
pub(crate) fn run(
    gpu: &Gpu,
    body: &str,
    threads: u32,
    given: u64,
    count: usize,
    map: &[u64],
) -> Vec<u32> {
    let text = text_of(body).replace("sm_80", "sm_90a");
    let module = gpu.load(&text).unwrap_or_else(|code| panic!("{code}: {text}"));
    let results = gpu.numbers(&vec![0; count]);
    let mut parameters = vec![results, given, count as u64];
    parameters.extend(map);
    parameters.resize(3 + 16, 0);
    ok(launch(function(module), (1, threads, 0), &parameters, gpu.stream));
    ok(cuStreamSynchronize(gpu.stream));
    gpu.read(results, count)
}

/// Instructions that compute `%r9` from `%r8`, a value of `%r8`, and the expected result.
const WORDS: &[(&str, u32, u32)] = &[
    ("rem.s32 %r9, %r8, 4;", -7i32 as u32, -3i32 as u32),
    ("shr.s32 %r9, %r8, 40;", 1 << 31, u32::MAX),
    ("shl.b32 %r9, %r8, 32;", 1, 0),
    ("bfind.shiftamt.u32 %r9, %r8;", 0x10, 27),
    ("bfind.shiftamt.u32 %r9, %r8;", 0, u32::MAX),
    ("prmt.b32 %r9, %r8, 0, 0x4021;", 0x4433_2211, 0x0011_3322),
    ("prmt.b32 %r9, %r8, 0, 0x8;", 0x80, 0x8080_80ff),
    ("bfi.b32 %r9, %r8, 0xffffffff, 4, 8;", 0xab, 0xffff_fabf),
    ("shf.l.wrap.b32 %r9, %r8, 2, 33;", 0x8000_0001, 5),
    ("sub.cc.u32 %r10, %r8, 4; subc.u32 %r9, 9, 0;", 3, 8),
    ("sub.cc.u32 %r10, %r8, 4; subc.u32 %r9, 9, 0;", 4, 9),
    ("shfl.sync.idx.b32 %r9|%p1, %thread, 5, 0x181f, -1;", 0, 5),
];

/// Instructions that compute `%f9` from `%f8`, a value of `%f8`, and the expected bits.
const FLOATS: &[(&str, f32, u32)] = &[
    ("fma.rm.f32 %f9, %f8, 0f3F800000, 0f3F800000;", -1e-9, 0x3f7f_ffff),
    ("fma.rm.f32 %f9, %f8, 0f3F800000, 0f3F800000;", 1e-9, 0x3f80_0000),
    ("fma.rn.f32 %f9, %f8, 0f3F800000, 0f3F800000;", -1e-9, 0x3f80_0000),
    ("add.rz.f32 %f9, %f8, 0f3F800000;", -1e-9, 0x3f7f_ffff),
    ("add.rz.f32 %f9, %f8, 0f3F800000;", 1e-9, 0x3f80_0000),
    ("max.f32 %f9, %f8, 0fBF800000;", f32::NAN, 0xbf80_0000),
    ("min.f32 %f9, %f8, 0f00000000;", -0.0, 0x8000_0000),
    ("max.f32 %f9, %f8, 0f00000000;", -0.0, 0),
    ("sub.f32 %f9, %f8, %f8;", f32::INFINITY, 0x7fff_ffff),
    ("cvt.sat.f32.f32 %f9, %f8;", f32::NAN, 0),
    ("ex2.approx.ftz.f32 %f9, %f8;", -140.0, 0),
    ("cvt.rzi.s32.f32 %r10, %f8; cvt.rn.f32.s32 %f9, %r10;", f32::NAN, 0),
    ("cvt.rn.f16.f32 %h1, %f8; cvt.f32.f16 %f9, %h1;", 1.0 + 1.5 / 1024.0, 0x3f80_4000),
    ("cvt.rn.f16.f32 %h1, %f8; cvt.f32.f16 %f9, %h1;", 7e4, 0x7f80_0000),
    ("cvt.rna.tf32.f32 %r10, %f8; mov.b32 %f9, %r10;", 1.0 + 0.5 / 1024.0, 0x3f80_2000),
];

/// Checks the results of all rows of `WORDS` and `FLOATS`.
fn instructions(gpu: &Gpu) {
    let words =
        WORDS.iter().map(|(body, from, to)| (format!("mov.b32 %r8, {from:#x}; {body}"), *to));
    let floats = FLOATS.iter().map(|(body, from, to)| {
        let bits = from.to_bits();
        (format!("mov.b32 %f8, {bits:#x}; {body} mov.b32 %r9, %f9;"), *to)
    });
    for (body, wanted) in words.chain(floats) {
        let found = run(gpu, &format!("{body} st.global.u32 [%mine], %r9;"), 32, 0, 32, &[]);
        assert_eq!(found[0], wanted, "{body}: {:#x}, not {wanted:#x}", found[0]);
    }
}

/// Loads a tile whose corner is outside of the tensor, with a 64-byte swizzle.
fn tile_that_comes(gpu: &Gpu) {
    const BODY: &str = ".shared .align 8 .b8 gates[8]; mov.u32 %r1, gates;
        setp.ne.u32 %p1, %thread, 0; @%p1 bra READY;
        mbarrier.init.shared::cta.b64 [%r1], 1; fence.mbarrier_init.release.cluster;
        READY: bar.sync 0; mov.u64 %d4, map; cvta.param.u64 %d4, %d4;
        @%p1 bra WAIT; mov.u32 %r3, 28; mov.u32 %r4, -1; mov.u32 %r5, 1;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 512;
        cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
            [%tile], [%d4, {%r3, %r4, %r5}], [%r1];
        WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra WAIT;
        shl.b32 %r6, %thread, 4; shr.u32 %r7, %r6, 7; and.b32 %r7, %r7, 3;
        shl.b32 %r7, %r7, 4; xor.b32 %r7, %r7, %r6; add.s32 %r7, %r7, %tile;
        ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%r7]; mul.wide.u32 %d5, %r6, 1;
        add.s64 %d5, %d5, %to; st.global.v4.u32 [%d5], {%r8, %r9, %r10, %r11};";
    let map = TENSOR.swizzled(2).at(gpu.numbers(&count(768)));
    let places = (0..2).flat_map(|p| (0..4).flat_map(move |r| (0..16).map(move |c| [p, r, c])));
    let wanted: Vec<u32> = places
        .map(|[plane, row, column]| match (row, column + 28) {
            (1.., column @ ..40) => 256 * (plane + 1) + 44 * (row - 1) + column,
            _ => 0,
        })
        .collect();
    for _ in 0..8 {
        assert_eq!(run(gpu, BODY, 32, 0, 128, &map), wanted);
    }
}

/// Stores a tile that is partly outside of the tensor: nothing outside is written.
fn tile_that_goes(gpu: &Gpu) {
    const BODY: &str = "add.s32 %r4, %thread, 1;
        st.shared.v4.u32 [%row], {%r4, %r4, %r4, %r4}; fence.proxy.async.shared::cta;
        bar.warp.sync -1; elect.sync _|%p1, -1; @!%p1 bra DONE;
        mov.u64 %d4, map; cvta.param.u64 %d4, %d4; mov.u32 %r5, 32; mov.u32 %r6, 3; mov.u32 %r7, 2;
        cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%d4, {%r5, %r6, %r7}], [%tile];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;";
    let memory = gpu.numbers(&[9; 768]);
    let map = TENSOR.at(memory);
    for _ in 0..8 {
        run(gpu, BODY, 32, 0, 1, &map);
        let words = gpu.read(memory, 768);
        // The tile's corner; a word after the row's 40 columns; the next row; a word after the
        // plane's five rows.
        assert_eq!([676, 684, 720, 764].map(|at| words[at]), [1, 9, 5, 9]);
    }
}

/// A producer warp loads tiles into two stages, and four consumer warps add them. Mbarriers signal
/// that a stage is full, or empty.
fn pipeline(gpu: &Gpu) {
    const BODY: &str = ".shared .align 8 .b8 gates[32]; mov.u32 %r1, gates;
        setp.ne.u32 %p1, %thread, 0; @%p1 bra READY;
        mbarrier.init.shared::cta.b64 [%r1], 1; mbarrier.init.shared::cta.b64 [%r1+8], 1;
        mbarrier.init.shared::cta.b64 [%r1+16], 4; mbarrier.init.shared::cta.b64 [%r1+24], 4;
        fence.mbarrier_init.release.cluster;
        READY: bar.sync 0; mov.u32 %r3, 0; mov.u32 %r9, 0;
        setp.ge.u32 %p2, %thread, 128; @%p2 bra BRING; setmaxnreg.inc.sync.aligned.u32 160;
        NEXT: and.b32 %r4, %r3, 1; shr.u32 %r5, %r3, 1; and.b32 %r5, %r5, 1;
        mad.lo.s32 %r6, %r4, 8, %r1; mad.lo.s32 %r7, %r4, 512, %slot;
        FULL: mbarrier.try_wait.parity.shared::cta.b64 %p6, [%r6], %r5; @!%p6 bra FULL;
        ld.shared.u32 %r8, [%r7]; mad.lo.s32 %r9, %r9, 3, %r8;
        bar.warp.sync -1; setp.eq.u32 %p3, %lane, 0;
        @%p3 mbarrier.arrive.shared::cta.b64 _, [%r6+16];
        add.s32 %r3, %r3, 1; setp.lt.u32 %p4, %r3, 6; @%p4 bra NEXT;
        bar.sync 1, 128; st.global.u32 [%mine], %r9; bra DONE;
        BRING: setp.ne.u32 %p5, %lane, 0; @%p5 bra DONE;
        MORE: and.b32 %r4, %r3, 1; shr.u32 %r5, %r3, 1; not.b32 %r5, %r5; and.b32 %r5, %r5, 1;
        mad.lo.s32 %r6, %r4, 8, %r1; mad.lo.s32 %r7, %r4, 512, %tile;
        EMPTY: mbarrier.try_wait.parity.shared::cta.b64 %p6, [%r6+16], %r5; @!%p6 bra EMPTY;
        mbarrier.arrive.expect_tx.shared::cta.b64 %d6, [%r6], 512;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
            [%r7], [%from], 512, [%r6];
        add.s64 %from, %from, 512; add.s32 %r3, %r3, 1; setp.lt.u32 %p4, %r3, 6; @%p4 bra MORE;";
    let given = gpu.numbers(&count(6 * 128));
    let wanted = count(128).into_iter();
    let wanted: Vec<u32> =
        wanted.map(|i| (0..6).fold(0, |sum, tile| 3 * sum + 128 * tile + i)).collect();
    for _ in 0..64 {
        assert_eq!(run(gpu, BODY, 160, given, 128, &[]), wanted);
    }
}

/// Stores matrices and loads them again, with and without transposition.
fn matrices(gpu: &Gpu) {
    let plain = |lane: u32| (2 * lane) | ((2 * lane + 1) << 16);
    let given = gpu.numbers(&(0..32).map(plain).collect::<Vec<_>>());
    let crossed = |lane: u32| (16 * (lane % 4) + lane / 4) | (16 * (lane % 4) + 8 + lane / 4) << 16;
    for (stored, loaded) in [("", ""), ("", ".trans"), (".trans", ""), (".trans", ".trans")] {
        let body = format!(
            "and.b32 %r2, %thread, 15;
            mad.lo.s32 %r1, %r2, 16, %tile;
            ld.global.u32 %r3, [%item];
            stmatrix.sync.aligned.m8n8.x2{stored}.shared.b16 [%r1], {{%r3, %thread}};
            bar.warp.sync -1;
            ldmatrix.sync.aligned.m8n8.x2{loaded}.shared::cta.b16 {{%r4, %r5}}, [%r1];
            st.global.u32 [%mine], %r4;"
        );
        let wanted = |lane| if stored == loaded { plain(lane) } else { crossed(lane) };
        assert_eq!(run(gpu, &body, 32, given, 32, &[]), (0..32).map(wanted).collect::<Vec<u32>>());
    }
}

/// The numbers from 0 up to, but excluding, `end`.
pub(crate) fn count(end: u32) -> Vec<u32> {
    (0..end).collect()
}

const fn promise(name: &'static str, calls: fn(&Gpu, bool) -> i32) -> FaultProgram {
    FaultProgram {
        name,
        variables: &["DRIVER_GPUS=H100"],
        program: Program::Calls(calls),
        code: 0,
        says: "",
    }
}

/// Defines test programs that are functions.
macro_rules! promises {
    ($($name:literal: $function:path;)*) => {
        &[$(promise($name, |gpu, _| {
            $function(gpu);
            0
        })),*]
    };
}

pub(crate) const PROMISES: &[FaultProgram] = promises! {
    "corners of arithmetic": instructions;
    "tiles are swizzled, and zeros outside of the tensor": tile_that_comes;
    "tiles are stored inside of the tensor": tile_that_goes;
    "a pipeline of two stages": pipeline;
    "matrices come back": matrices;
    "operands in every layout": crate::wgmma::layouts;
};
