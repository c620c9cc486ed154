//! Mistakes in Hopper kernels: wgmmas in flight, mbarriers, bulk copies.

use crate::kernels::kernels;

/// Computes a 64 x 8 x 16 wgmma of ones, and stores its accumulators.
const WGMMA: &str = "
    setp.ge.u32 %p1, %thread, <who:128>;
    @%p1 bra DONE;
    mov.u32 %r3, 0x3c003c00;
    st.shared.v4.u32 [%row], {%r3, %r3, %r3, %r3};
    st.shared.v4.u32 [%row+4096], {%r3, %r3, %r3, %r3};
    <proxy:fence.proxy.async;>
    bar.sync 0;
    shr.u32 %r1, %tile, 4;
    cvt.u64.u32 %d1, %r1;
    or.b64 %d1, %d1, 0x<base:0>001000080000;
    add.s64 %d2, %d1, <right:256>;
    <each:>
    setp.lt.u32 %p1, %lane, <adds:32>;
    mov.f32 %f0, 0f00000000;
    mov.f32 %f1, %f0;
    mov.f32 %f2, %f0;
    mov.f32 %f3, %f0;
    <begin:wgmma.fence.sync.aligned;>
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3},
        %d1, %d2, %p1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    <meanwhile:>
    wgmma.wait_group.sync.aligned <wait:0>;
    st.global.f32 [%mine], %f0;";

/// Warps load 512 bytes with a bulk copy, and wait for them at an mbarrier.
const BULK: &str = "
    .shared .align 8 .b8 barrier[16];
    mov.u32 %r1, barrier;
    setp.ne.u32 %p1, %thread, 0;
    @%p1 bra INITIALISED;
    mbarrier.init.shared::cta.b64 [<init:%r1>], <count:1>;
    mbarrier.init.shared::cta.b64 [%r1+8], 1;
    <fence:fence.mbarrier_init.release.cluster;>
    INITIALISED:
    <sync:bar.sync 0;>
    @%p1 bra WAIT;
    <before:>
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], <expect:512>;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
        [%tile<near:>], [%from], 512, [%r1];
    <after:>
    WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;
    @!%p2 bra WAIT;
    ld.shared.u32 %r2, [%slot];
    st.global.u32 [%mine], %r2;";

/// A warp stores 512 bytes with a bulk copy.
const STORE: &str = "
    st.shared.v4.u32 [%row], {%thread, %thread, %thread, %thread};
    fence.proxy.async.shared::cta;
    bar.warp.sync -1;
    setp.ne.u32 %p1, %thread, 0;
    @%p1 bra DONE;
    cp.async.bulk.global.shared::cta.bulk_group [%to<at:+16>], [%tile], 512;
    cp.async.bulk.commit_group;
    <meanwhile:>
    <wait:cp.async.bulk.wait_group.read 0;>
    st.shared.u32 [%tile], 7;
    <after:>";

/// A warp stores a tile.
const TILE: &str = "
    st.shared.v4.u32 [%row], {%thread, %thread, %thread, %thread};
    fence.proxy.async.shared::cta;
    bar.warp.sync -1;
    setp.ne.u32 %p1, %thread, 0;
    @%p1 bra DONE;
    mov.u64 %d4, map;
    cvta.param.u64 %d4, %d4;
    mov.u64 %d4, <map:%d4>;
    mov.u32 %r1, 0;
    cp.async.bulk.tensor.<tile:3d.global.shared::cta.bulk_group [%d4, {%r1, %r1, %r1}]>, [%tile];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;";

kernels! {
    [&["DRIVER_GPUS=H100"]]
    { "operands of a wgmma without a fence between the proxies", (1, 128), WGMMA,
        "proxy" = "", 719, "no fence.proxy.async between the writes and this read" }
    { "accumulators that are read before the wait", (1, 128), WGMMA,
        "wait" = "1", 719, "accesses registers of a wgmma in flight" }
    { "accumulators set without a fence before the wgmma", (1, 128), WGMMA,
        "begin" = "", 719, "uses registers that were accessed since the last wgmma.fence" }
    { "accumulators that are operands of the next wgmma", (1, 128), WGMMA,
        "meanwhile" = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%s0, %s1, %s2, %s3},
            {%f0, %f1, %f2, %f3}, %d2, 1, 1, 1, 0;",
        719, "uses registers of another wgmma in flight" }
    { "operands that are overwritten while the wgmma is in flight", (1, 128), WGMMA,
        "meanwhile" = "st.shared.u32 [%row], 0; fence.proxy.async;",
        719, "waits for a wgmma whose operands were overwritten meanwhile" }
    { "a descriptor that exceeds shared memory", (1, 128), WGMMA,
        "right" = "4096", 700, "a descriptor's operand, 16 bytes at 0x10|outside of shared memory" }
    { "a descriptor with a base offset", (1, 128), WGMMA,
        "base" = "2", 719, "a descriptor's base offset is not modelled" }
    { "a wgmma of a warp after the last warpgroup", (1, 160), WGMMA,
        "who" = "160", 719, "is executed by less than a warpgroup" }
    { "lanes with different descriptors", (1, 128), WGMMA,
        "each" = "cvt.u64.u32 %d3, %lane; add.s64 %d1, %d1, %d3;",
        719, "lanes have different descriptors" }
    { "lanes with different scale-d", (1, 128), WGMMA,
        "adds" = "16", 719, "lanes differ in scale-d" }

    { "an uninitialised mbarrier", (1, 32), BULK,
        "init" = "%r1+8", 719, "there is no initialised barrier at 0x4000" }
    { "an mbarrier for 0 arrivals", (1, 32), BULK,
        "count" = "0", 719, "invalid arrival count of a barrier" }
    { "a misaligned mbarrier", (1, 32), BULK,
        "init" = "%r1+4", 716, "a barrier at 0x4004, which is not a multiple of 8" }
    { "an mbarrier beyond the end of shared memory", (1, 32), BULK,
        "init" = "%r1+16", 700, "a barrier, 8 bytes at 0x4010, outside of shared memory" }
    { "an mbarrier without a fence before a copy", (1, 32), BULK,
        "fence" = "", 719, "the barrier's initialisation is not fenced before a bulk copy" }
    { "an mbarrier that another warp may not see yet", (1, 64),
        ".shared .align 8 .b8 barrier[8];
        mov.u32 %r1, barrier;
        mov.u32 %r2, 0;
        setp.eq.u32 %p1, %thread, 0;
        @%p1 mbarrier.init.shared::cta.b64 [%r1], 64;
        <at:bar.sync 0;>
        LATE:
        add.s32 %r2, %r2, 1;
        setp.lt.u32 %p2, %r2, 9999;
        @%p2 bra LATE;
        mbarrier.arrive.shared::cta.b64 _, [%r1];",
        "at" = "", 719, "uses an mbarrier that another warp initialised since the last barrier" }
    { "two arrivals where the barrier waits for one", (1, 32), BULK,
        "before" = "mbarrier.arrive.shared::cta.b64 _, [%r1], 2;",
        719, "more arrivals than the phase of the barrier expects" }
    { "an mbarrier that expects more bytes than arrive", (1, 32), BULK,
        "expect" = "1024", 702, "waits forever: no warp" }
    { "a barrier that expects more than a megabyte", (1, 32), BULK,
        "expect" = "0x100000", 719, "the barrier expects more bytes than it can count" }
    { "an mbarrier that a store overwrites", (1, 32), BULK,
        "before" = "st.shared.u32 [%r1], 0;", 719, "the barrier at 0x4000 was overwritten" }
    { "a bulk copy beyond the end of shared memory", (1, 32), BULK,
        "near" = "+16384", 700, "a bulk copy, 512 bytes at 0x4000, outside of shared memory" }

    { "a misaligned bulk copy", (1, 32), STORE,
        "at" = "+4", 716, "of a bulk copy is not a multiple of 16" }
    { "a block that ends before its copies have read", (1, 32), STORE,
        "wait" = "bra DONE;",
        719, "the block ends while a bulk copy of warp 0 still reads from it" }
    { "shared memory that is overwritten while a copy reads it", (1, 32), STORE,
        "meanwhile" = "st.shared.u32 [%tile], 7;",
        719, "waits for a bulk copy whose source was overwritten meanwhile" }
    { "a tile without a tensor map", (1, 32), TILE,
        "map" = "%from", 719, "there is no tensor map at 0x" }
    { "a tile whose rank differs from its map's", (1, 32), TILE,
        "tile" = "2d.global.shared::cta.bulk_group [%d4, {%r1, %r1}]",
        719, "a tensor map of rank 3" }

    { "a named barrier of more threads than the block has", (1, 64), "bar.sync 1, <at:64>;",
        "at" = "96", 719, "a barrier of 96 threads in a block of 64" }
    { "a named barrier with an invalid number", (1, 64), "bar.sync <at:15>, 64;",
        "at" = "16", 719, "there is no barrier 16" }
    { "warps at a named barrier that count on different threads", (1, 96),
        "setp.lt.u32 %p1, %thread, 32;
        selp.u32 %r1, <at:96>, 96, %p1;
        bar.sync 1, %r1;",
        "at" = "64", 719, "threads, others expect " }
    { "an election with a mask of some lanes", (1, 32), "elect.sync _|%p1, <at:-1>;",
        "at" = "0xffff", 719, "is executed by lanes 0xffffffff, but its mask is 0xffff" }

    [&["DRIVER_GPUS=H100", "DRIVER_SEED=2"]]
    { "an mbarrier that is gone before its bytes arrive", (1, 32), BULK,
        "after" = "mbarrier.inval.shared::cta.b64 [%r1];
            AGAIN:
            mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+8], 0;
            @!%p2 bra AGAIN;",
        719, "a bulk copy ends, but its barrier at 0x4000 no longer exists" }
}
