//! Reads and writes weights files for tests.

use std::collections::BTreeMap;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::common::Place;

/// Shape and values of tensors by name.
pub(crate) type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

pub(crate) fn read(place: &Place, name: &str) -> Tensors {
    let bytes = place.bytes(name);
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let values = |view: &TensorView<'_>| {
        (view.shape().to_vec(), bytemuck::pod_collect_to_vec::<u8, f32>(view.data()))
    };
    file.tensors().iter().map(|(name, view)| (name.clone(), values(view))).collect()
}

/// Writes a weights file; `classes` is its class metadata, which torchvision's files lack.
pub(crate) fn write(place: &Place, name: &str, tensors: &Tensors, classes: Option<&str>) {
    let views = tensors.iter().map(|(name, (shape, values))| {
        let bytes = bytemuck::cast_slice(values);
        (name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("a tensor"))
    });
    let metadata = classes.map(|text| [("onegraph.categories".into(), text.into())].into());
    place.write(name, safetensors::serialize(views, metadata).expect("bytes"));
}

/// The tensors of a backbone, under the names of torchvision's classifiers.
pub(crate) fn body(tensors: &Tensors) -> Tensors {
    let own = tensors.iter().filter_map(|(name, tensor)| {
        Some((name.strip_prefix("backbone.body.")?.to_string(), tensor.clone()))
    });
    own.collect()
}
