//! Compact, readable JSON: objects are indented, lists of plain values stay on one line.

use std::fmt::Write;

use serde_json::Value;

/// Formats `value` as JSON. Each entry of an object is on its own line. A list of plain values is
/// on one line; in any other list, each element is on one line.
pub(crate) fn compact_json(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, 0, &mut text);
    text + "\n"
}

fn write_value(value: &Value, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth + 1);
    let is_plain = |value: &Value| !value.is_object() && !value.is_array();
    // Writing to a string cannot fail.
    let close = match value {
        Value::Object(entries) if !entries.is_empty() => {
            for (i, (name, value)) in entries.iter().enumerate() {
                let start = if i == 0 { "{" } else { "," };
                let _ = write!(text, "{start}\n{indent}{}: ", Value::from(name.as_str()));
                write_value(value, depth + 1, text);
            }
            "}"
        }
        Value::Array(elements) if !elements.iter().all(is_plain) => {
            for (i, element) in elements.iter().enumerate() {
                let start = if i == 0 { "[" } else { "," };
                let _ = write!(text, "{start}\n{indent}{element}");
            }
            "]"
        }
        plain => {
            let _ = write!(text, "{plain}");
            return;
        }
    };
    let _ = write!(text, "\n{}{close}", "  ".repeat(depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_json_has_one_line_per_list_and_round_trips() {
        let value = serde_json::json!({
            "empty": {}, "none": [], "list": [1.5, null, "a\"b"],
            "rows": [{"name": "x", "values": [0.1, 0.2]}, [3]],
            "inner": {"deep": {"n": 1}},
        });
        let text = compact_json(&value);
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
        for line in
            ["  \"list\": [1.5,null,\"a\\\"b\"],", "    {\"name\":\"x\",\"values\":[0.1,0.2]},"]
        {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert_eq!(text.lines().count(), 14, "{text}");
    }
}
