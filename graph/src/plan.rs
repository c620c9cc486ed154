//! Memory plan: an offset in one arena for every value of a program.
//!
//! Two tensors may share bytes only if the last user of the one happens before the writer of the
//! other in every order that the schedule allows.

use kernels::TensorDesc;

use crate::{Program, Schedule, TensorId, TensorKind};

/// Offsets are multiples of this many bytes: a cache line, and CUDA's vector loads.
pub const ALIGNMENT: usize = 256;

/// Where each value and each node's scratch memory lives.
#[derive(Debug, Clone)]
pub struct Plan {
    blocks: Vec<Block>,
    arena_bytes: usize,
    values: Vec<Option<usize>>,
    workspaces: Vec<Option<usize>>,
}

/// Bytes of the arena that something owns from one launch to another.
#[derive(Debug, Clone)]
pub struct Block {
    /// What lives there.
    pub owner: Owner,
    /// First byte.
    pub offset: usize,
    /// Length in bytes, not rounded.
    pub bytes: usize,
    /// Launches that touch it, its writer first. A kept tensor is touched by the end of the step.
    users: Vec<usize>,
    kept: bool,
}

/// Owner of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A tensor.
    Tensor(TensorId),
    /// The scratch memory of the node launched at this position.
    Workspace(usize),
}

impl Plan {
    /// Plans the memory of a program on the CPU device.
    pub fn new(program: &Program, schedule: &Schedule) -> Self {
        let mut blocks = collect(program, schedule);
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        // Large blocks first: they have the fewest places to go.
        order.sort_by_key(|&i| (std::cmp::Reverse(blocks[i].bytes), i));
        let mut placed: Vec<usize> = Vec::with_capacity(order.len());
        for i in order {
            let offset = lowest_gap(&blocks, &placed, i, schedule);
            blocks[i].offset = offset;
            placed.push(i);
        }
        let arena_bytes = blocks.iter().map(|b| b.offset + round(b.bytes)).max().unwrap_or(0);
        let mut values = vec![None; program.tensors().len()];
        let mut workspaces = vec![None; schedule.launches().len()];
        for block in &blocks {
            match block.owner {
                Owner::Tensor(t) => values[t.index()] = Some(block.offset),
                Owner::Workspace(launch) => workspaces[launch] = Some(block.offset),
            }
        }
        Self { blocks, arena_bytes, values, workspaces }
    }

    /// Bytes of the arena.
    pub fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// Bytes that the values would take if none shared memory.
    pub fn unshared_bytes(&self) -> usize {
        self.blocks.iter().map(|b| round(b.bytes)).sum()
    }

    /// All blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Offset of a value; none for inputs, state, and tensors that no node writes.
    pub fn offset(&self, tensor: TensorId) -> Option<usize> {
        self.values[tensor.index()]
    }

    /// Offset of the scratch memory of a launch.
    pub fn workspace_offset(&self, launch: usize) -> Option<usize> {
        self.workspaces[launch]
    }

    /// The most bytes alive at one launch, in launch order: what no plan can go below.
    pub fn peak_live_bytes(&self, schedule: &Schedule) -> usize {
        let n = schedule.launches().len();
        let mut change = vec![0isize; n + 1];
        for b in &self.blocks {
            let first = b.users[0];
            let last = if b.kept { n - 1 } else { *b.users.iter().max().unwrap_or(&first) };
            change[first] += round(b.bytes) as isize;
            change[last + 1] -= round(b.bytes) as isize;
        }
        let mut live = 0;
        change.iter().fold(0, |peak, c| {
            live += c;
            peak.max(live as usize)
        })
    }
}

impl Block {
    /// True if the block and `other` may be alive at once in some order.
    pub fn conflicts(&self, other: &Block, schedule: &Schedule) -> bool {
        !(self.dead_before(other, schedule) || other.dead_before(self, schedule))
    }

    fn dead_before(&self, other: &Block, schedule: &Schedule) -> bool {
        let writer = other.users[0];
        !self.kept && self.users.iter().all(|u| schedule.happens_before(*u, writer))
    }
}

fn round(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

fn collect(program: &Program, schedule: &Schedule) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut block_of = vec![None; program.tensors().len()];
    for (position, launch) in schedule.launches().iter().enumerate() {
        let node = &program.nodes()[launch.node.index()];
        for t in node.inputs.iter().filter_map(|t| block_of[t.index()]) {
            let block: &mut Block = &mut blocks[t];
            block.users.push(position);
        }
        let descs = |list: &[TensorId]| -> Vec<TensorDesc> {
            list.iter().map(|t| program.desc(*t).clone()).collect()
        };
        let scratch = node.op.cpu_workspace_len(&descs(&node.inputs), &descs(&node.outputs));
        if scratch > 0 {
            let owner = Owner::Workspace(position);
            let users = vec![position];
            blocks.push(Block { owner, offset: 0, bytes: 4 * scratch, users, kept: false });
        }
        for t in &node.outputs {
            debug_assert_eq!(program.tensors()[t.index()].kind, TensorKind::Value);
            block_of[t.index()] = Some(blocks.len());
            blocks.push(Block {
                owner: Owner::Tensor(*t),
                offset: 0,
                bytes: program.desc(*t).cpu_bytes(),
                users: vec![position],
                kept: program.kept().contains(t),
            });
        }
    }
    blocks
}

/// The lowest offset at which block `i` overlaps no placed block that it conflicts with.
fn lowest_gap(blocks: &[Block], placed: &[usize], i: usize, schedule: &Schedule) -> usize {
    let mut taken: Vec<(usize, usize)> = placed
        .iter()
        .map(|&p| &blocks[p])
        .filter(|b| b.bytes > 0 && b.conflicts(&blocks[i], schedule))
        .map(|b| (b.offset, b.offset + round(b.bytes)))
        .collect();
    taken.sort_unstable();
    let need = round(blocks[i].bytes);
    let mut offset = 0;
    for (start, end) in taken {
        if offset + need <= start {
            break;
        }
        offset = offset.max(end);
    }
    offset
}
