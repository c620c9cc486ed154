//! Sets of CUDA sources, each with its own output folder.

/// Sources that are compiled together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Set {
    /// Folder of the sources, relative to the checkout's root.
    pub sources: &'static str,
    /// Folder of the compiled files.
    pub folder: &'static str,
    /// Whether hot kernels are counted, and no figure may regress without a reason.
    pub counted: bool,
}

/// The training kernels.
pub const KERNELS: Set = Set { sources: "kernels/src", folder: "ptx", counted: true };

/// The variants of the forward loop: measured against the training kernels, never used in training.
pub const VARIANTS: Set =
    Set { sources: "kernels/probe/cuda", folder: "kernels/probe/ptx", counted: false };

/// All of them.
pub const SETS: [Set; 2] = [KERNELS, VARIANTS];
