//! Memory plan: an offset in one arena for every value of a program.
//!
//! Two tensors may share bytes only if, in every order that the schedule allows, the last reader of
//! one runs before the writer of the other.
//!
//! Block placement is dynamic storage allocation, which is NP-hard. So blocks are placed greedily,
//! each at the lowest offset where it fits, in several orders; the order with the smallest arena is
//! used.

use std::cmp::Reverse;
use std::ops::Range;

use device::Target;
use kernels::workspace_bytes;

use crate::schedule::BitSet;
use crate::{Program, Schedule, TensorId, TensorKind};

/// Offsets are multiples of this many bytes, for cache lines and CUDA's vector loads.
pub const ALIGNMENT: usize = 256;

/// The offset of each value and of each node's scratch memory.
#[derive(Debug, Clone)]
pub struct Plan {
    blocks: Vec<Block>,
    arena_bytes: usize,
    values: Vec<Option<usize>>,
    workspaces: Vec<Option<(usize, usize)>>,
}

/// A range of the arena that belongs to one owner for a span of launches.
#[derive(Debug, Clone)]
pub struct Block {
    /// Owner of the block.
    pub owner: Owner,
    /// First byte.
    pub offset: usize,
    /// Length in bytes, unrounded.
    pub bytes: usize,
    /// Positions of the launches that use the block, first the writer.
    users: Vec<usize>,
    kept: bool,
}

/// Owner of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A tensor.
    Tensor(TensorId),
    /// The scratch memory of the node at this launch position.
    Workspace(usize),
}

impl Plan {
    /// Plans the memory of a program for a target.
    pub fn new(program: &Program, schedule: &Schedule, target: &Target) -> Self {
        let mut blocks = collect(program, schedule, target);
        let rivals = rivals(&blocks, schedule);
        let bound = peak_live(&blocks, schedule.launches().len());
        let (mut offsets, mut arena_bytes) = (Vec::new(), usize::MAX);
        for key in ORDERS {
            let placed = place(&blocks, &rivals, key);
            let end = arena_end(&blocks, &placed);
            if end < arena_bytes {
                (offsets, arena_bytes) = (placed, end);
            }
            if arena_bytes == bound {
                break;
            }
        }
        for (block, offset) in blocks.iter_mut().zip(offsets) {
            block.offset = offset;
        }
        let mut values = vec![None; program.tensors().len()];
        let mut workspaces = vec![None; schedule.launches().len()];
        for block in &blocks {
            match block.owner {
                Owner::Tensor(t) => values[t.index()] = Some(block.offset),
                Owner::Workspace(launch) => {
                    workspaces[launch] = Some((block.offset, block.bytes));
                }
            }
        }
        Self { blocks, arena_bytes, values, workspaces }
    }

    /// Bytes of the arena.
    pub fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// Total bytes of all blocks if none shared memory.
    pub fn unshared_bytes(&self) -> usize {
        self.blocks.iter().map(|b| round(b.bytes)).sum()
    }

    /// All blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Offset of a value; `None` for inputs, state, and tensors that no node writes.
    pub fn offset(&self, tensor: TensorId) -> Option<usize> {
        self.values[tensor.index()]
    }

    /// Offset of the scratch memory of a launch.
    pub fn workspace_offset(&self, launch: usize) -> Option<usize> {
        self.workspaces[launch].map(|(offset, _)| offset)
    }

    /// Offset and length in bytes of the scratch memory of a launch.
    pub(crate) fn workspace(&self, launch: usize) -> Option<(usize, usize)> {
        self.workspaces[launch]
    }

    /// Logs the plan.
    pub(crate) fn log(&self, program: &Program, schedule: &Schedule) {
        tracing::debug!(
            nodes = program.nodes().len(),
            streams = schedule.num_streams(),
            waits = schedule.launches().iter().map(|l| l.waits.len()).sum::<usize>(),
            blocks = self.blocks.len(),
            arena_bytes = self.arena_bytes,
            peak_live_bytes = self.peak_live_bytes(schedule),
            unshared_bytes = self.unshared_bytes(),
            "planned a program"
        );
    }

    /// Peak of live bytes in launch order: a lower bound for the arena of any plan.
    pub fn peak_live_bytes(&self, schedule: &Schedule) -> usize {
        peak_live(&self.blocks, schedule.launches().len())
    }
}

impl Block {
    /// Positions at which the block is alive when `launches` launches run in launch order: from its
    /// writer to its last user, or to the end if the block is kept.
    pub fn alive(&self, launches: usize) -> Range<usize> {
        self.users[0]..if self.kept { launches } else { self.last() + 1 }
    }

    /// True if the block and `other` may be live at the same time in an order that the schedule
    /// allows.
    pub fn conflicts(&self, other: &Block, schedule: &Schedule) -> bool {
        !(self.dead_before(other, schedule) || other.dead_before(self, schedule))
    }

    /// [`Block::lifetime`], but unbounded for a kept block, which is read after the last launch.
    fn reach(&self) -> usize {
        if self.kept { usize::MAX } else { self.lifetime() }
    }

    /// Number of launches from the first to the last user, in launch order.
    fn lifetime(&self) -> usize {
        self.last() + 1 - self.users[0]
    }

    /// Position of the last launch that uses the block.
    fn last(&self) -> usize {
        // Users are collected in launch order.
        self.users[self.users.len() - 1]
    }

    fn dead_before(&self, other: &Block, schedule: &Schedule) -> bool {
        let writer = other.users[0];
        // Launch order is one of the allowed orders, so this quick check rejects most pairs. Then
        // the last users are checked first, since they are the most likely to run too late.
        let possible = !self.kept && self.last() < writer;
        possible && self.users.iter().rev().all(|u| schedule.happens_before(*u, writer))
    }
}

fn round(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

fn collect(program: &Program, schedule: &Schedule, target: &Target) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut block_of = vec![None; program.tensors().len()];
    for (position, launch) in schedule.launches().iter().enumerate() {
        let node = &program.nodes()[launch.node.index()];
        for t in node.inputs.iter().filter_map(|t| block_of[t.index()]) {
            let block: &mut Block = &mut blocks[t];
            block.users.push(position);
        }
        let (inputs, outputs) = (program.descs(&node.inputs), program.descs(&node.outputs));
        let bytes = workspace_bytes(target, node.op.as_ref(), &inputs, &outputs);
        if bytes > 0 {
            let owner = Owner::Workspace(position);
            let users = vec![position];
            blocks.push(Block { owner, offset: 0, bytes, users, kept: false });
        }
        for t in &node.outputs {
            debug_assert_eq!(program.tensors()[t.index()].kind, TensorKind::Value);
            block_of[t.index()] = Some(blocks.len());
            blocks.push(Block {
                owner: Owner::Tensor(*t),
                offset: 0,
                bytes: target.bytes(program.desc(*t)),
                users: vec![position],
                kept: program.kept().contains(t),
            });
        }
    }
    blocks
}

/// Peak of live bytes over `launches` launches, in launch order.
fn peak_live(blocks: &[Block], launches: usize) -> usize {
    let mut change = vec![0isize; launches + 1];
    for b in blocks {
        let alive = b.alive(launches);
        change[alive.start] += round(b.bytes) as isize;
        change[alive.end] -= round(b.bytes) as isize;
    }
    let mut live = 0;
    change.iter().fold(0, |peak, c| {
        live += c;
        peak.max(live as usize)
    })
}

/// Per block, the set of blocks that may be live at the same time. Empty blocks conflict with no
/// block.
fn rivals(blocks: &[Block], schedule: &Schedule) -> Vec<BitSet> {
    let mut rivals = vec![BitSet::new(blocks.len()); blocks.len()];
    for (i, a) in blocks.iter().enumerate().filter(|(_, b)| b.bytes > 0) {
        for (j, b) in blocks[..i].iter().enumerate().filter(|(_, b)| b.bytes > 0) {
            if a.conflicts(b, schedule) {
                rivals[i].insert(j);
                rivals[j].insert(i);
            }
        }
    }
    rivals
}

/// Sort key of a placement order; the block with the smallest key is placed first.
type OrderKey = fn(&Block) -> Reverse<(usize, usize)>;

/// Each of these orders is the best for some programs: largest blocks first, since they have the
/// fewest possible offsets; largest product of size and lifetime first; longest-lived blocks first,
/// at the lowest offsets; earliest blocks first.
const ORDERS: [OrderKey; 4] = [
    |b| Reverse((b.bytes, b.reach())),
    |b| Reverse((b.bytes.saturating_mul(b.reach()), b.bytes)),
    |b| Reverse((b.reach(), b.bytes)),
    |b| Reverse((usize::MAX - b.users[0], b.bytes)),
];

/// Offsets of all blocks, placed in the order of `key`, each at the lowest offset at which it
/// overlaps no rival that is already placed.
fn place(blocks: &[Block], rivals: &[BitSet], key: OrderKey) -> Vec<usize> {
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|&i| (key(&blocks[i]), i));
    let mut offsets = vec![0; blocks.len()];
    // Placed blocks sorted by offset, so that a single pass finds the lowest gap.
    let mut placed: Vec<usize> = Vec::with_capacity(blocks.len());
    for i in order {
        let need = round(blocks[i].bytes);
        let mut offset = 0;
        for &p in placed.iter().filter(|p| rivals[i].contains(**p)) {
            if offset + need <= offsets[p] {
                break;
            }
            offset = offset.max(offsets[p] + round(blocks[p].bytes));
        }
        offsets[i] = offset;
        let at = placed.partition_point(|&p| offsets[p] <= offset);
        placed.insert(at, i);
    }
    offsets
}

fn arena_end(blocks: &[Block], offsets: &[usize]) -> usize {
    blocks.iter().zip(offsets).map(|(b, offset)| offset + round(b.bytes)).max().unwrap_or(0)
}
