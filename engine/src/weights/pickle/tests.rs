//! Pickled values of every kind, and allowed names.

use super::{globals, read};

#[test]
fn pickle_literals_match_python_in_every_protocol() {
    for (bytes, value) in [
        (b"I01\n.".as_slice(), 1),
        (b"I-7\n.", -7),
        (b"L12345678901234567890L\n.", 12_345_678_901_234_567_890),
        (b"J\xff\xff\xff\xff.", -1),
        (b"K\xff.", 255),
        (b"M\x00\x01.", 256),
        (b"\x8a\x01\xff.", -1),
        (b"\x8a\x00.", 0),
        (b"\x8b\x02\0\0\0\xff\x7f.", 32767),
        (b"\x88.", 1),
    ] {
        let (pickle, end) = read(bytes, 0).unwrap();
        assert_eq!((pickle.int(pickle.root()), end), (Some(value), bytes.len()));
    }
    for (bytes, text) in [
        (b"S'a\\n\\'\\x41'\n.".as_slice(), "a\n'A"),
        (b"S\"it's\"\n.", "it's"),
        (b"Va\\u00e9\xe9\n.", "a\u{e9}\u{e9}"),
        (b"X\x02\0\0\0\xc3\xa9.", "\u{e9}"),
        (b"U\x01\xe9.", "\u{e9}"),
        (b"\x8c\x01a.", "a"),
    ] {
        let (pickle, _) = read(bytes, 0).unwrap();
        assert_eq!(pickle.text(pickle.root()).as_deref(), Some(text));
    }
}

#[test]
fn pickle_memo_and_dict_load_from_python_2_and_3() {
    // The pickle of {"a": t, "b": t}, where t is the same tuple.
    let (pickle, _) = read(b"}U\x01aK\x01K\x02\x86q\x05sU\x01bh\x05s.", 0).unwrap();
    let entries = pickle.entries(pickle.root()).unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0].1, entries[1].1, "one value under two names");
    assert_eq!(pickle.counts(entries[0].1), Some(vec![1, 2]));
    // The pickle of Python 2's OrderedDict: a list of pairs.
    let ordered = b"ccollections\nOrderedDict\n]](U\x01aK\x07ea\x85R.";
    let (pickle, _) = read(ordered, 0).unwrap();
    let entries = pickle.entries(pickle.root()).unwrap();
    assert_eq!(pickle.text(entries[0].0).as_deref(), Some("a"));
    assert_eq!(pickle.int(entries[0].1), Some(7));
}

#[test]
fn pickle_globals_that_run_code_are_rejected() {
    for (module, name) in [
        ("os", "system"),
        ("posix", "system"),
        ("builtins", "eval"),
        ("builtins", "exec"),
        ("builtins", "getattr"),
        ("__builtin__", "apply"),
        ("subprocess", "Popen"),
        ("torch", "load"),
        ("torch.storage", "_load_from_bytes"),
        ("numpy", "load"),
        ("collections", "OrderedDict.fromkeys"),
    ] {
        assert!(!globals::is_known(module, name), "{module}.{name}");
    }
    // A name with a line break is escaped in the error message.
    let error = read(b"\x80\x04\x8c\x03a\nb\x8c\x01c\x93.", 0).unwrap_err();
    assert!(error.contains("`a\\nb.c`") && error.contains("nothing was executed"), "{error}");
}
