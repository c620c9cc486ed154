//! Sets of CUDA sources, each compiled into a folder of its own.

/// Sources that are compiled together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Set {
    /// Folder of the sources, from the checkout's root.
    pub sources: &'static str,
    /// Folder of what they become.
    pub folder: &'static str,
    /// The hot kernels are counted, and no figure becomes worse without a reason.
    pub counted: bool,
}

/// The kernels of training.
pub const KERNELS: Set = Set { sources: "kernels/src", folder: "ptx", counted: true };

/// The variants of the forward loop: measured beside training's kernels, and no part of training.
pub const VARIANTS: Set =
    Set { sources: "kernels/probe/cuda", folder: "kernels/probe/ptx", counted: false };

/// All of them.
pub const SETS: [Set; 2] = [KERNELS, VARIANTS];
