//! The contents of a pickle, as nodes that refer to each other by number. Without recursive types,
//! shared or deeply nested values cannot exhaust memory or the stack.

use std::borrow::Cow;

/// Index of a node.
pub(in crate::weights) type Id = usize;

/// A value, of a Python type. [`Node::Object`] is the result of a call.
#[derive(Debug, Clone)]
pub(in crate::weights) enum Node<'a> {
    None,
    Bool(bool),
    Int(i128),
    Float,
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Set,
    Dict(Vec<(Id, Id)>),
    /// A class or function.
    Global {
        module: String,
        name: String,
    },
    /// The result of calling `class` with the tuple `args`, with the state and items that were set
    /// on it afterwards.
    Object {
        class: Id,
        args: Id,
        state: Option<Id>,
        items: Vec<(Id, Id)>,
    },
    /// A persistent id, which refers to something outside the pickle.
    Persistent(Id),
}

/// The values of a pickle.
#[derive(Debug)]
pub(in crate::weights) struct Pickle<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) root: Id,
}

impl<'a> Pickle<'a> {
    /// The root value of the pickle.
    pub(in crate::weights) fn root(&self) -> Id {
        self.root
    }

    /// All values, in order of creation.
    pub(in crate::weights) fn ids(&self) -> impl Iterator<Item = Id> {
        0..self.nodes.len()
    }

    pub(in crate::weights) fn node(&self, id: Id) -> &Node<'a> {
        &self.nodes[id]
    }

    /// The type of a value, for messages.
    pub(in crate::weights) fn kind(&self, id: Id) -> String {
        match self.node(id) {
            Node::None => "None".into(),
            Node::Bool(_) => "a bool".into(),
            Node::Int(_) => "an int".into(),
            Node::Float => "a float".into(),
            Node::Text(_) => "a str".into(),
            Node::Bytes(_) => "bytes".into(),
            Node::Tuple(_) => "a tuple".into(),
            Node::List(_) => "a list".into(),
            Node::Set => "a set".into(),
            Node::Dict(_) => "a dict".into(),
            Node::Global { module, name } => format!("`{module}.{name}`"),
            Node::Object { .. } => match self.class(id) {
                Some((module, name)) => format!("`{module}.{name}`"),
                None => "an object".into(),
            },
            Node::Persistent(_) => "a storage".into(),
        }
    }

    /// Module and name of the class or function, if the value is the result of a call.
    pub(in crate::weights) fn class(&self, id: Id) -> Option<(&str, &str)> {
        let Node::Object { class, .. } = self.node(id) else { return None };
        self.global(*class)
    }

    /// Module and name, if the value is a class or function.
    pub(in crate::weights) fn global(&self, id: Id) -> Option<(&str, &str)> {
        match self.node(id) {
            Node::Global { module, name } => Some((module, name)),
            _ => None,
        }
    }

    /// The arguments, if the value is the result of a call.
    pub(in crate::weights) fn args(&self, id: Id) -> Option<&[Id]> {
        let Node::Object { args, .. } = self.node(id) else { return None };
        self.sequence(*args)
    }

    /// The state that was set, if the value is the result of a call.
    pub(in crate::weights) fn state(&self, id: Id) -> Option<&[Id]> {
        let Node::Object { state, .. } = self.node(id) else { return None };
        self.sequence((*state)?)
    }

    /// The elements, if the value is a tuple or list.
    pub(in crate::weights) fn sequence(&self, id: Id) -> Option<&[Id]> {
        match self.node(id) {
            Node::Tuple(items) | Node::List(items) => Some(items),
            _ => None,
        }
    }

    /// The value as an integer; Python's True and False are 1 and 0.
    pub(in crate::weights) fn int(&self, id: Id) -> Option<i128> {
        match self.node(id) {
            Node::Int(value) => Some(*value),
            Node::Bool(value) => Some(i128::from(*value)),
            _ => None,
        }
    }

    /// The value as a non-negative integer.
    pub(in crate::weights) fn count(&self, id: Id) -> Option<usize> {
        usize::try_from(self.int(id)?).ok()
    }

    /// The value as a tuple or list of non-negative integers.
    pub(in crate::weights) fn counts(&self, id: Id) -> Option<Vec<usize>> {
        self.sequence(id)?.iter().map(|item| self.count(*item)).collect()
    }

    /// The value as text. Bytes are decoded as Latin-1, as PyTorch and detectron2 do for Python 2's
    /// `str`.
    pub(in crate::weights) fn text(&self, id: Id) -> Option<String> {
        match self.node(id) {
            Node::Text(text) => Some(text.clone().into_owned()),
            Node::Bytes(bytes) => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
            _ => None,
        }
    }

    /// The value as bytes: a byte string of Python 2 or 3, or Latin-1 text in a call of
    /// `_codecs.encode`.
    pub(in crate::weights) fn bytes(&self, id: Id) -> Option<Cow<'_, [u8]>> {
        match self.node(id) {
            Node::Bytes(bytes) => Some(Cow::Borrowed(bytes)),
            Node::Object { .. } if self.class(id) == Some(("_codecs", "encode")) => {
                let [text, encoding] = self.args(id)? else { return None };
                let is_latin = self.text(*encoding).is_some_and(|e| e == "latin1");
                let Node::Text(text) = self.node(*text) else { return None };
                let bytes: Option<Vec<u8>> =
                    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
                bytes.filter(|_| is_latin).map(Cow::Owned)
            }
            // Protocol 2 writes empty bytes as a call of `bytes` without arguments.
            Node::Object { .. } => {
                let (_, name) = self.class(id)?;
                let is_empty = self.args(id)?.is_empty() && ["bytes", "bytearray"].contains(&name);
                is_empty.then_some(Cow::Borrowed(&[]))
            }
            _ => None,
        }
    }

    /// Keys and values, if the value is a dict or `OrderedDict`.
    pub(in crate::weights) fn entries(&self, id: Id) -> Option<Vec<(Id, Id)>> {
        match self.node(id) {
            Node::Dict(entries) => Some(entries.clone()),
            Node::Object { items, .. }
                if self.class(id) == Some(("collections", "OrderedDict")) =>
            {
                // Python 2 passes the entries of an `OrderedDict` as a list of pairs.
                let mut entries = Vec::new();
                for pair in self.args(id)?.iter().filter_map(|arg| self.sequence(*arg)).flatten() {
                    let [key, value] = self.sequence(*pair)? else { return None };
                    entries.push((*key, *value));
                }
                entries.extend(items);
                Some(entries)
            }
            _ => None,
        }
    }
}
