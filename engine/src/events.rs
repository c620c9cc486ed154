//! TensorBoard event files: scalars, histograms and pictures, written incrementally.
//!
//! The format: records of length, masked CRC-32C of the length, an `Event` protocol buffer, and
//! its masked CRC-32C (tensorflow/core/lib/io/record_writer.cc, tensorflow/core/util/event.proto).

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::append::AppendFile;
use crate::error::EngineError;

/// Value of `colorspace` for RGB pictures.
const RGB: u32 = 3;

/// A histogram (the message `HistogramProto`).
#[derive(Debug)]
pub(crate) struct Histogram {
    /// Minimum, maximum, number, sum, and sum of squares of the values.
    pub(crate) moments: [f64; 5],
    /// Upper limit of each bin.
    pub(crate) limits: Vec<f64>,
    /// Number of values in each bin.
    pub(crate) counts: Vec<f64>,
}

/// Writes `events.out.tfevents.*` of a run.
#[derive(Debug)]
pub(crate) struct EventWriter {
    file: AppendFile,
}

impl EventWriter {
    /// Creates a new file in `dir`. TensorBoard merges all files of a directory.
    ///
    /// # Errors
    /// [`EngineError::Io`] names the file.
    pub(crate) fn create(dir: &Path) -> Result<Self, EngineError> {
        let name = format!("events.out.tfevents.{:.0}.onegraph.{}", now(), std::process::id());
        let mut writer = Self { file: AppendFile::open(&dir.join(name))? };
        let mut event = time_field();
        bytes_field(&mut event, 3, b"brain.Event:2");
        writer.record(&event)?;
        Ok(writer)
    }

    /// Writes the scalars of one step.
    ///
    /// # Errors
    /// [`EngineError::Io`] names the file.
    pub(crate) fn scalars(
        &mut self,
        step: u64,
        scalars: &[(String, f32)],
    ) -> Result<(), EngineError> {
        let mut summary = Vec::new();
        for (tag, value) in scalars {
            let mut entry = Vec::new();
            bytes_field(&mut entry, 1, tag.as_bytes());
            entry.push(2 << 3 | 5); // field 2, 32 bits
            entry.extend(value.to_le_bytes());
            bytes_field(&mut summary, 1, &entry);
        }
        self.summary(step, &summary)
    }

    /// Writes a PNG picture of one step, with its height and width in pixels.
    ///
    /// # Errors
    /// [`EngineError::Io`] names the file.
    pub(crate) fn picture(
        &mut self,
        step: u64,
        tag: &str,
        (height, width): (u32, u32),
        png: &[u8],
    ) -> Result<(), EngineError> {
        let mut picture = Vec::new();
        for (field, value) in [(1, height), (2, width), (3, RGB)] {
            picture.push(field << 3); // varint
            varint(&mut picture, value.into());
        }
        bytes_field(&mut picture, 4, png);
        let (mut entry, mut summary) = (Vec::new(), Vec::new());
        bytes_field(&mut entry, 1, tag.as_bytes());
        bytes_field(&mut entry, 4, &picture);
        bytes_field(&mut summary, 1, &entry);
        self.summary(step, &summary)
    }

    /// Writes a histogram of one step.
    ///
    /// # Errors
    /// [`EngineError::Io`] names the file.
    pub(crate) fn histogram(
        &mut self,
        step: u64,
        tag: &str,
        Histogram { moments, limits, counts }: &Histogram,
    ) -> Result<(), EngineError> {
        let mut message = Vec::new();
        for (field, value) in (1..).zip(moments) {
            message.push(field << 3 | 1); // 64 bits
            message.extend(value.to_le_bytes());
        }
        for (field, values) in [(6, limits), (7, counts)] {
            let packed: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            bytes_field(&mut message, field, &packed);
        }
        let (mut entry, mut summary) = (Vec::new(), Vec::new());
        bytes_field(&mut entry, 1, tag.as_bytes());
        bytes_field(&mut entry, 5, &message);
        bytes_field(&mut summary, 1, &entry);
        self.summary(step, &summary)
    }

    fn summary(&mut self, step: u64, summary: &[u8]) -> Result<(), EngineError> {
        let mut event = time_field();
        event.push(2 << 3); // field 2, varint
        varint(&mut event, step);
        bytes_field(&mut event, 5, summary);
        self.record(&event)
    }

    fn record(&mut self, event: &[u8]) -> Result<(), EngineError> {
        let length = (event.len() as u64).to_le_bytes();
        let parts = [
            &length[..],
            &masked_crc(&length).to_le_bytes(),
            event,
            &masked_crc(event).to_le_bytes(),
        ];
        self.file.append(&parts.concat())
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// Field 1 of an event: seconds since 1970, a double.
fn time_field() -> Vec<u8> {
    let mut event = vec![1 << 3 | 1];
    event.extend(now().to_le_bytes());
    event
}

fn bytes_field(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.push(field << 3 | 2);
    varint(message, bytes.len() as u64);
    message.extend(bytes);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// CRC-32C, masked (rotated, plus a constant) as the record format requires.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8)
}

#[cfg(test)]
mod tests {
    use super::{EngineError, EventWriter, Histogram, masked_crc};

    /// Parses the records of a file.
    fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let length = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
            let crc =
                |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
            assert_eq!(crc(8), masked_crc(&bytes[..8]));
            let end = 12 + length as usize;
            assert_eq!(crc(end), masked_crc(&bytes[12..end]));
            found.push(bytes[12..end].to_vec());
            bytes = &bytes[end + 4..];
        }
        found
    }

    fn written(write: impl FnOnce(&mut EventWriter) -> Result<(), EngineError>) -> Vec<Vec<u8>> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        write(&mut EventWriter::create(dir.path()).expect("a file")).expect("a record");
        let file = std::fs::read_dir(dir.path()).expect("the directory").next().expect("a file");
        records(&std::fs::read(file.expect("an entry").path()).expect("its bytes"))
    }

    #[test]
    fn tensorboard_scalar_is_framed_and_encoded() {
        let records = written(|writer| writer.scalars(300, &[("loss".into(), 1.5)]));
        assert_eq!(records.len(), 2);
        assert!(records[0].ends_with(b"brain.Event:2"));
        // The fields after the time: step 300 as a varint, then the summary with tag and value.
        let expected = [0x10, 0xAC, 0x02, 0x2A, 0x0D, 0x0A, 0x0B, 0x0A, 0x04];
        assert_eq!(records[1][9..18], expected);
        assert_eq!(&records[1][18..22], b"loss");
        assert_eq!(records[1][22..], [0x15, 0x00, 0x00, 0xC0, 0x3F]);
    }

    #[test]
    fn tensorboard_histogram_has_moments_and_bins() {
        let moments = [-1.0, 3.0, 4.0, 5.0, 9.0];
        let histogram = Histogram { moments, limits: vec![1.0, 3.0], counts: vec![3.0, 1.0] };
        let records = written(|writer| writer.histogram(7, "h", &histogram));
        // Step 7; a summary of 88 bytes with one value of 86: tag, then a histogram of 81.
        assert_eq!(records[1][9..18], [0x10, 7, 0x2A, 88, 0x0A, 86, 0x0A, 1, b'h']);
        let mut expected = vec![0x2A, 81];
        for (field, value) in (1u8..).zip(moments) {
            expected.push(field << 3 | 1);
            expected.extend(value.to_le_bytes());
        }
        for (field, values) in [(6u8, [1.0f64, 3.0]), (7, [3.0, 1.0])] {
            expected.extend([field << 3 | 2, 16]);
            expected.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        assert_eq!(records[1][18..], expected);
    }

    #[test]
    fn tensorboard_image_has_size_and_bytes() {
        let records = written(|writer| writer.picture(7, "eval/p", (2, 300), b"PNG"));
        // Step 7; a summary of 24 bytes with one value of 22: tag, then an image of 12.
        let head = [0x10, 7, 0x2A, 24, 0x0A, 22, 0x0A, 6];
        assert_eq!(records[1][9..17], head);
        assert_eq!(&records[1][17..23], b"eval/p");
        let image = [0x22, 12, 0x08, 2, 0x10, 0xAC, 0x02, 0x18, 3, 0x22, 3];
        assert_eq!(records[1][23..34], image);
        assert_eq!(&records[1][34..], b"PNG");
    }
}
