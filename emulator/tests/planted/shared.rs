//! Mistakes of kernels with shared memory: barriers, copies behind the warp's back, and bounds.

use crate::kernels::kernels;

kernels! {
    { "a reduction without a barrier between its warps", &[], (1, 64),
        "st.shared.u32 [%slot], %thread;
            <here>
            setp.ge.u32 %p1, %thread, 32;
            @%p1 bra DONE;
            ld.shared.u32 %r1, [%slot];
            ld.shared.u32 %r2, [%slot+128];
            add.s32 %r1, %r1, %r2;
            st.global.u32 [%mine], %r1;",
        "", "bar.sync 0;",
        719, "touches shared bytes that another warp wrote since the last barrier" }
    { "a double buffer without the barrier behind its use", &[], (1, 64),
        DOUBLE_BUFFER,
        "", "bar.sync 0;",
        719, "touches shared bytes that " }
    { "a wait that leaves the tile in flight that is read", &[], (1, 32),
        "cp.async.cg.shared.global [%row], [%items], 16;
            cp.async.commit_group;
            cp.async.cg.shared.global [%row+1024], [%items+1024], 16;
            cp.async.commit_group;
            cp.async.wait_group <here>;
            ld.shared.u32 %r1, [%row+1024];
            st.global.u32 [%mine], %r1;",
        "1", "0",
        719, "shared bytes that a cp.async still brings, at 0x400" }
    { "a barrier instead of the wait for a copy", &[], (1, 64),
        "cp.async.cg.shared.global [%row], [%items], 16;
            cp.async.commit_group;
            <here>
            bar.sync 0;
            ld.shared.u32 %r1, [%row];
            st.global.u32 [%mine], %r1;",
        "", "cp.async.wait_group 0;",
        719, "touches shared bytes that a cp.async still brings" }
    { "a wait for a copy that was not committed", &[], (1, 64),
        "cp.async.cg.shared.global [%row], [%items], 16;
            <here>
            cp.async.wait_group 0;
            bar.sync 0;
            ld.shared.u32 %r1, [%row];
            st.global.u32 [%mine], %r1;",
        "", "cp.async.commit_group;",
        719, "touches shared bytes that a cp.async still brings" }
    { "a thread that ends before its copy has come", &[], (1, 64),
        "cp.async.cg.shared.global [%row], [%items], 16;
            cp.async.commit_group;
            st.global.u32 [%mine], %thread;
            <here>",
        "", "cp.async.wait_group 0;",
        719, "ends before a cp.async of its own has come" }
    { "a wait for copies, and no barrier before another warp's", &[], (1, 64),
        "cp.async.cg.shared.global [%row], [%items], 16;
            cp.async.commit_group;
            cp.async.wait_group 0;
            <here>
            xor.b32 %r1, %thread, 32;
            mad.lo.s32 %r1, %r1, 16, %tile;
            ld.shared.u32 %r1, [%r1];
            st.global.u32 [%mine], %r1;",
        "", "bar.sync 0;",
        719, "thread 32: reads shared bytes that nobody wrote" }
    { "a read beyond the end of shared memory", &[], (1, 128),
        "st.shared.u32 [%slot], %thread;
            st.shared.u32 [%slot+1536], %thread;
            bar.sync 0;
            ld.shared.u32 %r1, [%slot+<here>];
            st.global.u32 [%mine], %r1;",
        "1540", "1536",
        700, "thread 127: 4 bytes at 0x800 are outside of shared memory (2048 bytes)" }
    { "shared memory that half of the warps wrote", &[], (1, 64),
        "setp.lt.u32 %p1, %thread, <here>;
            @%p1 st.shared.u32 [%slot], %thread;
            bar.sync 0;
            ld.shared.u32 %r1, [%slot];
            st.global.u32 [%mine], %r1;",
        "32", "64",
        719, "thread 32: reads shared bytes that nobody wrote" }
    { "a barrier in the branch of some lanes", &[], (1, 64),
        "setp.lt.u32 %p1, %lane, 16;
            @%p1 bra BEHIND;
            <here>
            BEHIND:
            bar.sync 0;
            st.global.u32 [%mine], %thread;",
        "bar.sync 0;", "",
        719, "is met by lanes 0xffff" }
    { "a matrix loaded from a row that is not aligned", &[], (1, 32),
        "st.shared.v4.u32 [%row], {%thread, %thread, %thread, %thread};
            bar.sync 0;
            mad.lo.s32 %r1, %lane, <here>, %tile;
            ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];
            st.global.u32 [%mine], %r2;",
        "8", "16",
        716, "thread 1: the row's address 0x8 is no multiple of 16" }
    { "a matrix loaded by half of the warp", &[], (1, 32),
        "st.shared.v4.u32 [%row], {%thread, %thread, %thread, %thread};
            bar.sync 0;
            mov.u32 %r2, 0;
            setp.ge.u32 %p1, %lane, <here>;
            @%p1 bra BEHIND;
            ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%row];
            BEHIND:
            st.global.u32 [%mine], %r2;",
        "16", "32",
        719, "is met by lanes 0xffff of 0xffffffff" }
    // A GPU counts only lanes that have not ended. PTX wants all of the warp, as here.
    { "stricter than a GPU: lanes that end before a barrier", &[], (1, 64),
        ENDED,
        "40", "32",
        719, "is met by lanes 0xff of 0xffffffff" }
    // A limit that the documentation names: lanes of a warp go in step.
    { "missed: lanes of one warp that write one number", &["DRIVER_CHECKS=races"], (1, 32),
        "st.shared.u32 [<here>], %thread;
            bar.warp.sync -1;
            ld.shared.u32 %r1, [<here>];
            st.global.u32 [%mine], %r1;",
        "%tile", "%slot",
        0, "" }
}

/// Four tiles of 64 rows, each brought while the one before is used.
const DOUBLE_BUFFER: &str = "
    mov.u32 %r1, 0;
    mov.u32 %r2, 0;
    cp.async.cg.shared.global [%row], [%items], 16;
    cp.async.commit_group;
NEXT:
    add.s32 %r3, %r1, 1;
    and.b32 %r4, %r3, 1;
    mad.lo.s32 %r4, %r4, 1024, %row;
    and.b32 %r5, %r3, 3;
    mul.wide.u32 %d1, %r5, 1024;
    add.s64 %d1, %items, %d1;
    cp.async.cg.shared.global [%r4], [%d1], 16;
    cp.async.commit_group;
    cp.async.wait_group 1;
    bar.sync 0;
    and.b32 %r4, %r1, 1;
    mad.lo.s32 %r4, %r4, 1024, %tile;
    xor.b32 %r5, %thread, 63;
    mad.lo.s32 %r4, %r5, 16, %r4;
    ld.shared.u32 %r5, [%r4];
    add.s32 %r2, %r2, %r5;
    <here>
    mov.u32 %r1, %r3;
    setp.lt.u32 %p1, %r1, 4;
    @%p1 bra NEXT;
    cp.async.wait_group 0;
    st.global.u32 [%mine], %r2;";

/// A barrier behind the end of some threads: of a whole warp, this is no mistake.
const ENDED: &str = "
    setp.ge.u32 %p1, %thread, <here>;
    @%p1 bra DONE;
    bar.sync 0;
    st.global.u32 [%mine], %thread;";
