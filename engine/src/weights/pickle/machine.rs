//! The stack machine that interprets a pickle's opcodes, without importing or calling anything.

use std::borrow::Cow;
use std::collections::HashMap;

use super::globals;
use super::value::{Id, Node, Pickle};

/// Maximum number of values in a pickle. A checkpoint with optimizer state has some ten thousand.
const MAX_NODES: usize = 1 << 20;
/// Maximum number of opcodes in a pickle.
const MAX_STEPS: usize = 1 << 23;
/// Maximum number of open marks: the nesting depth of lists and dicts under construction.
const MAX_MARKS: usize = 64;
/// Maximum nesting depth of values.
const MAX_DEPTH: u8 = 64;
/// Maximum size of an integer in bytes. PyTorch's magic number has 10.
const MAX_INT_BYTES: usize = 16;

/// Reads the pickle that begins at byte `at`. Also returns the position after its end.
///
/// # Errors
/// A message: a truncated or malformed pickle, a name that is not allowed, or an exceeded limit.
pub(in crate::weights) fn read(bytes: &[u8], at: usize) -> Result<(Pickle<'_>, usize), String> {
    let mut machine = Machine {
        bytes,
        at,
        nodes: Vec::new(),
        depths: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
    };
    for _ in 0..MAX_STEPS {
        let op = machine.byte()?;
        if op == b'.' {
            let root = machine.pop()?;
            return Ok((Pickle { nodes: machine.nodes, root }, machine.at));
        }
        let here = machine.at - 1;
        if !(machine.literal(op)?
            || machine.structure(op)?
            || machine.memo(op)?
            || machine.call(op)?)
        {
            return Err(format!("its pickle has an unknown opcode {op:#04x} at byte {here}"));
        }
    }
    Err(format!("its pickle has more than {MAX_STEPS} opcodes"))
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node<'a>>,
    /// Nesting depth of each node at its creation.
    depths: Vec<u8>,
    stack: Vec<Id>,
    /// Stack heights of the open marks.
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
}

type Step<T = ()> = Result<T, String>;

impl<'a> Machine<'a> {
    fn take(&mut self, len: u64) -> Step<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let len = usize::try_from(len).ok().filter(|len| *len <= rest.len());
        let len = len.ok_or_else(|| "its pickle is truncated".to_string())?;
        self.at += len;
        Ok(&rest[..len])
    }

    fn byte(&mut self) -> Step<u8> {
        Ok(self.take(1)?[0])
    }

    /// An unsigned integer of up to 8 bytes, little-endian.
    fn number(&mut self, len: u64) -> Step<u64> {
        let bytes = self.take(len)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn counted(&mut self, len: u64) -> Step<&'a [u8]> {
        let count = self.number(len)?;
        self.take(count)
    }

    fn raw_line(&mut self) -> Step<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| "its pickle has a line without an end".to_string())?;
        self.at += end + 1;
        Ok(&rest[..end])
    }

    fn line(&mut self) -> Step<&'a str> {
        let line = std::str::from_utf8(self.raw_line()?);
        line.map_err(|_| "its pickle has a line that is not UTF-8".to_string())
    }

    /// Adds a value that contains `children`.
    fn push(&mut self, node: Node<'a>, children: &[Id]) -> Step {
        let depth = children.iter().map(|child| self.depths[*child] + 1).max().unwrap_or(0);
        if depth > MAX_DEPTH {
            return Err(format!("its pickle is nested more than {MAX_DEPTH} deep"));
        }
        if self.nodes.len() >= MAX_NODES {
            return Err(format!("its pickle holds more than {MAX_NODES} values"));
        }
        self.stack.push(self.nodes.len());
        self.nodes.push(node);
        self.depths.push(depth);
        Ok(())
    }

    fn pop(&mut self) -> Step<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err("its pickle reads a value from an empty stack".into());
        }
        Ok(self.stack.swap_remove(self.stack.len() - 1))
    }

    fn top(&self) -> Step<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let top = self.stack[floor..].last().copied();
        top.ok_or_else(|| "its pickle reads a value from an empty stack".to_string())
    }

    /// Pops the values above the last mark, and the mark.
    fn pop_mark(&mut self) -> Step<Vec<Id>> {
        let mark = self.marks.pop().ok_or_else(|| "its pickle lacks a mark opcode".to_string())?;
        Ok(self.stack.split_off(mark))
    }

    /// Executes an opcode that pushes a value; returns false for any other.
    fn literal(&mut self, op: u8) -> Step<bool> {
        let node = match op {
            b'N' => Node::None,
            0x88 => Node::Bool(true),
            0x89 => Node::Bool(false),
            b'I' => match self.line()? {
                "00" => Node::Bool(false),
                "01" => Node::Bool(true),
                digits => Node::Int(parsed(digits)?),
            },
            b'L' => {
                let line = self.line()?;
                Node::Int(parsed(line.strip_suffix('L').unwrap_or(line))?)
            }
            b'J' => Node::Int(i128::from(self.number(4)? as u32 as i32)),
            b'K' => Node::Int(i128::from(self.number(1)?)),
            b'M' => Node::Int(i128::from(self.number(2)?)),
            0x8a => Node::Int(signed(self.counted(1)?)?),
            0x8b => Node::Int(signed(self.counted(4)?)?),
            b'F' => self.line().map(|_| Node::Float)?,
            b'G' => self.take(8).map(|_| Node::Float)?,
            b'S' => Node::Bytes(Cow::Owned(unquoted(self.line()?)?)),
            b'T' | b'B' => Node::Bytes(Cow::Borrowed(self.counted(4)?)),
            b'U' | b'C' => Node::Bytes(Cow::Borrowed(self.counted(1)?)),
            0x8e | 0x96 => Node::Bytes(Cow::Borrowed(self.counted(8)?)),
            b'V' => Node::Text(Cow::Owned(unescaped(self.raw_line()?)?)),
            b'X' => text(self.counted(4)?)?,
            0x8c => text(self.counted(1)?)?,
            0x8d => text(self.counted(8)?)?,
            b')' => Node::Tuple(vec![]),
            b']' => Node::List(vec![]),
            b'}' => Node::Dict(vec![]),
            0x8f => Node::Set,
            _ => return Ok(false),
        };
        self.push(node, &[]).map(|()| true)
    }

    /// Executes an opcode that combines or discards values; returns false for any other.
    fn structure(&mut self, op: u8) -> Step<bool> {
        match op {
            0x80 => {
                let protocol = self.byte()?;
                if protocol > 5 {
                    return Err(format!(
                        "its pickle uses protocol {protocol}; protocols 0 to 5 are supported"
                    ));
                }
            }
            // A frame only announces the number of bytes that follow.
            0x95 => drop(self.number(8)?),
            b'(' if self.marks.len() >= MAX_MARKS => {
                return Err(format!("its pickle is nested more than {MAX_MARKS} deep"));
            }
            b'(' => self.marks.push(self.stack.len()),
            b'0' if self.marks.last() == Some(&self.stack.len()) => drop(self.pop_mark()?),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_mark()?),
            b'2' => self.stack.push(self.top()?),
            b't' | b'l' | 0x91 => {
                let items = self.pop_mark()?;
                let node = match op {
                    b't' => Node::Tuple(items.clone()),
                    b'l' => Node::List(items.clone()),
                    _ => Node::Set,
                };
                self.push(node, &items)?;
            }
            0x85..=0x87 => {
                let mut items = Vec::new();
                for _ in 0x85..=op {
                    items.insert(0, self.pop()?);
                }
                self.push(Node::Tuple(items.clone()), &items)?;
            }
            b'd' => {
                let items = pairs(self.pop_mark()?)?;
                let values: Vec<Id> = items.iter().map(|(_, value)| *value).collect();
                self.push(Node::Dict(items), &values)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.pop_mark()?;
                self.append(items)?;
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set(vec![(key, value)])?;
            }
            b'u' => {
                let items = pairs(self.pop_mark()?)?;
                self.set(items)?;
            }
            0x90 => drop(self.pop_mark()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Executes an opcode that writes or reads the memo; returns false for any other.
    fn memo(&mut self, op: u8) -> Step<bool> {
        match op {
            b'p' | b'q' | b'r' | 0x94 => {
                let key = match op {
                    b'p' => parsed(self.line()?)?,
                    b'q' => self.number(1)?,
                    b'r' => self.number(4)?,
                    _ => self.memo.len() as u64,
                };
                let top = self.top()?;
                self.memo.insert(key, top);
            }
            b'g' | b'h' | b'j' => {
                let key = match op {
                    b'g' => parsed(self.line()?)?,
                    b'h' => self.number(1)?,
                    _ => self.number(4)?,
                };
                let known = self.memo.get(&key).copied();
                let known =
                    known.ok_or_else(|| format!("its pickle uses memo {key} before it is set"))?;
                self.stack.push(known);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn append(&mut self, items: Vec<Id>) -> Step {
        let list = self.top()?;
        match &mut self.nodes[list] {
            Node::List(known) => known.extend(items),
            // Items of a list subclass, which are not needed.
            Node::Object { .. } => {}
            _ => return Err("its pickle appends to something that is not a list".into()),
        }
        Ok(())
    }

    fn set(&mut self, entries: Vec<(Id, Id)>) -> Step {
        let dict = self.top()?;
        match &mut self.nodes[dict] {
            Node::Dict(items) | Node::Object { items, .. } => items.extend(entries),
            _ => return Err("its pickle sets an item of something that is not a dict".into()),
        }
        Ok(())
    }

    /// Handles an opcode that imports or calls a name in Python, which is only recorded here;
    /// returns false for any other.
    fn call(&mut self, op: u8) -> Step<bool> {
        match op {
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Node::Text(module), Node::Text(name)) =
                    (self.nodes[module].clone(), self.nodes[name].clone())
                else {
                    return Err("its pickle imports something that is not a name".into());
                };
                self.global(&module, &name)?;
            }
            b'R' | 0x81 => {
                let (args, class) = (self.pop()?, self.pop()?);
                self.object(class, args)?;
            }
            0x92 => {
                let (_keywords, args, class) = (self.pop()?, self.pop()?, self.pop()?);
                self.object(class, args)?;
            }
            b'b' => {
                let (given, object) = (self.pop()?, self.top()?);
                let Node::Object { state, .. } = &mut self.nodes[object] else {
                    return Err(
                        "its pickle sets the state of something that is not an object".into()
                    );
                };
                *state = Some(given);
            }
            b'Q' => {
                let id = self.pop()?;
                self.push(Node::Persistent(id), &[id])?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn global(&mut self, module: &str, name: &str) -> Step {
        if !globals::is_known(module, name) {
            let full: String = format!("{module}.{name}").chars().take(200).collect();
            return Err(format!(
                "its pickle refers to `{}`, which is not allowed in a weights file; nothing was \
                 executed: save only the tensors",
                full.escape_debug()
            ));
        }
        let (module, name) = (module.to_string(), name.to_string());
        self.push(Node::Global { module, name }, &[])
    }

    fn object(&mut self, class: Id, args: Id) -> Step {
        if !matches!(self.nodes[class], Node::Global { .. }) {
            return Err("its pickle calls something that is not a class or function".into());
        }
        if !matches!(self.nodes[args], Node::Tuple(_)) {
            return Err("its pickle calls without a tuple of arguments".into());
        }
        let object = Node::Object { class, args, state: None, items: vec![] };
        self.push(object, &[class, args])
    }
}

fn pairs(items: Vec<Id>) -> Step<Vec<(Id, Id)>> {
    let (pairs, rest) = items.as_chunks::<2>();
    match rest {
        [] => Ok(pairs.iter().map(|[key, value]| (*key, *value)).collect()),
        _ => Err("its pickle has a key without a value".into()),
    }
}

fn parsed<T: std::str::FromStr>(digits: &str) -> Step<T> {
    let number = digits.trim().parse();
    number.map_err(|_| "its pickle has a malformed number".to_string())
}

/// A two's complement integer, little-endian.
fn signed(bytes: &[u8]) -> Step<i128> {
    if bytes.len() > MAX_INT_BYTES {
        return Err(format!("its pickle has a number of more than {MAX_INT_BYTES} bytes"));
    }
    let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut whole = [if is_negative { 0xff } else { 0 }; MAX_INT_BYTES];
    whole[..bytes.len()].copy_from_slice(bytes);
    Ok(i128::from_le_bytes(whole))
}

fn text(bytes: &[u8]) -> Step<Node<'_>> {
    let text = std::str::from_utf8(bytes);
    text.map(|text| Node::Text(Cow::Borrowed(text)))
        .map_err(|_| "its pickle has text that is not UTF-8".to_string())
}

/// Parses Python 2's `repr` of a `str`, which protocol 0 uses, to bytes.
fn unquoted(line: &str) -> Step<Vec<u8>> {
    let fault = || "its pickle has a string without quotes".to_string();
    let quote = line.chars().next().filter(|c| ['\'', '"'].contains(c)).ok_or_else(fault)?;
    let inner = line[1..].strip_suffix(quote).ok_or_else(fault)?;
    let mut bytes = Vec::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            bytes.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        bytes.push(match chars.next() {
            Some('n') => b'\n',
            Some('r') => b'\r',
            Some('t') => b'\t',
            Some('x') => code(&mut chars, 2)? as u8,
            Some(c) if ['\\', '\'', '"'].contains(&c) => c as u8,
            _ => return Err("its pickle has an unknown escape".into()),
        });
    }
    Ok(bytes)
}

/// Decodes Python's `raw-unicode-escape`: Latin-1 with `\u` escapes.
fn unescaped(line: &[u8]) -> Step<String> {
    let mut text = String::new();
    let latin: String = line.iter().map(|byte| char::from(*byte)).collect();
    let mut chars = latin.chars();
    while let Some(c) = chars.next() {
        let digits = match (c, chars.as_str().chars().next()) {
            ('\\', Some('u')) => 4,
            ('\\', Some('U')) => 8,
            _ => {
                text.push(c);
                continue;
            }
        };
        chars.next();
        let code = char::from_u32(code(&mut chars, digits)?);
        text.push(code.ok_or_else(|| "its pickle has an unknown escape".to_string())?);
    }
    Ok(text)
}

/// Parses the next `digits` hexadecimal digits.
fn code(chars: &mut std::str::Chars<'_>, digits: usize) -> Step<u32> {
    let rest = chars.as_str();
    let number = rest.get(..digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
    *chars = rest.get(digits..).unwrap_or_default().chars();
    number.ok_or_else(|| "its pickle has an unknown escape".to_string())
}
