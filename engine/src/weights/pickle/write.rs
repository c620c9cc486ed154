//! Writes pickles of protocol 2, which all versions of PyTorch read.

/// A pickle under construction: values in the order of its stack machine.
#[derive(Debug)]
pub(in crate::weights) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(in crate::weights) fn new() -> Self {
        Self { bytes: vec![0x80, 2] }
    }

    pub(in crate::weights) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }

    pub(in crate::weights) fn text(&mut self, text: &str) {
        self.bytes.push(b'X');
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
    }

    pub(in crate::weights) fn int(&mut self, value: usize) {
        // Eight bytes and a sign.
        self.bytes.extend([0x8a, 9]);
        self.bytes.extend((value as u64).to_le_bytes());
        self.bytes.push(0);
    }

    pub(in crate::weights) fn false_(&mut self) {
        self.bytes.push(0x89);
    }

    pub(in crate::weights) fn global(&mut self, module: &str, name: &str) {
        self.bytes.extend(format!("c{module}\n{name}\n").bytes());
    }

    /// A tuple of what `items` writes.
    pub(in crate::weights) fn tuple(&mut self, items: impl FnOnce(&mut Self)) {
        self.bytes.push(b'(');
        items(self);
        self.bytes.push(b't');
    }

    /// A dict of the keys and values that `items` writes.
    pub(in crate::weights) fn dict(&mut self, items: impl FnOnce(&mut Self)) {
        self.bytes.extend(b"}(");
        items(self);
        self.bytes.push(b'u');
    }

    /// Calls the function below the tuple on top.
    pub(in crate::weights) fn reduce(&mut self) {
        self.bytes.push(b'R');
    }

    /// Makes the value on top the name of something outside.
    pub(in crate::weights) fn persistent(&mut self) {
        self.bytes.push(b'Q');
    }
}
