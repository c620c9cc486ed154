//! Global bytes accessed by each block of a launch: a block may not access bytes that a different
//! block writes.

use std::collections::HashMap;

use super::{LAUNCH_FAILED, Trouble, trouble};

const PAGE: u64 = 4096;
/// Block number that means more than one block.
const SEVERAL: u32 = u32::MAX;

/// The blocks that accessed a byte, numbered from 1.
#[derive(Debug, Clone, Copy, Default)]
struct Touched {
    writer: u32,
    reader: u32,
    is_atomic: bool,
    /// Was read through the read-only cache.
    is_read_only: bool,
}

/// Kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    ReadOnly,
    Write,
    Atomic,
}

/// All bytes that a launch has accessed.
#[derive(Debug, Default)]
pub(super) struct Races(HashMap<u64, Box<[Touched]>>);

impl Races {
    pub(super) fn touch(
        &mut self,
        address: u64,
        bytes: usize,
        block: u32,
        lane: usize,
        access: Access,
    ) -> Result<(), Trouble> {
        let block = block + 1;
        for at in address..address + bytes as u64 {
            let page = self.0.entry(at / PAGE);
            let page = page.or_insert_with(|| vec![Touched::default(); PAGE as usize].into());
            let touched = &mut page[(at % PAGE) as usize];
            let is_write = matches!(access, Access::Write | Access::Atomic);
            let both_atomic = access == Access::Atomic && touched.is_atomic;
            let other = |who: u32| who != 0 && who != block;
            let text = if is_write && touched.is_read_only {
                "writes bytes that this launch reads with ld.global.nc"
            } else if access == Access::ReadOnly && touched.writer != 0 {
                "reads with ld.global.nc bytes that this launch writes"
            } else if other(touched.writer) && !both_atomic {
                "accesses bytes that another block of the launch writes"
            } else if is_write && other(touched.reader) && !both_atomic {
                "writes bytes that another block of the launch reads"
            } else {
                ""
            };
            if !text.is_empty() {
                return trouble(LAUNCH_FAILED, 1 << lane, format!("{text}, at {at:#x}"));
            }
            let who = if is_write { &mut touched.writer } else { &mut touched.reader };
            *who = if *who == 0 || *who == block { block } else { SEVERAL };
            touched.is_atomic |= access == Access::Atomic;
            touched.is_read_only |= access == Access::ReadOnly;
        }
        Ok(())
    }
}
