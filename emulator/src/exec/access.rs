//! Loads, stores, atomics and copies: every address is checked before it is used.
#![allow(unsafe_code)]

use super::block::{Block, Window};
use super::counts::{self, Operation};
use super::races;
use super::shared::Touch;
use super::warp::{Copy16, Warp, lanes};
use super::{ILLEGAL_ADDRESS, LAUNCH_FAILED, MISALIGNED_ADDRESS, Trouble, trouble};
use crate::lanes::{Doubles, Words};
use crate::memory::Allocation;
use crate::ptx::program::{
    Access, Address, Atomic, CONSTANT, Element, LOCAL_WINDOW, PARAMETER_WINDOW, Place, Reg,
    SHARED_WINDOW, Where,
};

type Pointers = [*mut u8; 32];

impl Block<'_> {
    #[inline(always)]
    pub(super) fn addresses(&self, warp: &Warp, address: &Address) -> Doubles {
        let offset = i64::from(address.offset) as u64;
        if address.is_double {
            let mut all = *warp.double(address.base);
            for address in &mut all {
                *address = address.wrapping_add(offset);
            }
            all
        } else {
            let base = warp.word(address.base);
            let mut all = [0; 32];
            for lane in 0..32 {
                all[lane] = u64::from(base[lane].wrapping_add(offset as u32));
            }
            all
        }
    }

    /// Checks an access; returns the host address of each lane's bytes.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn reach(
        &mut self,
        warp: &mut Warp,
        access: &Access,
        mask: u32,
        touch: Touch,
    ) -> Result<Pointers, Trouble> {
        let addresses = self.addresses(warp, &access.address);
        let bytes = access.element.bytes() * usize::from(access.count);
        // `bytes` is a power of two.
        let bad = lanes(mask).find(|lane| addresses[*lane] & (bytes as u64 - 1) != 0);
        if let Some(lane) = bad {
            let text = format!("{:#x} is not a multiple of {bytes}", addresses[lane]);
            return trouble(MISALIGNED_ADDRESS, 1 << lane, text);
        }
        match access.space {
            Where::Global => {
                let kind = match touch {
                    Touch::Read if access.read_only => races::Access::ReadOnly,
                    Touch::Read => races::Access::Read,
                    Touch::Atomic => races::Access::Atomic,
                    _ => races::Access::Write,
                };
                self.reach_global(warp.pc, &addresses, mask, bytes, kind)
            }
            Where::Generic => {
                let mut all = [std::ptr::null_mut(); 32];
                for lane in lanes(mask) {
                    let at = addresses[lane];
                    let (space, at) = match at {
                        SHARED_WINDOW..LOCAL_WINDOW => (Where::Shared, at - SHARED_WINDOW),
                        LOCAL_WINDOW..PARAMETER_WINDOW => (Where::Local, at - LOCAL_WINDOW),
                        _ => (Where::Global, at),
                    };
                    all[lane] = if space == Where::Global {
                        let kind = match touch {
                            Touch::Read => races::Access::Read,
                            _ => races::Access::Write,
                        };
                        self.reach_one(warp.pc, at, lane, bytes, kind)?
                    } else {
                        self.reach_near(warp, space, &[at; 32], 1 << lane, bytes, touch)?[lane]
                    };
                }
                Ok(all)
            }
            space => self.reach_near(warp, space, &addresses, mask, bytes, touch),
        }
    }

    /// Like `reach`, for shared memory, local memory and kernel parameters.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn reach_near(
        &mut self,
        warp: &mut Warp,
        space: Where,
        addresses: &Doubles,
        mask: u32,
        bytes: usize,
        touch: Touch,
    ) -> Result<Pointers, Trouble> {
        let local = self.launch.kernel.local_bytes as usize;
        let (length, name) = match space {
            Where::Shared => (self.shared.bytes.len(), "shared memory"),
            Where::Local => (local, "local memory"),
            _ => (self.launch.parameters.len(), "the parameters"),
        };
        let mut all = [std::ptr::null_mut(); 32];
        for lane in lanes(mask) {
            let at = addresses[lane];
            if at.checked_add(bytes as u64).is_none_or(|end| end > length as u64) {
                let text =
                    format!("{bytes} bytes at {at:#x} are outside of {name} ({length} bytes)");
                return trouble(ILLEGAL_ADDRESS, 1 << lane, text);
            }
            let at = at as usize;
            all[lane] = match space {
                Where::Shared => {
                    self.shared.touch(at, bytes, warp.index, lane, touch)?;
                    self.shared.bytes.as_mut_ptr().wrapping_add(at)
                }
                Where::Local => warp.local.as_mut_ptr().wrapping_add(lane * local + at),
                _ => self.launch.parameters.as_ptr().cast_mut().wrapping_add(at),
            };
        }
        Ok(all)
    }

    /// Host address of one lane's global bytes, of any length.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn reach_one(
        &mut self,
        pc: usize,
        at: u64,
        lane: usize,
        bytes: usize,
        access: races::Access,
    ) -> Result<*mut u8, Trouble> {
        Ok(self.reach_global(pc, &[at; 32], 1 << lane, bytes, access)?[lane])
    }

    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn reach_global(
        &mut self,
        pc: usize,
        addresses: &Doubles,
        mask: u32,
        bytes: usize,
        access: races::Access,
    ) -> Result<Pointers, Trouble> {
        let (mut least, mut most) = (u64::MAX, 0);
        for lane in lanes(mask) {
            least = least.min(addresses[lane]);
            most = most.max(addresses[lane]);
        }
        let end = most.wrapping_add(bytes as u64);
        let hint = self.hints[pc] as usize;
        let writes = matches!(access, races::Access::Write | races::Access::Atomic);
        let fits = |window: &Window| {
            window.first <= least && end <= window.end && most < end && (window.writes || !writes)
        };
        if self.windows.get(hint).is_some_and(fits) {
            self.note_global(hint, addresses, mask, bytes, access)?;
        } else {
            for lane in lanes(mask) {
                let window = self.window(addresses[lane], bytes, lane, writes)?;
                self.hints[pc] = window as u32;
                self.note_global(window, addresses, 1 << lane, bytes, access)?;
            }
        }
        let mut all = [std::ptr::null_mut(); 32];
        for lane in 0..32 {
            all[lane] = Allocation::host_of(addresses[lane]);
        }
        Ok(all)
    }

    /// Index of a [`Window`] that contains these bytes; adds the allocation's window if none does.
    fn window(
        &mut self,
        address: u64,
        bytes: usize,
        lane: usize,
        writes: bool,
    ) -> Result<usize, Trouble> {
        let end = address.wrapping_add(bytes as u64);
        let holds = |w: &Window| w.first <= address && end <= w.end;
        let known = self.windows.iter().position(|w| holds(w) && (w.writes || !writes));
        if let Some(known) = known.filter(|_| address < end) {
            return Ok(known);
        }
        let Some((allocation, _)) = self.memory.find(address, bytes) else {
            let text = format!(
                "{bytes} bytes at {address:#x} are outside of every allocation{}",
                self.memory.near(address)
            );
            return trouble(ILLEGAL_ADDRESS, 1 << lane, text);
        };
        if self.launch.declared.is_some() && !allocation.is_variable() {
            let what = if writes { "writes" } else { "reads" };
            let text = if self.windows.iter().any(holds) {
                format!("{what} {bytes} bytes at {address:#x}, which the launch declares as read")
            } else {
                format!("{what} {bytes} bytes at {address:#x} that the launch does not declare")
            };
            return trouble(LAUNCH_FAILED, 1 << lane, text);
        }
        let first = allocation.address();
        let end = first + allocation.bytes() as u64;
        self.windows.push(Window { first, end, writes: true, allocation });
        Ok(self.windows.len() - 1)
    }

    /// Checks that read bytes have been written before, and marks written bytes.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn note_global(
        &mut self,
        window: usize,
        addresses: &Doubles,
        mask: u32,
        bytes: usize,
        access: races::Access,
    ) -> Result<(), Trouble> {
        let allocation = &self.windows[window].allocation;
        let first = allocation.address();
        if access != races::Access::Write && !allocation.is_complete() {
            for lane in lanes(mask) {
                let offset = (addresses[lane] - first) as usize;
                if !allocation.is_written(offset, bytes) {
                    let text = format!(
                        "reads {bytes} uninitialised bytes, at {offset} of an allocation of {} \
                         bytes",
                        allocation.bytes()
                    );
                    return trouble(LAUNCH_FAILED, 1 << lane, text);
                }
            }
        }
        if matches!(access, races::Access::Write) && !allocation.is_complete() {
            let base = addresses[0];
            let is_line = mask == u32::MAX
                && (0..32).all(|l| addresses[l] == base.wrapping_add((l * bytes) as u64));
            if is_line {
                allocation.set_written((base - first) as usize, 32 * bytes);
            } else {
                for lane in lanes(mask) {
                    allocation.set_written((addresses[lane] - first) as usize, bytes);
                }
            }
        }
        if let Some(races) = &mut self.races {
            for lane in lanes(mask) {
                races.touch(addresses[lane], bytes, self.index, lane, access)?;
            }
        }
        Ok(())
    }

    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn load(
        &mut self,
        warp: &mut Warp,
        access: &Access,
        mask: u32,
    ) -> Result<(), Trouble> {
        if access.space == Where::Parameter && access.address.base & CONSTANT != 0 {
            return self.load_parameter(warp, access, mask);
        }
        let from = self.reach(warp, access, mask, Touch::Read)?;
        self.count(warp, access, mask, [Operation::LoadShared, Operation::LoadGlobal]);
        for member in 0..usize::from(access.count) {
            let reg = access.registers[member];
            let at = member * access.element.bytes();
            if access.element.is_double() {
                let mut value: Doubles = [0; 32];
                for lane in lanes(mask) {
                    // SAFETY: `reach` has checked that the lane's bytes are in memory that lives as
                    // long as the launch, and aligned.
                    value[lane] = unsafe { read(from[lane].add(at), access.element) };
                }
                warp.put_double(reg, &value, mask);
            } else {
                let mut value: Words = [0; 32];
                for lane in lanes(mask) {
                    // SAFETY: as above.
                    value[lane] = unsafe { read(from[lane].add(at), access.element) } as u32;
                }
                warp.put_word(reg, &value, mask);
            }
        }
        Ok(())
    }

    /// Counts a load or store of shared or global memory, if enabled.
    #[inline(always)]
    fn count(&mut self, warp: &Warp, access: &Access, mask: u32, [shared, global]: [Operation; 2]) {
        if self.counts.is_none() {
            return;
        }
        let addresses = self.addresses(warp, &access.address);
        let bytes = access.element.bytes() * usize::from(access.count);
        let is_shared = |lane: &usize| match access.space {
            Where::Shared => true,
            Where::Generic => (SHARED_WINDOW..LOCAL_WINDOW).contains(&addresses[*lane]),
            _ => false,
        };
        let is_near = |lane: &usize| {
            let at = addresses[*lane];
            matches!(access.space, Where::Local | Where::Parameter)
                || access.space == Where::Generic && (LOCAL_WINDOW..PARAMETER_WINDOW).contains(&at)
        };
        let near = lanes(mask).filter(is_near).fold(0, |all, lane| all | 1 << lane);
        let in_shared = lanes(mask).filter(is_shared).fold(0, |all, lane| all | 1 << lane);
        if let Some(counts) = &mut self.counts {
            counts::add(counts, shared, &addresses, in_shared, bytes);
            counts::add(counts, global, &addresses, mask & !in_shared & !near, bytes);
        }
    }

    /// Loads a kernel parameter from a constant address: all lanes get the same bytes.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn load_parameter(
        &mut self,
        warp: &mut Warp,
        access: &Access,
        mask: u32,
    ) -> Result<(), Trouble> {
        let one = 1 << mask.trailing_zeros();
        let from = self.reach(warp, access, one, Touch::Read)?[mask.trailing_zeros() as usize];
        for member in 0..usize::from(access.count) {
            let at = member * access.element.bytes();
            // SAFETY: the address is checked to be inside the parameters.
            let value = unsafe { read(from.add(at), access.element) };
            if access.element.is_double() {
                warp.put_double(access.registers[member], &[value; 32], mask);
            } else {
                warp.put_word(access.registers[member], &[value as u32; 32], mask);
            }
        }
        Ok(())
    }

    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn store(
        &mut self,
        warp: &mut Warp,
        access: &Access,
        mask: u32,
    ) -> Result<(), Trouble> {
        let to = self.reach(warp, access, mask, Touch::Write)?;
        self.count(warp, access, mask, [Operation::StoreShared, Operation::StoreGlobal]);
        for member in 0..usize::from(access.count) {
            let reg = access.registers[member];
            let at = member * access.element.bytes();
            let value = self.value(warp, access.element, reg);
            for lane in lanes(mask) {
                // SAFETY: as in `load`.
                unsafe { write(to[lane].add(at), access.element, value[lane]) };
            }
        }
        Ok(())
    }

    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn value(&self, warp: &Warp, element: Element, reg: Reg) -> Doubles {
        if element.is_double() {
            *warp.double(reg)
        } else {
            let words = warp.word(reg);
            let mut value = [0; 32];
            for lane in 0..32 {
                value[lane] = words[lane].into();
            }
            value
        }
    }

    /// An atomic operation, one lane after another.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn atomic(
        &mut self,
        warp: &mut Warp,
        op: Atomic,
        access: &Access,
        to: Option<Reg>,
        mask: u32,
    ) -> Result<(), Trouble> {
        let place = self.reach(warp, access, mask, Touch::Atomic)?;
        let value = self.value(warp, access.element, access.registers[0]);
        let is_double = access.element.is_double();
        let mut old: Doubles = [0; 32];
        let first = self.random.below(32);
        for i in 0..32 {
            let lane = (first + i) % 32;
            if mask >> lane & 1 == 0 {
                continue;
            }
            // SAFETY: as in `load`; one thread runs all blocks.
            let (was, with) = unsafe { (read(place[lane], access.element), value[lane]) };
            let signed = |v: u64| if is_double { v as i64 } else { i64::from(v as i32) };
            let new = match op {
                Atomic::Add => was.wrapping_add(with),
                Atomic::And => was & with,
                Atomic::Or => was | with,
                Atomic::Xor => was ^ with,
                Atomic::Min => was.min(with),
                Atomic::Max => was.max(with),
                Atomic::MinSigned => signed(was).min(signed(with)) as u64,
                Atomic::MaxSigned => signed(was).max(signed(with)) as u64,
            };
            // SAFETY: as above.
            unsafe { write(place[lane], access.element, new) };
            old[lane] = was;
        }
        match to {
            Some(to) if is_double => warp.put_double(to, &old, mask),
            Some(to) => warp.put_word(to, &old.map(|value| value as u32), mask),
            None => {}
        }
        Ok(())
    }

    /// `ldmatrix`: each lane gives the address of a 16-byte row.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn load_matrix(
        &mut self,
        warp: &mut Warp,
        transposed: bool,
        registers: &[Reg],
        place: &Place,
    ) -> Result<(), Trouble> {
        let addresses = self.near_addresses(warp, place);
        let rows = self.reach_rows(warp, &addresses, registers.len(), Touch::Read)?;
        if let Some(counts) = &mut self.counts {
            let mask = u32::MAX >> (32 - 8 * registers.len());
            counts::add(counts, Operation::Ldmatrix, &addresses, mask, 16);
        }
        for (m, reg) in registers.iter().enumerate() {
            let mut matrix = [[0u16; 8]; 8];
            for row in 0..8 {
                // SAFETY: `reach_rows` has checked 16 bytes for each row.
                matrix[row] = unsafe { rows[8 * m + row].cast::<[u16; 8]>().read_unaligned() };
            }
            let mut value = [0; 32];
            for lane in 0..32 {
                let (g, t) = (lane / 4, 2 * (lane % 4));
                let [low, high] = if transposed {
                    [matrix[t][g], matrix[t + 1][g]]
                } else {
                    [matrix[g][t], matrix[g][t + 1]]
                };
                value[lane] = u32::from(low) | u32::from(high) << 16;
            }
            warp.put_word(*reg, &value, u32::MAX);
        }
        Ok(())
    }

    /// `cp.async`, whose last bytes may be zero-filled. The bytes are written to shared memory
    /// either at once or when the lane waits for them.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn copy_async(
        &mut self,
        warp: &mut Warp,
        [to, from]: [&Address; 2],
        bytes: Reg,
        length: u8,
        mask: u32,
    ) -> Result<(), Trouble> {
        let (to, from) = (self.addresses(warp, to), self.addresses(warp, from));
        let (bytes, whole) = (*warp.word(bytes), usize::from(length));
        let is_bad = |l: &usize| {
            !(to[*l] | from[*l]).is_multiple_of(whole as u64) || bytes[*l] > length.into()
        };
        if let Some(lane) = lanes(mask).find(is_bad) {
            let text = format!(
                "copies {} of {length} bytes from {:#x} to {:#x}; both are multiples of {length}",
                bytes[lane], from[lane], to[lane]
            );
            return trouble(MISALIGNED_ADDRESS, 1 << lane, text);
        }
        let places = self.reach_near(warp, Where::Shared, &to, mask, whole, Touch::Begin)?;
        if let Some(counts) = &mut self.counts {
            // Zero-filled bytes are not read.
            let read = lanes(mask).filter(|lane| bytes[*lane] > 0).fold(0, |all, l| all | 1 << l);
            counts::add(counts, Operation::CopyToShared, &to, mask, whole);
            counts::add(counts, Operation::CopyFromGlobal, &from, read, whole);
            let padding = lanes(read).map(|lane| whole as u64 - u64::from(bytes[lane]));
            counts[Operation::CopyFromGlobal as usize].bytes -= padding.sum::<u64>();
        }
        for lane in lanes(mask) {
            let mut data = [0; 16];
            let count = bytes[lane] as usize;
            if count > 0 {
                let read_only = races::Access::ReadOnly;
                let source = self.reach_one(warp.pc, from[lane], lane, count, read_only)?;
                // SAFETY: `reach_one` has checked this many bytes.
                unsafe { source.copy_to(data.as_mut_ptr(), count) };
            }
            let has_landed = self.random.below(2) == 0;
            if has_landed {
                // SAFETY: `reach_near` has checked this many bytes.
                unsafe { places[lane].copy_from(data.as_ptr(), whole) };
            }
            let (lane, group, to) = (lane as u8, warp.groups[lane], to[lane] as usize);
            warp.copies.push(Copy16 { lane, group, to, bytes: data, length, has_landed });
        }
        Ok(())
    }

    /// Completes all copies of these lanes, committed or not.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn land_all(&mut self, warp: &mut Warp, mask: u32) -> Result<(), Trouble> {
        let groups = warp.groups;
        warp.groups = [u32::MAX; 32];
        let landed = self.land(warp, 0, mask);
        warp.groups = groups;
        landed
    }

    /// Completes the copies of these lanes, except each lane's last `but` groups.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn land(&mut self, warp: &mut Warp, but: u32, mask: u32) -> Result<(), Trouble> {
        let (groups, index) = (warp.groups, warp.index);
        let mut result = Ok(());
        warp.copies.retain(|copy| {
            let lane = usize::from(copy.lane);
            let stays = mask >> lane & 1 == 0 || copy.group + but >= groups[lane];
            if stays || result.is_err() {
                return true;
            }
            if !copy.has_landed {
                let bytes = &copy.bytes[..copy.length.into()];
                self.shared.bytes[copy.to..][..bytes.len()].copy_from_slice(bytes);
            }
            result = self.shared.touch(copy.to, copy.length.into(), index, lane, Touch::Land);
            false
        });
        result
    }

    /// Copies a call's arguments or results within the local memory of these lanes.
    pub(super) fn copy_local(&self, warp: &mut Warp, copies: &[(u32, u32, u32)], mask: u32) {
        let local = self.launch.kernel.local_bytes as usize;
        for (to, from, bytes) in copies {
            for lane in lanes(mask) {
                let (to, from) = (lane * local + *to as usize, lane * local + *from as usize);
                warp.local.copy_within(from..from + *bytes as usize, to);
            }
        }
    }
}

/// # Safety
/// The bytes at `from` must be readable; they need not be aligned.
#[inline(always)]
unsafe fn read(from: *const u8, element: Element) -> u64 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match element {
            Element::U8 => from.read().into(),
            Element::S8 => from.cast::<i8>().read() as i32 as u32 as u64,
            Element::U16 => from.cast::<u16>().read_unaligned().into(),
            Element::S16 => from.cast::<i16>().read_unaligned() as i32 as u32 as u64,
            Element::B32 | Element::U32In64 => from.cast::<u32>().read_unaligned().into(),
            Element::S32In64 => from.cast::<i32>().read_unaligned() as i64 as u64,
            Element::B64 => from.cast::<u64>().read_unaligned(),
        }
    }
}

/// # Safety
/// The bytes at `to` must be writable; they need not be aligned.
#[inline(always)]
unsafe fn write(to: *mut u8, element: Element, value: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match element.bytes() {
            1 => to.write(value as u8),
            2 => to.cast::<u16>().write_unaligned(value as u16),
            4 => to.cast::<u32>().write_unaligned(value as u32),
            _ => to.cast::<u64>().write_unaligned(value),
        }
    }
}
