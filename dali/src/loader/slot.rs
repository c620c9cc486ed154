//! A slot: one allocation in the caller's memory, with a typed view of each array.

use std::sync::Arc;

use super::layout::{Array, Clear, Element, Item, SlotLayout};
use crate::error::DaliError;

/// Segmentation type in `segm_index`: polygons.
pub const SEGM_POLYGONS: i32 = 0;
/// Segmentation type in `segm_index`: run lengths.
pub const SEGM_RUNS: i32 = 1;

/// One batch in one allocation, which may be pinned.
///
/// Contents after [`super::fill_slot`]. N is the layout's number of images; G, `parts`, `coords`
/// and `runs` are its capacities per image for objects, mask parts (polygon rings and run lists),
/// coordinates and run lengths:
///
/// | array | rows | what |
/// |---|---|---|
/// | `num_images` | `[1]` | images in use |
/// | `pixels` | `[N, bytes]` u8 | RGB, `[H, W, 3]` of each image at the row's beginning |
/// | `image_keys` | `[N, 4]` | image id (low, high 32 bits), index in the store, epoch and copy |
/// | `gt_boxes` | `[N, G, 4]` f32 | x1, y1, x2, y2 in source pixels (x2 = x + w) |
/// | `gt_classes` | `[N, G]` | class 1..K; 0 is padding |
/// | `gt_counts` | `[N]` | objects in use |
/// | `segm_index` | `[N, G, 3]` | [`SEGM_POLYGONS`] or [`SEGM_RUNS`], first part, number of parts |
/// | `segm_parts` | `[N, parts, 2]` | offset and length, in values, into coords or runs |
/// | `coords` | `[N, coords]` f32 | x, y in source pixels |
/// | `runs` | `[N, runs]` | run lengths down the columns, beginning with zeros |
#[derive(Debug, Clone)]
pub struct Slot<M = PlainMemory> {
    layout: Arc<SlotLayout>,
    memory: M,
}

impl Slot<PlainMemory> {
    /// A slot in its own memory, all zero.
    pub fn plain(layout: Arc<SlotLayout>) -> Self {
        let memory = PlainMemory::new(layout.bytes());
        Self { layout, memory }
    }
}

impl<M: AsRef<[u8]> + AsMut<[u8]>> Slot<M> {
    /// A slot in `memory`.
    ///
    /// # Errors
    /// [`DaliError::Layout`] if the memory is too small or not aligned to 4 bytes.
    pub fn new(layout: Arc<SlotLayout>, memory: M) -> Result<Self, DaliError> {
        let (need, have) = (layout.bytes(), memory.as_ref().len());
        let address = memory.as_ref().as_ptr().addr();
        if have < need || !address.is_multiple_of(size_of::<u32>()) {
            let fault = format!("{need} bytes do not fit {have} bytes at address {address:#x}");
            return Err(DaliError::Layout(fault));
        }
        Ok(Self { layout, memory })
    }

    /// The layout of its arrays.
    pub fn layout(&self) -> &Arc<SlotLayout> {
        &self.layout
    }

    /// Its memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Each array with its bytes.
    pub fn arrays(&self) -> impl Iterator<Item = (&Array, &[u8])> {
        let bytes = self.memory.as_ref();
        self.layout.arrays().iter().enumerate().map(|(i, a)| (a, &bytes[self.layout.range(i)]))
    }

    /// An array's elements, over all images.
    ///
    /// # Errors
    /// [`DaliError::Layout`] if the slot has no such array of this type.
    pub fn view<T: Item>(&self, name: &str) -> Result<&[T], DaliError> {
        let range = self.layout.range(self.layout.find(name, T::ELEMENT)?);
        Ok(bytemuck::cast_slice(&self.memory.as_ref()[range]))
    }

    /// An array's mutable elements, over all images.
    ///
    /// # Errors
    /// As [`Self::view`].
    pub fn view_mut<T: Item>(&mut self, name: &str) -> Result<&mut [T], DaliError> {
        let range = self.layout.range(self.layout.find(name, T::ELEMENT)?);
        Ok(bytemuck::cast_slice_mut(&mut self.memory.as_mut()[range]))
    }

    /// The mutable rows of each image. Arrays with one row per batch are not included.
    pub fn images_mut(&mut self) -> Vec<ImageRows<'_>> {
        let layout = self.layout.as_ref();
        let mut images: Vec<_> =
            (0..layout.images()).map(|_| ImageRows { layout, rows: Vec::new() }).collect();
        let (mut rest, mut at) = (self.memory.as_mut(), 0);
        for (idx, array) in layout.arrays().iter().enumerate() {
            let range = layout.range(idx);
            let (own, tail) = rest.split_at_mut(range.end - at);
            let mut own = &mut own[range.start - at..];
            (rest, at) = (tail, range.end);
            for image in &mut images {
                let bytes = if array.per_image { array.row_bytes() } else { 0 };
                let (row, others) = std::mem::take(&mut own).split_at_mut(bytes);
                image.rows.push(row);
                own = others;
            }
        }
        images
    }

    /// Clears each array according to [`Array::clear`], so that unused elements do not depend on
    /// earlier batches.
    pub fn clear(&mut self) {
        for idx in 0..self.layout.arrays().len() {
            let (range, array) = (self.layout.range(idx), &self.layout.arrays()[idx]);
            clear(&mut self.memory.as_mut()[range], array);
        }
    }
}

/// The rows of a slot that belong to one image.
#[derive(Debug)]
pub struct ImageRows<'a> {
    layout: &'a SlotLayout,
    /// One row per array; empty for arrays with one row per batch.
    rows: Vec<&'a mut [u8]>,
}

impl ImageRows<'_> {
    /// The image's row of an array.
    ///
    /// # Errors
    /// [`DaliError::Layout`] if the slot has no such array of this type.
    pub fn row_mut<T: Item>(&mut self, name: &str) -> Result<&mut [T], DaliError> {
        let idx = self.layout.find(name, T::ELEMENT)?;
        Ok(bytemuck::cast_slice_mut(&mut *self.rows[idx]))
    }
}

fn clear(bytes: &mut [u8], array: &Array) {
    match (array.clear, array.element) {
        (Clear::Kept, _) => {}
        (Clear::Zeros, _) => bytes.fill(0),
        (Clear::Ones, Element::U8) => bytes.fill(1),
        (Clear::Ones, Element::I32) => bytemuck::cast_slice_mut(bytes).fill(1i32),
        (Clear::Ones, Element::F32) => bytemuck::cast_slice_mut(bytes).fill(1f32),
    }
}

/// Ordinary process memory, aligned for every element type.
#[derive(Debug, Clone)]
pub struct PlainMemory {
    words: Vec<u64>,
    bytes: usize,
}

impl PlainMemory {
    /// Memory of this length, all zero.
    pub fn new(bytes: usize) -> Self {
        Self { words: vec![0; bytes.div_ceil(size_of::<u64>())], bytes }
    }
}

impl AsRef<[u8]> for PlainMemory {
    fn as_ref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }
}

impl AsMut<[u8]> for PlainMemory {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }
}
