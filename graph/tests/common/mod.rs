//! Code that the tests share: toy ops, random programs, and two interpreters of them.

pub(crate) mod checker;
pub(crate) mod interpreter;
pub(crate) mod mix;
pub(crate) mod random;
pub(crate) mod toy;

use kernels::cpu::HostTensor;
use kernels::{Role, TensorDesc};

/// An f32 activation of one dimension.
pub(crate) fn vector(len: usize) -> TensorDesc {
    TensorDesc::new(Role::Activation, &[len])
}

/// An f32 activation that holds `values`.
pub(crate) fn tensor(values: &[f32]) -> HostTensor {
    HostTensor::f32(vector(values.len()), values.to_vec())
}

/// The message of the panic that `f` ends in.
pub(crate) fn panic_message(f: impl FnOnce() + std::panic::UnwindSafe) -> String {
    match std::panic::catch_unwind(f) {
        Ok(()) => panic!("should have panicked"),
        Err(payload) => payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()))
            .unwrap_or_default(),
    }
}
