//! Bulk copies between global and shared memory (TMA), which complete asynchronously.
#![allow(unsafe_code)]

use super::block::Block;
use super::flight::{Line, Load, Piece, Store};
use super::races;
use super::shared::Touch;
use super::warp::{Warp, lanes};
use super::{LAUNCH_FAILED, MISALIGNED_ADDRESS, Trouble, trouble};
use crate::ptx::hopper::Bulk;
use crate::ptx::program::{PARAMETER_WINDOW, Reg};
use crate::tensor_map::{TensorMap, WORDS};

/// Bytes of a tensor map.
const MAP_BYTES: usize = 8 * WORDS;
/// The lines of the tile at `corner`, in the order of shared memory.
fn tile(map: &TensorMap, corner: &[i32]) -> Vec<Line> {
    let element = map.element() as i64;
    let bytes = i64::from(map.tile[0]) * element;
    let extent = map.extents[0] as i64 * element;
    let count: u32 = map.tile[1..].iter().product();
    let first = i64::from(corner[0]) * element;
    let mut lines = Vec::new();
    for line in 0..count {
        let (mut rest, mut at, mut is_inside) = (line, first, true);
        for dimension in 1..map.tile.len() {
            let place = i64::from(corner[dimension]) + i64::from(rest % map.tile[dimension]);
            rest /= map.tile[dimension];
            is_inside &= (0..map.extents[dimension] as i64).contains(&place);
            at += place * map.strides[dimension - 1] as i64;
        }
        let low = (-first).clamp(0, bytes) as usize;
        let high = (extent - first).clamp(0, bytes) as usize;
        let inside = if is_inside { low..high.max(low) } else { 0..0 };
        let global = map.address.wrapping_add(at as u64);
        lines.push(Line { global, inside, bytes: bytes as usize });
    }
    lines
}

/// The byte pattern of elements outside of the tensor.
fn fill(map: &TensorMap) -> Vec<u8> {
    let nan = match map.kind {
        6 => 0x7fff_7fff_7fff_7fff_u64,
        8 => 0x7fff_ffff_ffff_ffff,
        _ => 0x7fff_ffff_7fff_ffff,
    };
    if map.fills_nan { nan.to_le_bytes().to_vec() } else { vec![0; 8] }
}

impl Block<'_> {
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn bulk(&mut self, warp: &mut Warp, bulk: &Bulk, mask: u32) -> Result<(), Trouble> {
        let (near, far) = (self.addresses(warp, &bulk.shared), self.addresses(warp, &bulk.global));
        let barriers = bulk.barrier.map(|barrier| self.addresses(warp, &barrier));
        for lane in lanes(mask) {
            let (lines, pieces, filler) = match &bulk.coordinates {
                Some(list) => {
                    let map = self.tensor_map(warp, far[lane], lane)?;
                    let corner = self.corner(warp, list, lane);
                    if map.tile.len() != corner.len() {
                        let text = format!("a tensor map of rank {}", map.tile.len());
                        return trouble(LAUNCH_FAILED, 1 << lane, text);
                    }
                    (tile(&map, &corner), map.pieces, fill(&map))
                }
                None => {
                    let bytes = warp.word(bulk.bytes)[lane] as usize;
                    check_multiple(far[lane] | bytes as u64, 16, lane)?;
                    (vec![Line { global: far[lane], inside: 0..bytes, bytes }], 1, vec![0; 8])
                }
            };
            let bytes: usize = lines.iter().map(|line| line.bytes).sum();
            let multiple = if bulk.coordinates.is_some() { 128 } else { 16 };
            let first = self.shared.place("a bulk copy", near[lane], bytes, multiple, lane)?;
            let swizzled = |at: usize| at ^ (at >> 7 & (pieces - 1)) << 4;
            let places: Vec<usize> = (first..first + bytes).step_by(16).map(swizzled).collect();
            match barriers {
                Some(barriers) => {
                    let barrier = self.barrier_of_copy(warp, barriers[lane], lane)?;
                    self.begin_load(warp, lane, barrier, &places, &lines, &filler)?;
                }
                None => self.begin_store(warp, lane, &places, lines)?,
            }
        }
        Ok(())
    }

    fn corner(&self, warp: &Warp, list: &[Reg], lane: usize) -> Vec<i32> {
        list.iter().map(|reg| warp.word(*reg)[lane] as i32).collect()
    }

    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn tensor_map(&mut self, warp: &Warp, at: u64, lane: usize) -> Result<TensorMap, Trouble> {
        check_multiple(at, 64, lane)?;
        let mut bytes = [0; MAP_BYTES];
        match at.checked_sub(PARAMETER_WINDOW).filter(|at| *at < 1 << 40) {
            Some(at) => {
                let from = self.launch.parameters.get(at as usize..at as usize + MAP_BYTES);
                bytes.copy_from_slice(from.unwrap_or(&[0; MAP_BYTES]));
            }
            None => {
                let read = races::Access::Read;
                let from = self.reach_one(warp.pc, at, lane, MAP_BYTES, read)?;
                // SAFETY: `reach_one` has checked this many bytes.
                unsafe { from.copy_to(bytes.as_mut_ptr(), MAP_BYTES) };
            }
        }
        let Some(map) = TensorMap::decode(&bytes) else {
            return trouble(LAUNCH_FAILED, 1 << lane, format!("there is no tensor map at {at:#x}"));
        };
        Ok(map)
    }

    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn begin_load(
        &mut self,
        warp: &Warp,
        lane: usize,
        barrier: usize,
        places: &[usize],
        lines: &[Line],
        filler: &[u8],
    ) -> Result<(), Trouble> {
        let mut data: Vec<u8> = Vec::with_capacity(16 * places.len());
        for line in lines {
            let start = data.len();
            data.extend(filler.iter().cycle().take(line.bytes));
            if line.inside.is_empty() {
                continue;
            }
            let (at, bytes) = (line.global + line.inside.start as u64, line.inside.len());
            let from = self.reach_one(warp.pc, at, lane, bytes, races::Access::Read)?;
            // SAFETY: `reach_one` has checked this many bytes, and they fit in the line.
            unsafe { from.copy_to(data[start + line.inside.start..].as_mut_ptr(), bytes) };
        }
        let mut pieces = Vec::with_capacity(places.len());
        for (at, piece) in places.iter().zip(data.as_chunks::<16>().0) {
            self.shared.touch(*at, 16, warp.index, lane, Touch::Begin)?;
            pieces.push((*at, *piece));
        }
        self.copies.loads.push(Load { warp: warp.index, lane, barrier, pieces });
        if self.random.once_in(2) {
            self.land_bulk()?;
        }
        Ok(())
    }

    /// Completes a randomly chosen pending copy to shared memory; false if there is none.
    pub(super) fn land_bulk(&mut self) -> Result<bool, Trouble> {
        if self.copies.loads.is_empty() {
            return Ok(false);
        }
        let chosen = self.random.below(self.copies.loads.len());
        let load = self.copies.loads.swap_remove(chosen);
        for (at, piece) in &load.pieces {
            self.shared.bytes[*at..at + 16].copy_from_slice(piece);
            self.shared.touch(*at, 16, load.warp, load.lane, Touch::LandBulk)?;
        }
        self.complete_bytes(load.barrier, 16 * load.pieces.len())?;
        Ok(true)
    }

    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn begin_store(
        &mut self,
        warp: &Warp,
        lane: usize,
        places: &[usize],
        lines: Vec<Line>,
    ) -> Result<(), Trouble> {
        let mut pieces = Vec::with_capacity(places.len());
        for at in places {
            self.shared.read_async(*at, 16, warp.index)?;
            let mut piece = [0; 16];
            piece.copy_from_slice(&self.shared.bytes[*at..at + 16]);
            pieces.push((*at, piece));
        }
        let group = self.copies.groups[32 * warp.index as usize + lane];
        let mut store = Store {
            warp: warp.index,
            lane,
            group,
            pieces,
            lines,
            is_read: false,
            is_written: false,
        };
        if self.random.once_in(2) {
            self.write_store(warp.pc, &mut store)?;
        }
        self.copies.stores.push(store);
        Ok(())
    }

    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn write_store(&mut self, pc: usize, store: &mut Store) -> Result<(), Trouble> {
        if std::mem::replace(&mut store.is_written, true) {
            return Ok(());
        }
        let data: Vec<u8> = store.pieces.iter().flat_map(|(_, piece)| *piece).collect();
        let mut start = 0;
        for line in &store.lines {
            let (at, bytes) = (line.global + line.inside.start as u64, line.inside.len());
            if bytes > 0 {
                let to = self.reach_one(pc, at, store.lane, bytes, races::Access::Write)?;
                let from = &data[start + line.inside.start..][..bytes];
                // SAFETY: `reach_one` has checked this many bytes.
                unsafe { to.copy_from(from.as_ptr(), bytes) };
            }
            start += line.bytes;
        }
        Ok(())
    }

    pub(super) fn commit_bulk(&mut self, warp: &Warp, mask: u32) {
        for lane in lanes(mask) {
            self.copies.groups[32 * warp.index as usize + lane] += 1;
        }
    }

    /// `cp.async.bulk.wait_group`; with `.read`, waits only until shared memory has been read.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn wait_bulk(
        &mut self,
        warp: &Warp,
        but: u32,
        of_reads: bool,
        mask: u32,
    ) -> Result<(), Trouble> {
        let mut stores = std::mem::take(&mut self.copies.stores);
        for store in &mut stores {
            let groups = self.copies.groups[32 * store.warp as usize + store.lane];
            let is_mine = store.warp == warp.index && mask >> store.lane & 1 != 0;
            if !is_mine || u64::from(store.group) + u64::from(but) >= u64::from(groups) {
                continue;
            }
            let is_same = |(at, piece): &(usize, Piece)| self.shared.bytes[*at..at + 16] == *piece;
            if !store.is_read && !store.pieces.iter().all(is_same) {
                let text = "waits for a bulk copy whose source was overwritten meanwhile";
                return trouble(LAUNCH_FAILED, 1 << store.lane, text);
            }
            store.is_read = true;
            if !of_reads {
                self.write_store(warp.pc, store)?;
            }
        }
        stores.retain(|store| !(store.is_read && store.is_written));
        self.copies.stores = stores;
        Ok(())
    }

    /// At the end of the block, writes the data of the remaining copies to global memory.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn finish_bulk(&mut self, pc: usize) -> Result<(), Trouble> {
        for mut store in std::mem::take(&mut self.copies.stores) {
            self.write_store(pc, &mut store)?;
        }
        Ok(())
    }
}

fn check_multiple(address: u64, multiple: u64, lane: usize) -> Result<(), Trouble> {
    if address.is_multiple_of(multiple) {
        return Ok(());
    }
    let text = format!("{address:#x} of a bulk copy is not a multiple of {multiple}");
    trouble(MISALIGNED_ADDRESS, 1 << lane, text)
}
