//! Mistakes of kernels for Hopper: products in flight, barriers in memory, bulk copies.

use std::ptr;

use crate::cuda::{alloc, close, cuTensorMapEncodeTiled, open};
use crate::kernels::kernels;
use crate::{Plant, Program};

/// A product of ones, 64 x 8 x 16, whose sums are stored. Each named piece is put in its place.
macro_rules! product {
    ($fence:literal, $begin:literal, $right:literal, $meanwhile:literal, $wait:literal) => {
        concat!(
            ".shared .align 1024 .b8 wide[4096];
            .reg .f32 %x<4>;
            mov.u32 %r1, wide;
            mad.lo.s32 %r2, %thread, 16, %r1;
            mov.u32 %r3, 0x3c003c00;
            st.shared.v4.u32 [%r2], {%r3, %r3, %r3, %r3};
            st.shared.v4.u32 [%r2+2048], {%r3, %r3, %r3, %r3};",
            $fence,
            "bar.sync 0;
            shr.u32 %r1, %r1, 4;
            cvt.u64.u32 %d1, %r1;
            or.b64 %d1, %d1, 0x1000080000;
            add.s64 %d2, %d1, ",
            $right,
            ";
            mov.f32 %x0, 0f00000000;
            mov.f32 %x1, %x0;
            mov.f32 %x2, %x0;
            mov.f32 %x3, %x0;",
            $begin,
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%x0, %x1, %x2, %x3},
                %d1, %d2, 1, 1, 1, 0, 0;
            wgmma.commit_group.sync.aligned;",
            $meanwhile,
            "wgmma.wait_group.sync.aligned ",
            $wait,
            ";
            st.global.f32 [%mine], %x0;"
        )
    };
}

/// A warp brings 512 bytes by a bulk copy, and waits for them at a barrier in memory.
macro_rules! bulk {
    ($init:literal, $fence:literal, $expect:literal, $wait:literal) => {
        concat!(
            ".shared .align 8 .b8 barrier[8];
            mov.u32 %r1, barrier;
            setp.ne.u32 %p1, %thread, 0;
            @%p1 bra INITIALISED;",
            $init,
            $fence,
            "INITIALISED:
            bar.sync 0;
            @%p1 bra BEGUN;
            mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], ",
            $expect,
            ";
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
                [%tile], [%from], 512, [%r1];
            BEGUN:",
            $wait,
            "ld.shared.u32 %r2, [%slot];
            st.global.u32 [%mine], %r2;"
        )
    };
}

/// A warp stores 512 bytes by a bulk copy.
macro_rules! store {
    ($address:literal, $wait:literal, $after:literal) => {
        concat!(
            "st.shared.v4.u32 [%row], {%thread, %thread, %thread, %thread};
            fence.proxy.async.shared::cta;
            bar.warp.sync -1;
            setp.ne.u32 %p1, %thread, 0;
            @%p1 bra DONE;
            cp.async.bulk.global.shared::cta.bulk_group [%to",
            $address,
            "], [%tile], 512;
            cp.async.bulk.commit_group;",
            $wait,
            $after
        )
    };
}

const ON_H100: &[&str] = &["DRIVER_GPUS=H100"];

kernels! {
    { "factors of a product without a fence between the proxies", ON_H100, (1, 128),
        product!("<here>", "wgmma.fence.sync.aligned;", "128", "", "0"),
        "", "fence.proxy.async.shared::cta;",
        719, "no fence.proxy.async stands between the writes and this read" }
    { "sums that are read before the wait for them", ON_H100, (1, 128),
        product!("fence.proxy.async;", "wgmma.fence.sync.aligned;", "128", "", "<here>"),
        "1", "0",
        719, "`st.global.f32`, block [0, 0, 0], thread " }
    { "sums that are set, and no fence before the product", ON_H100, (1, 128),
        product!("fence.proxy.async;", "<here>", "128", "", "0"),
        "", "wgmma.fence.sync.aligned;",
        719, "uses registers that were touched since the last wgmma.fence" }
    { "sums that are changed while the product is in flight", ON_H100, (1, 128),
        product!("fence.proxy.async;", "wgmma.fence.sync.aligned;", "128", "<here>", "0"),
        "mov.f32 %x3, 0f00000000;", "mov.f32 %f3, 0f00000000;",
        719, "touches registers of a product that is in flight" }
    { "factors that are overwritten while the product is in flight", ON_H100, (1, 128),
        product!("fence.proxy.async;", "wgmma.fence.sync.aligned;", "128", "<here>", "0"),
        "st.shared.u32 [%r2], 0; fence.proxy.async;", "",
        719, "waits for a product whose factors were written meanwhile" }
    { "a descriptor that leads beyond shared memory", ON_H100, (1, 128),
        product!("fence.proxy.async;", "wgmma.fence.sync.aligned;", "<here>", "", "0"),
        "4096", "128",
        700, "a descriptor leads to 0x10" }
    { "a product of the wrong half of shared memory", ON_H100, (1, 128),
        product!("fence.proxy.async;", "wgmma.fence.sync.aligned;", "<here>", "", "0"),
        "256", "128",
        700, "outside of shared memory" }
    { "a barrier in memory that nobody initialised", ON_H100, (1, 32),
        bulk!("<here>", "fence.mbarrier_init.release.cluster;", "512",
            "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra WAIT;"),
        "", "mbarrier.init.shared::cta.b64 [%r1], 1;",
        719, "there is no initialised barrier at 0x800" }
    { "a barrier in memory without its fence before a copy", ON_H100, (1, 32),
        bulk!("mbarrier.init.shared::cta.b64 [%r1], 1;", "<here>", "512",
            "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra WAIT;"),
        "", "fence.mbarrier_init.release.cluster;",
        719, "the barrier's initialisation has no fence before a bulk copy" }
    { "a barrier that expects more bytes than come", ON_H100, (1, 32),
        bulk!("mbarrier.init.shared::cta.b64 [%r1], 1;", "fence.proxy.async;", "<here>",
            "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra WAIT;"),
        "1024", "512",
        702, "waits for what never comes" }
    { "a barrier that waits for two arrivals of which one comes", ON_H100, (1, 32),
        bulk!("mbarrier.init.shared::cta.b64 [%r1], <here>;", "fence.proxy.async;", "512",
            "WAIT: mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra WAIT;"),
        "2", "1",
        702, "waits for what never comes" }
    { "bytes of a bulk copy that nobody waited for", ON_H100, (7, 32),
        bulk!("mbarrier.init.shared::cta.b64 [%r1], 1;", "fence.proxy.async;", "512", "<here>"),
        "", "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra WAIT;",
        719, "touches shared bytes that a cp.async still brings" }
    { "a barrier in memory that a store overwrites", ON_H100, (1, 32),
        bulk!("mbarrier.init.shared::cta.b64 [%r1], 1;", "fence.proxy.async;", "512",
            "bar.warp.sync -1; <here>
            WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra WAIT;"),
        "st.shared.u32 [%r1], 0;", "",
        719, "the barrier at 0x800 was overwritten" }
    { "a bulk copy to an address for numbers", ON_H100, (1, 32),
        store!("<here>", "cp.async.bulk.wait_group 0;", ""),
        "+4", "+16",
        716, "of a bulk copy is no multiple of 16" }
    { "a block that ends before its copies have read", ON_H100, (1, 32),
        store!("", "<here>", ""),
        "", "cp.async.bulk.wait_group.read 0;",
        719, "the block ends, and a bulk copy of warp 0 still reads from it" }
    { "shared memory that is overwritten while a copy reads it", ON_H100, (1, 32),
        store!("", "<here>", "cp.async.bulk.wait_group 0; st.shared.u32 [%tile], 7;"),
        "st.shared.u32 [%tile], 7;", "",
        719, "waits for a bulk copy whose shared bytes were written meanwhile" }
    { "a named barrier that one of two warps comes to", ON_H100, (1, 64),
        "setp.ge.u32 %p1, %thread, <here>;
            @%p1 bra DONE;
            bar.sync 1, 64;
            st.global.u32 [%mine], %thread;",
        "32", "64",
        702, "waits for what never comes" }
    { "a named barrier of more threads than the block has", ON_H100, (1, 64),
        "bar.sync 1, <here>;
            st.global.u32 [%mine], %thread;",
        "96", "64",
        719, "a barrier of 96 threads in a block of 64" }
    { "a count of registers that the instruction does not take", ON_H100, (1, 128),
        "setmaxnreg.dec.sync.aligned.u32 <here>;
            st.global.u32 [%mine], %thread;",
        "60", "40",
        218, "line 31: `setmaxnreg.dec.sync.aligned.u32`" }
}

/// Encodes the map of a tensor of halves, 64 x 16, in tiles of so many elements and a swizzle.
fn encode(stride: u64, line: u32, swizzle: i32) -> i32 {
    let stream = open();
    let tensor = alloc(1 << 12);
    let mut map = Map([0; 16]);
    let (extents, strides, tile, steps) = ([64u64, 16], [stride], [line, 8], [1u32, 1]);
    let code = cuTensorMapEncodeTiled(
        &mut map.0,
        6,
        2,
        ptr::without_provenance(tensor as usize),
        extents.as_ptr(),
        strides.as_ptr(),
        tile.as_ptr(),
        steps.as_ptr(),
        0,
        swizzle,
        0,
        0,
    );
    close(stream, &[tensor]);
    code
}

#[repr(align(64))]
struct Map([u64; 16]);

const fn calls(name: &'static str, calls: fn(bool) -> i32, says: &'static str) -> Plant {
    Plant { name, variables: ON_H100, program: Program::Calls(calls), code: 1, says }
}

pub(crate) const MAPS: &[Plant] = &[
    calls(
        "a tensor's rows that are no multiple of 16 bytes",
        |is_wrong| encode(if is_wrong { 136 } else { 128 }, 64, 3),
        "a stride of 136 bytes, where 128 are needed",
    ),
    calls(
        "a tile's line that is longer than its swizzle",
        |is_wrong| encode(128, if is_wrong { 64 } else { 32 }, 2),
        "a tile's line of 128 bytes in a swizzle of 64",
    ),
    calls(
        "a tile's line of some bytes only",
        |is_wrong| encode(128, if is_wrong { 4 } else { 8 }, 0),
        "a tile's line of 8 bytes, no multiple of 16",
    ),
];
