//! GPU faults that tests can plant: a kernel that faults or hangs, a module that does not load.

use device::{DeviceError, Launch};

use crate::library::source;

/// The planted faults; none by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Planted {
    /// Launches of this kernel fault. The fault is sticky, as in a CUDA context.
    pub fault_in: Option<String>,
    /// Launches of this kernel never finish.
    pub hang_in: Option<String>,
    /// Modules whose source path contains this do not load.
    pub broken_module: Option<String>,
}

impl Planted {
    /// What happens to a launch.
    pub(crate) fn at(&self, launch: &Launch) -> Result<(), DeviceError> {
        let named = |name: &Option<String>| name.as_deref() == Some(launch.kernel);
        if named(&self.hang_in) {
            loop {
                std::thread::park();
            }
        }
        if named(&self.fault_in) {
            let reason = "an illegal memory access was encountered (planted)".into();
            return Err(DeviceError::Kernel { kernel: launch.kernel.into(), reason });
        }
        Ok(())
    }

    /// The result of loading a module.
    pub(crate) fn load(&self, path: &str) -> Result<(), DeviceError> {
        if self.broken_module.as_ref().is_some_and(|broken| path.contains(broken)) {
            let call = format!("compiling the PTX of {path} for this GPU");
            return Err(DeviceError::Driver { call, reason: "planted".into() });
        }
        Ok(())
    }

    /// The same for the module that holds a kernel.
    pub(crate) fn load_module_of(&self, kernel: &str) -> Result<(), DeviceError> {
        self.load(&source(kernel))
    }
}
