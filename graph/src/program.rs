//! The Program: op nodes over tensors, in an order in which they can run.

use std::collections::HashMap;
use std::fmt;

use kernels::{Op, OpRef, TensorDesc};

use crate::GraphError;

/// A tensor of one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub(crate) u32);

/// A node of one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl TensorId {
    /// Position in [`Program::tensors`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    /// Position in [`Program::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The source of a tensor's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorKind {
    /// Written by the caller before a run.
    Input,
    /// Persists across runs, shared between programs by name.
    State,
    /// Written once by a node.
    Value,
}

/// A tensor of a program.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Name of an input, state or kept tensor, unique among these; for all other tensors, the name
    /// of the node that writes it.
    pub name: String,
    /// Shape and role.
    pub desc: TensorDesc,
    /// Source of the tensor's contents.
    pub kind: TensorKind,
}

/// The pass of a step that a node belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pass {
    /// From inputs to losses or results.
    Forward,
    /// From losses to gradients.
    Backward,
    /// Update of the state.
    Update,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `pad` instead of `write_str`, because the dump aligns its columns with a width.
        f.pad(match self {
            Pass::Forward => "forward",
            Pass::Backward => "backward",
            Pass::Update => "update",
        })
    }
}

/// An op in a program.
#[derive(Debug, Clone)]
pub struct Node {
    /// The op.
    pub op: OpRef,
    /// Inputs of the node.
    pub inputs: Vec<TensorId>,
    /// Outputs of the node.
    pub outputs: Vec<TensorId>,
    /// State that the node updates in place.
    pub updates: Vec<TensorId>,
    /// Part of the model, as a dotted path.
    pub part: String,
    /// Pass of the step.
    pub pass: Pass,
}

/// A step as data.
#[derive(Debug, Clone, Default)]
pub struct Program {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) kept: Vec<TensorId>,
    /// Inputs, state and kept tensors by name; a kept tensor may have several names.
    pub(crate) names: HashMap<String, TensorId>,
    part: String,
    pass: Option<Pass>,
}

impl Program {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// Nodes added from here on belong to this part of the model (a dotted path).
    pub fn set_part(&mut self, part: &str) {
        self.part = part.to_string();
    }

    /// Nodes added from here on belong to this pass.
    pub fn set_pass(&mut self, pass: Pass) {
        self.pass = Some(pass);
    }

    /// Declares a tensor that the caller writes before each run. Panics if the name is in use.
    pub fn input(&mut self, name: &str, desc: TensorDesc) -> TensorId {
        self.tensor(name.to_string(), desc, TensorKind::Input)
    }

    /// Declares a tensor that persists across runs. Declaring a name again returns the same tensor.
    ///
    /// Panics if the name is in use for an input, a kept tensor, or state of a different
    /// description.
    pub fn state(&mut self, name: &str, desc: TensorDesc) -> TensorId {
        match self.find(name) {
            Some(id) => {
                let kind = self.tensors[id.index()].kind;
                assert_eq!(kind, TensorKind::State, "`{name}` declared twice: it is not state");
                assert_eq!(self.desc(id), &desc, "state `{name}` declared twice, differently");
                id
            }
            None => self.tensor(name.to_string(), desc, TensorKind::State),
        }
    }

    /// Adds a node and returns its `N` outputs as an array: `let [values, places] =
    /// program.apply(op, inputs)?`. `inputs` is a list, or the op's struct of named inputs.
    ///
    /// Panics if the op has a different number of outputs.
    ///
    /// # Errors
    /// [`GraphError::Op`] with the part and the reason why the op rejected its inputs.
    pub fn apply<const N: usize>(
        &mut self,
        op: impl Op + 'static,
        inputs: impl Into<Vec<TensorId>>,
    ) -> Result<[TensorId; N], GraphError> {
        let op = OpRef::from(Box::new(op) as Box<dyn Op>);
        let name = op.name();
        let outputs = self.add(op, &inputs.into(), &[])?;
        let found = outputs.len();
        let Ok(outputs) = outputs.try_into() else {
            panic!("{}.{name} has {found} outputs, not {N}", self.part)
        };
        Ok(outputs)
    }

    /// [`Program::apply`] for an op with one output.
    ///
    /// # Errors
    /// As [`Program::apply`].
    pub fn apply1(
        &mut self,
        op: impl Op + 'static,
        inputs: impl Into<Vec<TensorId>>,
    ) -> Result<TensorId, GraphError> {
        let [output] = self.apply(op, inputs)?;
        Ok(output)
    }

    /// Adds a node, possibly one that updates state.
    ///
    /// # Errors
    /// [`GraphError::Op`] as [`Program::apply`]; [`GraphError::NotState`].
    pub fn add(
        &mut self,
        op: OpRef,
        inputs: &[TensorId],
        updates: &[TensorId],
    ) -> Result<Vec<TensorId>, GraphError> {
        let not_state = updates.iter().find(|u| self.tensors[u.index()].kind != TensorKind::State);
        if let Some(tensor) = not_state {
            return Err(GraphError::NotState {
                part: self.part.clone(),
                op: op.name(),
                tensor: self.tensors[tensor.index()].name.clone(),
            });
        }
        let output_descs = op
            .infer(&self.descs(inputs), &self.descs(updates))
            .map_err(|source| GraphError::Op { part: self.part.clone(), source })?;
        let outputs = output_descs
            .into_iter()
            .map(|desc| {
                let name = format!("{}.{}", self.part, op.name());
                self.tensor(name, desc, TensorKind::Value)
            })
            .collect::<Vec<_>>();
        self.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            updates: updates.to_vec(),
            part: self.part.clone(),
            pass: self.pass.unwrap_or(Pass::Forward),
        });
        Ok(outputs)
    }

    /// Keeps a tensor readable after a run, under `name`. A tensor may be kept under several names
    /// (two losses or gradients may be the same tensor); messages use the first name.
    ///
    /// Panics if `name` is the name of a different tensor.
    pub fn keep(&mut self, name: &str, tensor: TensorId) {
        let holder = *self.names.entry(name.to_string()).or_insert(tensor);
        assert_eq!(holder, tensor, "tensor `{name}` declared twice");
        if !self.kept.contains(&tensor) {
            self.kept.push(tensor);
            if self.tensors[tensor.index()].kind == TensorKind::Value {
                self.tensors[tensor.index()].name = name.to_string();
            }
        }
    }

    /// All tensors, indexed by [`TensorId::index`].
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// All nodes, in an order in which they can run.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Tensors that stay readable after a run.
    pub fn kept(&self) -> &[TensorId] {
        &self.kept
    }

    /// Names of the kept tensors, ordered by tensor, then name.
    pub fn kept_names(&self) -> Vec<(&str, TensorId)> {
        let names = self.names.iter().map(|(name, id)| (name.as_str(), *id));
        let mut kept: Vec<_> = names.filter(|(_, id)| self.kept.contains(id)).collect();
        kept.sort_unstable_by_key(|&(name, id)| (id, name));
        kept
    }

    /// Shape and role of a tensor.
    pub fn desc(&self, tensor: TensorId) -> &TensorDesc {
        &self.tensors[tensor.index()].desc
    }

    /// Shapes and roles of tensors.
    pub fn descs(&self, tensors: &[TensorId]) -> Vec<TensorDesc> {
        tensors.iter().map(|t| self.desc(*t).clone()).collect()
    }

    /// Per tensor, the position of the node that writes it.
    pub(crate) fn writers(&self) -> Vec<Option<usize>> {
        let mut writers = vec![None; self.tensors.len()];
        for (position, node) in self.nodes.iter().enumerate() {
            node.outputs.iter().for_each(|t| writers[t.index()] = Some(position));
        }
        writers
    }

    /// The number of rows in use of a tensor, if the op that writes it has a count, or processes
    /// the elements of such a tensor: its other rows hold any values.
    pub fn count_of(&self, mut tensor: TensorId) -> Option<TensorId> {
        loop {
            let node = self.nodes.iter().find(|node| node.outputs.first() == Some(&tensor))?;
            if let Some(input) = node.op.traits().count_input {
                return Some(node.inputs[input]);
            }
            let first = *node.inputs.first()?;
            (self.desc(first).shape == self.desc(tensor).shape).then_some(())?;
            tensor = first;
        }
    }

    /// The input, state or kept tensor of this name.
    pub fn find(&self, name: &str) -> Option<TensorId> {
        self.names.get(name).copied()
    }

    /// State tensors, in order of declaration.
    pub fn states(&self) -> impl Iterator<Item = (TensorId, &Tensor)> {
        self.of_kind(TensorKind::State)
    }

    /// Input tensors, in order of declaration.
    pub fn inputs(&self) -> impl Iterator<Item = (TensorId, &Tensor)> {
        self.of_kind(TensorKind::Input)
    }

    fn of_kind(&self, kind: TensorKind) -> impl Iterator<Item = (TensorId, &Tensor)> {
        let with_id = |(i, t)| (TensorId(i as u32), t);
        self.tensors.iter().enumerate().map(with_id).filter(move |(_, t)| t.kind == kind)
    }

    /// A node's name in messages: its part, op and index.
    pub fn node_name(&self, node: NodeId) -> String {
        let n = &self.nodes[node.index()];
        format!("{}.{}#{}", n.part, n.op.name(), node.0)
    }

    pub(crate) fn tensor(&mut self, name: String, desc: TensorDesc, kind: TensorKind) -> TensorId {
        let id = TensorId(self.tensors.len() as u32);
        if kind != TensorKind::Value {
            let earlier = self.names.insert(name.clone(), id);
            assert!(earlier.is_none(), "tensor `{name}` declared twice");
        }
        self.tensors.push(Tensor { name, desc, kind });
        id
    }

    pub(crate) fn current(&self) -> (String, Option<Pass>) {
        (self.part.clone(), self.pass)
    }

    pub(crate) fn restore(&mut self, (part, pass): (String, Option<Pass>)) {
        self.part = part;
        self.pass = pass;
    }
}
