//! Replaces one instruction of a kernel when its module is loaded, for mutation tests.

use std::borrow::Cow;

/// `KERNEL:LINE=TEXT`: replaces a 1-based line in the module that contains the kernel.
const EDIT: &str = "DRIVER_EDIT";

/// The module's text, with the line replaced if the module contains the kernel.
pub(super) fn edited<'a>(text: &'a str, edit: Option<&str>) -> Cow<'a, str> {
    edit.map_or(Cow::Borrowed(text), |edit| apply(text, edit))
}

fn apply<'a>(text: &'a str, edit: &str) -> Cow<'a, str> {
    let parts = edit.split_once(':').and_then(|(kernel, rest)| {
        let (line, with) = rest.split_once('=')?;
        Some((kernel, line.parse::<usize>().ok()?, with))
    });
    let Some((kernel, number, with)) = parts else {
        panic!("{EDIT}: {edit:?} is not KERNEL:LINE=TEXT");
    };
    if !text.contains(&format!(".entry {kernel}(")) {
        return Cow::Borrowed(text);
    }
    let lines = (1..).zip(text.lines());
    let lines = lines.map(|(at, line)| if at == number { with } else { line });
    Cow::Owned(lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn edit_replaces_one_line_of_one_module() {
    let text = ".version 8.2\n.visible .entry k(\n)\n{\nadd;\nret;\n}";
    assert_eq!(apply(text, "k:5=sub;"), text.replace("add;", "sub;"));
    assert_eq!(apply(text, "other:5=sub;"), text);
}
