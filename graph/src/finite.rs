//! Finds the first tensor of a step that contains an infinity or NaN.

use std::fmt;

use kernels::cpu::{HostData, HostTensor};

use crate::exec::{Look, Seen};
use crate::{NodeId, Program, StateSet, TensorId};

/// A tensor with non-finite values.
#[derive(Debug, Clone, PartialEq)]
pub struct NonFinite {
    /// The tensor's name, or its position among the outputs of its node.
    pub tensor: String,
    /// Name of the node that wrote it; `None` for state and inputs.
    pub node: Option<String>,
    /// The first non-finite value.
    pub value: f32,
    /// Number of non-finite values.
    pub count: usize,
    /// Number of values.
    pub len: usize,
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tensor, node, value, count, len } = self;
        match node {
            Some(node) => write!(f, "`{tensor}` of `{node}`")?,
            None => write!(f, "`{tensor}`, which the step reads")?,
        }
        write!(f, ": {count} of {len} values, the first {value}")
    }
}

/// Observes a run to find the first tensor with non-finite values: an input or state that a node
/// reads, or an output that a node writes.
#[derive(Debug, Default)]
pub struct FirstNonFinite {
    found: Option<NonFinite>,
}

impl FirstNonFinite {
    /// The first tensor with a non-finite value; `None` if all values are finite.
    pub fn found(&self) -> Option<&NonFinite> {
        self.found.as_ref()
    }

    /// Checks the state before a run.
    pub fn see_state(&mut self, state: &StateSet) {
        for (name, tensor) in state.iter() {
            self.look_at(tensor, || (name.to_string(), None));
        }
    }

    fn look_at(&mut self, tensor: &HostTensor, named: impl FnOnce() -> (String, Option<String>)) {
        let HostData::F32(values) = &tensor.data else { return };
        if self.found.is_some() {
            return;
        }
        let Some(value) = values.iter().copied().find(|v| !v.is_finite()) else { return };
        let count = values.iter().filter(|v| !v.is_finite()).count();
        let (tensor, node) = named();
        self.found = Some(NonFinite { tensor, node, value, count, len: values.len() });
    }
}

impl Look for FirstNonFinite {
    fn wants(&mut self, _: &Program, _: NodeId) -> bool {
        self.found.is_none()
    }

    fn see(&mut self, program: &Program, seen: Seen) {
        let node = &program.nodes()[seen.node.index()];
        let name = |id: &TensorId| program.tensors()[id.index()].name.clone();
        for (tensor, id) in seen.inputs.iter().zip(&node.inputs) {
            self.look_at(tensor, || (name(id), None));
        }
        let written = seen.outputs.iter().chain(&seen.after);
        for (tensor, id) in written.zip(node.outputs.iter().chain(&node.updates)) {
            self.look_at(tensor, || (name(id), Some(program.node_name(seen.node))));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kernels::ops::sum::Sum;
    use kernels::{Role, TensorDesc};

    use super::*;
    use crate::CpuExecutor;

    /// `doubled = x + x`, `fourfold = doubled + doubled`.
    fn first(x: [f32; 2]) -> Option<NonFinite> {
        let mut program = Program::new();
        let input = program.input("x", TensorDesc::new(Role::Activation, &[2]));
        let doubled = program.apply1(Sum, [input, input]).expect("it fits");
        let fourfold = program.apply1(Sum, [doubled, doubled]).expect("it fits");
        program.keep("doubled", doubled);
        program.keep("fourfold", fourfold);
        let mut state = StateSet::new();
        let mut executor = CpuExecutor::new(Arc::new(program), &state).expect("a plan");
        executor.input_mut("x").expect("an input").as_f32_mut().copy_from_slice(&x);
        let mut look = FirstNonFinite::default();
        executor.run_watched(&mut state, &mut look);
        look.found().cloned()
    }

    #[test]
    fn first_non_finite_tensor_is_reported() {
        assert_eq!(first([1.0, 2.0]), None);
        let overflow = first([1.0, 1.2e38]).expect("the second sum overflows");
        assert_eq!((overflow.tensor.as_str(), overflow.count, overflow.len), ("fourfold", 1, 2));
        assert!(overflow.node.is_some());
        let input = first([f32::NAN, f32::NAN]).expect("the input is not a number");
        assert_eq!((input.tensor.as_str(), input.node, input.count), ("x", None, 2));
    }
}
