//! Mistakes in kernels: addresses, unwritten data, barriers, copies, and PTX text.

use std::env;
use std::ffi::{CStr, CString};
use std::ptr;

use crate::cuda::*;
use crate::maps::TENSOR;
use crate::report;

/// Number of values in the kernel's output; its input has 1024 values.
const COUNT: usize = 250;

/// A kernel body with placeholders for the mistake, and the launch parameters.
#[derive(Clone, Copy)]
pub(crate) struct Launch {
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    /// The instructions. A placeholder `<NAME:TEXT>` contains the correct text.
    pub(crate) body: &'static str,
    /// Name of the placeholder, and the incorrect text that replaces it.
    pub(crate) wrong: [&'static str; 2],
}

impl Launch {
    /// The error code that a program with this kernel gets.
    pub(crate) fn run(self, gpu: &Gpu, is_wrong: bool) -> i32 {
        let (mut ptx, mut map) = (text_of(&self.filled(is_wrong)), vec![0; 16]);
        if env::var("DRIVER_GPUS").is_ok_and(|gpus| gpus == "H100") {
            ptx = ptx.replace("sm_80", "sm_90a");
            map = TENSOR.at(gpu.alloc(3072));
        }
        let Ok(module) = load(&ptx) else { return 218 };
        let numbers: Vec<u32> = (0..1024).collect();
        let mut parameters = vec![gpu.alloc(4 * COUNT), gpu.numbers(&numbers), COUNT as u64];
        parameters.append(&mut map);
        let shape = (self.blocks, self.threads, 0);
        ok(launch(function(module), shape, &parameters, gpu.stream));
        let code = cuStreamSynchronize(gpu.stream);
        if code == 0 {
            ok(cuModuleUnload(module));
        }
        code
    }

    fn filled(&self, is_wrong: bool) -> String {
        let mut parts = self.body.split('<');
        let mut text = parts.next().unwrap_or_default().to_string();
        for part in parts {
            let (place, rest) = part.split_once('>').expect("an end of the place");
            let (name, right) = place.split_once(':').expect("a name");
            let [wrong_name, wrong] = self.wrong;
            text += if is_wrong && name == wrong_name { wrong } else { right };
            text += rest;
        }
        text
    }
}

/// A complete kernel, which defines registers for the values that its body needs.
pub(crate) fn text_of(body: &str) -> String {
    format!(
        "
.version 8.0
.target sm_80
.address_size 64
.visible .entry plant(.param .u64 output, .param .u64 input, .param .u32 count,
    .param .align 64 .b8 map[128])
.maxntid 256, 1, 1
{{
    .reg .pred %p<8>;
    .reg .b16 %h<8>;
    .reg .b32 %r<64>, %a<4>, %s<64>, %count, %thread, %block, %index, %lane, %tile, %slot, %row;
    .reg .b64 %d<16>, %to, %from, %mine, %item, %items;
    .reg .f32 %f<16>;
    .shared .align 1024 .b8 tile[16384];
    ld.param.u64 %to, [output];
    cvta.to.global.u64 %to, %to;
    ld.param.u64 %from, [input];
    cvta.to.global.u64 %from, %from;
    ld.param.u32 %count, [count];
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %r0, %ntid.x;
    mad.lo.s32 %index, %block, %r0, %thread;
    and.b32 %lane, %thread, 31;
    mul.wide.u32 %d0, %index, 4;
    add.s64 %mine, %to, %d0;
    add.s64 %item, %from, %d0;
    mul.wide.u32 %d0, %thread, 16;
    add.s64 %items, %from, %d0;
    mov.u32 %tile, tile;
    mad.lo.s32 %slot, %thread, 4, %tile;
    mad.lo.s32 %row, %thread, 16, %tile;
{body}
DONE:
    ret;
}}
"
    )
}

/// Loads PTX; if it is rejected, adds the error log to the report.
fn load(ptx: &str) -> Result<u64, ()> {
    let text = CString::new(ptx).expect("no zero");
    let (mut module, mut log) = (0, [0u8; 512]);
    // The error log, and its size.
    let options = [5, 6];
    let mut values = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(log.len())];
    let (image, list) = (text.as_ptr(), options.as_ptr());
    if cuModuleLoadDataEx(&mut module, image, 2, list, values.as_mut_ptr()) == 0 {
        return Ok(module);
    }
    let log = CStr::from_bytes_until_nul(&log).expect("a zero").to_string_lossy();
    report(&format!("refused: {log}"));
    Err(())
}

/// Defines a table of kernels, grouped by the driver's variables. A row has: name, blocks and
/// threads, body, placeholder and text of the mistake, error code, expected report.
macro_rules! kernels {
    ($([$variables:expr] $({ $name:literal, ($blocks:literal, $threads:literal), $body:expr,
        $place:literal = $wrong:literal, $code:literal, $says:literal })*)*) => {
        pub(crate) const PROGRAMS: &[$crate::FaultProgram] = &[$($($crate::FaultProgram {
            name: $name,
            variables: $variables,
            program: $crate::Program::Kernel($crate::kernels::Launch {
                blocks: $blocks,
                threads: $threads,
                body: $body,
                wrong: [$place, $wrong],
            }),
            code: $code,
            says: $says,
        }),*),*];
    };
}
pub(crate) use kernels;

kernels! {
    [&[]]
    { "a tail that writes one number too many", (2, 128),
        "setp.<at:ge>.u32 %p1, %index, %count;
        @%p1 bra DONE;
        st.global.u32 [%mine], %index;",
        "at" = "gt", 700, "are outside of every allocation (0 bytes past the end of one of 1000" }
    { "a misaligned vector", (1, 32),
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [<at:%items>];
        st.global.u32 [%mine], %r4;",
        "at" = "%items+4", 716, "is not a multiple of 16" }
    { "an uninitialised output", (1, 64),
        "mov.u32 %r1, 0;
        <at:st.global.u32 [%mine], %r1;>
        red.global.add.u32 [%mine], %thread;",
        "at" = "", 719, "reads 4 uninitialised bytes, at " }
    { "a shuffle with diverged lanes", (1, 32),
        "mov.u32 %r1, %thread;
        setp.ge.u32 %p1, %lane, 16;
        @%p1 bra BEHIND;
        shfl.sync.bfly.b32 %r1, %r1, 8, 31, <at:0xffff>;
        BEHIND:
        st.global.u32 [%mine], %r1;",
        "at" = "-1", 719, "waits for lanes 0xffff0000, which have diverged" }
    { "a shuffle whose mask lacks lanes that execute it", (1, 32),
        "shfl.sync.bfly.b32 %r1, %thread, 8, 31, <at:-1>;
        st.global.u32 [%mine], %r1;",
        "at" = "0xffff", 719, "thread 16: is not in its own mask" }
    { "a shuffle from a lane that has ended", (1, 32),
        "setp.ge.u32 %p1, %lane, 16;
        @%p1 bra DONE;
        shfl.sync.idx.b32 %r1, %thread, <at:2>, 31, 0xffff;
        st.global.u32 [%mine], %r1;",
        "at" = "20", 719, "reads lane 20, which is inactive" }
    { "a store beyond the end of shared memory", (1, 128), "st.shared.u32 [%slot<at:>], %thread;",
        "at" = "+15876", 700, "thread 127: 4 bytes at 0x4000 are outside of shared memory (16384" }
    { "shared memory that half of the warps wrote", (1, 64),
        "setp.lt.u32 %p1, %thread, <at:64>;
        @%p1 st.shared.u32 [%slot], %thread;
        bar.sync 0;
        ld.shared.u32 %r1, [%slot];
        st.global.u32 [%mine], %r1;",
        "at" = "32", 719, "thread 32: reads uninitialised shared bytes" }
    { "two warps that write one number", (1, 64), "st.shared.u32 [<at:%slot>], %thread;",
        "at" = "%tile", 719, "accesses shared bytes that another warp wrote since the last" }
    { "a buffer without a barrier after its use", (1, 64),
        "st.shared.u32 [%slot], %thread;
        bar.sync 0;
        mov.u32 %r2, 0;
        setp.ge.u32 %p1, %thread, 32;
        @%p1 bra LATE;
        ld.shared.u32 %r1, [%slot+128];
        bra BEHIND;
        LATE:
        add.s32 %r2, %r2, 1;
        setp.lt.u32 %p2, %r2, 9999;
        @%p2 bra LATE;
        BEHIND:
        <at:bar.sync 0;>
        st.shared.u32 [%slot], %thread;",
        "at" = "", 719, "writes shared bytes that another warp read since the last barrier" }
    { "a read of a tile that is in flight", (1, 32),
        "cp.async.cg.shared.global [%row], [%items], 16;
        cp.async.commit_group;
        cp.async.cg.shared.global [%row+1024], [%items+1024], 16;
        cp.async.commit_group;
        cp.async.wait_group <at:0>;
        ld.shared.u32 %r1, [%row+1024];
        st.global.u32 [%mine], %r1;",
        "at" = "1", 719, "accesses shared bytes of a copy in flight, at 0x400" }
    { "a thread that ends before its copy has arrived", (1, 64),
        "cp.async.cg.shared.global [%row], [%items], 16;
        cp.async.commit_group;
        <at:cp.async.wait_group 0;>",
        "at" = "", 719, "exits before its cp.async is complete" }
    { "a misaligned copy of 16 bytes", (1, 32),
        "cp.async.cg.shared.global [%row<at:>], [%items], 16;
        cp.async.wait_all;",
        "at" = "+4", 716, "both are multiples of 16" }
    { "a barrier in the branch of some lanes", (1, 64),
        "setp.lt.u32 %p1, %lane, 16;
        @%p1 bra BEHIND;
        <at:>
        BEHIND:
        bar.sync 0;",
        "at" = "bar.sync 0;", 719, "is executed by lanes 0xffff" }
    { "warps at barriers of two kinds", (1, 64),
        "setp.lt.u32 %p1, %thread, <at:64>;
        @%p1 bra VOTE;
        bar.sync 0;
        bra DONE;
        VOTE:
        bar.red.or.pred %p2, 0, %p1;",
        "at" = "32", 719, "waits at a different kind of barrier than" }
    { "a matrix loaded from a row that is not aligned", (1, 32),
        "st.shared.v4.u32 [%row], {%thread, %thread, %thread, %thread};
        bar.sync 0;
        mad.lo.s32 %r1, %lane, <at:16>, %tile;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];",
        "at" = "8", 716, "thread 1: a matrix's row at 0x8, which is not a multiple of 16" }
    { "a modifier that no instruction has", (1, 32),
        "cvt.rn.f32.u32 %f1, %thread;
        add.<at:rn>.f32 %f1, %f1, %f1;",
        "at" = "rounded", 218, "line 34: `add.rounded.f32`: unknown form" }
    { "a 32-bit sum of 64-bit registers", (1, 32),
        "add.<at:u64> %d1, %mine, 0;",
        "at" = "u32", 218, "line 33: `add.u32`: a register of class Double where Word is" }
    { "an undeclared register", (1, 32),
        "st.global.u32 [%mine], <at:%thread>;",
        "at" = "%s99", 218, "%s99 is neither declared nor a supported special register" }
    { "a special register that is not modelled", (1, 32),
        "mov.u32 %r1, <at:%tid.x>;",
        "at" = "%smid", 218, "`%smid` is not known" }
    { "an operand of the wrong kind", (1, 32),
        "cp.async.wait_all;
        <at:mov.u32 %r1, 0;>",
        "at" = "mov.u32 %r1, NOWHERE;", 218, "is not allowed here" }
    { "a literal of another size", (1, 32),
        "mov.f32 %f1, <at:0f00000000>;",
        "at" = "0d0000000000000000", 218, "is not a literal of 4 bytes" }
    { "a branch to a label that is missing", (1, 32),
        "bra <at:DONE>;",
        "at" = "END", 218, "line 33: label `END` is missing" }
    { "a call of a function that is missing", (1, 32),
        "<at:>",
        "at" = "call.uni (), missing, ();", 218, "function `missing` is missing" }
    { "an instruction that an older GPU lacks", (1, 32),
        "<at:>",
        "at" = "fence.proxy.async;", 218, "needs target sm_90, and the module's is sm_80" }
    { "an instruction of a different GPU only", (1, 32),
        "<at:>",
        "at" = "wgmma.fence.sync.aligned;", 218, "needs target sm_90a, and the module's is sm_80" }

    [&["DRIVER_CHECKS=races"]]
    { "two blocks that write one number", (2, 32),
        "st.global.u32 [<at:%mine>], %index;",
        "at" = "%to", 719, "accesses bytes that another block of the launch writes" }
    { "a block that writes what another reads", (2, 32),
        "ld.global.u32 %r1, [%from<at:+400>];
        st.global.u32 [%item], %r1;",
        "at" = "", 719, "of the launch reads|writes bytes that another block" }
    { "a read-only load of bytes that the launch writes", (1, 32),
        "st.global.u32 [%mine], %thread;
        ld.global<at:>.u32 %r1, [%mine];",
        "at" = ".nc", 719, "reads with ld.global.nc bytes that this launch writes" }
    { "a write of bytes that the launch loads as read-only", (1, 32),
        "ld.global<at:>.u32 %r1, [%item];
        st.global.u32 [%item], %r1;",
        "at" = ".nc", 719, "writes bytes that this launch reads with ld.global.nc" }
}
