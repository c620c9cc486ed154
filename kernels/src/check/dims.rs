//! Checks of shapes by letter: `[N, G, 4]` binds N and G once and holds later tensors to them.

use crate::{DType, OpError, TensorDesc};

/// The letters of one op's contract and the extents that its inputs gave them.
///
/// In a shape such as `[N, h_l, w_l, 4]` a number must be met, a name that begins with a capital
/// is bound by the first tensor that shows it, and one that begins with a small letter is free.
pub(crate) struct Dims {
    op: &'static str,
    bound: Vec<(String, usize)>,
}

impl Dims {
    /// Begins the contract of `op`, which takes exactly `expected` inputs and updates no state.
    pub(crate) fn new(
        op: &'static str,
        inputs: &[TensorDesc],
        expected: usize,
        updates: &[TensorDesc],
    ) -> Result<Self, OpError> {
        super::arity(op, "inputs", inputs, expected)?;
        super::arity(op, "updates", updates, 0)?;
        Ok(Self { op, bound: Vec::new() })
    }

    /// The tensor holds f32 in this shape.
    pub(crate) fn f32(
        &mut self,
        tensor: &'static str,
        desc: &TensorDesc,
        shape: &str,
    ) -> Result<(), OpError> {
        self.shape(tensor, desc, shape)?;
        super::dtype(self.op, tensor, desc, DType::F32)
    }

    /// The tensor holds i32 in this shape.
    pub(crate) fn i32(
        &mut self,
        tensor: &'static str,
        desc: &TensorDesc,
        shape: &str,
    ) -> Result<(), OpError> {
        self.shape(tensor, desc, shape)?;
        super::dtype(self.op, tensor, desc, DType::I32)
    }

    /// The extent bound to `name`; asking for a name that no tensor showed is a fault of the op.
    pub(crate) fn get(&self, name: &str) -> usize {
        match self.find(name) {
            Some(extent) => extent,
            None => panic!("{}: no tensor of the contract has a dimension {name}", self.op),
        }
    }

    /// Binds `name` from something other than a tensor.
    pub(crate) fn bind(&mut self, name: &str, extent: usize) {
        self.bound.push((name.to_string(), extent));
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.bound.iter().find(|(n, _)| n == name).map(|&(_, extent)| extent)
    }

    fn shape(
        &mut self,
        tensor: &'static str,
        desc: &TensorDesc,
        shape: &str,
    ) -> Result<(), OpError> {
        super::rank(self.op, tensor, desc, shape)?;
        let names = shape.trim_matches(['[', ']']).split(',').map(str::trim);
        for (name, &extent) in names.zip(&desc.shape) {
            let expected = name.parse().ok().or_else(|| self.find(name));
            match expected {
                Some(expected) if expected != extent => {
                    let expected = format!("{shape} with {name} = {expected}");
                    let got = desc.shape.clone();
                    return Err(OpError::Shape { op: self.op, tensor, expected, got });
                }
                None if name.starts_with(char::is_uppercase) => self.bind(name, extent),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    #[test]
    fn a_letter_means_one_extent() {
        let boxes = TensorDesc::new(Role::Box, &[2, 3, 4]);
        let counts = TensorDesc::new(Role::Index, &[5]);
        let mut dims = Dims::new("op", &[boxes.clone(), counts.clone()], 2, &[]).unwrap();
        dims.f32("boxes", &boxes, "[N, G, 4]").unwrap();
        assert_eq!((dims.get("N"), dims.get("G")), (2, 3));
        let error = dims.i32("counts", &counts, "[N]").unwrap_err().to_string();
        assert_eq!(error, "op: counts should have shape [N] with N = 2, got [5]");
        assert!(dims.i32("counts", &counts, "[free]").is_ok());
        assert!(dims.f32("counts", &counts, "[free]").is_err(), "an index tensor is not f32");
        assert!(dims.f32("boxes", &boxes, "[N, G]").is_err(), "rank");
    }
}
