//! Tensor extents by name: `[N, G, 4]` binds N and G once; later tensors are checked against them.

use std::any::Any;

use crate::{DType, OpError, TensorDesc, check};

/// Matches any extents; tensors that are declared with the same shape must have equal extents.
const ANY: &str = "..";

/// The names in one op's contract and the extents bound by its inputs; see
/// [`Contract`](super::Contract) for the syntax of shapes.
#[derive(Debug)]
pub struct Dims {
    op: &'static str,
    bound: Vec<(String, usize)>,
    /// Number of names at the start of `bound` that parameters bind, so they are valid for all
    /// tensors.
    of_parameters: usize,
    /// The extents of shapes that contain `..`.
    whole: Vec<(String, Vec<usize>)>,
}

impl Dims {
    /// Without bound names; `op` is the op's name for errors.
    pub(super) fn of(op: &'static str) -> Self {
        Self { op, bound: vec![], of_parameters: 0, whole: vec![] }
    }

    /// Checks the CPU element type and the shape of a tensor.
    ///
    /// # Errors
    /// [`OpError`] with op, tensor, expected and actual value.
    pub fn tensor(
        &mut self,
        tensor: &'static str,
        desc: &TensorDesc,
        shape: &str,
        elements: DType,
    ) -> Result<(), OpError> {
        self.shape(tensor, desc, shape)?;
        match self.whole(shape) {
            Some(extents) => check::shape(self.op, tensor, desc, extents)?,
            None if shape.contains(ANY) => {
                self.whole.push((shape.to_string(), desc.shape.clone()));
            }
            None => {}
        }
        check::dtype(self.op, tensor, desc, elements)
    }

    /// Name of the checked op, for errors: the declared op, or its gradient.
    pub fn op(&self) -> &'static str {
        self.op
    }

    /// The extent of `name`; an unbound name is a bug in the op.
    pub fn get(&self, name: &str) -> usize {
        match self.value(name) {
            Some(extent) => extent,
            None => panic!("{}: no tensor of the contract has a dimension {name}", self.op),
        }
    }

    /// Binds `name` to an extent that is not from an input.
    pub fn bind(&mut self, name: &str, extent: usize) {
        self.bound.push((name.to_string(), extent));
    }

    /// Binds the name of a parameter to its value, if that is a `usize`.
    pub fn bind_parameter(&mut self, name: &str, value: &dyn Any) {
        if let Some(extent) = value.downcast_ref() {
            self.bind(name, *extent);
        }
    }

    /// Makes the names bound so far valid for all tensors.
    pub(super) fn keep_all(&mut self) {
        self.of_parameters = self.bound.len();
    }

    /// Forgets lower-case names, which are valid only for one tensor, or for the tensors at one
    /// position of the lists.
    pub(super) fn forget_small(&mut self) {
        let of_tensors = self.bound.split_off(self.of_parameters);
        self.bound.extend(of_tensors.into_iter().filter(|(name, _)| !is_small(name)));
    }

    /// The extents of a shape whose names are bound.
    pub(super) fn extents(&self, shape: &str) -> Vec<usize> {
        let whole = self.whole(shape).map(<[usize]>::to_vec);
        whole.unwrap_or_else(|| names(shape).map(|name| self.get(name)).collect())
    }

    fn whole(&self, shape: &str) -> Option<&[usize]> {
        self.whole.iter().find(|(text, _)| text == shape).map(|(_, extents)| &extents[..])
    }

    fn value(&self, term: &str) -> Option<usize> {
        let found = || self.bound.iter().find(|(n, _)| n == term).map(|&(_, extent)| extent);
        let both = |split: Option<(&str, &str)>, of: fn(usize, usize) -> usize| {
            let (left, right) = split?;
            Some(of(self.value(left)?, self.value(right)?))
        };
        let digits = term.len() - term.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let factor = || (digits > 0 && digits < term.len()).then(|| term.split_at(digits));
        term.parse()
            .ok()
            .or_else(|| both(term.split_once('+'), |a, b| a + b))
            .or_else(|| both(term.split_once('*'), |a, b| a * b))
            .or_else(|| both(factor(), |a, b| a * b))
            .or_else(found)
    }

    fn shape(
        &mut self,
        tensor: &'static str,
        desc: &TensorDesc,
        shape: &str,
    ) -> Result<(), OpError> {
        let (first, last) = shape.split_once(ANY).unwrap_or((shape, ""));
        let [first, last] = [first, last].map(|part| names(part).collect::<Vec<_>>());
        let rank = first.len() + last.len();
        let fits =
            if shape.contains(ANY) { rank <= desc.shape.len() } else { rank == desc.shape.len() };
        if !fits {
            return Err(check::shape_error(self.op, tensor, desc, shape.to_string()));
        }
        let (first_extents, rest) = desc.shape.split_at(first.len());
        let extents = first_extents.iter().chain(&rest[rest.len() - last.len()..]);
        for (name, &extent) in first.into_iter().chain(last).zip(extents) {
            match self.value(name) {
                Some(expected) if expected != extent => {
                    let expected = format!("{shape} with {name} = {expected}");
                    let got = desc.shape.clone();
                    return Err(OpError::Shape { op: self.op, tensor, expected, got });
                }
                Some(_) => {}
                None => self.bind(name, extent),
            }
        }
        Ok(())
    }
}

fn names(shape: &str) -> impl Iterator<Item = &str> {
    shape.trim_matches(['[', ']']).split(',').map(str::trim).filter(|name| !name.is_empty())
}

fn is_small(name: &str) -> bool {
    name.starts_with(char::is_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    #[test]
    fn same_dimension_name_requires_equal_extents() {
        let boxes = TensorDesc::new(Role::Box, &[2, 3, 4]);
        let counts = TensorDesc::new(Role::Index, &[5]);
        let mut dims = Dims::of("op");
        dims.tensor("boxes", &boxes, "[N, G, 4]", DType::F32).unwrap();
        assert_eq!((dims.get("N"), dims.get("G")), (2, 3));
        let error = dims.tensor("counts", &counts, "[N]", DType::I32).unwrap_err().to_string();
        assert_eq!(error, "op: counts should have shape [N] with N = 2, got [5]");
        assert!(dims.tensor("counts", &counts, "[free]", DType::I32).is_ok());
        let error = dims.tensor("counts", &counts, "[free]", DType::F32);
        assert!(error.is_err(), "an index tensor is not f32");
        assert!(dims.tensor("boxes", &boxes, "[N, G]", DType::F32).is_err(), "rank");
        assert_eq!(dims.extents("[N*G, N+1, 4G]"), [6, 3, 12]);
    }
}
