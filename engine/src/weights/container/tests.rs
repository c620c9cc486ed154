//! Files as PyTorch, NumPy and Python 2 write them, and broken files.
//!
//! `fixtures` contains files written by `tests/interchange/make_fixtures.py` with PyTorch and
//! NumPy: element i of each tensor is (i - 3) / 4, in the order of its storage.

use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::write::torch_bytes;
use super::{Container, Contents, Values, read, safetensors_bytes};

const ZIP: &[u8] = include_bytes!("fixtures/zip.pth");
const LEGACY: &[u8] = include_bytes!("fixtures/legacy.pth");
const CHECKPOINT: &[u8] = include_bytes!("fixtures/checkpoint.pth");
/// Pickles as Python 2's cPickle writes them for Detectron, with names and data of type `str`, and
/// as Python 3 writes them for detectron2 in protocol 3.
const PYTHONS: [&[u8]; 2] =
    [include_bytes!("fixtures/python_2.pkl"), include_bytes!("fixtures/python_3.pkl")];
const NUMPY: [&[u8]; 4] = [
    include_bytes!("fixtures/numpy_0.pkl"),
    include_bytes!("fixtures/numpy_2.pkl"),
    include_bytes!("fixtures/numpy_4.pkl"),
    include_bytes!("fixtures/numpy_5.pkl"),
];

/// One number.
const ARRAY: &[u8] =
    b"\x93NUMPY\x01\0\x38\0{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n\0\0\0\0";
/// Archives with stored and with deflated entries.
const ARCHIVES: [&[u8]; 2] =
    [include_bytes!("fixtures/stored.npz"), include_bytes!("fixtures/deflated.npz")];

fn tensor(contents: &Contents, name: &str) -> Values {
    contents.tensors.get(name).unwrap_or_else(|| panic!("{name}: {contents:?}")).clone()
}

/// Values of the fixtures' elements at these indices.
fn at<const N: usize>(places: [i32; N]) -> Vec<f32> {
    places.map(|i| (i - 3) as f32 / 4.0).to_vec()
}

fn refusal(bytes: &[u8]) -> String {
    read(bytes).expect_err("a refusal")
}

#[test]
fn both_pytorch_formats_load_saved_values() {
    for (bytes, container) in [
        (ZIP, Container::TorchZip),
        (LEGACY, Container::TorchLegacy),
        (CHECKPOINT, Container::TorchZip),
    ] {
        let contents = read(bytes).unwrap();
        assert_eq!((contents.container, contents.tensors.len()), (container, 10));
        for (name, shape, values) in [
            ("plain", vec![2, 3], at([0, 1, 2, 3, 4, 5])),
            ("turned", vec![3, 2], at([0, 3, 1, 4, 2, 5])),
            ("part", vec![3, 2], at([4, 5, 6, 7, 8, 9])),
            ("every_second", vec![6], at([0, 2, 4, 6, 8, 10])),
            ("half", vec![4], at([0, 1, 2, 3])),
            ("brain", vec![4], at([0, 1, 2, 3])),
            ("double", vec![4], at([0, 1, 2, 3])),
            ("parameter", vec![3], at([0, 1, 2])),
            ("scalar", vec![], at([0])),
            ("empty", vec![0, 5], vec![]),
        ] {
            assert_eq!(tensor(&contents, name), (shape, values), "{name}");
        }
    }
}

#[test]
fn numpy_arrays_load_from_every_pickle_protocol_and_npz() {
    let pickles = NUMPY.map(|bytes| (bytes, Container::Pickle, 4));
    for (bytes, container, count) in
        ARCHIVES.map(|bytes| (bytes, Container::Npz, 5)).into_iter().chain(pickles)
    {
        let contents = read(bytes).unwrap();
        assert_eq!((contents.container, contents.tensors.len()), (container, count));
        let (plain, four) = ((vec![2, 3], at([0, 1, 2, 3, 4, 5])), (vec![4], at([0, 1, 2, 3])));
        let first = if count == 5 { "group0/plain" } else { "plain" };
        for (name, expected) in
            [(first, &plain), ("turned", &plain), ("half", &four), ("double", &four)]
        {
            assert_eq!(tensor(&contents, name), *expected, "{name}");
        }
        assert!(count == 4 || tensor(&contents, "scalar") == (vec![], at([0])));
    }
    for contents in PYTHONS.map(|bytes| read(bytes).unwrap()) {
        assert_eq!(tensor(&contents, "conv1_w"), (vec![3], vec![0.5, -2.0, 1e-40]));
        // The second array's dtype is a memo reference to the first's, and its 700 bytes need a
        // different length opcode.
        let long = (vec![175], (0u8..175).map(f32::from).collect());
        assert_eq!(tensor(&contents, "conv1_b"), long);
    }
}

#[test]
fn broken_npz_prints_one_line_error() {
    let stored = ARCHIVES[0];
    let array = |header: &str, bytes: usize| {
        let length = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\0".as_slice(), &length, header.as_bytes(), &vec![0; bytes]].concat()
    };
    let described = |descr: &str, shape: &str, bytes: usize| {
        let order = "'fortran_order': False";
        let header = format!("{{'descr': {descr}, {order}, 'shape': {shape}, }}\n");
        archive(&[("a.npy", &array(&header, bytes))])
    };
    let nulls = array("{'descr': '<f4', 'fortran_order': False, 'shape': (1048576,), }\n", 4 << 20);
    let bomb = archive_by(CompressionMethod::Deflated, &[("a.npy", &nulls)]);
    assert_eq!(read(&described("'<f4'", "(2,)", 8)).unwrap().tensors["a"].0, [2]);
    for (what, bytes, told) in [
        ("a cut archive", stored[..stored.len() - 9].to_vec(), "not a complete archive of NumPy"),
        ("too few bytes", described("'<f4'", "(3,)", 8), "do not match shape [3]"),
        ("no shape", described("'<f4'", "3", 12), "malformed header"),
        ("a huge shape", described("'<f4'", "(99999999999, 99999999999)", 8), "do not match shape"),
        ("a shape of no counts", described("'<f4'", "(-1,)", 8), "malformed header"),
        ("the other order", described("'>f4'", "(2,)", 8), "big-endian"),
        ("objects", described("'|O'", "(2,)", 8), "dtype `O`"),
        ("several fields", described("[('a', '<f4')]", "(2,)", 8), "malformed header"),
        ("another file", archive(&[("a.npy", &array("{}", 0)), ("b", b"")]), "malformed header"),
        ("a foreign entry", archive(&[("a.npy", ARRAY), ("b", b"")]), "`b` is not a NumPy array"),
        ("no magic", archive(&[("a.npy", b"numbers")]), "`a`: it is not a complete"),
        ("a bomb", bomb, "hold more than"),
        ("whole numbers alone", described("'<i8'", "(1,)", 8), "no tensors"),
    ] {
        let error = refusal(&bytes);
        assert!(error.contains(told) && !error.contains('\n'), "{what}: {error}");
    }
}

#[test]
fn wrapper_prefixes_are_stripped_from_tensor_names() {
    for write in [torch_bytes, safetensors_bytes] {
        let names = |names: &[&str]| {
            let one = |name: &&str| (name.to_string(), (vec![1], vec![0.5]));
            let tensors: Vec<(String, Values)> = names.iter().map(one).collect();
            Ok(Vec::from_iter(read(&write(&tensors, None).unwrap())?.tensors.into_keys()))
        };
        for prefix in ["model.", "module.", "module._orig_mod.", "ema_model.module.", "state_dict."]
        {
            let found = names(&[
                &format!("{prefix}bn1.bias"),
                "fc.module.bias",
                "n_averaged",
                "bn1.num_batches_tracked",
            ]);
            assert_eq!(found, Ok(["bn1.bias", "fc.bias"].map(String::from).to_vec()), "{prefix}");
        }
        let fault: String = names(&["ema_model.bn1.bias", "model.bn1.bias"]).unwrap_err();
        assert!(fault.contains("`bn1.bias` twice, also as `model.bn1.bias`"), "{fault}");
    }
}

#[test]
fn weights_file_round_trips_bit_exactly() {
    let tensors: Vec<(String, Values)> = vec![
        (
            "a.weight".into(),
            (vec![2, 1, 3], vec![1.5, -0.0, f32::MIN_POSITIVE / 2.0, 3.0, 4.0, 5.0]),
        ),
        ("a.bias".into(), (vec![1], vec![0.1])),
        ("none".into(), (vec![0], vec![])),
    ];
    let classes = r#"[{"id":3,"name":"ant"}]"#;
    for bytes in [torch_bytes(&tensors, Some(classes)), safetensors_bytes(&tensors, Some(classes))]
    {
        let contents = read(&bytes.unwrap()).unwrap();
        assert_eq!(contents.categories.as_deref(), Some(classes));
        assert_eq!(contents.tensors.len(), 3);
        for (name, (shape, values)) in &tensors {
            let (read_shape, read_values) = tensor(&contents, name);
            assert_eq!(*shape, read_shape);
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(values), bits(&read_values), "{name}");
        }
    }
    let unstated = torch_bytes(&tensors, None).unwrap();
    assert_eq!(read(&unstated).unwrap().categories, None);
    assert_eq!(unstated, torch_bytes(&tensors, None).unwrap(), "the same bytes each time");
}

/// A zip archive with stored entries.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    archive_by(CompressionMethod::Stored, entries)
}

fn archive_by(method: CompressionMethod, entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, bytes) in entries {
        archive.start_file(*name, options).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// Opcodes of the entry `w` of a dict: a tensor in storage 0, which has two elements.
fn entry(storage: &str, offset: u8, size: u8, stride: u8) -> Vec<u8> {
    [
        b"U\x01wctorch._utils\n_rebuild_tensor_v2\n((U\x07storagec".as_slice(),
        storage.replace('.', "\n").as_bytes(),
        b"\nU\x010U\x03cpuK\x02tQK",
        &[offset, b'K', size, 0x85, b'K', stride, 0x85],
        b"\x89NtRs",
    ]
    .concat()
}

/// A PyTorch archive with a dict of these entries, and storage 0 with the values 1 and 2.
fn of_entries(entries: &[Vec<u8>]) -> Vec<u8> {
    let pickle = [b"\x80\x02}", entries.concat().as_slice(), b"."].concat();
    let data = [1.0f32.to_le_bytes(), 2.0f32.to_le_bytes()].concat();
    archive(&[("x/data.pkl", &pickle), ("x/data/0", &data)])
}

fn one_tensor(storage: &str, offset: u8, size: u8, stride: u8) -> Vec<u8> {
    of_entries(&[entry(storage, offset, size, stride)])
}

/// Changes the headers of an archive so that they declare the entries as deflated.
fn deflated(mut archive: Vec<u8>) -> Vec<u8> {
    for at in 0..archive.len() - 12 {
        match &archive[at..at + 4] {
            b"PK\x03\x04" => archive[at + 8] = 8,
            b"PK\x01\x02" => archive[at + 10] = 8,
            _ => {}
        }
    }
    archive
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|window| window == from).expect("it is there");
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

#[test]
fn broken_or_hostile_file_prints_one_line_error() {
    let good = one_tensor("torch.FloatStorage", 0, 2, 1);
    assert_eq!(read(&good).unwrap().tensors["w"], (vec![2], vec![1.0, 2.0]));
    let pickle = |pickle: &[u8]| archive(&[("x/data.pkl", pickle)]);
    let nested = [b"\x80\x02".to_vec(), vec![b'('; 5000], vec![b't'; 5000], b".".to_vec()].concat();
    let tuples = [b"\x80\x02N".to_vec(), vec![0x85; 5000], b".".to_vec()].concat();
    let local = good.windows(4).position(|w| w == [0, 0, 128, 63]).expect("the first element");
    let mut damaged = good.clone();
    damaged[local + 3] = 64;
    let float = entry("torch.FloatStorage", 0, 2, 1);
    let lone = pickle(&[b"\x80\x02}", float.as_slice(), b"."].concat());
    let script = archive(&[("x/data.pkl", b"\x80\x02}."), ("x/constants.pkl", b")")]);
    let big = archive(&[("x/data.pkl", b"\x80\x02}."), ("x/byteorder", b"big")]);
    let two = archive(&[("x/data.pkl", b"\x80\x02}."), ("y/data/0", b"")]);
    let mut doubled = archive(&[("x/a", b"1"), ("x/b", b"2")]);
    for at in 0..doubled.len() - 2 {
        if &doubled[at..at + 3] == b"x/b" {
            doubled[at + 2] = b'a';
        }
    }
    for (what, bytes, told) in [
        ("a call of the system", pickle(b"\x80\x02cos\nsystem\nX\x01\0\0\0x\x85R."), "`os.system`"),
        ("an instance", b"\x80\x02(ios\nsystem\n.".to_vec(), "unknown opcode 0x69"),
        ("another storage", one_tensor("torch.QInt8Storage", 0, 2, 1), "`torch.QInt8Storage`"),
        ("whole numbers", one_tensor("torch.IntStorage", 0, 2, 1), "no floating-point"),
        ("another length", one_tensor("torch.LongStorage", 0, 2, 1), "should have 2 elements of 8"),
        ("a size beyond", one_tensor("torch.FloatStorage", 0, 3, 1), "beyond its storage of 2"),
        ("an offset beyond", one_tensor("torch.FloatStorage", 1, 2, 1), "beyond its storage of 2"),
        ("a stride beyond", one_tensor("torch.FloatStorage", 0, 2, 2), "beyond its storage of 2"),
        ("a stored sum", damaged, "hecksum"),
        ("a missing storage", lone, "its storage `0` is missing"),
        ("a name twice", of_entries(&[float.clone(), float]), "it holds `w` twice"),
        ("two entries of one name", doubled, "two of its entries have the same name"),
        ("a beginning", b"PK\x03\x04rest".to_vec(), "not a complete archive of PyTorch"),
        ("a cut archive", good[..good.len() - 30].to_vec(), "not a complete"),
        ("a compressed entry", deflated(good.clone()), "is compressed"),
        ("a program", script, "TorchScript"),
        ("the other order", big, "big-endian"),
        ("two folders", two, "several folders"),
        ("no pickle", archive(&[("x/other", b"")]), "without data.pkl"),
        ("nothing", pickle(b"\x80\x02}."), "it holds no tensors"),
        ("a list", pickle(b"\x80\x02]."), "it contains a list, not a dict"),
        ("a number", pickle(b"\x80\x02}U\x01aK\x01s."), "`a` is an int, not a tensor"),
        ("a name that is none", pickle(b"\x80\x02}K\x02K\x01s."), "an int as a key"),
        ("deep lists", pickle(&nested), "nested more than 64 deep"),
        ("deep tuples", pickle(&tuples), "nested more than 64 deep"),
        ("no value", pickle(b"\x80\x02."), "value from an empty stack"),
        ("no mark", pickle(b"\x80\x02t."), "lacks a mark"),
        ("no memo", pickle(b"\x80\x02h\x05."), "uses memo 5"),
        ("a call of nothing", pickle(b"\x80\x02N)R."), "something that is not a class or function"),
        ("a huge count", b"\x80\x02X\xff\xff\xff\xffabc.".to_vec(), "truncated"),
        ("a huge number", b"\x80\x02\x8b\xff\xff\xff\x7f1.".to_vec(), "truncated"),
        ("another protocol", b"\x80\x09}.".to_vec(), "protocol 9"),
        ("a cut legacy file", LEGACY[..LEGACY.len() - 1].to_vec(), "truncated in storage"),
        ("a cut pickle", NUMPY[1][..300].to_vec(), "truncated"),
        (
            "a short array",
            replaced(NUMPY[2], &[2, b'K', 3], &[3, b'K', 3]),
            "do not match shape [3, 3]",
        ),
        ("a date", replaced(NUMPY[1], b"X\x02\0\0\0f4", b"X\x02\0\0\0M8"), "dtype `M8`"),
        (
            "the other order of an array",
            replaced(NUMPY[1], b"\x01\0\0\0<", b"\x01\0\0\0>"),
            "big-endian",
        ),
    ] {
        let error = refusal(&bytes);
        assert!(error.contains(told), "{what}: {error}");
        assert!(!error.contains('\n'), "{what}: {error}");
    }
}

#[test]
fn safetensors_requires_complete_float_tensors() {
    let file = |dtype: &str, shape: &str, data: &[u8]| {
        let end = data.len();
        let header =
            format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{end}]}}}}"#);
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
    };
    let double = |value: f64| file("F64", "[1]", &value.to_le_bytes());
    assert_eq!(read(&double(0.25)).unwrap().tensors["a"].1, [0.25]);
    let fine = file("F32", "[2]", &[0; 8]);
    assert!(read(&fine).is_ok() && read(&file("F16", "[2]", &[0; 4])).is_ok());
    let huge = "[4294967296,4294967296,4294967296]";
    for (bytes, told) in [
        (u64::MAX.to_le_bytes().to_vec(), "not a complete safetensors file"),
        (vec![], "not a complete safetensors file"),
        (fine[..fine.len() - 1].to_vec(), "not a complete safetensors file"),
        (file("F32", huge, &[0; 8]), "not a complete safetensors file"),
        (file("I32", "[2]", &[0; 8]), "tensor `a` holds I32: save the weights as f32"),
        (double(0.1), "float64 that float32 cannot represent"),
        (double(1e300), "float64 that float32 cannot represent"),
    ] {
        let error = refusal(&bytes);
        assert!(error.contains(told) && !error.contains('\n'), "{told}: {error}");
    }
}

/// A dict with many names for one storage would expand to more values than the file can contain.
#[test]
fn file_expanding_beyond_its_size_is_rejected() {
    let mut pickle = b"\x80\x02}(".to_vec();
    for name in 0u32..2000 {
        pickle.extend([b"X\x04\0\0\0".as_slice(), format!("{name:04}").as_bytes()].concat());
        pickle.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\n");
        pickle.extend(b"U\x010U\x03cpuM\0\x10tQK\0M\0\x10\x85K\x01\x85\x89NtR");
    }
    pickle.extend(b"u.");
    let bytes = archive(&[("x/data.pkl", &pickle), ("x/data/0", &[0; 4 * 4096])]);
    assert!(refusal(&bytes).contains("more values"), "{}", refusal(&bytes));
}
