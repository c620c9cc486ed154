//! Arrays of any element type with shape and strides, and their conversion to f32.

use std::borrow::Cow;

use half::{bf16, f16};

/// Type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    F32,
    F64,
    F16,
    Bf16,
    /// Not a floating-point type; tensors of this type can be skipped, but not read.
    Other {
        bytes: usize,
    },
}

impl Element {
    /// Bytes per element.
    pub(super) fn bytes(self) -> usize {
        match self {
            Element::F64 => 8,
            Element::F32 => 4,
            Element::F16 | Element::Bf16 => 2,
            Element::Other { bytes } => bytes,
        }
    }
}

/// An array as described in a file.
#[derive(Debug)]
pub(super) struct Array<'a> {
    pub(super) element: Element,
    /// The storage, little-endian.
    pub(super) data: Cow<'a, [u8]>,
    /// Index of the first element.
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    /// Strides in elements, by dimension.
    pub(super) strides: Vec<usize>,
}

/// Strides of a contiguous array, the last index fastest.
pub(super) fn contiguous(shape: &[usize]) -> Option<Vec<usize>> {
    let mut strides = vec![1usize; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d].checked_mul(shape[d].max(1))?;
    }
    Some(strides)
}

/// Limit on the total number of values in the tensors of a file. Elements that several tensors
/// share count several times.
#[derive(Debug)]
pub(super) struct Budget {
    left: usize,
    file_bytes: usize,
}

impl Budget {
    /// The limit for a file of this length: one value per byte, enough for fp16 and for shared
    /// weights, plus a constant.
    pub(super) fn of(file_bytes: usize) -> Self {
        Self { left: file_bytes.saturating_add(1 << 16), file_bytes }
    }
}

impl<'a> Array<'a> {
    /// A contiguous array. The first index varies fastest if `is_fortran`, else the last.
    ///
    /// # Errors
    /// A message: the number of bytes does not match the shape.
    pub(super) fn whole(
        element: Element,
        shape: Vec<usize>,
        is_fortran: bool,
        data: Cow<'a, [u8]>,
    ) -> Result<Self, String> {
        let count = shape.iter().try_fold(element.bytes(), |all, side| all.checked_mul(*side));
        let sides: Vec<usize> = match is_fortran {
            true => shape.iter().rev().copied().collect(),
            false => shape.clone(),
        };
        let (Some(mut strides), true) = (contiguous(&sides), count == Some(data.len())) else {
            let bytes = data.len();
            return Err(format!("it has {bytes} bytes, which do not match shape {shape:?}"));
        };
        if is_fortran {
            strides.reverse();
        }
        Ok(Self { element, data, offset: 0, shape, strides })
    }

    /// The values as f32, the last index fastest.
    ///
    /// # Errors
    /// A message about the tensor `name`: elements outside the storage, a type that is not
    /// floating-point, an f64 that f32 cannot represent exactly, or more values than the limit.
    pub(super) fn values(&self, name: &str, budget: &mut Budget) -> Result<Vec<f32>, String> {
        let (element, stored) = (self.element, self.data.len() / self.element.bytes());
        if self.shape.len() != self.strides.len() || self.shape.len() > 8 {
            return Err(format!("tensor `{name}` has a shape that does not fit its strides"));
        }
        let beyond = || {
            format!(
                "tensor `{name}` of shape {:?} with strides {:?} from element {} is beyond its \
                 storage of {stored}",
                self.shape, self.strides, self.offset
            )
        };
        let count = self.shape.iter().try_fold(1usize, |all, side| all.checked_mul(*side));
        let count = count.ok_or_else(beyond)?;
        if count == 0 {
            return Ok(vec![]);
        }
        let last =
            self.shape.iter().zip(&self.strides).try_fold(self.offset, |at, (n, stride)| {
                at.checked_add((n - 1).checked_mul(*stride)?)
            });
        if last.is_none_or(|last| last >= stored) {
            return Err(beyond());
        }
        budget.left = budget.left.checked_sub(count).ok_or_else(|| {
            let bytes = budget.file_bytes;
            format!("its tensors up to `{name}` have more values than {bytes} bytes can hold")
        })?;
        let mut values = Vec::with_capacity(count);
        let mut index = vec![0usize; self.shape.len()];
        let mut at = self.offset;
        loop {
            values.push(self.value(at).ok_or_else(|| match element {
                Element::F64 => format!(
                    "tensor `{name}` holds a float64 that float32 cannot represent: save it as \
                     float32"
                ),
                _ => format!("tensor `{name}` holds no floating-point numbers"),
            })?);
            // Advances the index; the last dimension varies fastest.
            let Some(d) = (0..index.len()).rev().find(|d| index[*d] + 1 < self.shape[*d]) else {
                return Ok(values);
            };
            for (after, stride) in index.iter_mut().zip(&self.strides).skip(d + 1) {
                at -= *after * stride;
                *after = 0;
            }
            index[d] += 1;
            at += self.strides[d];
        }
    }

    /// The element at an offset in the storage; `None` if f32 cannot represent it exactly. NaN and
    /// infinity are accepted here, and rejected later for all formats.
    fn value(&self, at: usize) -> Option<f32> {
        let size = self.element.bytes();
        let bytes = &self.data[at * size..][..size];
        match (self.element, bytes) {
            (Element::F32, &[a, b, c, d]) => Some(f32::from_le_bytes([a, b, c, d])),
            (Element::F16, &[a, b]) => Some(f16::from_le_bytes([a, b]).to_f32()),
            (Element::Bf16, &[a, b]) => Some(bf16::from_le_bytes([a, b]).to_f32()),
            (Element::F64, &[a, b, c, d, e, f, g, h]) => {
                let exact = f64::from_le_bytes([a, b, c, d, e, f, g, h]);
                let near = exact as f32;
                (f64::from(near) == exact || exact.is_nan()).then_some(near)
            }
            _ => None,
        }
    }
}
