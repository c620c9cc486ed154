//! Boxes, sizes and counts for the tables of cases and the tests.

use super::{index, uniform};
use crate::Role;
use crate::boxes::as_boxes_mut;
use crate::cpu::HostTensor;
use crate::view::View;

/// Boxes `[.., 4]` whose top-left corner is in a square of `extent` pixels and whose sides are 1 to
/// `max_side`; a function of `seed` only. Some exceed the square's right and lower border.
pub(crate) fn boxes(shape: &[usize], seed: u32, extent: f32, max_side: f32) -> HostTensor {
    let mut tensor = uniform(Role::Box, shape, seed, 0.0, 1.0);
    for b in as_boxes_mut(tensor.as_f32_mut()) {
        let (x, y) = (b[0] * extent, b[1] * extent);
        *b = [x, y, x + 1.0 + b[2] * (max_side - 1.0), y + 1.0 + b[3] * (max_side - 1.0)];
    }
    tensor
}

/// The list of boxes of [`boxes`].
#[cfg(test)]
pub(crate) fn box_list(
    len: usize,
    seed: u32,
    extent: f32,
    max_side: f32,
) -> Vec<crate::boxes::Box4> {
    crate::boxes::as_boxes(boxes(&[len, 4], seed, extent, max_side).as_f32()).to_vec()
}

/// The image index of each row: each image has the same number of rows, in image order.
pub(crate) fn in_order(rows: usize, images: usize) -> HostTensor {
    index(&[rows], (0..rows).map(|row| (row * images / rows) as i32).collect::<Vec<_>>())
}

/// `[N, 2]` sizes, all `height` by `width`.
pub(crate) fn sizes(n: usize, height: i32, width: i32) -> HostTensor {
    index(&[n, 2], [height, width].repeat(n))
}

/// A view: bit 0 of `turns` flips it horizontally, bit 1 vertically, bit 2 crops a window of the
/// source and a part of the resized window, bit 3 swaps rows and columns.
pub(crate) fn view(source: [i32; 2], network: [i32; 2], turns: i32) -> View {
    let mut view = View::whole(source, network);
    view.transposed = turns >> 3 & 1;
    let [rows, columns] = view.turned(network);
    (view.y.resized, view.y.network) = (rows, rows);
    (view.x.resized, view.x.network) = (columns, columns);
    (view.x.mirrored, view.y.mirrored) = (turns & 1, turns >> 1 & 1);
    for axis in [&mut view.y, &mut view.x].into_iter().filter(|_| turns & 4 != 0) {
        axis.start = axis.source / 5;
        axis.window = axis.source - axis.start - axis.source / 7;
        axis.resized = axis.network + axis.network / 3;
        axis.offset = axis.network / 4;
    }
    view
}

/// `[N, 15]` views of images of one size, with one element of `turns` per image.
pub(crate) fn views(source: [i32; 2], network: [i32; 2], turns: &[i32]) -> HostTensor {
    let rows = turns.iter().flat_map(|turns| view(source, network, *turns).row().to_vec());
    index(&[turns.len(), View::LEN], rows.collect::<Vec<_>>())
}

/// `[N, 4]` image keys: image ids 100, 101, .. of epoch 3.
pub(crate) fn image_keys(n: usize) -> HostTensor {
    let values: Vec<i32> = (0..n as i32).flat_map(|i| [100 + i, 0, i, 3]).collect();
    index(&[n, 4], values)
}
