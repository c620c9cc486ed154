//! Mistakes of kernels: addresses, barriers of warps, data that nobody wrote, and PTX text.

use std::env;
use std::ffi::{CStr, CString};
use std::ptr;

use crate::cuda::{alloc, close, function, launch, numbers, ok, open};
use crate::cuda::{cuCtxSynchronize, cuModuleLoadDataEx, cuModuleUnload, cuStreamSynchronize};
use crate::report;

/// Stands in the place of the mistake.
const HERE: &str = "<here>";
/// The numbers of the kernel's output. Its input holds 1024.
const COUNT: u64 = 250;

/// A kernel's body with the text of a mistake in it, and how it is launched.
#[derive(Clone, Copy)]
pub(crate) struct Launch {
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    /// Instructions, in which `<here>` stands for one of the following two.
    pub(crate) body: &'static str,
    pub(crate) wrong: &'static str,
    pub(crate) right: &'static str,
}

impl Launch {
    /// The error number that a program with this kernel meets.
    pub(crate) fn run(self, is_wrong: bool) -> i32 {
        let text = if is_wrong { self.wrong } else { self.right };
        let (stream, mut ptx) = (open(), text_of(&self.body.replace(HERE, text)));
        if env::var("DRIVER_GPUS").is_ok_and(|gpus| gpus == "H100") {
            ptx = ptx.replace("sm_80", "sm_90a");
        }
        let Ok(module) = load(&ptx) else {
            close(stream, &[]);
            return 218;
        };
        let (kernel, shape) = (function(module), (self.blocks, self.threads, 0));
        let (output, input) = (alloc(4 * COUNT as usize), numbers(1024, stream));
        let launched = launch(kernel, shape, &[output, input, COUNT], stream);
        let code = if launched == 0 { cuStreamSynchronize(stream) } else { launched };
        if cuCtxSynchronize() == 0 {
            ok(cuModuleUnload(module));
            close(stream, &[output, input]);
        }
        code
    }
}

/// A kernel that stores a number, in blocks of up to 64 threads.
pub(crate) const STORE: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry plant(.param .u64 to, .param .u32 value)
.maxntid 64, 1, 1
{
    .reg .b32 %r<2>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [to];
    ld.param.u32 %r1, [value];
    st.global.u32 [%d1], %r1;
    ret;
}
";

/// A kernel with names for what its body needs.
pub(crate) fn text_of(body: &str) -> String {
    format!(
        "
.version 8.0
.target sm_80
.address_size 64
.visible .entry plant(.param .u64 output, .param .u64 input, .param .u32 count)
.maxntid 256, 1, 1
{{
    .reg .pred %p<8>;
    .reg .b32 %r<32>, %count, %thread, %block, %index, %lane, %tile, %slot, %row;
    .reg .b64 %d<16>, %to, %from, %mine, %item, %items;
    .reg .f32 %f<8>;
    .shared .align 16 .b8 tile[2048];
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

/// Loads PTX. A refusal's log is added to the report.
fn load(ptx: &str) -> Result<u64, ()> {
    let text = CString::new(ptx).expect("no zero");
    let (mut module, mut log) = (0, [0u8; 512]);
    // The log of errors, and its bytes.
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

/// Makes a table of kernels: name, variables, blocks and threads, body, the mistake, its
/// correction, error number, and what the report says.
macro_rules! kernels {
    ($({ $name:literal, $variables:expr, ($blocks:literal, $threads:literal),
        $body:expr, $wrong:literal, $right:literal, $code:literal, $says:literal })*) => {
        pub(crate) const PLANTS: &[$crate::Plant] = &[$($crate::Plant {
            name: $name,
            variables: $variables,
            program: $crate::Program::Kernel($crate::kernels::Launch {
                blocks: $blocks,
                threads: $threads,
                body: $body,
                wrong: $wrong,
                right: $right,
            }),
            code: $code,
            says: $says,
        }),*];
    };
}
pub(crate) use kernels;

kernels! {
    { "a tail that writes one number too many", &[], (2, 128),
        "<here>
            @%p1 bra DONE;
            st.global.u32 [%mine], %index;",
        "setp.gt.u32 %p1, %index, %count;", "setp.ge.u32 %p1, %index, %count;",
        700, "are outside of every allocation (0 bytes behind one of 1000 bytes)" }
    { "an index below zero, made wide without its sign", &[], (1, 32),
        "sub.s32 %r1, %thread, 1;
            <here>
            mul.wide.u32 %d1, %r1, 4;
            add.s64 %d1, %from, %d1;
            ld.global.u32 %r2, [%d1];
            st.global.u32 [%mine], %r2;",
        "", "max.s32 %r1, %r1, 0;",
        700, "thread 0: 4 bytes at 0x" }
    { "a null pointer", &[], (1, 32),
        "<here>
            st.global.u32 [%d1], %thread;",
        "mov.u64 %d1, 0;", "mov.u64 %d1, %mine;",
        700, "4 bytes at 0x0 are outside of every allocation" }
    { "an address of shared memory, used as a generic one", &[], (1, 32),
        "st.shared.u32 [%slot], %thread;
            cvt.u64.u32 %d1, %slot;
            <here>
            ld.u32 %r1, [%d1];
            st.global.u32 [%mine], %r1;",
        "", "cvta.shared.u64 %d1, %d1;",
        700, "`ld.u32`, block [0, 0, 0], thread 0: 4 bytes at 0x0 are outside" }
    { "a vector at an address for numbers", &[], (1, 32),
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [<here>];
            st.global.u32 [%mine], %r4;",
        "%items+4", "%items",
        716, "is no multiple of 16" }
    { "an output that nobody initialised", &[], (1, 64),
        "mov.u32 %r1, 0;
            <here>
            ld.global.u32 %r2, [%mine];
            add.s32 %r2, %r2, %thread;
            st.global.u32 [%mine], %r2;",
        "", "st.global.u32 [%mine], %r1;",
        719, "bytes that nobody wrote, at " }
    { "two blocks that add to one number", &["DRIVER_CHECKS=races"], (2, 32),
        "setp.ne.u32 %p1, %thread, 0;
            @%p1 bra DONE;
            <here>",
        "ld.global.u32 %r1, [%from];
            add.s32 %r1, %r1, 1;
            st.global.u32 [%from], %r1;",
        "red.global.add.u32 [%from], 1;",
        719, "touches bytes that another block of the launch writes" }
    { "what the launch writes, by the path for constants", &["DRIVER_CHECKS=races"], (1, 32),
        "st.global.u32 [%mine], %thread;
            <here>
            add.s32 %r1, %r1, 1;
            st.global.u32 [%mine], %r1;",
        "ld.global.nc.u32 %r1, [%mine];", "ld.global.u32 %r1, [%mine];",
        719, "reads with ld.global.nc bytes that this launch writes" }
    { "a shuffle with lanes that are elsewhere", &[], (1, 32),
        "mov.u32 %r1, %thread;
            setp.ge.u32 %p1, %lane, 16;
            @%p1 bra BEHIND;
            shfl.sync.bfly.b32 %r1, %r1, 8, 31, <here>;
            BEHIND:
            st.global.u32 [%mine], %r1;",
        "-1", "0xffff",
        719, "waits for lanes 0xffff0000, which are elsewhere" }
    { "a shuffle whose mask lacks lanes that execute it", &[], (1, 32),
        "shfl.sync.bfly.b32 %r1, %thread, 8, 31, <here>;
            st.global.u32 [%mine], %r1;",
        "0xffff", "-1",
        719, "thread 16: is not in the mask that it names" }
    // A register has some value: the driver does not show whether an instruction gave it.
    { "missed: a register that nobody set", &[], (1, 32),
        "<here>
            add.s32 %r20, %r20, %thread;
            st.global.u32 [%mine], %r20;",
        "", "mov.u32 %r20, 0;",
        0, "" }
    { "a modifier that no instruction has", &[], (1, 32),
        "cvt.rn.f32.u32 %f1, %thread;
            <here>
            st.global.f32 [%mine], %f1;",
        "add.rounded.f32 %f1, %f1, %f1;", "add.rn.f32 %f1, %f1, %f1;",
        218, "line 32: `add.rounded.f32`: the form is not known" }
    { "a sum of 32 bits of registers with 64", &[], (1, 32),
        "<here>
            st.global.u32 [%d1], %thread;",
        "add.u32 %d1, %mine, 0;", "add.u64 %d1, %mine, 0;",
        218, "line 31: `add.u32`: a register of Double where Word belongs" }
    { "a load of 64 bits to a register of 32", &[], (1, 32),
        "<here>
            st.global.u32 [%mine], %r1;",
        "ld.global.u64 %r1, [%from];", "ld.global.u32 %r1, [%from];",
        218, "line 31: `ld.global.u64`: a register of Word where Double belongs" }
    { "a register that nobody declared", &[], (1, 32),
        "add.s32 %r1, %thread, 1;
            st.global.u32 [%mine], <here>;",
        "%s1", "%r1",
        218, "line 32: `st.global.u32`: " }
    { "a branch to a label that is missing", &[], (1, 32),
        "bra <here>;",
        "END", "DONE",
        218, "line 31: label `END` is not there" }
}
