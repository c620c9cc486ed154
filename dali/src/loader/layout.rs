//! The layout of a slot (the memory of one batch): named arrays of fixed extents, consecutive in
//! one allocation.

use bytemuck::Pod;

use crate::error::DaliError;

/// Element type of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// Bytes.
    U8,
    /// 32-bit integers.
    I32,
    /// 32-bit floats.
    F32,
}

impl Element {
    /// Bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            Element::U8 => 1,
            Element::I32 | Element::F32 => 4,
        }
    }
}

/// The Rust types of array elements.
pub trait Item: Pod {
    /// The corresponding element type of an array.
    const ELEMENT: Element;
}

impl Item for u8 {
    const ELEMENT: Element = Element::U8;
}

impl Item for i32 {
    const ELEMENT: Element = Element::I32;
}

impl Item for f32 {
    const ELEMENT: Element = Element::F32;
}

/// Value of the elements that a batch does not fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clear {
    /// Zeros.
    Zeros,
    /// Ones.
    Ones,
    /// Undefined: a count or size in the slot limits the part that is in use.
    Kept,
}

/// One array of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// Name, unique in the layout.
    pub name: String,
    /// Element type.
    pub element: Element,
    /// True if each image has its own row, false if there is one row for the whole batch.
    pub per_image: bool,
    /// Extents of a row.
    pub extents: Vec<usize>,
    /// Value of elements that the batch does not fill.
    pub clear: Clear,
}

impl Array {
    /// Bytes per row.
    pub fn row_bytes(&self) -> usize {
        self.extents.iter().product::<usize>() * self.element.bytes()
    }

    /// Bytes of `rows` rows, rounded up to the alignment; `None` on overflow.
    fn bytes(&self, rows: usize, align: usize) -> Option<usize> {
        let extents = self.extents.iter().chain([&rows]);
        let elements = extents.copied().try_fold(1_usize, usize::checked_mul)?;
        elements.checked_mul(self.element.bytes())?.checked_next_multiple_of(align)
    }
}

/// The arrays of a slot and their offsets in its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotLayout {
    images: usize,
    arrays: Vec<Array>,
    /// Byte offset of each array.
    offsets: Vec<usize>,
    bytes: usize,
}

impl SlotLayout {
    /// Lays out the arrays of a batch of up to `images` images in the given order, each at the next
    /// multiple of `align` bytes.
    ///
    /// # Errors
    /// [`DaliError::Layout`] if two arrays have the same name, the alignment is invalid for an
    /// element type, or the total size overflows.
    pub fn new(images: usize, arrays: Vec<Array>, align: usize) -> Result<Self, DaliError> {
        if align == 0 || !align.is_multiple_of(size_of::<u32>()) {
            return Err(DaliError::Layout(format!("invalid alignment of {align} bytes")));
        }
        let (mut offsets, mut bytes) = (Vec::with_capacity(arrays.len()), 0);
        for (i, array) in arrays.iter().enumerate() {
            if arrays[..i].iter().any(|other| other.name == array.name) {
                return Err(DaliError::Layout(format!("two arrays are called `{}`", array.name)));
            }
            offsets.push(bytes);
            let rows = if array.per_image { images } else { 1 };
            let end = array.bytes(rows, align).and_then(|own| own.checked_add(bytes));
            bytes = end.filter(|end| isize::try_from(*end).is_ok()).ok_or_else(|| {
                let (name, extents) = (&array.name, &array.extents);
                DaliError::Layout(format!(
                    "`{name}` of {rows} times {extents:?} elements is too large to be addressed"
                ))
            })?;
        }
        Ok(Self { images, arrays, offsets, bytes })
    }

    /// Maximum number of images in a slot, N.
    pub fn images(&self) -> usize {
        self.images
    }

    /// Bytes of a slot.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The arrays, in the order of the layout.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// The byte range of array `idx` in a slot.
    pub fn range(&self, idx: usize) -> std::ops::Range<usize> {
        let rows = if self.arrays[idx].per_image { self.images } else { 1 };
        self.offsets[idx]..self.offsets[idx] + rows * self.arrays[idx].row_bytes()
    }

    /// The array of this name.
    ///
    /// # Errors
    /// [`DaliError::Layout`] if there is none, or its element type differs.
    pub(super) fn find(&self, name: &str, element: Element) -> Result<usize, DaliError> {
        let found = self.arrays.iter().position(|array| array.name == name);
        let found = found.filter(|idx| self.arrays[*idx].element == element);
        found.ok_or_else(|| DaliError::Layout(format!("no array `{name}` of {element:?}")))
    }
}

/// Extents of an array that [`super::fill_slot`] fills; 0 means any.
type Extents = &'static [usize];

/// The arrays that [`super::fill_slot`] fills: name, element type, extents, and true if they have
/// one row per image.
const FILLED: [(&str, Element, Extents, bool); 10] = [
    ("num_images", Element::I32, &[1], false),
    ("pixels", Element::U8, &[0], true),
    ("image_keys", Element::I32, &[4], true),
    ("gt_boxes", Element::F32, &[0, 4], true),
    ("gt_classes", Element::I32, &[0], true),
    ("gt_counts", Element::I32, &[], true),
    ("segm_index", Element::I32, &[0, 3], true),
    ("segm_parts", Element::I32, &[0, 2], true),
    ("coords", Element::F32, &[0], true),
    ("runs", Element::I32, &[0], true),
];

impl SlotLayout {
    /// Checks that the layout has the arrays that [`super::fill_slot`] fills.
    ///
    /// # Errors
    /// [`DaliError::Layout`] with the first array that is missing or has a wrong shape.
    pub(super) fn check_filled(&self) -> Result<(), DaliError> {
        for (name, element, extents, per_image) in FILLED {
            let array = &self.arrays[self.find(name, element)?];
            let same = array.extents.len() == extents.len()
                && extents.iter().zip(&array.extents).all(|(want, got)| *want == 0 || want == got);
            if !same || array.per_image != per_image {
                let rows = |per_image| if per_image { "each image" } else { "the batch" };
                return Err(DaliError::Layout(format!(
                    "`{name}` has {:?} elements for {}, but needs {extents:?} for {} (0 is any \
                     number)",
                    array.extents,
                    rows(array.per_image),
                    rows(per_image)
                )));
            }
        }
        Ok(())
    }
}
