//! Allocations of the device: which bytes exist, and whether a launch stays within them.

use std::collections::BTreeMap;

use device::{DeviceError, DevicePtr, Launch};

use crate::counted::Site;
use crate::library::{self, Block, Way};

/// Total memory of the emulated device: small enough to expose a runaway test.
const TOTAL_BYTES: usize = 6 << 30;
/// Buffers up to this size are compared before and after a launch that only reads them.
const WATCHED_BYTES: usize = 1 << 20;

/// Live allocations by address.
#[derive(Debug)]
pub(crate) struct Memory {
    blocks: BTreeMap<DevicePtr, usize>,
    used: usize,
    /// How much there is.
    pub(crate) total: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Self { blocks: BTreeMap::new(), used: 0, total: TOTAL_BYTES }
    }
}

impl Memory {
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    pub(crate) fn alloc(&mut self, bytes: usize) -> Result<DevicePtr, DeviceError> {
        let free = self.total.saturating_sub(self.used);
        let refused = DeviceError::OutOfMemory { wanted: bytes, free };
        if bytes > free {
            return Err(refused);
        }
        let ptr = library::alloc(bytes).ok_or(refused)?;
        self.blocks.insert(ptr, bytes);
        self.used += bytes;
        Ok(ptr)
    }

    /// Frees an allocation after checking its red zones.
    pub(crate) fn free(&mut self, ptr: DevicePtr) -> Result<(), DeviceError> {
        let Some(bytes) = self.blocks.remove(&ptr) else {
            panic!("{ptr:#x} is no allocation of this device");
        };
        self.used -= bytes;
        let block = Block { ptr, bytes };
        let checked = check_red_zone(block, None);
        block.free();
        checked
    }

    /// The allocation that contains all of `bytes` bytes from `ptr`.
    pub(crate) fn holding(&self, ptr: DevicePtr, bytes: usize) -> Option<Block> {
        let (&start, &len) = self.blocks.range(..=ptr).next_back()?;
        let offset = (ptr - start) as usize;
        let inside = offset <= len && bytes <= len - offset;
        inside.then_some(Block { ptr: start, bytes: len })
    }

    /// Copies out of device memory.
    pub(crate) fn read(&self, ptr: DevicePtr, bytes: &mut [u8]) {
        let block = self.expect(ptr, bytes.len());
        block.read((ptr - block.ptr) as usize, bytes);
    }

    /// Copies into device memory.
    pub(crate) fn write(&self, ptr: DevicePtr, bytes: &[u8]) {
        let block = self.expect(ptr, bytes.len());
        block.write((ptr - block.ptr) as usize, bytes);
    }

    /// Copies within device memory.
    pub(crate) fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize) {
        let mut copy = vec![0; bytes];
        self.read(from, &mut copy);
        self.write(to, &copy);
    }

    fn expect(&self, ptr: DevicePtr, bytes: usize) -> Block {
        match self.holding(ptr, bytes) {
            Some(block) => block,
            None => panic!("{bytes} bytes at {ptr:#x} are not in one allocation of this device"),
        }
    }

    /// Checks that the arguments match the kernel and that the memory they access exists.
    pub(crate) fn check(&self, launch: &Launch) -> Result<(), DeviceError> {
        let fault = |reason| Err(DeviceError::Kernel { kernel: launch.kernel.to_string(), reason });
        let Some(sizes) = library::parameter_sizes(launch.kernel) else {
            return fault("no kernel of this name was compiled".into());
        };
        let given: Vec<usize> = launch.args.iter().map(|a| a.bytes().len()).collect();
        if sizes != given {
            return fault(format!("takes parameters of {sizes:?} bytes, is given {given:?}"));
        }
        let threads: u32 = launch.block.iter().product();
        if !(1..=1024).contains(&threads) {
            return fault(format!("a block of {threads} threads"));
        }
        let [x, y, z] = launch.grid;
        if x == 0 || x > i32::MAX as u32 || !(1..65536).contains(&y) || !(1..65536).contains(&z) {
            return fault(format!("a grid of {x} x {y} x {z} blocks"));
        }
        for touch in launch.touches().filter(|t| t.bytes > 0) {
            if self.holding(touch.ptr, touch.bytes).is_none() {
                return fault(format!("{touch:?} is not inside an allocation"));
            }
        }
        Ok(())
    }

    /// Runs a launch, and checks the memory that it must not change. Gives its sites if they are
    /// counted.
    pub(crate) fn run(&self, launch: &Launch, way: Way) -> Result<Vec<Site>, DeviceError> {
        let watched: Vec<_> = launch
            .touches()
            .filter(|t| !t.access.writes() && t.bytes <= WATCHED_BYTES)
            .filter(|t| !launch.touches().any(|w| w.access.writes() && overlap(w, *t)))
            .map(|t| (t, self.copy_of(t.ptr, t.bytes)))
            .collect();
        let sites = library::launch(launch, way)?;
        for (touch, before) in watched {
            if self.copy_of(touch.ptr, touch.bytes) != before {
                let bytes = touch.bytes;
                let reason = format!("changed a buffer of {bytes} bytes that it only reads");
                return Err(fault(launch.kernel, reason));
            }
        }
        for touch in launch.touches().filter(|t| t.bytes > 0) {
            let block = self.expect(touch.ptr, touch.bytes);
            check_red_zone(block, Some(launch.kernel))?;
        }
        Ok(sites)
    }

    fn copy_of(&self, ptr: DevicePtr, bytes: usize) -> Vec<u8> {
        let mut copy = vec![0; bytes];
        if bytes > 0 {
            self.read(ptr, &mut copy);
        }
        copy
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for (&ptr, &bytes) in &self.blocks {
            Block { ptr, bytes }.free();
        }
    }
}

fn overlap(a: device::Touch, b: device::Touch) -> bool {
    a.ptr < b.ptr + b.bytes as u64 && b.ptr < a.ptr + a.bytes as u64
}

/// A kernel's fault, with the line on which the kernel ends.
fn fault(kernel: &str, reason: String) -> DeviceError {
    let reason = format!("{}: {reason}", library::place(kernel));
    DeviceError::Kernel { kernel: kernel.to_string(), reason }
}

fn check_red_zone(block: Block, kernel: Option<&str>) -> Result<(), DeviceError> {
    let Some(at) = block.red_zone() else { return Ok(()) };
    let side = if at > 0 { "past the end of" } else { "before" };
    let (distance, bytes) = (at.abs(), block.bytes);
    let reason = format!("wrote {distance} bytes {side} a buffer of {bytes} bytes");
    Err(match kernel {
        Some(kernel) => fault(kernel, reason),
        None => DeviceError::Driver { call: "free".into(), reason: format!("a kernel {reason}") },
    })
}
