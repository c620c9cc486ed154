//! The arrays of a batch, as tables from which program inputs and the loader's slots are generated.

use std::borrow::Cow;

use dali::loader::{self, Clear, Element, SlotLayout};
use graph::plan::ALIGNMENT;
use graph::{Program, TensorId};
use kernels::{DType, Role, TensorDesc};

use super::{ModelSpec, SlotShape};
use crate::error::EngineError;

/// One extent of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Images per batch, N; it is the first extent if each image has a row.
    Images,
    /// Bytes of source pixels per image.
    Pixels,
    /// Objects per image, G.
    Objects,
    /// Polygon rings or run lists per image.
    Parts,
    /// Polygon coordinates per image.
    Coords,
    /// Run lengths per image.
    Runs,
    /// This many.
    Fixed(usize),
}

/// One array of a batch.
#[derive(Debug, Clone)]
pub struct Array {
    /// Name of the program's input, and of the slot's array.
    pub name: &'static str,
    /// Role, which determines the element type.
    pub role: Role,
    /// Extents.
    pub extents: Cow<'static, [Extent]>,
    /// Value of elements that a batch leaves unfilled.
    pub clear: Clear,
}

impl Array {
    /// Tensor description for `images` images.
    fn desc(&self, images: usize, slot: SlotShape) -> TensorDesc {
        let extent = |extent: &Extent| match extent {
            Extent::Images => images,
            Extent::Pixels => slot.pixels,
            Extent::Objects => slot.objects,
            Extent::Parts => slot.parts,
            Extent::Coords => slot.coords,
            Extent::Runs => slot.runs,
            Extent::Fixed(len) => *len,
        };
        let shape: Vec<usize> = self.extents.iter().map(extent).collect();
        TensorDesc::new(self.role, &shape)
    }

    /// Declares the program's input.
    pub(super) fn declare(&self, program: &mut Program, spec: &ModelSpec<'_>) -> TensorId {
        program.input(self.name, self.desc(spec.images, spec.slot))
    }

    /// The loader's description of the array.
    fn of_slot(&self, images: usize, slot: SlotShape) -> loader::Array {
        let desc = self.desc(images, slot);
        assert!(!self.role.follows_precision(), "{}: one for all", self.name);
        let element = match self.role.cpu_dtype() {
            DType::U8 => Element::U8,
            DType::I32 => Element::I32,
            DType::F32 => Element::F32,
            other => panic!("{}: no loader fills {other:?}", self.name),
        };
        let per_image = self.extents.first() == Some(&Extent::Images);
        let extents = desc.shape[usize::from(per_image)..].to_vec();
        loader::Array { name: self.name.into(), element, per_image, extents, clear: self.clear }
    }
}

/// Slot layout of these arrays. On a device, it equals the layout of a program's inputs if the
/// program declares the same arrays first, in the same order.
///
/// # Errors
/// [`dali::DaliError::Layout`] if two arrays have the same name.
pub(super) fn slot_layout(
    arrays: &[&[Array]],
    images: usize,
    slot: SlotShape,
) -> Result<SlotLayout, EngineError> {
    let arrays = arrays.iter().flat_map(|group| group.iter());
    let arrays = arrays.map(|array| array.of_slot(images, slot)).collect();
    Ok(SlotLayout::new(images, arrays, ALIGNMENT)?)
}

/// Defines a group of arrays: a table of [`Array`]s, one per row, and a struct with a program input
/// for each.
macro_rules! batch_arrays {
    ($(#[$doc:meta])* $vis:vis $group:ident {
        $($name:ident: $role:ident [$($extent:expr),+] $clear:ident;)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        $vis struct $group {
            $(
                #[doc = concat!("The input `", stringify!($name), "`.")]
                $vis $name: TensorId,
            )+
        }

        impl $group {
            /// The arrays, in declaration order.
            pub(super) const ARRAYS: &[Array] = &[$(Array {
                name: stringify!($name),
                role: Role::$role,
                extents: Cow::Borrowed(&[$($extent),+]),
                clear: Clear::$clear,
            }),+];

            /// Declares the inputs.
            pub(super) fn declare(program: &mut Program, spec: &ModelSpec<'_>) -> Self {
                let [$($name),+] = Self::ARRAYS else { unreachable!("one row a field") };
                Self { $($name: $name.declare(program, spec)),+ }
            }
        }
    };
}

pub(super) use batch_arrays;

#[cfg(test)]
mod tests;
