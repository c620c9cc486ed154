//! What the tests share: buffers on a device, launches, and where a bug was planted.

use bytemuck::Pod;
use device::{Access, Arg, Device, DeviceError, DevicePtr, Launch, Stream, Touch};
use emulated::{EmulatedDevice, Order};

/// Orders in which a right kernel gives the same, and a wrong one some day does not.
pub(crate) fn orders() -> impl Iterator<Item = Order> {
    std::iter::once(Order::Given).chain((1..=12).map(Order::Random))
}

/// A device with one stream.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) device: EmulatedDevice,
    pub(crate) stream: Stream,
}

/// Memory of a bench.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) ptr: DevicePtr,
    pub(crate) bytes: usize,
}

impl Memory {
    pub(crate) fn read(self) -> Arg {
        self.touch(Access::Read)
    }

    pub(crate) fn write(self) -> Arg {
        self.touch(Access::Write)
    }

    pub(crate) fn update(self) -> Arg {
        self.touch(Access::Update)
    }

    fn touch(self, access: Access) -> Arg {
        Arg::Buffer(Touch { ptr: self.ptr, bytes: self.bytes, access })
    }

    /// The first bytes of it.
    pub(crate) fn first(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }
}

impl Bench {
    pub(crate) fn new(order: Order) -> Self {
        Self::of(EmulatedDevice::new(order))
    }

    pub(crate) fn of(device: EmulatedDevice) -> Self {
        let stream = device.stream().unwrap();
        Self { device, stream }
    }

    /// Poisoned memory.
    pub(crate) fn alloc(&self, bytes: usize) -> Memory {
        Memory { ptr: self.device.alloc(bytes).unwrap(), bytes }
    }

    pub(crate) fn upload<T: Pod>(&self, values: &[T]) -> Memory {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let memory = self.alloc(bytes.len());
        let pinned = self.device.alloc_pinned(bytes.len()).unwrap();
        self.device.write_pinned(pinned, 0, bytes);
        self.device.upload(self.stream, memory.ptr, pinned, 0, bytes.len()).unwrap();
        self.device.synchronize().unwrap();
        memory
    }

    pub(crate) fn download<T: Pod>(&self, memory: Memory) -> Vec<T> {
        let mut values = vec![T::zeroed(); memory.bytes / size_of::<T>()];
        let bytes = bytemuck::cast_slice_mut(&mut values);
        self.device.download(self.stream, memory.ptr, bytes).unwrap();
        values
    }

    /// Runs a launch to its end.
    pub(crate) fn run(&self, launch: &Launch) -> Result<(), DeviceError> {
        self.device.launch(self.stream, launch)?;
        self.device.synchronize()
    }
}

/// The device's error for a launch that must fail.
pub(crate) fn fault(bench: &Bench, launch: &Launch) -> String {
    match bench.run(launch) {
        Err(e) => e.to_string(),
        Ok(()) => panic!("`{}` passed, though it is wrong", launch.kernel),
    }
}

/// `file:line` of the planted bug whose comment is `// bug: <name>`.
pub(crate) fn place(file: &str, name: &str) -> String {
    let path = format!("{}/planted/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let comment = format!("// bug: {name}");
    let is_there = |line: &str| line.trim_end().ends_with(&comment);
    let line = text.lines().position(is_there).unwrap_or_else(|| panic!("{file}: no {comment}"));
    format!("{file}:{}", line + 1)
}

/// Asserts that a report holds every one of the texts.
pub(crate) fn assert_says(report: &str, texts: &[&str]) {
    for text in texts {
        assert!(report.contains(text), "no `{text}` in the report:\n{report}");
    }
}
