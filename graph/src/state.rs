//! State that persists across runs and is shared by programs: weights, momentum, counters.

use std::collections::BTreeMap;

use kernels::TensorDesc;
use kernels::cpu::HostTensor;

use crate::{GraphError, Program};

/// Named tensors that programs read and update.
#[derive(Debug, Clone, Default)]
pub struct StateSet {
    index: BTreeMap<String, usize>,
    tensors: Vec<HostTensor>,
}

impl StateSet {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor, or replaces the tensor of this name.
    pub fn insert(&mut self, name: &str, tensor: HostTensor) {
        match self.index.get(name) {
            Some(&i) => self.tensors[i] = tensor,
            None => {
                self.index.insert(name.to_string(), self.tensors.len());
                self.tensors.push(tensor);
            }
        }
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Option<&HostTensor> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    /// Mutable access to the tensor of this name.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut HostTensor> {
        self.index.get(name).map(|&i| &mut self.tensors[i])
    }

    /// Names and tensors, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &HostTensor)> {
        self.index.iter().map(|(name, &i)| (name.as_str(), &self.tensors[i]))
    }

    /// The tensors whose names do not satisfy `leave_out`.
    #[must_use]
    pub fn without(&self, leave_out: impl Fn(&str) -> bool) -> Self {
        let mut set = Self::new();
        let kept = self.iter().filter(|(name, _)| !leave_out(name));
        kept.for_each(|(name, tensor)| set.insert(name, tensor.clone()));
        set
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> usize {
        self.tensors.iter().map(|t| t.bytes().len()).sum()
    }

    /// Position in this set of each state tensor of `program`, by tensor index.
    pub(crate) fn bind(&self, program: &Program) -> Result<Vec<Option<usize>>, GraphError> {
        let mut positions = vec![None; program.tensors().len()];
        for (id, tensor) in program.states() {
            let position = self.index.get(&tensor.name);
            let position =
                *position.ok_or_else(|| GraphError::MissingState(tensor.name.clone()))?;
            let found = &self.tensors[position].desc;
            if !same(found, &tensor.desc) {
                return Err(GraphError::StateMismatch {
                    name: tensor.name.clone(),
                    expected: format!("{:?}", tensor.desc),
                    got: format!("{found:?}"),
                });
            }
            positions[id.index()] = Some(position);
        }
        Ok(positions)
    }

    /// True if `positions`, which an earlier [`Self::bind`] returned, possibly for a different set,
    /// are also valid for this set and `program`.
    pub(crate) fn is_bound(&self, program: &Program, positions: &[Option<usize>]) -> bool {
        program.states().all(|(id, tensor)| {
            positions[id.index()].is_some_and(|position| {
                self.index.get(&tensor.name) == Some(&position)
                    && same(&self.tensors[position].desc, &tensor.desc)
            })
        })
    }

    /// The tensors by index.
    pub(crate) fn tensors(&self) -> &[HostTensor] {
        &self.tensors
    }

    pub(crate) fn tensors_mut(&mut self) -> &mut [HostTensor] {
        &mut self.tensors
    }
}

fn same(a: &TensorDesc, b: &TensorDesc) -> bool {
    a.shape == b.shape && a.role.cpu_dtype() == b.role.cpu_dtype()
}
