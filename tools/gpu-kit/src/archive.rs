//! The output folder of a call: a few flat files of bounded size, each consistent at any moment.
//!
//! A stage works in a scratch folder; files to keep are copied from there as they grow. Whatever
//! ends the runner, the files contain everything known by then.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Map, Value, json};

/// Every file that a call may leave, with its maximum bytes; in total less than 64 MiB.
const FILES: [(&str, usize); 7] = [
    (REPORT, 4 << 20),
    (LOG, 8 << 20),
    ("ops.json", 4 << 20),
    ("nodes.json", 8 << 20),
    ("timeline.svg", 8 << 20),
    ("peers.json", 4 << 20),
    ("ncu.txt", 15 << 20),
];
pub(super) const REPORT: &str = "report.json";
const LOG: &str = "log.txt";
/// Name of a file while it is being written.
const UNFINISHED: &str = "unfinished.tmp";
/// Bytes of one stage in the log.
const STAGE_LOG_BYTES: usize = 512 << 10;
/// Polling interval for growing files.
const EVERY: Duration = Duration::from_secs(1);

/// A file that a stage writes into the scratch folder, and where it is kept.
#[derive(Debug, Clone)]
pub(super) struct Product {
    /// Path in the scratch folder.
    pub(super) file: String,
    /// Name in the archive.
    pub(super) kept: &'static str,
    /// Under this key of one JSON object, or this heading of one text, that several stages share;
    /// None: a file of its own.
    pub(super) key: Option<String>,
}

#[derive(Debug)]
pub(super) struct Archive {
    folder: PathBuf,
    scratch: PathBuf,
    log: File,
    log_bytes: usize,
    /// Objects that several stages share, by file.
    shared: Map<String, Value>,
    /// When each product was last seen to change.
    seen: Vec<(String, SystemTime)>,
    looked: Instant,
}

/// The log of one stage: its beginning as it comes, its end once it is over.
#[derive(Debug)]
pub(super) struct StageLog {
    /// Remaining bytes for the beginning.
    room: usize,
    /// The last lines that did not fit there, and their bytes.
    end: VecDeque<String>,
    end_bytes: usize,
    most_end_bytes: usize,
    left_out: usize,
}

impl Archive {
    /// Creates the folder, and removes the files of an earlier call.
    ///
    /// # Errors
    /// The folder cannot be written, in one sentence.
    pub(super) fn new(folder: &Path, scratch: &Path) -> Result<Self, String> {
        let at = |e: std::io::Error| format!("{}: {e}", folder.display());
        fs::create_dir_all(folder).map_err(at)?;
        let folder = folder.canonicalize().map_err(at)?;
        for name in FILES.iter().map(|(name, _)| *name).chain([UNFINISHED]) {
            let _ = fs::remove_file(folder.join(name));
        }
        let log = File::create(folder.join(LOG)).map_err(at)?;
        Ok(Self {
            folder,
            scratch: scratch.to_path_buf(),
            log,
            log_bytes: 0,
            shared: Map::new(),
            seen: Vec::new(),
            looked: Instant::now(),
        })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file atomically: it is the old one or the new one at any moment.
    ///
    /// # Errors
    /// The file cannot be written, in one sentence.
    pub(super) fn write(&self, name: &str, contents: Vec<u8>) -> Result<(), String> {
        let most = FILES.iter().find(|(known, _)| *known == name).map_or(0, |(_, most)| *most);
        let (path, unfinished) = (self.folder.join(name), self.folder.join(UNFINISHED));
        let write = || {
            fs::write(&unfinished, cut(name, contents, most))?;
            fs::rename(&unfinished, &path)
        };
        write().map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Begins the log of a stage.
    pub(super) fn stage_log(&mut self, name: &str) -> StageLog {
        self.append(&format!("\n===== {name} =====\n"));
        StageLog::new(STAGE_LOG_BYTES)
    }

    /// A line of a stage's log.
    pub(super) fn say(&mut self, log: &mut StageLog, line: &str) {
        if log.takes(line) {
            self.append(&format!("{line}\n"));
        }
    }

    /// Ends the log of a stage.
    pub(super) fn end(&mut self, log: StageLog) {
        if let Some(rest) = log.rest() {
            self.append(&rest);
        }
    }

    fn append(&mut self, text: &str) {
        let most = FILES.iter().find(|(name, _)| *name == LOG).map_or(0, |(_, most)| *most);
        if self.log_bytes + text.len() <= most {
            self.log_bytes += text.len();
            // A full disk must not end the measurements: the table is printed too.
            let _ = self.log.write_all(text.as_bytes());
        }
    }

    /// Copies what changed, once a second.
    pub(super) fn look(&mut self, products: &[Product]) {
        if self.looked.elapsed() >= EVERY {
            self.collect(products);
        }
    }

    /// Copies what changed.
    pub(super) fn collect(&mut self, products: &[Product]) {
        self.looked = Instant::now();
        for product in products {
            let path = self.scratch.join(&product.file);
            let Ok(changed) = fs::metadata(&path).and_then(|data| data.modified()) else {
                continue;
            };
            let seen = self.seen.iter().any(|(file, at)| *file == product.file && *at == changed);
            if seen {
                continue;
            }
            if self.keep(product, &path).is_ok() {
                self.seen.retain(|(file, _)| *file != product.file);
                self.seen.push((product.file.clone(), changed));
            }
        }
    }

    fn keep(&mut self, product: &Product, path: &Path) -> Result<(), String> {
        let bytes = fs::read(path).map_err(|e| e.to_string())?;
        let Some(key) = &product.key else {
            // Skip a JSON file that is still being written until the next poll.
            let torn =
                product.kept.ends_with(".json") && serde_json::from_slice::<Value>(&bytes).is_err();
            return if torn { Err("half a file".into()) } else { self.write(product.kept, bytes) };
        };
        let is_json = product.kept.ends_with(".json");
        let value = match is_json {
            true => serde_json::from_slice(&bytes).map_err(|e| e.to_string())?,
            false => Value::String(String::from_utf8_lossy(&bytes).into_owned()),
        };
        // A list without figures so far.
        if value.as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        let object = self.shared.entry(product.kept).or_insert_with(|| json!({}));
        object[key] = value;
        let text = match (is_json, object.as_object()) {
            (false, Some(parts)) => {
                let part = |(key, text): (&String, &Value)| {
                    format!("===== {key} =====\n{}\n", text.as_str().unwrap_or_default())
                };
                parts.iter().map(part).collect()
            }
            _ => format!("{object:#}\n"),
        };
        self.write(product.kept, text.into_bytes())
    }
}

/// At most this many bytes of it, with a sentence if something is missing.
fn cut(name: &str, mut contents: Vec<u8>, most: usize) -> Vec<u8> {
    if contents.len() <= most {
        return contents;
    }
    let said = format!("{name} has {} bytes, more than the {most} that are kept", contents.len());
    match name.rsplit('.').next() {
        // Half of such a file is useless.
        Some("json") => format!("{}\n", json!({"cut": said})).into_bytes(),
        Some("svg") => format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"40\">\
             <text x=\"10\" y=\"25\">{said}</text></svg>\n"
        )
        .into_bytes(),
        _ => {
            let said = format!("\n[cut: {said}]\n");
            contents.truncate(most.saturating_sub(said.len()));
            let whole = contents.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
            contents.truncate(whole);
            contents.extend_from_slice(said.as_bytes());
            contents
        }
    }
}

impl StageLog {
    fn new(bytes: usize) -> Self {
        let most_end_bytes = bytes / 4;
        let room = bytes - most_end_bytes;
        Self { room, end: VecDeque::new(), end_bytes: 0, most_end_bytes, left_out: 0 }
    }

    /// Takes the line if it belongs to the beginning; else it is kept for the end.
    fn takes(&mut self, line: &str) -> bool {
        let bytes = line.len() + 1;
        if self.end.is_empty() && bytes <= self.room {
            self.room -= bytes;
            return true;
        }
        self.end_bytes += bytes;
        self.end.push_back(line.to_string());
        while self.end_bytes > self.most_end_bytes {
            let Some(first) = self.end.pop_front() else { break };
            self.end_bytes -= first.len() + 1;
            self.left_out += first.len() + 1;
        }
        false
    }

    /// The lines that did not fit into the beginning.
    fn rest(self) -> Option<String> {
        if self.end.is_empty() && self.left_out == 0 {
            return None;
        }
        let left_out = match self.left_out {
            0 => String::new(),
            bytes => format!("[cut: {bytes} bytes are left out here]\n"),
        };
        let lines: Vec<String> = self.end.into();
        Some(format!("{left_out}{}\n", lines.join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let name = |e: std::io::Result<fs::DirEntry>| {
            e.expect("an entry").file_name().to_string_lossy().into_owned()
        };
        entries.map(name).collect()
    }

    #[test]
    fn all_files_together_are_less_than_64_mib() {
        assert!(FILES.iter().all(|(_, most)| *most < 16 << 20));
        assert!(FILES.iter().map(|(_, most)| most).sum::<usize>() < 64 << 20);
    }

    #[test]
    fn files_are_cut_with_a_sentence() {
        let text = String::from("0123456789\n").repeat(40);
        let kept = String::from_utf8(cut("ncu.txt", text.clone().into_bytes(), 200)).expect("text");
        assert!(kept.len() <= 200 && kept.starts_with("0123456789\n"), "{kept}");
        assert!(kept.ends_with("[cut: ncu.txt has 440 bytes, more than the 200 that are kept]\n"));
        let kept = cut("nodes.json", text.clone().into_bytes(), 200);
        let value: Value = serde_json::from_slice(&kept).expect("JSON");
        assert!(value["cut"].as_str().is_some_and(|said| said.contains("440 bytes")));
        let svg = String::from_utf8(cut("timeline.svg", text.into_bytes(), 200)).expect("text");
        assert!(svg.starts_with("<svg") && svg.contains("440 bytes"), "{svg}");
        assert_eq!(cut("a.txt", b"short".to_vec(), 200), b"short");
    }

    #[test]
    fn a_long_log_keeps_its_beginning_and_its_end() {
        let mut log = StageLog::new(400);
        let taken = (0..100).filter(|i| log.takes(&format!("line {i:04}"))).count();
        assert_eq!(taken, 30);
        let rest = log.rest().expect("an end");
        assert!(rest.starts_with("[cut: 600 bytes are left out here]\nline 0090\n"), "{rest}");
        assert!(rest.ends_with("line 0099\n") && rest.len() < 200, "{rest}");
        assert_eq!(StageLog::new(400).rest(), None);
    }

    #[test]
    fn products_are_kept_as_they_come() {
        let (out, scratch) = (tempfile::tempdir(), tempfile::tempdir());
        let (out, scratch) = (out.expect("a folder"), scratch.expect("a folder"));
        fs::write(out.path().join("ncu.txt"), "of an earlier call").expect("a file");
        let mut archive = Archive::new(out.path(), scratch.path()).expect("an archive");
        assert_eq!(names(out.path()), ["log.txt"]);
        let product = |file: &str, kept, key: Option<&str>| Product {
            file: file.into(),
            kept,
            key: key.map(String::from),
        };
        let products = [
            product("a.json", "peers.json", Some("a")),
            product("b.json", "peers.json", Some("b")),
            product("n.json", "nodes.json", None),
        ];
        fs::write(scratch.path().join("a.json"), "[1]").expect("a file");
        fs::write(scratch.path().join("n.json"), "{\"half\": ").expect("a file");
        archive.collect(&products);
        assert!(!out.path().join("nodes.json").exists(), "half a file is none");
        fs::write(scratch.path().join("n.json"), "{\"half\": 2}").expect("a file");
        fs::write(scratch.path().join("b.json"), "[]").expect("a file");
        archive.collect(&products);
        let peers = fs::read_to_string(out.path().join("peers.json")).expect("a file");
        assert!(!peers.contains("\"b\""), "a list without a figure is none: {peers}");
        fs::write(scratch.path().join("b.json"), "{}").expect("a file");
        for (file, key) in [("x.csv", "nodes"), ("y.log", "kernels")] {
            fs::write(scratch.path().join(file), key.to_uppercase()).expect("a file");
            archive.collect(&[product(file, "ncu.txt", Some(key))]);
        }
        archive.collect(&products);
        let ncu = fs::read_to_string(out.path().join("ncu.txt")).expect("a file");
        assert!(ncu.contains("===== nodes =====\nNODES\n") && ncu.contains("KERNELS"), "{ncu}");
        let read = |name: &str| -> Value {
            let bytes = fs::read(out.path().join(name)).expect("a file");
            serde_json::from_slice(&bytes).expect("JSON")
        };
        assert_eq!(read("peers.json"), json!({"a": [1], "b": {}}));
        assert_eq!(read("nodes.json"), json!({"half": 2}));
        assert_eq!(names(out.path()).len(), 4);
    }
}
