//! Instructions that involve several lanes of a warp or several warps, and have only register and
//! constant operands.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::super::hopper::Hopper;
use super::super::program::{CONSTANT, Op, Reg, Shuffle};
use crate::lanes;

/// Builds an instruction from its operands' registers.
type Make = Box<dyn Fn(&[Reg]) -> Op + Send + Sync>;

/// One form of an instruction, with the classes of its operands as in [`lanes::Form`].
pub(super) struct Form {
    pub(super) classes: Vec<u8>,
    pub(super) make: Make,
}

/// Forms by opcode and outline.
static FORMS: LazyLock<HashMap<String, Form>> = LazyLock::new(|| {
    let mut forms = Forms::default();
    forms.fill();
    forms.0
});

/// The form of an opcode with operands of this outline.
pub(super) fn find(opcode: &str, outline: &str) -> Option<&'static Form> {
    FORMS.get(&format!("{opcode} {outline}"))
}

const SHUFFLES: &[(&str, Shuffle)] = &[
    ("shfl.sync.bfly.b32", Shuffle::Butterfly),
    ("shfl.sync.up.b32", Shuffle::Up),
    ("shfl.sync.down.b32", Shuffle::Down),
    ("shfl.sync.idx.b32", Shuffle::Index),
];

const FRAGMENTS: &str = "{wwww}{wwww}{ww}{wwww}";

#[derive(Default)]
struct Forms(HashMap<String, Form>);

impl Forms {
    /// Adds a form for some opcodes; `operands` has the operands' classes, with the punctuation of
    /// lists and pairs.
    fn add(
        &mut self,
        opcodes: &str,
        operands: &str,
        make: impl Fn(&[Reg]) -> Op + Clone + Send + Sync + 'static,
    ) {
        let (outline, classes) = lanes::outline(operands);
        for opcode in opcodes.split_whitespace() {
            let form = Form { classes: classes.clone(), make: Box::new(make.clone()) };
            self.0.insert(format!("{opcode} {outline}"), form);
        }
    }

    fn fill(&mut self) {
        for &(opcode, how) in SHUFFLES {
            // Without a predicate operand, the destination is a constant, so the predicate is not
            // stored.
            let plain = move |r: &[Reg]| [r[0], CONSTANT, r[1], r[2], r[3], r[4]];
            self.add(opcode, "wwwww", move |r| Op::Shuffle(how, plain(r).into()));
            self.add(opcode, "w|pwwww", move |r| Op::Shuffle(how, list(r).into()));
        }
        self.add("vote.sync.ballot.b32", "wpw", |r| Op::Ballot(list(r)));
        self.add("match.any.sync.b32", "www", |r| Op::Match(list(r)));
        self.add("bar.warp.sync", "w", |r| Op::WarpBarrier(r[0]));
        self.add("ret exit", "", |_| Op::Return);
        let half = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
        self.add(half, FRAGMENTS, |r| Op::Mma(false, list(r).into()));
        let tf32 = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32";
        self.add(tf32, FRAGMENTS, |r| Op::Mma(true, list(r).into()));
        self.add("cp.async.wait_all", "", |_| Op::WaitAllCopies);
        self.add("cp.async.commit_group", "", |_| Op::CommitCopies);
        // The emulator's memory is strongly ordered, so a fence within one proxy has no effect.
        for scope in ["cta", "cluster", "gpu", "sys"] {
            let fences = format!("fence.acq_rel.{scope} fence.sc.{scope}");
            self.add(&fences, "", |_| Op::Nothing);
        }
        self.add("membar.sys membar.gl membar.cta", "", |_| Op::Nothing);
        self.add("fence.proxy.async.global", "", |_| Op::Nothing);
        self.add("griddepcontrol.launch_dependents griddepcontrol.wait", "", |_| Op::Nothing);
        self.add("nanosleep.u32", "w", |_| Op::Nothing);
        let proxy = "fence.proxy.async fence.proxy.async.shared::cta";
        self.add(proxy, "", |_| hopper(Hopper::FenceProxy));
        let barriers = "fence.mbarrier_init.release.cluster";
        self.add(barriers, "", |_| hopper(Hopper::FenceBarriers));
        self.add("wgmma.fence.sync.aligned", "", |_| hopper(Hopper::Fence));
        self.add("wgmma.commit_group.sync.aligned", "", |_| hopper(Hopper::Commit));
        self.add("cp.async.bulk.commit_group", "", |_| hopper(Hopper::BulkCommit));
        self.add("elect.sync", "pw", |r| hopper(Hopper::Elect(None, r[0], r[1])));
        self.add("elect.sync", "w|pw", |r| hopper(Hopper::Elect(Some(r[0]), r[1], r[2])));
        for (base, end) in [
            ("bar", ""),
            ("bar.cta", ""),
            ("barrier", ""),
            ("barrier.cta", ""),
            ("barrier", ".aligned"),
            ("barrier.cta", ".aligned"),
        ] {
            let named =
                |waits| move |r: &[Reg]| hopper(Hopper::Barrier(r[0], r.get(1).copied(), waits));
            self.add(&format!("{base}.sync{end}"), "w", named(true));
            self.add(&format!("{base}.sync{end}"), "ww", named(true));
            self.add(&format!("{base}.arrive{end}"), "ww", named(false));
        }
    }
}

fn hopper(op: Hopper) -> Op {
    Op::Hopper(Box::new(op))
}

/// Converts a list of registers to an array of `N`.
fn list<const N: usize>(registers: &[Reg]) -> [Reg; N] {
    std::array::from_fn(|i| registers[i])
}
