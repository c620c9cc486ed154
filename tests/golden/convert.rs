//! Shared by the families of ops: converts golden tensors to op inputs, and runs an op and its
//! gradients.

use engine::config::ResizeFilter;
use kernels::case::{OpCase, gradient_of};
use kernels::cpu::HostTensor;
use kernels::on_cpu::run;
use kernels::ops::preprocess::Preprocess;
use kernels::view::View;
use kernels::{Op, Role, TensorDesc};
use serde_json::Value;

use crate::support::{Case, Tensor};

/// An f32 input from a golden tensor.
pub(crate) fn host(role: Role, tensor: &Tensor<f32>) -> HostTensor {
    floats(role, &tensor.shape, tensor.data.clone())
}

/// An f32 input.
pub(crate) fn floats(role: Role, shape: &[usize], values: Vec<f32>) -> HostTensor {
    HostTensor::f32(TensorDesc::new(role, shape), values)
}

/// An i32 input.
pub(crate) fn index(shape: &[usize], values: Vec<i32>) -> HostTensor {
    HostTensor::i32(TensorDesc::new(Role::Index, shape), values)
}

/// Views `[N, 15]` of entire images, each resized from the first (height, width) to the second.
pub(crate) fn views(sizes: impl IntoIterator<Item = [[i32; 2]; 2]>) -> HostTensor {
    flipped(sizes.into_iter().map(|sizes| (sizes, false)))
}

/// Like [`views`], with a flip flag per image.
pub(crate) fn flipped(sizes: impl IntoIterator<Item = ([[i32; 2]; 2], bool)>) -> HostTensor {
    let row = |([source, network], mirror): ([[i32; 2]; 2], bool)| {
        let mut view = View::whole(source, network);
        view.x.mirrored = i32::from(mirror);
        view.row().to_vec()
    };
    let rows: Vec<i32> = sizes.into_iter().flat_map(row).collect();
    index(&[rows.len() / View::LEN, View::LEN], rows)
}

/// A count, `[1]`.
pub(crate) fn count(len: usize) -> HostTensor {
    index(&[1], vec![len as i32])
}

/// `[len]`, a constant.
pub(crate) fn repeated(len: usize, value: i32) -> HostTensor {
    index(&[len], vec![value; len])
}

/// The tensor with permuted axes: axis `i` of the result is axis `axes[i]` of `tensor`.
pub(crate) fn permute(tensor: &Tensor<f32>, axes: &[usize]) -> Tensor<f32> {
    assert_eq!(tensor.shape.len(), axes.len(), "as many axes as the tensor has");
    let mut strides = vec![1; axes.len()];
    for axis in (1..axes.len()).rev() {
        strides[axis - 1] = strides[axis] * tensor.shape[axis];
    }
    let shape: Vec<usize> = axes.iter().map(|&axis| tensor.shape[axis]).collect();
    let source = |mut at: usize| {
        let mut from = 0;
        for (&axis, &extent) in axes.iter().zip(&shape).rev() {
            from += at % extent * strides[axis];
            at /= extent;
        }
        tensor.data[from]
    };
    let data = (0..tensor.data.len()).map(source).collect();
    Tensor { shape, data }
}

/// Converts OIHW to KRSC, and the IOHW of a transposed convolution to CRSK.
pub(crate) fn channels_last(weight: &Tensor<f32>) -> Tensor<f32> {
    permute(weight, &[0, 2, 3, 1])
}

/// The inverse of [`channels_last`].
pub(crate) fn channels_second(weight: &Tensor<f32>) -> Tensor<f32> {
    permute(weight, &[0, 3, 1, 2])
}

/// An op with its outputs.
pub(crate) struct Ran {
    case: OpCase,
    outputs: Vec<HostTensor>,
}

impl Ran {
    /// Runs the op; if it rejects its inputs, the test fails with the case's name.
    pub(crate) fn new(name: &str, op: impl Op + 'static, inputs: Vec<HostTensor>) -> Self {
        let outputs = run(&op, &inputs).unwrap_or_else(|e| panic!("{name}: {e}"));
        Ran { case: OpCase::new(name, op, inputs), outputs }
    }

    /// The shape of an output.
    pub(crate) fn shape(&self, output: usize) -> &[usize] {
        &self.outputs[output].desc.shape
    }

    /// The elements of a float output.
    pub(crate) fn f32(&self, output: usize) -> &[f32] {
        self.outputs[output].as_f32()
    }

    /// The elements of an integer output.
    pub(crate) fn i32(&self, output: usize) -> &[i32] {
        self.outputs[output].as_i32()
    }

    /// The gradient of input `input` from the op's backward rule, given the gradient of output 0.
    pub(crate) fn grad(&self, grad_output: &[f32], input: usize) -> Tensor<f32> {
        let mut grads = vec![None; self.outputs.len()];
        grads[0] = Some(floats(Role::Gradient, self.shape(0), grad_output.to_vec()));
        let grad = gradient_of(&self.case, &self.outputs, &grads, input)
            .unwrap_or_else(|e| panic!("{}: {e}", self.case));
        let grad = grad.unwrap_or_else(|| panic!("{}: no gradient of input {input}", self.case));
        Tensor { shape: grad.desc.shape.clone(), data: grad.as_f32().to_vec() }
    }
}

/// The case's tensors `<prefix>0`, `<prefix>1`, ..
pub(crate) fn numbered(case: Case<'_>, prefix: &str) -> Vec<String> {
    (0..).map(|i| format!("{prefix}{i}")).take_while(|name| case.has(name)).collect()
}

/// A list of numbers among the attributes.
pub(crate) fn numbers(case: Case<'_>, name: &str) -> Vec<f64> {
    let value = case.attribute(name);
    let list: Option<Vec<f64>> =
        value.as_array().and_then(|list| list.iter().map(Value::as_f64).collect());
    list.unwrap_or_else(|| panic!("{}: {name} is {value}", case.name()))
}

/// A list of pairs (height, width) among the attributes.
pub(crate) fn sizes(case: Case<'_>, name: &str) -> Vec<[usize; 2]> {
    let value = case.attribute(name);
    let pair = |v: &Value| Some([v.get(0)?.as_u64()? as usize, v.get(1)?.as_u64()? as usize]);
    let list: Option<Vec<_>> = value.as_array().and_then(|list| list.iter().map(pair).collect());
    list.unwrap_or_else(|| panic!("{}: {name} is {value}", case.name()))
}

/// A list of f32 among the attributes.
pub(crate) fn f32s(case: Case<'_>, name: &str) -> Vec<f32> {
    numbers(case, name).iter().map(|v| *v as f32).collect()
}

/// `N` f32 among the attributes.
pub(crate) fn array<const N: usize>(case: Case<'_>, name: &str) -> [f32; N] {
    f32s(case, name).try_into().unwrap_or_else(|list| panic!("{}: {name} is {list:?}", case.name()))
}

/// Preprocessing that only resizes: the channel order and scale of the pixels are unchanged.
pub(crate) fn plain_preprocess([height, width]: [usize; 2]) -> Preprocess {
    Preprocess {
        height,
        width,
        channels: 3,
        mean: [0.0; 3],
        std: [1.0; 3],
        pixel_scale: 1.0,
        bgr: false,
        filter: ResizeFilter::Pil,
        colours: false,
    }
}

/// Bytes of one image.
pub(crate) fn pixels(bytes: Vec<u8>) -> HostTensor {
    HostTensor::u8(TensorDesc::new(Role::Pixels, &[1, bytes.len()]), bytes)
}

/// A boolean among the attributes; false if absent.
pub(crate) fn flag(case: Case<'_>, name: &str) -> bool {
    let value = case.attributes().get(name);
    value.is_some_and(|v| v.as_bool().unwrap_or_else(|| panic!("{}: {name} is {v}", case.name())))
}
