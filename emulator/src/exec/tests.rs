//! Small kernels: what instructions compute, and each fault that is planted.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::{Fault, Launch, Options, Sums, run as execute};
use crate::memory::Memory;
use crate::ptx::Module;

const HEAD: &str = ".version 8.2\n.target sm_80\n.address_size 64\n";
const REGISTERS: &str = ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .f32 %f<32>;\
                         .reg .b64 %d<16>; .reg .f64 %g<8>; .shared .align 16 .b8 near[1024];";

/// All checks, so that races between blocks are seen, too.
const STRICT: Options =
    Options { sums: Sums::Rounded, watch_shared: true, watch_global: true, count: false };

/// Device memory for a small kernel: the words that it reads, and room for those that it writes.
struct Bench {
    memory: Arc<Memory>,
    given: u64,
    made: u64,
}

impl Bench {
    fn new(words: &[u32]) -> Self {
        let memory = Arc::new(Memory::new(1 << 20));
        let given = memory.allocate(4 * words.len()).unwrap();
        // SAFETY: the source is the whole of a slice.
        assert!(unsafe { memory.write(given, words.as_ptr().cast(), 4 * words.len()) });
        let made = memory.allocate(4096).unwrap();
        Self { memory, given, made }
    }

    /// Runs a body that finds its thread's number in `%r0`, its block's in `%r1`, and in `%d0` and
    /// `%d1` the addresses of its words of `in` and `out`.
    fn run(&self, body: &str, blocks: u32, threads: u32, seed: u64) -> Result<Vec<u32>, Fault> {
        let text = format!(
            "{HEAD}.visible .entry k(.param .u64 in, .param .u64 out)\n{{ {REGISTERS}\n\
             mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;\n\
             mad.lo.s32 %r3, %r1, %r2, %r0; mul.wide.u32 %d2, %r3, 4;\n\
             ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out];\n\
             add.s64 %d0, %d0, %d2; add.s64 %d1, %d1, %d2;\n{body}\nret; }}"
        );
        let module = Module::load(&text, &self.memory).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let parameters = [self.given, self.made].into_iter().flat_map(u64::to_le_bytes).collect();
        let launch = Launch {
            kernel: module.kernel("k").unwrap(),
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            dynamic_shared: 0,
            parameters,
            declared: None,
        };
        execute(&launch, &self.memory, seed, STRICT)?;
        let mut words = vec![0u32; (blocks * threads) as usize];
        // SAFETY: the target is the whole of the vector.
        assert!(unsafe { self.memory.read(self.made, words.as_mut_ptr().cast(), 4 * words.len()) });
        Ok(words)
    }
}

/// The results of a body from words, one of each lane.
fn made(words: &[u32; 32], body: &str) -> Vec<u32> {
    let body =
        format!("ld.global.u32 %r8, [%d0]; mov.b32 %f8, %r8;\n{body}\nst.global.u32 [%d1], %r9;");
    Bench::new(words).run(&body, 1, 32, 1).unwrap_or_else(|fault| panic!("{fault:?}"))
}

fn numbers() -> [u32; 32] {
    std::array::from_fn(|i| i as u32)
}

#[test]
fn arithmetic_is_that_of_the_isa() {
    let of = |value: u32, body: &str| made(&[value; 32], body)[0];
    assert_eq!(of(7, "sub.s32 %r9, %r8, 9;"), -2i32 as u32);
    assert_eq!(of(-7i32 as u32, "div.s32 %r9, %r8, 2;"), -3i32 as u32);
    assert_eq!(of(-7i32 as u32, "rem.s32 %r9, %r8, 4;"), -3i32 as u32);
    assert_eq!(of(0x8000_0000, "shr.s32 %r9, %r8, 40;"), u32::MAX);
    assert_eq!(of(1, "shl.b32 %r9, %r8, 32;"), 0);
    assert_eq!(of(0x8000_0000, "mul.hi.u32 %r9, %r8, 6;"), 3);
    assert_eq!(of(0xf0, "brev.b32 %r9, %r8;"), 0x0f00_0000);
    assert_eq!(of(0x10, "bfind.shiftamt.u32 %r9, %r8;"), 27);
    assert_eq!(of(0, "bfind.shiftamt.u32 %r9, %r8;"), u32::MAX);
    assert_eq!(of(0x4433_2211, "prmt.b32 %r9, %r8, 0, 0x4021;"), 0x0011_3322);
    assert_eq!(of(0x80, "prmt.b32 %r9, %r8, 0, 0x8;"), 0x8080_80ff);
    assert_eq!(of(0xab, "bfi.b32 %r9, %r8, 0xffffffff, 4, 8;"), 0xffff_fabf);
    assert_eq!(of(0x8000_0001, "shf.l.wrap.b32 %r9, %r8, 2, 33;"), 5);
    // A carry chain of 64 bits, down and up.
    let chain = "add.cc.u32 %r10, %r8, 1; addc.u32 %r9, 5, 0;";
    assert_eq!(of(u32::MAX, chain), 6);
    assert_eq!(of(3, "sub.cc.u32 %r10, %r8, 4; subc.u32 %r9, 9, 0;"), 8);
    assert_eq!(of(4, "sub.cc.u32 %r10, %r8, 4; subc.u32 %r9, 9, 0;"), 9);
}

#[test]
fn floats_round_as_the_isa_says() {
    let of = |value: f32, body: &str| {
        let body = format!("{body} mov.b32 %r9, %f9;");
        made(&[value.to_bits(); 32], &body)[0]
    };
    let tiny = 2f32.powi(-30);
    assert_eq!(
        of(-tiny, "fma.rm.f32 %f9, %f8, 0f3F800000, 0f3F800000;"),
        1f32.next_down().to_bits()
    );
    assert_eq!(of(-tiny, "fma.rn.f32 %f9, %f8, 0f3F800000, 0f3F800000;"), 1f32.to_bits());
    assert_eq!(of(tiny, "fma.rm.f32 %f9, %f8, 0f3F800000, 0f3F800000;"), 1f32.to_bits());
    assert_eq!(of(-tiny, "add.rz.f32 %f9, %f8, 0f3F800000;"), 1f32.next_down().to_bits());
    assert_eq!(of(tiny, "add.rz.f32 %f9, %f8, 0f3F800000;"), 1f32.to_bits());
    assert_eq!(of(f32::NAN, "max.f32 %f9, %f8, 0fBF800000;"), (-1f32).to_bits());
    assert_eq!(of(-0.0, "min.f32 %f9, %f8, 0f00000000;"), (-0f32).to_bits());
    assert_eq!(of(-0.0, "max.f32 %f9, %f8, 0f00000000;"), 0);
    assert_eq!(of(f32::INFINITY, "sub.f32 %f9, %f8, %f8;"), 0x7fff_ffff);
    assert_eq!(of(f32::NAN, "cvt.sat.f32.f32 %f9, %f8;"), 0);
    assert_eq!(of(10.0, "ex2.approx.ftz.f32 %f9, %f8;"), 1024f32.to_bits());
    assert_eq!(of(-140.0, "ex2.approx.ftz.f32 %f9, %f8;"), 0);
    assert_eq!(of(2.5, "cvt.rzi.s32.f32 %r10, %f8; cvt.rn.f32.s32 %f9, %r10;"), 2f32.to_bits());
    let half = "cvt.rn.f16.f32 %h1, %f8; cvt.f32.f16 %f9, %h1;";
    assert_eq!(of(1.0 + 2f32.powi(-11), half), 1f32.to_bits());
    assert_eq!(of(1.0 + 3.0 * 2f32.powi(-11), half), (1.0 + 2f32.powi(-9)).to_bits());
    assert_eq!(of(70_000.0, half), f32::INFINITY.to_bits());
    let tf32 = "cvt.rna.tf32.f32 %r10, %f8; mov.b32 %f9, %r10;";
    assert_eq!(of(1.0 + 2f32.powi(-11), tf32), (1.0 + 2f32.powi(-10)).to_bits());
}

#[test]
fn lanes_work_together() {
    let words = numbers();
    let shuffled = |form: &str, b: u32, c: u32| {
        made(&words, &format!("shfl.sync.{form}.b32 %r9|%p1, %r8, {b}, {c}, -1;"))
    };
    assert_eq!(shuffled("bfly", 1, 31)[..4], [1, 0, 3, 2]);
    assert_eq!(shuffled("up", 2, 0)[..4], [0, 1, 0, 1]);
    assert_eq!(shuffled("down", 1, 31)[29..], [30, 31, 31]);
    assert_eq!(shuffled("idx", 5, 31)[7], 5);
    assert_eq!(shuffled("idx", 5, 0x181f)[15], 13, "segments of 8 lanes");
    let voted = "setp.lt.u32 %p1, %r8, 3; vote.sync.ballot.b32 %r9, %p1, -1;";
    assert_eq!(made(&words, voted)[9], 7);
    let equal = "and.b32 %r10, %r8, 1; match.any.sync.b32 %r9, %r10, -1;";
    assert_eq!(made(&words, equal)[..2], [0x5555_5555, 0xaaaa_aaaa]);
    // Both sides of a branch, which then meet.
    let parted = "setp.lt.u32 %p1, %r8, 16; @%p1 bra L1; add.s32 %r9, %r8, 100; bra L2;\n\
                  L1: mov.u32 %r9, %r8;\nL2: shfl.sync.idx.b32 %r9|%p2, %r9, 31, 31, -1;";
    assert_eq!(made(&words, parted), vec![131; 32]);
}

/// m16n8k16 with a[i][k] = i and b[k][j] = j, so d[i][j] = 16 i j + c.
#[test]
fn a_product_has_its_elements_where_the_isa_has_them() {
    let body = "shr.u32 %r10, %r8, 2; cvt.rn.f32.u32 %f1, %r10; add.f32 %f2, %f1, 0f41000000;\n\
                cvt.rn.f16x2.f32 %r11, %f1, %f1; cvt.rn.f16x2.f32 %r12, %f2, %f2;\n\
                mov.f32 %f3, 0f3F800000; mov.f32 %f4, %f3; mov.f32 %f5, %f3; mov.f32 %f6, %f3;\n\
                mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f3,%f4,%f5,%f6}, \
                {%r11,%r12,%r11,%r12}, {%r11,%r11}, {%f3,%f4,%f5,%f6};\n\
                cvt.rzi.s32.f32 %r9, %f6;";
    let made = made(&numbers(), body);
    for lane in 0..32 {
        let (row, column) = (lane / 4 + 8, 2 * (lane % 4) + 1);
        assert_eq!(made[lane as usize], 16 * row * column + 1, "lane {lane}");
    }
}

#[test]
fn tensor_cores_cut_what_fp32_would_round() {
    let sum = |sums| {
        let (mut a, mut b, mut d) = ([[0f32; 16]; 16], [[0f32; 8]; 16], [[0f32; 8]; 16]);
        a[0][0] = 1.0;
        a[0][1] = 2f32.powi(-14);
        b[0][0] = 1.0;
        b[1][0] = 1.5 * 2f32.powi(-10);
        d[0][0] = 0.0;
        super::tensor::multiply(&a, &b, &mut d, sums);
        d[0][0]
    };
    let ulp = f32::EPSILON;
    assert_eq!(sum(Sums::Rounded), 1.0 + ulp, "1.5 of 2 half units round up");
    assert_eq!(sum(Sums::Cut { group: 8, bits: 1 }), 1.0, "cut off");
}

const COPY: &str = "mov.u32 %r20, near; shl.b32 %r21, %r0, 4; add.s32 %r20, %r20, %r21;\n\
                    ld.param.u64 %d4, [in]; cp.async.cg.shared.global [%r20], [%d4], 16;\n\
                    cp.async.commit_group;";

/// Bodies, and a part of what is said of each; two blocks of two warps run them.
const PLANTED: &[(&str, i32, &str)] = &[
    ("ld.global.u32 %r9, [%d0+4096];", 700, "outside of every allocation"),
    ("ld.global.u32 %r9, [%d0+-4096];", 700, "outside of every allocation"),
    ("st.global.u32 [%d1+4096], %r0;", 700, "outside of every allocation"),
    ("ld.global.u32 %r9, [%d0+2];", 716, "no multiple of 4"),
    ("ld.global.v2.u32 {%r9, %r10}, [%d0];", 716, "no multiple of 8"),
    ("ld.global.u32 %r9, [%d1];", 719, "nobody wrote"),
    ("ld.shared.u32 %r9, [near];", 719, "shared bytes that nobody wrote"),
    ("mov.u32 %r9, near; st.shared.u32 [%r9+1024], %r0;", 700, "outside of shared memory"),
    ("st.shared.u32 [near+1], %r0;", 716, "no multiple of 4"),
    ("ld.param.u32 %r9, [in+16];", 700, "outside of the parameters"),
    ("mov.u64 %d5, 0x1234; ld.u32 %r9, [%d5];", 700, "outside of every allocation"),
    (
        "setp.lt.u32 %p1, %r0, 16; @%p1 bra L1; bar.sync 0;\nL1: mov.u32 %r9, 0;",
        719,
        "lanes 0xffff0000",
    ),
    ("setp.lt.u32 %p1, %r0, 16; @%p1 shfl.sync.idx.b32 %r9|%p2, %r0, 0, 31, -1;", 719, "elsewhere"),
    ("setp.lt.u32 %p1, %r0, 16; @%p1 bar.warp.sync -1;", 719, "elsewhere"),
    ("shfl.sync.idx.b32 %r9|%p2, %r0, 0, 31, 1;", 719, "is not in the mask"),
    (
        "setp.lt.u32 %p1, %r0, 16; @!%p1 ret; vote.sync.ballot.b32 %r9, %p1, 0xffff;\n\
      shfl.sync.idx.b32 %r9|%p2, %r0, 20, 31, 0xffff;",
        719,
        "not here",
    ),
    // Two warps and one word without a barrier between.
    ("st.shared.u32 [near], %r0;", 719, "another warp wrote since the last barrier"),
    (
        "shl.b32 %r9, %r0, 2; mov.u32 %r10, near; add.s32 %r9, %r9, %r10; st.shared.u32 [%r9], %r0;\n\
      xor.b32 %r9, %r9, 128; ld.shared.u32 %r11, [%r9];",
        719,
        "shared bytes that",
    ),
    (
        "shl.b32 %r9, %r0, 2; mov.u32 %r10, near; add.s32 %r9, %r9, %r10; st.shared.u32 [%r9], %r0;\n\
      bar.sync 0; xor.b32 %r12, %r9, 128; ld.shared.u32 %r11, [%r12]; st.shared.u32 [%r9], %r11;",
        719,
        "since the last barrier",
    ),
    ("red.shared.add.u32 [near], 1;", 719, "nobody wrote"),
    ("red.global.add.u32 [%d1], 1;", 719, "nobody wrote"),
    // Races between blocks of one launch.
    ("ld.param.u64 %d3, [out]; st.global.u32 [%d3], %r0;", 719, "another block"),
    ("ld.global.nc.u32 %r9, [%d0]; st.global.u32 [%d0], %r9;", 719, "ld.global.nc"),
    ("st.global.u32 [%d1], %r0; ld.global.nc.u32 %r9, [%d1];", 719, "ld.global.nc"),
    (
        "ld.param.u64 %d3, [in]; ld.global.u32 %r9, [%d3]; st.global.u32 [%d0], %r9;",
        719,
        "another block",
    ),
    (
        "setp.lt.u32 %p1, %r0, 7; @%p1 ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4,%r5,%r6,%r7}, [%r0];",
        719,
        "is met by lanes 0x7f of 0xffffffff",
    ),
    (
        "mov.u32 %r4, near; add.s32 %r4, %r4, 8; \
      ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4,%r5,%r6,%r7}, [%r4];",
        716,
        "multiple of 16",
    ),
    (
        "mov.u32 %r4, near; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4,%r5,%r6,%r7}, [%r4];",
        719,
        "nobody wrote",
    ),
    (
        "ld.param.u64 %d4, [in]; mov.u32 %r4, near; add.s64 %d4, %d4, 4; \
      cp.async.cg.shared.global [%r4], [%d4], 16;",
        716,
        "both are multiples of 16",
    ),
];

#[test]
fn planted_faults_are_told_with_their_place() {
    for (body, code, words) in PLANTED {
        let fault = Bench::new(&[0; 128]).run(body, 2, 64, 3).expect_err(body);
        assert_eq!(fault.code, *code, "{body}\n{}", fault.sentence);
        assert!(fault.sentence.contains(words), "{body}\n{}", fault.sentence);
        assert!(fault.sentence.starts_with("kernel `k`, PTX line "), "{}", fault.sentence);
        assert!(fault.sentence.contains(", block [") && fault.sentence.contains(", thread "));
    }
}

#[test]
fn asynchronous_copies_are_there_after_their_wait_alone() {
    let look = "ld.shared.u32 %r9, [%r20]; st.global.u32 [%d1], %r9;";
    for seed in 0..8 {
        let run =
            |wait: &str| Bench::new(&[7; 64]).run(&format!("{COPY} {wait} {look}"), 1, 32, seed);
        assert_eq!(run("cp.async.wait_group 0;"), Ok(vec![7; 32]));
        for wait in ["", "cp.async.wait_group 1;"] {
            let fault = run(wait).expect_err("too early");
            assert!(fault.sentence.contains("that a cp.async still brings"), "{fault:?}");
        }
        // Other warps see them after a barrier.
        let other = "xor.b32 %r20, %r20, 512; ld.shared.u32 %r9, [%r20];";
        let run =
            |wait: &str| Bench::new(&[7; 64]).run(&format!("{COPY} {wait} {other}"), 1, 64, seed);
        assert!(run("cp.async.wait_group 0; bar.sync 0;").is_ok());
        run("cp.async.wait_group 0;").expect_err("no barrier");
        run("bar.sync 0; cp.async.wait_group 0;").expect_err("the wait is behind the barrier");
    }
}

#[test]
fn zeros_take_the_place_of_what_is_not_copied() {
    let body = format!(
        "{} cp.async.wait_group 0; ld.shared.u32 %r9, [%r20+4]; st.global.u32 [%d1], %r9;",
        COPY.replace("16;\n", "16, %r19;\n")
            .replace("mov.u32 %r20", "mov.u32 %r19, 4; mov.u32 %r20")
    );
    assert_eq!(Bench::new(&[7; 64]).run(&body, 1, 32, 1), Ok(vec![0; 32]));
}

#[test]
fn what_is_not_understood_is_refused_with_its_line() {
    let memory = Arc::new(Memory::new(1 << 20));
    let load = |body: &str| {
        let text = format!("{HEAD}.visible .entry k()\n{{\n{REGISTERS}\n{body}\nret;\n}}");
        Module::load(&text, &memory).map(|_| ()).expect_err(body)
    };
    for (body, words) in [
        ("add.sat.s32 %r1, %r2, %r3;", "line 7: `add.sat.s32`"),
        ("ex2.approx.f32 %f1, %f2;", "`ex2.approx.f32`"),
        ("add.s32 %r1, %d2, %r3;", "a register of Double where Word belongs"),
        ("mov.b32 %r1, %clock;", "`mov.b32`"),
        ("bra NOWHERE;", "label `NOWHERE` is not there"),
        ("bar.sync;", "the form is not known"),
        ("wgmma.fence.sync.aligned;", "needs target sm_90a, and the module's is sm_80"),
        ("fence.proxy.async;", "needs target sm_90, and the module's is sm_80"),
        ("ld.global.nc.L1::no_allocate.u32 %r1, [%d1];", "the form is not known"),
        ("add.f32 %f1, %f2, 0d3FF0000000000000;", "no literal of 4 bytes"),
    ] {
        let said = load(body);
        assert!(said.contains(words), "{body}: {said}");
    }
    let text = HEAD.replace("8.2", "9.9");
    assert!(Module::load(&text, &memory).is_err_and(|e| e.contains("version 9.9")));
}
