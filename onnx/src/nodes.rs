//! The list of ONNX nodes and constants, and helpers that add them.

use std::collections::HashMap;

use prost::Message;

use crate::proto::{AttributeProto, NodeProto, TensorProto};

/// `TensorProto.DataType`.
pub(crate) const FLOAT: i32 = 1;
/// `TensorProto.DataType`.
pub(crate) const INT64: i32 = 7;

/// Maximum size of constants that are deduplicated.
const SHARED_BYTES: usize = 1024;

/// Nodes in order, and the constants that they read. An equal existing node is reused, so that
/// pyramid levels share computations that do not depend on the level.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    pub(crate) nodes: Vec<NodeProto>,
    pub(crate) constants: Vec<TensorProto>,
    made: HashMap<Vec<u8>, Vec<String>>,
    part: String,
}

impl Nodes {
    /// Sets the part of the model; names of nodes added from now on begin with it.
    pub(crate) fn set_part(&mut self, part: &str) {
        self.part = part.to_string();
    }

    /// Adds a node with one output, and returns the output's name.
    pub(crate) fn one(
        &mut self,
        kind: &str,
        inputs: &[&str],
        attributes: &[AttributeProto],
    ) -> String {
        let [output] = self.many(kind, inputs, attributes);
        output
    }

    /// Adds a node with `K` outputs, and returns the outputs' names.
    pub(crate) fn many<const K: usize>(
        &mut self,
        kind: &str,
        inputs: &[&str],
        attributes: &[AttributeProto],
    ) -> [String; K] {
        let mut node = NodeProto {
            input: inputs.iter().map(ToString::to_string).collect(),
            op_type: kind.to_string(),
            attribute: attributes.to_vec(),
            ..NodeProto::default()
        };
        let key = node.encode_to_vec();
        let made = self.made.entry(key).or_insert_with(|| {
            node.name = format!("{}/{kind}_{}", self.part, self.nodes.len());
            let more = (1..K).map(|i| format!("{}:{i}", node.name));
            node.output = [node.name.clone()].into_iter().chain(more).collect();
            let outputs = node.output.clone();
            self.nodes.push(node);
            outputs
        });
        std::array::from_fn(|i| made[i].clone())
    }

    /// Makes a value an output of the graph with the given name.
    pub(crate) fn output(&mut self, name: &str, value: &str) {
        self.nodes.push(NodeProto {
            input: vec![value.to_string()],
            output: vec![name.to_string()],
            name: name.to_string(),
            op_type: "Identity".to_string(),
            attribute: vec![],
        });
    }

    /// A constant of floats.
    pub(crate) fn floats(&mut self, shape: &[usize], values: &[f32]) -> String {
        let raw = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(tensor(FLOAT, shape, raw))
    }

    /// A scalar constant.
    pub(crate) fn float(&mut self, value: f32) -> String {
        self.floats(&[], &[value])
    }

    /// A constant of integers.
    pub(crate) fn ints(&mut self, shape: &[usize], values: &[i64]) -> String {
        let raw = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(tensor(INT64, shape, raw))
    }

    /// A list of integers: axes, a shape, or split sizes.
    pub(crate) fn list(&mut self, values: &[i64]) -> String {
        self.ints(&[values.len()], values)
    }

    /// A scalar integer.
    pub(crate) fn int(&mut self, value: i64) -> String {
        self.ints(&[], &[value])
    }

    fn constant(&mut self, mut constant: TensorProto) -> String {
        let name = format!("constant_{}", self.constants.len());
        if constant.raw_data.as_ref().is_some_and(|raw| raw.len() <= SHARED_BYTES) {
            let key = constant.encode_to_vec();
            let made = self.made.entry(key).or_insert_with(|| vec![name.clone()]);
            if made[0] != name {
                return made[0].clone();
            }
        }
        constant.name.clone_from(&name);
        self.constants.push(constant);
        name
    }

    /// Adds 1 to `x` (`kind` is `Add`), or subtracts 1 (`Sub`).
    pub(crate) fn shifted(&mut self, kind: &str, x: &str) -> String {
        let one = self.float(1.0);
        self.one(kind, &[x, &one], &[])
    }

    /// Adds a dimension of extent 1.
    pub(crate) fn unsqueeze(&mut self, x: &str, axis: i64) -> String {
        let axes = self.list(&[axis]);
        self.one("Unsqueeze", &[x, &axes], &[])
    }

    /// Reshapes; an extent of 0 in `shape` keeps that extent of `x`.
    pub(crate) fn reshape(&mut self, x: &str, shape: &[usize]) -> String {
        let shape: Vec<i64> = shape.iter().map(|&extent| extent as i64).collect();
        let shape = self.list(&shape);
        self.one("Reshape", &[x, &shape], &[])
    }

    /// Column `i` of a matrix, as a vector.
    pub(crate) fn column(&mut self, x: &str, i: i64) -> String {
        let i = self.int(i);
        self.one("Gather", &[x, &i], &[int("axis", 1)])
    }

    /// A matrix with two columns.
    pub(crate) fn columns(&mut self, left: &str, right: &str) -> String {
        let [left, right] = [left, right].map(|column| self.unsqueeze(column, 1));
        self.one("Concat", &[&left, &right], &[int("axis", 1)])
    }

    /// The first extent, as a list with one element.
    pub(crate) fn rows(&mut self, x: &str) -> String {
        self.one("Shape", &[x], &[int("start", 0), int("end", 1)])
    }

    /// `0..rows`, where `rows` is a list with one element.
    pub(crate) fn range(&mut self, rows: &str) -> String {
        let axes = self.list(&[0]);
        let end = self.one("Squeeze", &[rows, &axes], &[]);
        let [zero, one] = [0, 1].map(|value| self.int(value));
        self.one("Range", &[&zero, &end, &one], &[])
    }

    /// A tensor filled with one value; its first extent is `rows`, a list with one element.
    pub(crate) fn filled(&mut self, rows: &str, rest: &[usize], value: Fill) -> String {
        let rest: Vec<i64> = rest.iter().map(|&extent| extent as i64).collect();
        let rest = self.list(&rest);
        let shape = self.one("Concat", &[rows, &rest], &[int("axis", 0)]);
        let value = match value {
            Fill::Float(value) => tensor(FLOAT, &[1], value.to_le_bytes().to_vec()),
            Fill::Int(value) => tensor(INT64, &[1], value.to_le_bytes().to_vec()),
        };
        let value = AttributeProto { t: Some(value), r#type: 4, ..attribute("value") };
        self.one("ConstantOfShape", &[&shape], &[value])
    }

    /// Gathers elements of each row of `x [N, M, ..]` by `idx [N, P]`; the result is `[N, P, ..]`.
    pub(crate) fn gather_rows(&mut self, x: &str, idx: &str) -> String {
        let idx = self.unsqueeze(idx, -1);
        self.one("GatherND", &[x, &idx], &[int("batch_dims", 1)])
    }

    /// The indices of the true elements, as the rows of a matrix.
    pub(crate) fn places(&mut self, condition: &str) -> String {
        let places = self.one("NonZero", &[condition], &[]);
        self.one("Transpose", &[&places], &[ints("perm", &[1, 0])])
    }

    /// The number of true elements per row.
    pub(crate) fn counts(&mut self, condition: &str) -> String {
        let ones = self.one("Cast", &[condition], &[int("to", i64::from(INT64))]);
        let axes = self.list(&[1]);
        self.one("ReduceSum", &[&ones, &axes], &[int("keepdims", 0)])
    }
}

/// The value of a filled tensor.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fill {
    Float(f32),
    Int(i64),
}

fn tensor(data_type: i32, shape: &[usize], raw: Vec<u8>) -> TensorProto {
    let dims = shape.iter().map(|&extent| extent as i64).collect();
    TensorProto { dims, data_type, name: String::new(), raw_data: Some(raw) }
}

fn attribute(name: &str) -> AttributeProto {
    AttributeProto { name: name.to_string(), ..AttributeProto::default() }
}

// `r#type` numbers are from `AttributeProto.AttributeType`.

pub(crate) fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto { f: Some(value), r#type: 1, ..attribute(name) }
}

pub(crate) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), r#type: 2, ..attribute(name) }
}

pub(crate) fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto { s: Some(value.to_string()), r#type: 3, ..attribute(name) }
}

pub(crate) fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto { ints: values.to_vec(), r#type: 7, ..attribute(name) }
}

#[cfg(test)]
mod tests {
    use super::{Nodes, int};

    #[test]
    fn equal_nodes_and_constants_are_deduplicated() {
        let mut n = Nodes::default();
        let (a, b) = (n.float(1.0), n.float(1.0));
        assert_eq!(a, b);
        let x = n.one("Softmax", &["x"], &[int("axis", 1)]);
        assert_eq!(n.one("Softmax", &["x"], &[int("axis", 1)]), x);
        assert_ne!(n.one("Softmax", &["x"], &[int("axis", 0)]), x);
        assert_eq!((n.nodes.len(), n.constants.len()), (2, 1));
    }
}
