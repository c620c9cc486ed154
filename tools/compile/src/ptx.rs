//! The kernels of a PTX file, from its text.

use device::Precision;
use device::tensor::kernel_name;

use crate::Fault;

/// A kernel of a PTX file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The `extern "C"` name.
    pub name: String,
    /// Sizes of the parameters, in order.
    pub parameter_bytes: Vec<usize>,
}

/// The kernels of a PTX text, by name.
///
/// # Errors
/// The parameters of a kernel cannot be parsed.
pub fn entries(ptx: &str) -> Result<Vec<Entry>, Fault> {
    let mut entries = Vec::new();
    for piece in ptx.split(".visible .entry ").skip(1) {
        let fault = || Fault(format!("the PTX of a kernel has no list of parameters: {piece:.60}"));
        let (name, rest) = piece.split_once('(').ok_or_else(fault)?;
        let (list, _) = rest.split_once(')').ok_or_else(fault)?;
        let parameters = list.split(',').map(str::trim).filter(|p| !p.is_empty());
        let sizes = parameters.map(|p| {
            bytes(p).ok_or_else(|| Fault(format!("{name}: the parameter `{p}` cannot be parsed")))
        });
        let parameter_bytes = sizes.collect::<Result<_, _>>()?;
        entries.push(Entry { name: name.trim().to_string(), parameter_bytes });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// The PTX with kernels renamed according to the type of `real` ([`kernel_name`]). Names that the
/// compiler derived from kernel names, such as those of shared variables, are unchanged.
///
/// # Errors
/// As for [`entries`].
pub fn renamed(ptx: &str, real: Precision) -> Result<String, Fault> {
    let mut text = ptx.to_string();
    for Entry { name, .. } in entries(ptx)? {
        let now = kernel_name(real, &name);
        text = text.replace(&format!(".entry {name}("), &format!(".entry {now}("));
        text = replace_word(&text, &format!("{name}_param_"), &format!("{now}_param_"));
    }
    Ok(text)
}

/// `text` with `before` replaced by `now` at the beginning of words.
fn replace_word(text: &str, before: &str, now: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(before) {
        let begins = !rest[..at].ends_with(is_word);
        done += &rest[..at];
        done += if begins { now } else { before };
        rest = &rest[at + before.len()..];
    }
    done + rest
}

/// The compiler's version, from the header of a PTX text: `12.2.140`.
pub fn compiler_version(ptx: &str) -> Option<&str> {
    let line = ptx.lines().find(|line| line.contains("Cuda compilation tools"))?;
    line.rsplit_once(", V").map(|(_, version)| version.trim())
}

/// Size in bytes of a parameter such as `.param .u64 name` or `.param .align 8 .b8 name[24]`.
fn bytes(parameter: &str) -> Option<usize> {
    let words: Vec<&str> = parameter.split_whitespace().collect();
    let name = words.last()?;
    let kind = words.iter().rev().nth(1)?.strip_prefix('.')?;
    let bits: usize = kind.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().ok()?;
    let count = match name.split_once('[') {
        Some((_, count)) => count.strip_suffix(']')?.parse().ok()?,
        None => 1,
    };
    (words[0] == ".param").then_some(bits / 8 * count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "// Cuda compilation tools, release 12.2, V12.2.140\n\
        .visible .entry b(\n\t.param .u64 b_param_0,\n\t.param .f32 b_param_1,\n\
        \t.param .align 8 .b8 b_param_2[24],\n\t.param .u8 b_param_3\n)\n.maxntid 256, 1, 1\n{\n}\n\
        .visible .entry a(\n\n)\n{\n}\n";

    #[test]
    fn parameter_sizes_are_parsed() {
        let entries = entries(PTX).unwrap();
        assert_eq!(entries[1].parameter_bytes, [8, 4, 24, 1]);
        assert_eq!((entries[0].name.as_str(), entries[0].parameter_bytes.len()), ("a", 0));
        assert_eq!(compiler_version(PTX), Some("12.2.140"));
    }

    #[test]
    fn unknown_parameter_form_is_rejected() {
        let fault = super::entries(".visible .entry k(\n.param .texref t\n)").unwrap_err();
        assert!(fault.to_string().contains("`.param .texref t`"), "{fault}");
    }
}
