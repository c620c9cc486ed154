//! Image ids in the results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Image ids, one per file. If a file's name is a number that no other file has, it is the id, as
/// in COCO, so that `eval --gt` can match results with annotations. All other files get consecutive
/// ids above all numbers in the names, or from 0 if there are none.
pub(super) fn image_ids(files: &[PathBuf]) -> Vec<u64> {
    let named: Vec<Option<u64>> = files.iter().map(|file| number(file)).collect();
    let mut uses: BTreeMap<u64, usize> = BTreeMap::new();
    named.iter().flatten().for_each(|id| *uses.entry(*id).or_default() += 1);
    let first = uses.last_key_value().map_or(0, |(last, _)| last.wrapping_add(1));
    let mut free = (first..=u64::MAX).chain(0..first).filter(|id| !uses.contains_key(id));
    let own = |id: &u64| uses.get(id) == Some(&1);
    named.iter().filter_map(|id| id.filter(own).or_else(|| free.next())).collect()
}

/// A message if the id of some file is not the number in its name.
pub(super) fn remark(files: &[PathBuf], ids: &[u64]) -> Option<String> {
    let others = files.iter().zip(ids).filter(|(file, id)| number(file) != Some(**id));
    let others: Vec<_> = others.collect();
    let ((file, id), count) = (others.first()?, others.len());
    let of = match count {
        1 => String::new(),
        _ => format!(", the first of {count} such files"),
    };
    Some(format!(
        "image id {id} was assigned to {}{of}: its name is not a unique number",
        file.display()
    ))
}

fn number(file: &Path) -> Option<u64> {
    file.file_stem()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_file_names_become_ids_without_collisions() {
        let ids = |names: &[&str]| image_ids(&names.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(ids(&["a/000000000139.jpg", "a/000000000285.jpg"]), [139, 285]);
        assert_eq!(ids(&["a/139.jpg", "street.jpg", "285.jpg", "x.png"]), [139, 286, 285, 287]);
        assert_eq!(ids(&["a/7.jpg", "b/7.png", "3.png"]), [8, 9, 3], "7 would come twice");
        assert_eq!(ids(&["b.jpg", "a.jpg"]), [0, 1]);
        assert_eq!(ids(&["18446744073709551615.jpg", "0.jpg", "a.jpg"]), [u64::MAX, 0, 1]);
    }
}
