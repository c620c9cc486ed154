//! Clears the page cache before a timed run, so that the run reads its data from disk.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

/// The caches that [`clear_caches`] cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cleared {
    /// The machine's whole page cache, through `/proc/sys/vm/drop_caches`.
    Machine,
    /// The stores' files, by `posix_fadvise`; the system may ignore this advice.
    Stores,
    /// Nothing.
    Nothing,
}

impl Cleared {
    /// A description for the log.
    pub fn describe(self) -> &'static str {
        match self {
            Cleared::Machine => "the page cache was cleared",
            Cleared::Stores => "the system was advised to drop the stores' files from its cache",
            Cleared::Nothing => "no cache was cleared",
        }
    }
}

/// Clears the machine's page cache, which requires root; without root, only the cached pages of the
/// files in `stores`.
pub fn clear_caches(stores: &[&Path]) -> Cleared {
    rustix::fs::sync();
    if std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok() {
        return Cleared::Machine;
    }
    if clear_stores(stores) { Cleared::Stores } else { Cleared::Nothing }
}

/// Advises the system to drop the files of these stores from its cache; true if every call
/// succeeded.
fn clear_stores(stores: &[&Path]) -> bool {
    let is_cleared = |store: &&Path| {
        let Ok(entries) = std::fs::read_dir(store) else { return false };
        entries.flatten().all(|entry| {
            let file = File::open(entry.path());
            file.is_ok_and(|file| fadvise(&file, 0, None, Advice::DontNeed).is_ok())
        })
    };
    !stores.is_empty() && stores.iter().all(is_cleared)
}

#[cfg(test)]
mod tests {
    use super::clear_stores;

    #[test]
    fn store_files_are_dropped_from_page_cache() {
        let store = tempfile::tempdir().expect("a folder");
        std::fs::write(store.path().join("pixels.bin"), [1; 4096]).expect("room");
        assert!(clear_stores(&[store.path()]));
        assert!(!clear_stores(&[]), "nothing is not cleared");
        assert!(!clear_stores(&[store.path(), &store.path().join("none")]));
    }
}
