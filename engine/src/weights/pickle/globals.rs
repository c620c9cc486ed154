//! Allow list of the classes and functions that a pickle may refer to.

/// Modules and names that PyTorch, NumPy and Detectron weights files refer to. They are never
/// imported or called: onegraph only interprets their arguments.
const KNOWN: [(&str, &[&str]); 19] = [
    ("collections", &["OrderedDict", "Counter", "defaultdict"]),
    ("argparse", &["Namespace"]),
    ("_codecs", &["encode"]),
    ("builtins", &["set", "dict", "list", "bytes", "bytearray"]),
    ("__builtin__", &["set", "dict", "list", "bytes", "bytearray"]),
    ("copy_reg", &["_reconstructor"]),
    ("copyreg", &["_reconstructor"]),
    ("numpy", &["ndarray", "dtype"]),
    ("numpy.core.multiarray", &["_reconstruct", "scalar"]),
    ("numpy._core.multiarray", &["_reconstruct", "scalar"]),
    ("numpy.core.numeric", &["_frombuffer"]),
    ("numpy._core.numeric", &["_frombuffer"]),
    ("torch._utils", &["_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter"]),
    ("torch.nn.parameter", &["Parameter"]),
    ("torch", &["Size", "device", "FloatStorage", "DoubleStorage", "HalfStorage"]),
    ("torch", &["BFloat16Storage", "LongStorage", "IntStorage", "ShortStorage"]),
    ("torch", &["CharStorage", "ByteStorage", "BoolStorage"]),
    ("torch", &["float32", "float64", "float16", "bfloat16", "int64"]),
    ("torch.cuda", &["FloatStorage", "HalfStorage", "LongStorage"]),
];

/// True if the name is in the allow list.
pub(super) fn is_known(module: &str, name: &str) -> bool {
    KNOWN.iter().any(|(theirs, names)| *theirs == module && names.contains(&name))
}
