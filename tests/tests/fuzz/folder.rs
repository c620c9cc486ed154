//! A folder for the files of one target, in memory if the system supports it.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub(crate) struct Folder {
    dir: TempDir,
}

impl Folder {
    pub(crate) fn new() -> Folder {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Folder { dir: dir.expect("a temporary folder") }
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).expect("a folder");
        fs::write(&path, bytes).expect("a file");
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.join(name)).expect("a file")
    }

    pub(crate) fn remove(&self, name: &str) {
        // The entry may not exist.
        let _ = fs::remove_dir_all(self.join(name));
    }
}
