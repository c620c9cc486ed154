//! The state of a translation: the Program's tensors, and the nodes that compute them.

use std::collections::HashMap;

use graph::{Program, TensorId};
use kernels::cpu::{HostData, HostTensor};
use kernels::{OpError, TensorDesc};

use crate::nodes::Nodes;

/// A part of a model that ONNX cannot express.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// An op without a translation.
    #[error("{node} has no translation to ONNX, so the export fails")]
    Op {
        /// The node, as returned by [`Program::node_name`].
        node: String,
    },
    /// A tensor that no translation computes.
    #[error("{node} reads `{tensor}`, which is not available in ONNX files")]
    Tensor {
        /// The node.
        node: String,
        /// The tensor.
        tensor: String,
    },
    /// A constant could not be computed.
    #[error(transparent)]
    Constant(#[from] OpError),
}

/// A tensor of the Program, as represented in the file.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// A constant value.
    Constant(HostTensor),
    /// The name of an input or a node's output.
    Edge(String),
}

/// The outputs of a node; trailing outputs may be missing if they are never read.
pub(crate) type Outputs = Result<Vec<Value>, OnnxError>;

/// Wraps the names of node outputs as [`Value`]s.
pub(crate) fn edges<const K: usize>(names: [String; K]) -> Vec<Value> {
    names.map(Value::Edge).into()
}

/// The detections of all images, as lists of S elements.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// For each detection, its image and its position among the image's detections, `[S, 2]`.
    pub(crate) places: String,
    /// The number of images N, as a list with one element.
    pub(crate) images: String,
    /// D.
    pub(crate) per_image: usize,
}

/// The file under construction.
#[derive(Debug)]
pub(crate) struct Translation<'a> {
    pub(crate) program: &'a Program,
    pub(crate) nodes: Nodes,
    pub(crate) found: Option<Found>,
    pub(crate) values: HashMap<TensorId, Value>,
    /// Names of constants that are already in the file, by tensor and purpose.
    placed: HashMap<(TensorId, &'static str), String>,
    /// Name of the node that is being translated.
    pub(crate) name: String,
}

impl<'a> Translation<'a> {
    /// A file without nodes.
    pub(crate) fn new(program: &'a Program) -> Self {
        let (values, placed) = (HashMap::new(), HashMap::new());
        let (nodes, found, name) = (Nodes::default(), None, String::new());
        Self { program, nodes, found, values, placed, name }
    }

    /// The error for the current node if its op, or this variant of its op, has no translation.
    pub(crate) fn refusal(&self) -> OnnxError {
        OnnxError::Op { node: self.name.clone() }
    }

    fn value(&self, id: TensorId) -> Result<&Value, OnnxError> {
        self.values.get(&id).ok_or_else(|| OnnxError::Tensor {
            node: self.name.clone(),
            tensor: self.program.tensors()[id.index()].name.clone(),
        })
    }

    /// The tensor's name in the file.
    pub(crate) fn edge(&mut self, id: TensorId) -> Result<String, OnnxError> {
        let tensor = match self.value(id)? {
            Value::Edge(name) => return Ok(name.clone()),
            Value::Constant(tensor) => tensor.clone(),
        };
        self.place(id, "", || Ok((tensor.desc.shape.clone(), tensor)))
    }

    /// The value of a constant tensor.
    pub(crate) fn constant(&self, id: TensorId) -> Result<&HostTensor, OnnxError> {
        match self.value(id)? {
            Value::Constant(tensor) => Ok(tensor),
            Value::Edge(_) => Err(self.refusal()),
        }
    }

    /// Adds a constant computed from tensor `id` for one `purpose`; repeated calls return the
    /// existing constant.
    pub(crate) fn place(
        &mut self,
        id: TensorId,
        purpose: &'static str,
        make: impl FnOnce() -> Result<(Vec<usize>, HostTensor), OnnxError>,
    ) -> Result<String, OnnxError> {
        if let Some(name) = self.placed.get(&(id, purpose)) {
            return Ok(name.clone());
        }
        let (shape, tensor) = make()?;
        let name = match &tensor.data {
            HostData::F32(values) => self.nodes.floats(&shape, values),
            HostData::I32(values) => {
                let values: Vec<i64> = values.iter().map(|&v| i64::from(v)).collect();
                self.nodes.ints(&shape, &values)
            }
            HostData::U8(_) => return Err(self.refusal()),
        };
        self.placed.insert((id, purpose), name.clone());
        Ok(name)
    }

    /// Shape and role of a tensor in the Program, which is for one image.
    pub(crate) fn desc(&self, id: TensorId) -> &'a TensorDesc {
        self.program.desc(id)
    }
}
