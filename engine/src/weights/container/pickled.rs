//! Dicts of arrays as Python's pickle modules write them, opcode by opcode, for tests.

use std::collections::BTreeMap;

use super::Values;

/// The Python that a pickle is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::weights) enum Python {
    /// cPickle of Python 2 in its highest protocol, 2: names and data are `str`. So are Detectron's
    /// files.
    Two,
    /// Python 3 in its default protocol of 2019, 3: names are text and data are bytes.
    Three,
}

/// The pickle of the arrays, of f32 in C order, inside the dicts of these keys.
pub(in crate::weights) fn pickled(
    arrays: &BTreeMap<String, Values>,
    python: Python,
    wrappers: &[&str],
) -> Vec<u8> {
    let bytes = vec![0x80, if python == Python::Two { 2 } else { 3 }];
    let mut writer = Writer { python, bytes, memo: 0, known: BTreeMap::new() };
    for wrapper in wrappers {
        writer.raw(b"}");
        writer.put();
        writer.name(wrapper);
    }
    writer.raw(b"}");
    writer.put();
    writer.raw(b"(");
    for (name, (shape, values)) in arrays {
        writer.name(name);
        writer.array(shape, values);
    }
    writer.raw(b"u");
    writer.raw(&vec![b's'; wrappers.len()]);
    writer.raw(b".");
    writer.bytes
}

struct Writer {
    python: Python,
    bytes: Vec<u8>,
    /// Values remembered so far.
    memo: u32,
    /// Where the names of classes and functions, and the dtype, are remembered.
    known: BTreeMap<&'static str, u32>,
}

impl Writer {
    fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Remembers the value on top; returns where.
    fn put(&mut self) -> u32 {
        match u8::try_from(self.memo) {
            Ok(at) => self.raw(&[b'q', at]),
            Err(_) => self.raw(&[&b"r"[..], &self.memo.to_le_bytes()].concat()),
        }
        self.memo += 1;
        self.memo - 1
    }

    /// Pushes what is remembered there.
    fn get(&mut self, at: u32) {
        match u8::try_from(at) {
            Ok(at) => self.raw(&[b'h', at]),
            Err(_) => self.raw(&[&b"j"[..], &at.to_le_bytes()].concat()),
        }
    }

    /// A counted string: the opcode for a count below 256, if there is one, and the opcode for any.
    fn counted(&mut self, [short, long]: [Option<u8>; 2], text: &[u8]) {
        match (short, u8::try_from(text.len()), long) {
            (Some(short), Ok(count), _) => self.raw(&[short, count]),
            (.., Some(long)) => {
                self.raw(&[&[long][..], &(text.len() as u32).to_le_bytes()].concat());
            }
            _ => panic!("{} bytes have no opcode", text.len()),
        }
        self.raw(text);
        self.put();
    }

    fn name(&mut self, name: &str) {
        let text = [[Some(b'U'), Some(b'T')], [None, Some(b'X')]];
        self.counted(text[usize::from(self.python == Python::Three)], name.as_bytes());
    }

    fn data(&mut self, data: &[u8]) {
        let bytes = [[Some(b'U'), Some(b'T')], [Some(b'C'), Some(b'B')]];
        self.counted(bytes[usize::from(self.python == Python::Three)], data);
    }

    /// `module\nname\n`.
    fn global(&mut self, names: &'static str) {
        match self.known.get(names) {
            Some(&at) => self.get(at),
            None => {
                self.raw(&[b"c", names.as_bytes()].concat());
                let at = self.put();
                self.known.insert(names, at);
            }
        }
    }

    fn count(&mut self, count: usize) {
        match (u8::try_from(count), u16::try_from(count)) {
            (Ok(count), _) => self.raw(&[b'K', count]),
            (_, Ok(count)) => self.raw(&[&b"M"[..], &count.to_le_bytes()].concat()),
            _ => self.raw(&[&b"J"[..], &(count as u32).to_le_bytes()].concat()),
        }
    }

    fn array(&mut self, shape: &[usize], values: &[f32]) {
        self.global("numpy.core.multiarray\n_reconstruct\n");
        self.global("numpy\nndarray\n");
        self.raw(b"K\x00\x85");
        self.put();
        self.data(b"b");
        self.raw(b"\x87");
        self.put();
        self.raw(b"R");
        self.put();
        self.raw(b"(K\x01");
        if shape.len() > 3 {
            self.raw(b"(");
        }
        shape.iter().for_each(|side| self.count(*side));
        self.raw(&[*[b')', 0x85, 0x86, 0x87].get(shape.len()).unwrap_or(&b't')]);
        self.put();
        self.dtype();
        self.raw(b"\x89");
        self.data(bytemuck::cast_slice(values));
        self.raw(b"t");
        self.put();
        self.raw(b"b");
    }

    /// Little-endian f32: one object in all arrays.
    fn dtype(&mut self) {
        const OBJECT: &str = "the dtype";
        if let Some(&at) = self.known.get(OBJECT) {
            return self.get(at);
        }
        self.global("numpy\ndtype\n");
        self.name("f4");
        self.raw(b"K\x00K\x01\x87");
        self.put();
        self.raw(b"R");
        let at = self.put();
        self.known.insert(OBJECT, at);
        self.raw(b"(K\x03");
        self.name("<");
        self.raw(b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t");
        self.put();
        self.raw(b"b");
    }
}
