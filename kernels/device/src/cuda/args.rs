//! Arguments of a launch in memory, in the layout that the driver expects.

use std::ffi::c_void;

use crate::manifest::Kernel;
use crate::{Arg, DeviceError, Launch};

/// Arguments of one launch, with the sizes of the kernel's parameters.
#[derive(Debug)]
pub(super) struct PackedArgs {
    /// One buffer per argument, aligned to 16 bytes, which suffices for any parameter.
    memory: Vec<Vec<u128>>,
}

impl PackedArgs {
    /// Packs the arguments, if their number and sizes match the kernel's parameters.
    pub(super) fn new(launch: &Launch, kernel: &Kernel) -> Result<Self, DeviceError> {
        let fault = |reason| DeviceError::Kernel { kernel: kernel.name.clone(), reason };
        let (given, wanted) = (launch.args.len(), kernel.parameter_bytes.len());
        if given != wanted {
            return Err(fault(format!("{given} arguments for {wanted} parameters")));
        }
        let mut memory = Vec::with_capacity(given);
        for (i, (arg, wanted)) in launch.args.iter().zip(&kernel.parameter_bytes).enumerate() {
            let bytes = arg.bytes();
            if bytes.len() != *wanted {
                let given = bytes.len();
                return Err(fault(format!(
                    "argument {i} has {given} bytes, its parameter {wanted}"
                )));
            }
            memory.push(aligned(arg));
        }
        Ok(Self { memory })
    }

    /// A pointer to each argument; valid as long as `self`.
    pub(super) fn pointers(&mut self) -> Vec<*mut c_void> {
        self.memory.iter_mut().map(|words| words.as_mut_ptr().cast()).collect()
    }
}

fn aligned(arg: &Arg) -> Vec<u128> {
    let whole = |chunk: &[u8]| {
        let mut word = [0; 16];
        word[..chunk.len()].copy_from_slice(chunk);
        u128::from_ne_bytes(word)
    };
    arg.bytes().chunks(16).map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, StructArg, Touch};

    fn kernel(parameter_bytes: &[usize]) -> Kernel {
        Kernel {
            name: "k".into(),
            parameter_bytes: parameter_bytes.to_vec(),
            on: Default::default(),
        }
    }

    #[test]
    fn arguments_are_packed_at_aligned_addresses() {
        let touch = Touch { ptr: 0x1122_3344_5566_7788, bytes: 8, access: Access::Read };
        let fields = StructArg::new().field(7u64).field(8u64).field(9u32).arg();
        let launch = Launch::over("k", 1).arg(Arg::Buffer(touch)).arg(1.5f32).arg(fields);
        let mut packed = PackedArgs::new(&launch, &kernel(&[8, 4, 24])).unwrap();
        assert_eq!(packed.pointers().len(), 3);
        assert!(packed.pointers().iter().all(|pointer| (*pointer as usize).is_multiple_of(16)));
        let words = |i: usize| packed.memory[i].as_slice();
        assert_eq!(words(0), [0x1122_3344_5566_7788]);
        assert_eq!(words(1), [u128::from(1.5f32.to_bits())]);
        assert_eq!(words(2), [7 | 8 << 64, 9]);
    }

    #[test]
    fn mismatched_kernel_arguments_are_rejected() {
        let launch = Launch::over("k", 1).len(3).int(4);
        let reason = |sizes: &[usize]| PackedArgs::new(&launch, &kernel(sizes)).unwrap_err();
        assert_eq!(reason(&[8]).to_string(), "kernel `k`: 2 arguments for 1 parameters");
        let fault = "kernel `k`: argument 1 has 4 bytes, its parameter 8";
        assert_eq!(reason(&[8, 8]).to_string(), fault);
    }
}
