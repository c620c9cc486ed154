//! Parses the XML files of annotation tools, with line numbers in errors.

use std::path::Path;

use roxmltree::{Document, Node, ParsingOptions};

use super::fault;
use super::folder::Folder;
use crate::error::DaliError;

/// Maximum number of attributes of an element: the parser compares every pair of them.
const MAX_ATTRIBUTES: usize = 4096;

/// Parses a file. A document type declaration is rejected, as its entities could expand without
/// limit.
pub(super) fn parse<'a>(path: &Path, text: &'a str) -> Result<Document<'a>, DaliError> {
    if text.split('<').any(|tag| tag.matches('=').nth(MAX_ATTRIBUTES).is_some()) {
        let text = format!("has an element of more than {MAX_ATTRIBUTES} attributes; remove them");
        return Err(fault(path, text));
    }
    let options = ParsingOptions { allow_dtd: false, ..ParsingOptions::default() };
    Document::parse_with_options(text, options)
        .map_err(|error| fault(path, format!("is not XML: {error}; export it again")))
}

/// An error in an element, with the element's line.
pub(super) fn fault_at(
    path: &Path,
    document: &Document<'_>,
    node: Node<'_, '_>,
    text: &str,
) -> DaliError {
    let line = document.text_pos_at(node.range().start).row;
    fault(path, format!("line {line}: <{}> {text}", node.tag_name().name()))
}

/// The only child element with this name.
///
/// # Errors
/// A message if there are several.
pub(super) fn only<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Result<Option<Node<'a, 'i>>, String> {
    let mut children = node.children().filter(|child| child.has_tag_name(name));
    let first = children.next();
    match children.next() {
        Some(_) => Err(format!("has <{name}> twice; remove one")),
        None => Ok(first),
    }
}

/// The text of the child element with this name, without surrounding whitespace.
///
/// # Errors
/// As for [`only`].
pub(super) fn child<'a>(node: Node<'a, '_>, name: &str) -> Result<Option<&'a str>, String> {
    Ok(only(node, name)?.and_then(|child| child.text()).map(str::trim))
}

/// True if a file's root element has this name, according to the start of the file; `None` if the
/// file cannot be read.
pub(super) fn has_root(folder: &Folder, file: &str, name: &str) -> Option<bool> {
    let start = folder.start_of(file)?;
    let parts =
        start.split("<!--").map(|part| part.split_once("-->").map_or(part, |(_, rest)| rest));
    let text: String = parts.collect();
    let root = text.split('<').find(|tag| tag.starts_with(char::is_alphabetic));
    Some(root.and_then(|root| root.split([' ', '\t', '\r', '\n', '/', '>']).next()) == Some(name))
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
