//! Launches over many tensors at once, in which each block processes one tensor:
//! `cuda/many_tensors.cuh`.

/// One value per tensor, in an array of the kernel's fixed length, padded with zeros.
pub(crate) fn column<T: Copy + Default, const N: usize>(
    values: impl IntoIterator<Item = T>,
) -> [T; N] {
    let mut values = values.into_iter();
    std::array::from_fn(|_| values.next().unwrap_or_default())
}

/// The index of each tensor's first block, padded with the total number of blocks; and this total.
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
