//! Columns of a store: numeric lists in the annotations, in addition to the standard fields.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::coco::{self, Annotation};
use crate::error::DaliError;
use crate::store::Column;

/// A JSON value in an annotation.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Numbers(Vec<f64>),
    Other(IgnoredAny),
}

/// Reads the columns of a COCO file into `annotations`, which must be in file order. Returns the
/// columns that the file has. An annotation gets the values of all of these columns, consecutively;
/// they are NaN for a column that the annotation lacks.
///
/// # Errors
/// As for [`coco::lists`]; [`DaliError::Annotations`] for a list of the wrong length, or with a
/// number that is not finite.
pub(super) fn read(
    path: &Path,
    bytes: &[u8],
    columns: &[Column],
    annotations: &mut [Annotation],
) -> Result<Vec<Column>, DaliError> {
    if columns.is_empty() {
        return Ok(vec![]);
    }
    let (_, rows, _) = coco::lists::<IgnoredAny, HashMap<String, Value>, IgnoredAny>(path, bytes)?;
    let is_there = |column: &&Column| rows.iter().any(|row| row.contains_key(&column.name));
    let columns: Vec<Column> = columns.iter().filter(is_there).cloned().collect();
    for (annotation, row) in annotations.iter_mut().zip(rows) {
        for Column { name, width } in &columns {
            match row.get(name) {
                Some(Value::Numbers(own)) if own.len() == *width && own.iter().all(is_finite) => {
                    annotation.columns.extend(own.iter().map(|number| *number as f32));
                }
                Some(_) => {
                    let id = annotation.id;
                    let fault = format!(
                        "has a `{name}` in annotation {id} that is not a list of {width} numbers"
                    );
                    return Err(DaliError::annotations(path, fault));
                }
                None => annotation.columns.extend(vec![f32::NAN; *width]),
            }
        }
    }
    Ok(columns)
}

fn is_finite(number: &f64) -> bool {
    (*number as f32).is_finite()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_is_read_by_key_and_wrong_length_is_reported() {
        let file = |tips: &str| {
            let rest = r#""image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]"#;
            format!(
                r#"{{"images": [{{"id": 1, "file_name": "a.jpg", "height": 9, "width": 9}}],
                "categories": [{{"id": 1, "name": "ant"}}], "annotations": [
                {{"id": 3, {rest}, "tips": {tips}, "segmentation": [[1, 1, 2, 2, 3, 1]]}},
                {{"id": 4, {rest}}}]}}"#
            )
        };
        let column = |name: &str, width| Column { name: name.into(), width };
        let columns = [column("tips", 2), column("legs", 1)];
        let read = |text: &str| {
            let path = Path::new("a.json");
            let mut all = coco::parse(path, text.as_bytes()).expect("a data set").annotations;
            let read = super::read(path, text.as_bytes(), &columns, &mut all);
            read.map(|used| (used, all)).map_err(|fault| fault.to_string())
        };
        let (used, all) = read(&file("[7, -0.5]")).expect("numbers");
        assert_eq!(used, columns[..1], "no annotation has legs");
        assert_eq!(all[0].columns, [7.0, -0.5]);
        assert!(all[1].columns.len() == 2 && all[1].columns.iter().all(|of| of.is_nan()));
        for tips in ["[1]", "[1, 1e300]", "\"none\"", "[1, \"2\"]"] {
            let fault = read(&file(tips)).expect_err(tips);
            let words = "has a `tips` in annotation 3 that is not a list of 2 numbers";
            assert!(fault.contains(words), "{fault}");
        }
    }
}
