//! The walk over a Program, node by node.

use std::any::Any;
use std::collections::HashMap;

use graph::{Node, Program, StateSet, TensorId};
use kernels::cpu::{HostData, HostTensor};
use kernels::ops::conv_transpose2x2::ConvTranspose2x2;
use kernels::ops::conv2d::Conv2d;
use kernels::ops::decode_proposals::DecodeProposals;
use kernels::ops::detections::Detections;
use kernels::ops::flatten_rois::FlattenRois;
use kernels::ops::group_norm::GroupNorm;
use kernels::ops::linear::Linear;
use kernels::ops::mask_probabilities::MaskProbabilities;
use kernels::ops::max_pool::MaxPool;
use kernels::ops::nms_proposals::NmsProposals;
use kernels::ops::preprocess::Preprocess;
use kernels::ops::roi_align::RoiAlign;
use kernels::ops::roi_levels::RoiLevels;
use kernels::ops::top_k_per_level::TopKPerLevel;
use kernels::ops::upsample_add::UpsampleAdd;
use kernels::{DType, OpError, TensorDesc, on_cpu};
use prost::Message;

use crate::nodes::{FLOAT, Fill, INT64, Nodes};
use crate::proto::{
    DimensionProto, GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use crate::{OPSET, detections, maps, products, proposals};

/// Version of the file format that goes with [`OPSET`].
const IR_VERSION: i64 = 8;
/// Name of the number of images.
const IMAGES: &str = "N";

/// A part of a model that ONNX cannot express.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// An op without a translation.
    #[error("{node} has no translation to ONNX, so this model has none")]
    Op {
        /// The node, as [`Program::node_name`] has it.
        node: String,
    },
    /// A tensor that no translation makes.
    #[error("{node} reads `{tensor}`, which ONNX files do not have")]
    Tensor {
        /// The node.
        node: String,
        /// The tensor.
        tensor: String,
    },
    /// A constant that cannot be computed.
    #[error(transparent)]
    Constant(#[from] OpError),
}

/// An input of the file.
#[derive(Debug)]
pub struct Input<'a> {
    /// Its name.
    pub name: &'a str,
    /// Element type: f32, or i64 in place of i32.
    pub dtype: DType,
    /// Extents after the number of images.
    pub shape: &'a [usize],
    /// The Program's inputs that it stands for.
    pub of: &'a [&'a str],
    /// What it holds.
    pub doc: &'a str,
}

/// An output of the file, `[N, ..]`.
#[derive(Debug, Clone, Copy)]
pub struct Output<'a> {
    /// Its name.
    pub name: &'a str,
    /// The Program's kept tensor.
    pub of: &'a str,
    /// The tensor is a list of detections `[N*D, ..]`: the output is `[N, D, ..]`, with zeros past
    /// each image's count.
    pub of_detections: bool,
    /// What it holds.
    pub doc: &'a str,
}

/// A Program to translate.
#[derive(Debug)]
pub struct Request<'a> {
    /// The detection pass of one image, for the CPU.
    pub program: &'a Program,
    /// Its state.
    pub state: &'a StateSet,
    /// Inputs; those of the Program that none stands for must not matter.
    pub inputs: &'a [Input<'a>],
    /// Outputs.
    pub outputs: &'a [Output<'a>],
    /// Version of the writer, `onegraph`.
    pub version: &'a str,
    /// Further facts, by name.
    pub metadata: &'a [(&'a str, String)],
}

/// The Program as the bytes of an ONNX file.
///
/// # Errors
/// [`OnnxError`] names the node that ONNX cannot express.
///
/// # Panics
/// If an input or output names no tensor of the Program, or the state lacks one of its tensors.
pub fn translate(request: &Request<'_>) -> Result<Vec<u8>, OnnxError> {
    let program = request.program;
    let mut walk = Translation::new(program);
    for (id, tensor) in program.states() {
        let held = request.state.get(&tensor.name);
        let held = held.unwrap_or_else(|| panic!("the state has no `{}`", tensor.name));
        walk.values.insert(id, Value::Constant(held.clone()));
    }
    for input in request.inputs {
        for name in input.of {
            walk.values.insert(find(program, name), Value::Edge(input.name.to_string()));
        }
    }
    for (i, node) in program.nodes().iter().enumerate() {
        walk.nodes.set_part(&node.part);
        walk.name = format!("{}.{}#{i}", node.part, node.op.name());
        let outputs = walk.node(node)?;
        walk.values.extend(node.outputs.iter().copied().zip(outputs));
    }
    walk.nodes.set_part("outputs");
    let outputs: Vec<_> =
        request.outputs.iter().map(|output| walk.output(output)).collect::<Result<_, _>>()?;
    let inputs = request.inputs.iter().map(|input| {
        let elements = if input.dtype == DType::F32 { FLOAT } else { INT64 };
        value_info(input.name, elements, input.shape, input.doc)
    });
    let entry = |(key, value): &(&str, String)| StringStringEntryProto {
        key: key.to_string(),
        value: value.clone(),
    };
    let model = ModelProto {
        ir_version: IR_VERSION,
        producer_name: "onegraph".to_string(),
        producer_version: request.version.to_string(),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
        metadata_props: request.metadata.iter().map(entry).collect(),
        graph: Some(GraphProto {
            name: "detection".to_string(),
            input: inputs.collect(),
            output: outputs,
            node: walk.nodes.nodes,
            initializer: walk.nodes.constants,
        }),
    };
    Ok(model.encode_to_vec())
}

fn find(program: &Program, name: &str) -> TensorId {
    program.find(name).unwrap_or_else(|| panic!("the program has no `{name}`"))
}

fn value_info(name: &str, elements: i32, shape: &[usize], doc: &str) -> ValueInfoProto {
    let images = DimensionProto { dim_value: None, dim_param: Some(IMAGES.to_string()) };
    let fixed = |&n: &usize| DimensionProto { dim_value: Some(n as i64), dim_param: None };
    let shape =
        TensorShapeProto { dim: [images].into_iter().chain(shape.iter().map(fixed)).collect() };
    let tensor = TensorTypeProto { elem_type: elements, shape: Some(shape) };
    ValueInfoProto {
        name: name.to_string(),
        r#type: Some(TypeProto { tensor_type: Some(tensor) }),
        doc_string: doc.to_string(),
    }
}

/// A tensor of the Program, as the file has it.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// Known now.
    Constant(HostTensor),
    /// The name of an input or a node's output.
    Edge(String),
}

/// The outputs of a node. Those at the end may be missing: then nothing may read them.
pub(crate) type Outputs = Result<Vec<Value>, OnnxError>;

/// Outputs that the file computes.
pub(crate) fn edges<const K: usize>(names: [String; K]) -> Vec<Value> {
    names.map(Value::Edge).into()
}

/// The detections in lists `[S, ..]` over the batch.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Image of each, and its rank in that image, `[S, 2]`.
    pub(crate) places: String,
    /// N, in a list of one.
    pub(crate) images: String,
    /// D.
    pub(crate) per_image: usize,
}

/// The file so far.
#[derive(Debug)]
pub(crate) struct Translation<'a> {
    program: &'a Program,
    pub(crate) nodes: Nodes,
    pub(crate) found: Option<Found>,
    values: HashMap<TensorId, Value>,
    /// Constants that are in the file, by tensor and use.
    placed: HashMap<(TensorId, &'static str), String>,
    /// The node that is translated.
    name: String,
}

/// Calls the translation of the op's type.
macro_rules! dispatch {
    ($self:ident, $node:ident: $($op:ident => $translation:path,)+) => {{
        let op: &dyn Any = $node.op.as_ref();
        $(if let Some(op) = op.downcast_ref::<$op>() {
            return $translation(op, $self, $node);
        })+
        Err($self.refusal())
    }};
}

impl<'a> Translation<'a> {
    fn new(program: &'a Program) -> Self {
        let (values, placed) = (HashMap::new(), HashMap::new());
        let (nodes, found, name) = (Nodes::default(), None, String::new());
        Self { program, nodes, found, values, placed, name }
    }

    fn node(&mut self, node: &Node) -> Outputs {
        let known = node.inputs.iter().map(|id| match self.values.get(id) {
            Some(Value::Constant(tensor)) => Some(tensor.clone()),
            _ => None,
        });
        if let Some(inputs) = known.collect::<Option<Vec<_>>>() {
            let outputs = on_cpu::run(node.op.as_ref(), &inputs)?.into_iter();
            return Ok(outputs.map(Value::Constant).collect());
        }
        dispatch!(self, node:
            Preprocess => maps::preprocess,
            Conv2d => products::conv2d,
            ConvTranspose2x2 => products::conv_transpose2x2,
            Linear => products::linear,
            GroupNorm => maps::group_norm,
            MaxPool => maps::max_pool,
            UpsampleAdd => maps::upsample_add,
            TopKPerLevel => proposals::top_k_per_level,
            DecodeProposals => proposals::decode_proposals,
            NmsProposals => proposals::nms_proposals,
            FlattenRois => proposals::flatten_rois,
            RoiLevels => maps::roi_levels,
            RoiAlign => maps::roi_align,
            Detections => detections::detections,
            MaskProbabilities => detections::mask_probabilities,
        )
    }

    /// The error for what the node's op, or its form, has no translation for.
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

    /// The value of a tensor that is known now.
    pub(crate) fn constant(&self, id: TensorId) -> Result<&HostTensor, OnnxError> {
        match self.value(id)? {
            Value::Constant(tensor) => Ok(tensor),
            Value::Edge(_) => Err(self.refusal()),
        }
    }

    /// A constant made of tensor `id` for one `purpose`: once, however often it is asked for.
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

    /// Shape and role of a tensor in the Program, which has one image.
    pub(crate) fn desc(&self, id: TensorId) -> &'a TensorDesc {
        self.program.desc(id)
    }

    fn output(&mut self, output: &Output<'_>) -> Result<ValueInfoProto, OnnxError> {
        let Output { name, of, of_detections, doc } = *output;
        let id = find(self.program, of);
        self.name = format!("the output `{name}`");
        let rows = self.edge(id)?;
        let desc = self.desc(id);
        let is_float = desc.role.cpu_dtype() == DType::F32;
        let elements = if is_float { FLOAT } else { INT64 };
        let Some(found) = self.found.clone().filter(|_| of_detections) else {
            self.nodes.output(name, &rows);
            return Ok(value_info(name, elements, &desc.shape[1..], doc));
        };
        let mut shape = desc.shape.clone();
        shape[0] = found.per_image;
        let zero = if is_float { Fill::Float(0.0) } else { Fill::Int(0) };
        let zeros = self.nodes.filled(&found.images, &shape, zero);
        let filled = self.nodes.one("ScatterND", &[&zeros, &found.places, &rows], &[]);
        self.nodes.output(name, &filled);
        Ok(value_info(name, elements, &shape, doc))
    }
}
