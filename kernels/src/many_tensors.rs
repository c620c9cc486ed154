//! Launches over many tensors at once, each with blocks of its own: `cuda/many_tensors.cuh`.

/// Values of tensors, in an array as long as the kernel's: the rest are zeros.
pub(crate) fn column<T: Copy + Default, const N: usize>(
    values: impl IntoIterator<Item = T>,
) -> [T; N] {
    let mut values = values.into_iter();
    std::array::from_fn(|_| values.next().unwrap_or_default())
}

/// The first block of each tensor, where the rest of the array has the blocks of all; and these.
pub(crate) fn first_blocks<const N: usize>(
    blocks: impl IntoIterator<Item = usize>,
) -> ([i32; N], usize) {
    let (mut blocks, mut total) = (blocks.into_iter(), 0);
    let first = std::array::from_fn(|_| {
        let first = total as i32;
        total += blocks.next().unwrap_or(0);
        first
    });
    (first, total)
}
