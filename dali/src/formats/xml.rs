//! XML as annotation tools write it: parsed whole, with errors that name the line.

use std::path::Path;

use roxmltree::{Document, Node, ParsingOptions};

use super::fault;
use crate::error::DaliError;

/// Parses a file; one that declares a document type is refused, as its entities may expand.
pub(super) fn parse<'a>(path: &Path, text: &'a str) -> Result<Document<'a>, DaliError> {
    let options = ParsingOptions { allow_dtd: false, ..ParsingOptions::default() };
    Document::parse_with_options(text, options)
        .map_err(|error| fault(path, format!("is not XML: {error}; export it again")))
}

/// An error in an element, by its line.
pub(super) fn fault_at(
    path: &Path,
    document: &Document<'_>,
    node: Node<'_, '_>,
    text: &str,
) -> DaliError {
    let line = document.text_pos_at(node.range().start).row;
    fault(path, format!("line {line}: <{}> {text}", node.tag_name().name()))
}

/// The text of the child of this name, without the blanks around it.
pub(super) fn child<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    let child = node.children().find(|child| child.has_tag_name(name))?;
    child.text().map(str::trim)
}

/// An attribute.
pub(super) fn attribute<'a>(node: Node<'a, '_>, name: &str) -> Result<&'a str, String> {
    node.attribute(name).ok_or(format!("has no `{name}`; add it"))
}

/// A finite number in an attribute.
pub(super) fn number(node: Node<'_, '_>, name: &str) -> Result<f64, String> {
    let text = attribute(node, name)?;
    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or(format!("has {name}={text:?}; write a number"))
}
