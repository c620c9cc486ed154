//! Instructions whose operands are registers and constants: their forms, as tables.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::super::hopper::Hopper;
use super::super::program::{
    CONSTANT, Carry, Compare, Compared, Convert, Float, FloatUnary, Int, Op, Reg, Round, Shift,
    Shuffle, Unary,
};

/// Makes an instruction of its registers.
type Make = Box<dyn Fn(&[Reg]) -> Op + Send + Sync>;

/// One form of an instruction.
pub(super) struct Form {
    /// The class of each operand: `w` and `d` are of 32 and 64 bits, `h` of 16 in a register of 32,
    /// `p` is a predicate.
    pub(super) classes: Vec<u8>,
    pub(super) make: Make,
}

/// Forms by opcode and outline: the operands as `x`, with the signs between them.
static FORMS: LazyLock<HashMap<String, Form>> = LazyLock::new(|| {
    let mut forms = Forms::default();
    forms.integers();
    forms.floats();
    forms.comparisons();
    forms.moves();
    forms.warps();
    forms.0
});

/// The form of an opcode with operands of this outline.
pub(super) fn find(opcode: &str, outline: &str) -> Option<&'static Form> {
    FORMS.get(&format!("{opcode} {outline}"))
}

/// By opcodes of 32 and of 64 bits.
const INT: &[(&str, &str, Int)] = &[
    ("add.s32 add.u32", "add.s64 add.u64", Int::Add),
    ("sub.s32 sub.u32", "sub.s64 sub.u64", Int::Sub),
    ("mul.lo.s32 mul.lo.u32", "mul.lo.s64 mul.lo.u64", Int::Mul),
    ("mul.hi.s32", "mul.hi.s64", Int::MulHighSigned),
    ("mul.hi.u32", "mul.hi.u64", Int::MulHigh),
    ("div.s32", "div.s64", Int::DivSigned),
    ("div.u32", "div.u64", Int::Div),
    ("rem.s32", "rem.s64", Int::RemSigned),
    ("rem.u32", "rem.u64", Int::Rem),
    ("min.s32", "min.s64", Int::MinSigned),
    ("min.u32", "min.u64", Int::Min),
    ("max.s32", "max.s64", Int::MaxSigned),
    ("max.u32", "max.u64", Int::Max),
    ("and.b32", "and.b64", Int::And),
    ("or.b32", "or.b64", Int::Or),
    ("xor.b32", "xor.b64", Int::Xor),
];

/// The same of bits and of predicates.
const BITS: &[(&str, &str, Int)] = &[
    ("and.b16", "and.pred", Int::And),
    ("or.b16", "or.pred", Int::Or),
    ("xor.b16", "xor.pred", Int::Xor),
];

const SHIFTS: &[(&str, &str, Shift)] = &[
    ("shl.b32", "shl.b64", Shift::Left),
    ("shr.u32 shr.b32", "shr.u64 shr.b64", Shift::Right),
    ("shr.s32", "shr.s64", Shift::RightSigned),
];

const UNARY: &[(&str, &str, Unary)] = &[
    ("not.b32", "not.b64", Unary::Not),
    ("not.b16", "", Unary::NotHalf),
    ("neg.s32", "neg.s64", Unary::Neg),
    ("neg.s16", "", Unary::NegHalf),
    ("abs.s32", "abs.s64", Unary::Abs),
    ("popc.b32", "", Unary::Popc),
    ("clz.b32", "", Unary::Clz),
    ("brev.b32", "", Unary::Brev),
    ("bfind.shiftamt.u32", "", Unary::LeadingShift),
];

/// Arithmetic with the carry flag: whether it reads and writes it. A sum ignores its last operand.
const CARRIES: &[(&str, &str, Carry, bool, bool)] = &[
    ("add.cc.u32", "www", Carry::Add, false, true),
    ("addc.u32", "www", Carry::Add, true, false),
    ("addc.cc.u32", "www", Carry::Add, true, true),
    ("sub.cc.u32", "www", Carry::Sub, false, true),
    ("subc.u32", "www", Carry::Sub, true, false),
    ("subc.cc.u32", "www", Carry::Sub, true, true),
    ("mad.lo.cc.u32", "wwww", Carry::MadLow, false, true),
    ("madc.lo.cc.u32", "wwww", Carry::MadLow, true, true),
    ("madc.hi.u32", "wwww", Carry::MadHigh, true, false),
    ("madc.hi.cc.u32", "wwww", Carry::MadHigh, true, true),
];

const FLOAT: &[(&str, &str, Float)] = &[
    ("add.rn.f32 add.f32", "add.rn.f64 add.f64", Float::Add),
    ("sub.rn.f32 sub.f32", "sub.rn.f64 sub.f64", Float::Sub),
    ("mul.rn.f32 mul.f32", "mul.rn.f64 mul.f64", Float::Mul),
    ("div.rn.f32", "div.rn.f64", Float::Div),
    ("min.f32", "min.f64", Float::Min),
    ("max.f32", "max.f64", Float::Max),
    ("add.rz.f32", "", Float::AddToZero),
];

const FLOAT_UNARY: &[(&str, &str, FloatUnary)] = &[
    ("neg.f32", "neg.f64", FloatUnary::Neg),
    ("abs.f32", "abs.f64", FloatUnary::Abs),
    ("sqrt.rn.f32", "sqrt.rn.f64", FloatUnary::Sqrt),
    ("rcp.rn.f32", "rcp.rn.f64", FloatUnary::Reciprocal),
    ("ex2.approx.ftz.f32", "", FloatUnary::Exp2),
];

const COMPARE: &[(&str, Compare)] = &[
    ("eq", Compare::Eq),
    ("ne", Compare::Ne),
    ("lt", Compare::Lt),
    ("le", Compare::Le),
    ("gt", Compare::Gt),
    ("ge", Compare::Ge),
    ("equ", Compare::Equ),
    ("neu", Compare::Neu),
    ("ltu", Compare::Ltu),
    ("leu", Compare::Leu),
    ("gtu", Compare::Gtu),
    ("geu", Compare::Geu),
    ("num", Compare::Num),
    ("nan", Compare::Nan),
];
/// Comparisons before this one are of integers, too.
const UNORDERED: usize = 6;

const COMPARED: &[(&str, &str, Compared)] = &[
    ("f32", "pww", Compared::F32),
    ("f64", "pdd", Compared::F64),
    ("s32", "pww", Compared::S32),
    ("u32", "pww", Compared::U32),
    ("b32", "pww", Compared::U32),
    ("s64", "pdd", Compared::S64),
    ("u64", "pdd", Compared::U64),
    ("b64", "pdd", Compared::U64),
    ("s16", "phh", Compared::S16),
    ("u16", "phh", Compared::U32),
    ("b16", "phh", Compared::U32),
];
/// Kinds before this one are floats.
const INTEGERS: usize = 2;

/// Conversions by the rest of their opcode; of a register of 64 bits, `s64.s32` takes the low half.
const CONVERT: &[(&str, &str, Convert)] = &[
    ("s64.s32", "dw", Convert::S32S64),
    ("s64.low", "dd", Convert::LowS64),
    ("u64.u32", "dw", Convert::U32U64),
    ("u64.u16", "dw", Convert::U16U64),
    ("u32.u64", "wd", Convert::U64U32),
    ("u16.u64", "wd", Convert::U64U16),
    ("u32.u16", "ww", Convert::U32U16),
    ("u16.u32", "ww", Convert::U32U16),
    ("s32.s8", "ww", Convert::S32S8),
    ("f32.f16", "ww", Convert::F16F32),
    ("rn.f16.f32", "ww", Convert::F32F16),
    ("rna.tf32.f32", "ww", Convert::F32Tf32),
    ("f64.f32", "dw", Convert::F32F64),
    ("rn.f32.f64", "wd", Convert::F64F32),
    ("sat.f32.f32", "ww", Convert::F32Sat),
    ("rpi.f32.f32", "ww", Convert::F32Integral(Round::Up)),
    ("rmi.f32.f32", "ww", Convert::F32Integral(Round::Down)),
    ("rpi.f64.f64", "dd", Convert::F64Integral(Round::Up)),
    ("rn.f32.s32", "ww", Convert::S32F32),
    ("rn.f32.u32", "ww", Convert::U32F32),
    ("rn.f32.u16", "ww", Convert::U16F32),
    ("rzi.s32.f32", "ww", Convert::F32S32(Round::Zero)),
    ("rni.s32.f32", "ww", Convert::F32S32(Round::Nearest)),
    ("rzi.u32.f32", "ww", Convert::F32U32(Round::Zero)),
    ("rn.f64.s32", "dw", Convert::S32F64),
    ("rn.f64.u32", "dw", Convert::U32F64),
    ("rn.f64.s64", "dd", Convert::S64F64),
    ("rn.f64.u64", "dd", Convert::U64F64),
    ("rzi.s32.f64", "wd", Convert::F64S32(Round::Zero)),
    ("rni.s32.f64", "wd", Convert::F64S32(Round::Nearest)),
    ("rzi.s64.f64", "dd", Convert::F64S64(Round::Zero)),
];

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
    /// Adds a form of some opcodes: each operand by its class, with signs of lists and pairs.
    fn add(
        &mut self,
        opcodes: &str,
        operands: &str,
        make: impl Fn(&[Reg]) -> Op + Clone + Send + Sync + 'static,
    ) {
        let is_class = |c: &char| c.is_ascii_lowercase();
        let outline: String =
            operands.chars().map(|c| if is_class(&c) { 'x' } else { c }).collect();
        for opcode in opcodes.split_whitespace() {
            let classes = operands.bytes().filter(u8::is_ascii_lowercase).collect();
            let form = Form { classes, make: Box::new(make.clone()) };
            self.0.insert(format!("{opcode} {outline}"), form);
        }
    }

    fn integers(&mut self) {
        for &(words, doubles, op) in INT {
            self.add(words, "www", move |r| Op::Int32(op, r[0], r[1], r[2]));
            self.add(doubles, "ddd", move |r| Op::Int64(op, r[0], r[1], r[2]));
        }
        for &(halves, predicates, op) in BITS {
            self.add(halves, "whh", move |r| Op::Int32(op, r[0], r[1], r[2]));
            self.add(predicates, "ppp", move |r| Op::Predicate(op, r[0], r[1], r[2]));
        }
        for &(words, doubles, op) in SHIFTS {
            self.add(words, "www", move |r| Op::Shift32(op, r[0], r[1], r[2]));
            self.add(doubles, "ddw", move |r| Op::Shift64(op, r[0], r[1], r[2]));
        }
        for &(words, doubles, op) in UNARY {
            self.add(words, "ww", move |r| Op::Unary32(op, r[0], r[1]));
            self.add(doubles, "dd", move |r| Op::Unary64(op, r[0], r[1]));
        }
        for &(opcode, operands, op, reads, writes) in CARRIES {
            let make =
                move |r: &[Reg]| Op::Carry(op, reads, writes, [r[0], r[1], r[2], r[r.len() - 1]]);
            self.add(opcode, operands, make);
        }
        self.add("popc.b64", "wd", |r| Op::Count64(Unary::Popc, r[0], r[1]));
        self.add("clz.b64", "wd", |r| Op::Count64(Unary::Clz, r[0], r[1]));
        self.add("mul.wide.s32", "dww", |r| Op::Wide(true, r[0], r[1], r[2]));
        self.add("mul.wide.u32", "dww", |r| Op::Wide(false, r[0], r[1], r[2]));
        // Registers hold 16 bits with zeros above.
        self.add("mul.wide.u16", "whh", |r| Op::Int32(Int::Mul, r[0], r[1], r[2]));
        self.add("mad.lo.s32 mad.lo.u32", "wwww", |r| Op::Mad32(r[0], r[1], r[2], r[3]));
        self.add("mad.lo.s64 mad.lo.u64", "dddd", |r| Op::Mad64(r[0], r[1], r[2], r[3]));
        self.add("prmt.b32", "wwww", |r| Op::Permute(list(r)));
        self.add("shf.l.wrap.b32", "wwww", |r| Op::FunnelLeftWrap(list(r)));
        self.add("bfi.b32", "wwwww", |r| Op::InsertBits32(list(r)));
        self.add("bfi.b64", "dddww", |r| Op::InsertBits64(list(r)));
    }

    fn floats(&mut self) {
        for &(words, doubles, op) in FLOAT {
            self.add(words, "www", move |r| Op::Float32(op, r[0], r[1], r[2]));
            self.add(doubles, "ddd", move |r| Op::Float64(op, r[0], r[1], r[2]));
        }
        for &(words, doubles, op) in FLOAT_UNARY {
            self.add(words, "ww", move |r| Op::FloatUnary32(op, r[0], r[1]));
            self.add(doubles, "dd", move |r| Op::FloatUnary64(op, r[0], r[1]));
        }
        self.add("fma.rn.f32", "wwww", |r| Op::Fma32(Round::Nearest, list(r)));
        self.add("fma.rm.f32", "wwww", |r| Op::Fma32(Round::Down, list(r)));
        self.add("fma.rn.f64", "dddd", |r| Op::Fma64(list(r)));
    }

    fn comparisons(&mut self) {
        for (kind, (name, operands, compared)) in COMPARED.iter().enumerate() {
            let count = if kind < INTEGERS { COMPARE.len() } else { UNORDERED };
            for &(how, compare) in &COMPARE[..count] {
                let make = move |r: &[Reg]| Op::Set(compare, *compared, r[0], r[1], r[2]);
                self.add(&format!("setp.{how}.{name}"), operands, make);
            }
        }
    }

    fn moves(&mut self) {
        for &(form, operands, convert) in CONVERT {
            let make = move |r: &[Reg]| Op::Convert(convert, r[0], r[1]);
            self.add(&format!("cvt.{form}"), operands, make);
        }
        let select = |r: &[Reg]| Op::Select32(r[0], r[1], r[2], r[3]);
        self.add("selp.b32 selp.u32 selp.s32 selp.f32", "wwwp", select);
        self.add("selp.b16 selp.u16 selp.s16", "whhp", select);
        let select = |r: &[Reg]| Op::Select64(r[0], r[1], r[2], r[3]);
        self.add("selp.b64 selp.u64 selp.s64 selp.f64", "dddp", select);
        self.add("not.pred", "pp", |r| Op::NotPredicate(r[0], r[1]));
        self.add("mov.pred", "pp", |r| Op::MovePredicate(r[0], r[1]));
        self.add("mov.u16 mov.b16 mov.s16", "wh", |r| Op::Move32(r[0], r[1]));
        self.add("mov.u32 mov.s32 mov.b32 mov.f32", "ww", |r| Op::Move32(r[0], r[1]));
        self.add("mov.u64 mov.s64 mov.b64 mov.f64", "dd", |r| Op::Move64(r[0], r[1]));
        self.add("mov.b32", "w{hh}", |r| Op::Pack32(r[0], r[1], r[2]));
        self.add("mov.b32", "{ww}w", |r| Op::Unpack32(r[0], r[1], r[2]));
        self.add("mov.b64", "d{ww}", |r| Op::Pack64(r[0], r[1], r[2]));
        self.add("mov.b64", "{ww}d", |r| Op::Unpack64(r[0], r[1], r[2]));
        self.add("cvt.rn.f16x2.f32", "www", |r| Op::PackHalves(r[0], r[1], r[2]));
    }

    /// Lanes of a warp, or warps of a block, together.
    fn warps(&mut self) {
        for &(opcode, how) in SHUFFLES {
            // Without a predicate, the constant false stands for one that nobody reads.
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
        // There is no weak memory here: a fence that orders memory of one proxy does nothing.
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

/// Registers as the list that an instruction holds.
fn list<const N: usize>(registers: &[Reg]) -> [Reg; N] {
    std::array::from_fn(|i| registers[i])
}
