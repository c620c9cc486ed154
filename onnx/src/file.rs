//! Builds a complete file: traverses a Program, and adds inputs and outputs.

use std::any::Any;

use graph::{Node, Program, StateSet, TensorId};
use kernels::ops::class_masks::ClassMasks;
use kernels::ops::conv_transpose::ConvTranspose;
use kernels::ops::conv2d::Conv2d;
use kernels::ops::decode_proposals::DecodeProposals;
use kernels::ops::detections::Detections;
use kernels::ops::flatten_rois::FlattenRois;
use kernels::ops::group_norm::GroupNorm;
use kernels::ops::linear::Linear;
use kernels::ops::mask_probabilities::MaskProbabilities;
use kernels::ops::max_pool::MaxPool;
use kernels::ops::mean_logits::MeanLogits;
use kernels::ops::nms_proposals::NmsProposals;
use kernels::ops::preprocess::Preprocess;
use kernels::ops::refine_rois::RefineRois;
use kernels::ops::roi_align::RoiAlign;
use kernels::ops::roi_levels::RoiLevels;
use kernels::ops::top_k_per_level::TopKPerLevel;
use kernels::ops::upsample_add::UpsampleAdd;
use kernels::{DType, on_cpu};
use prost::Message;

use crate::nodes::{FLOAT, Fill, INT64};
use crate::proto::{
    DimensionProto, GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use crate::translation::{OnnxError, Outputs, Translation, Value};
use crate::{OPSET, detections, gemm, maps, proposals};

/// Version of the file format that matches [`OPSET`].
const IR_VERSION: i64 = 8;
/// Name of the batch dimension.
const IMAGES: &str = "N";

/// An input of the file.
#[derive(Debug)]
pub struct Input<'a> {
    /// Its name.
    pub name: &'a str,
    /// Element type: f32, or i32, which is stored as i64.
    pub dtype: DType,
    /// Extents of all dimensions except the first, which is the number of images.
    pub shape: &'a [usize],
    /// Names of the Program's inputs that this input replaces.
    pub of: &'a [&'a str],
    /// Its description for users.
    pub doc: &'a str,
}

/// An output of the file, `[N, ..]`.
#[derive(Debug, Clone, Copy)]
pub struct Output<'a> {
    /// Its name.
    pub name: &'a str,
    /// Name of the Program's output tensor.
    pub of: &'a str,
    /// True if the tensor is a list of detections `[N*D, ..]`. The output is then `[N, D, ..]`,
    /// with zeros after each image's detections.
    pub of_detections: bool,
    /// Its description for users.
    pub doc: &'a str,
}

/// A Program to translate.
#[derive(Debug)]
pub struct Request<'a> {
    /// The detection pass of one image, for the CPU.
    pub program: &'a Program,
    /// Its state.
    pub state: &'a StateSet,
    /// Inputs of the file. A Program input that no input of the file replaces must not affect the
    /// outputs.
    pub inputs: &'a [Input<'a>],
    /// Outputs.
    pub outputs: &'a [Output<'a>],
    /// Version of the writer, `onegraph`.
    pub version: &'a str,
    /// Additional metadata, by name.
    pub metadata: &'a [(&'a str, String)],
}

/// Translates a Program; returns the bytes of an ONNX file.
///
/// # Errors
/// [`OnnxError`] with the node that ONNX cannot express.
///
/// # Panics
/// If an input or output names an unknown tensor of the Program, or the state lacks one of the
/// Program's tensors.
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
        let outputs = translate_node(&mut walk, node)?;
        walk.values.extend(node.outputs.iter().copied().zip(outputs));
    }
    walk.nodes.set_part("outputs");
    let outputs: Vec<_> =
        request.outputs.iter().map(|o| output(&mut walk, o)).collect::<Result<_, _>>()?;
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

/// Calls the translation of the op's type.
macro_rules! dispatch {
    ($t:ident, $node:ident: $($op:ident => $translation:path,)+) => {{
        let op: &dyn Any = $node.op.as_ref();
        $(if let Some(op) = op.downcast_ref::<$op>() {
            return $translation(op, $t, $node);
        })+
        Err($t.refusal())
    }};
}

/// The outputs of a node. If all inputs are constant, the outputs are computed now; else the node
/// is translated.
fn translate_node(t: &mut Translation<'_>, node: &Node) -> Outputs {
    let known = node.inputs.iter().map(|id| match t.values.get(id) {
        Some(Value::Constant(tensor)) => Some(tensor.clone()),
        _ => None,
    });
    if let Some(inputs) = known.collect::<Option<Vec<_>>>() {
        let outputs = on_cpu::run(node.op.as_ref(), &inputs)?.into_iter();
        return Ok(outputs.map(Value::Constant).collect());
    }
    dispatch!(t, node:
        Preprocess => maps::preprocess,
        Conv2d => gemm::conv2d,
        ConvTranspose => gemm::conv_transpose,
        Linear => gemm::linear,
        GroupNorm => maps::group_norm,
        MaxPool => maps::max_pool,
        UpsampleAdd => maps::upsample_add,
        TopKPerLevel => proposals::top_k_per_level,
        DecodeProposals => proposals::decode_proposals,
        NmsProposals => proposals::nms_proposals,
        FlattenRois => proposals::flatten_rois,
        RoiLevels => maps::roi_levels,
        RoiAlign => maps::roi_align,
        RefineRois => detections::refine_rois,
        MeanLogits => detections::mean_logits,
        Detections => detections::detections,
        ClassMasks => gemm::class_masks,
        MaskProbabilities => detections::mask_probabilities,
    )
}

/// Adds an output to the graph, and returns its description.
fn output(t: &mut Translation<'_>, output: &Output<'_>) -> Result<ValueInfoProto, OnnxError> {
    let Output { name, of, of_detections, doc } = *output;
    let id = find(t.program, of);
    t.name = format!("the output `{name}`");
    let rows = t.edge(id)?;
    let desc = t.desc(id);
    let is_float = desc.role.cpu_dtype() == DType::F32;
    let elements = if is_float { FLOAT } else { INT64 };
    let Some(found) = t.found.clone().filter(|_| of_detections) else {
        t.nodes.output(name, &rows);
        return Ok(value_info(name, elements, &desc.shape[1..], doc));
    };
    let mut shape = desc.shape.clone();
    shape[0] = found.per_image;
    let zero = if is_float { Fill::Float(0.0) } else { Fill::Int(0) };
    let zeros = t.nodes.filled(&found.images, &shape, zero);
    let filled = t.nodes.one("ScatterND", &[&zeros, &found.places, &rows], &[]);
    t.nodes.output(name, &filled);
    Ok(value_info(name, elements, &shape, doc))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use graph::{Program, StateSet};
    use kernels::ops::max_pool::MaxPool;
    use kernels::ops::relu_mask::ReluMask;
    use kernels::{DType, OpRef, Role, TensorDesc};

    use super::{Input, Output, Request, translate};

    /// The error of translating a program with one op; the inputs named in `of` are replaced by an
    /// input of the file.
    fn refusal(op: OpRef, inputs: usize, of: &[&str]) -> String {
        let mut program = Program::new();
        program.set_part("own_head");
        let x = program.input("x", TensorDesc::new(Role::Activation, &[1, 2, 2, 4]));
        let y = program.add(op, &vec![x; inputs], &[]).expect("it is described")[0];
        program.keep("y", y);
        let request = Request {
            program: &program,
            state: &StateSet::new(),
            inputs: &[Input { name: "x", dtype: DType::F32, shape: &[2, 2, 4], of, doc: "" }],
            outputs: &[Output { name: "y", of: "y", of_detections: false, doc: "" }],
            version: "0",
            metadata: &[],
        };
        translate(&request).expect_err("no translation").to_string()
    }

    #[test]
    fn op_without_translation_is_reported() {
        let said = refusal(Arc::new(ReluMask), 2, &["x"]);
        let node = "own_head.relu_mask#0";
        assert_eq!(said, format!("{node} has no translation to ONNX, so the export fails"));
    }

    #[test]
    fn missing_tensor_is_reported() {
        let pool = Arc::new(MaxPool { kernel: 1, stride: 2, pad: 0, argmax: false });
        let said = refusal(pool, 1, &[]);
        assert_eq!(said, "own_head.max_pool#0 reads `x`, which is not available in ONNX files");
    }
}
