//! Parses the text of a module. Registers become numbers, variables become offsets.

use std::collections::HashMap;

use super::lex::{Number, Token, Word, lex};

/// The class of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Predicate,
    /// 16 or 32 bits.
    Word,
    Double,
}

/// A state space with its own symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    Global,
    Shared,
    Local,
    Parameter,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Operand {
    Register(u32),
    Number(Number),
    /// A special register, such as `%tid.x`.
    Special(String),
    /// The address of a variable within its state space.
    Place(Space, i64),
    /// `[base + offset]`.
    Address(Box<Operand>, i64),
    Vector(Vec<Operand>),
    /// `d|p`.
    Pair(u32, u32),
    /// The name of a label or function.
    Name(String),
}

#[derive(Debug)]
pub(super) struct Instruction {
    /// The guard's predicate register, and whether it is negated.
    pub(super) guard: Option<(u32, bool)>,
    pub(super) opcode: String,
    pub(super) operands: Vec<Operand>,
    /// Line of the PTX.
    pub(super) line: u32,
    /// Line of the CUDA source, from `.loc`; 0 if unknown.
    pub(super) source_line: u32,
}

/// A kernel (`.entry`), or a function that kernels call.
#[derive(Debug, Default)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) is_entry: bool,
    /// Offsets and lengths of the parameters; a function's parameters are in local memory.
    pub(super) parameters: Vec<(i64, usize)>,
    pub(super) parameter_bytes: usize,
    /// Offsets and lengths of a function's results, in local memory.
    pub(super) results: Vec<(i64, usize)>,
    pub(super) registers: Vec<Class>,
    pub(super) body: Vec<Instruction>,
    /// Index of the instruction after each label.
    pub(super) labels: HashMap<String, usize>,
    pub(super) static_shared: u32,
    pub(super) local_bytes: u32,
    pub(super) max_block: Option<[u32; 3]>,
}

impl Function {
    /// Ends a scope. Its labels are visible only inside the scope, so they get unique names.
    fn close(&mut self, labels: HashMap<String, usize>, first: usize) {
        for instruction in &mut self.body[first..] {
            for operand in &mut instruction.operands {
                if let Operand::Name(name) = operand
                    && let Some(at) = labels.get(name)
                {
                    *name = format!("{name}@{at}");
                }
            }
        }
        self.labels.extend(labels.into_iter().map(|(name, at)| (format!("{name}@{at}"), at)));
    }
}

/// A module variable, with its initial bytes.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) bytes: Vec<u8>,
}

/// A parsed module. The global address of a variable is its index in `variables`, shifted left by
/// 32 bits.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) functions: Vec<Function>,
    pub(super) variables: Vec<Variable>,
    /// PTX version, times ten.
    pub(super) version: u32,
    /// The first target, such as `sm_80`.
    pub(super) target: String,
}

/// Shift of a variable's index in a global address.
pub(super) const VARIABLE: u32 = 32;

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    parsed: Parsed,
    globals: HashMap<&'a str, i64>,
    /// Alignment and bytes of the module's shared variables; 0 bytes means dynamic shared memory.
    shared: HashMap<&'a str, (usize, usize)>,
    /// Bytes of shared memory that the function needs.
    static_shared: u32,
    /// Nested scopes of a function; each maps names to operands.
    scopes: Vec<HashMap<String, Operand>>,
    source_line: u32,
}

/// Parses a module.
///
/// # Errors
/// A one-line message that begins with the line number.
pub(super) fn parse(text: &str) -> Result<Parsed, String> {
    let mut parser = Parser {
        tokens: lex(text)?,
        at: 0,
        parsed: Parsed::default(),
        globals: HashMap::new(),
        shared: HashMap::new(),
        static_shared: 0,
        scopes: vec![],
        source_line: 0,
    };
    while parser.at < parser.tokens.len() {
        parser.item()?;
    }
    Ok(parser.parsed)
}

fn bytes_of(kind: &str) -> Option<usize> {
    Some(match kind {
        ".b8" | ".u8" | ".s8" => 1,
        ".b16" | ".u16" | ".s16" | ".f16" => 2,
        ".b32" | ".u32" | ".s32" | ".f32" => 4,
        ".b64" | ".u64" | ".s64" | ".f64" => 8,
        _ => return None,
    })
}

impl<'a> Parser<'a> {
    fn error<T>(&self, what: &str) -> Result<T, String> {
        let token = self.tokens.get(self.at.min(self.tokens.len().saturating_sub(1)));
        let line = token.map_or(0, |token| token.line);
        Err(format!("line {line}: {what}"))
    }

    fn peek(&self) -> Option<Word<'a>> {
        self.tokens.get(self.at).map(|token| token.word)
    }

    fn next(&mut self) -> Result<Word<'a>, String> {
        let Some(word) = self.peek() else { return self.error("unexpected end of the text") };
        self.at += 1;
        Ok(word)
    }

    fn eat(&mut self, sign: char) -> bool {
        let is_it = self.peek() == Some(Word::Sign(sign));
        self.at += usize::from(is_it);
        is_it
    }

    fn expect(&mut self, sign: char) -> Result<(), String> {
        if self.eat(sign) { Ok(()) } else { self.error(&format!("`{sign}` is missing")) }
    }

    fn name(&mut self) -> Result<&'a str, String> {
        match self.next()? {
            Word::Name(name) => Ok(name),
            other => self.error(&format!("a name is missing before {other:?}")),
        }
    }

    fn number(&mut self) -> Result<i64, String> {
        match self.next()? {
            Word::Number(Number::Integer(number)) => Ok(number),
            other => self.error(&format!("a number is missing before {other:?}")),
        }
    }

    /// Parses one top-level directive of the module.
    fn item(&mut self) -> Result<(), String> {
        let name = self.name()?;
        match name {
            ".version" => {
                let Word::Number(Number::Decimal(tenths)) = self.next()? else {
                    return self.error("the version is missing");
                };
                self.parsed.version = tenths;
            }
            ".target" => {
                self.parsed.target = self.name()?.into();
                while self.eat(',') {
                    self.name()?;
                }
            }
            ".address_size" => match self.number()? {
                64 => {}
                _ => return self.error("addresses have 64 bits"),
            },
            ".visible" | ".extern" | ".weak" | ".common" => {}
            ".global" | ".const" => self.variable()?,
            ".shared" => {
                let (name, align, bytes) = self.declared()?;
                self.shared.insert(name, (align, bytes));
                self.expect(';')?;
            }
            ".entry" | ".func" => self.function(name == ".entry")?,
            ".file" => while !matches!(self.next()?, Word::Text(_)) {},
            other => return self.error(&format!("`{other}` is not understood")),
        }
        Ok(())
    }

    /// Parses `.align N .type name[count]` into name, alignment and bytes; 0 bytes for an array
    /// without a length.
    fn declared(&mut self) -> Result<(&'a str, usize, usize), String> {
        let (mut align, mut size) = (0, 0);
        loop {
            match self.name()? {
                ".align" => align = self.number()? as usize,
                kind if kind.starts_with('.') => match bytes_of(kind) {
                    Some(bytes) => size = bytes,
                    None => return self.error(&format!("type `{kind}` is not understood")),
                },
                name => {
                    let mut bytes = size;
                    if self.eat('[') {
                        bytes = match self.peek() {
                            Some(Word::Number(_)) => size * self.number()? as usize,
                            _ => 0,
                        };
                        self.expect(']')?;
                    }
                    return Ok((name, align.max(size), bytes));
                }
            }
        }
    }

    fn variable(&mut self) -> Result<(), String> {
        let start = self.at;
        let (name, _, bytes) = self.declared()?;
        let mut sizes = self.tokens[start..self.at].iter().filter_map(|token| match token.word {
            Word::Name(kind) => bytes_of(kind),
            _ => None,
        });
        let size = sizes.next_back().unwrap_or(1);
        let mut data = vec![0; bytes];
        if self.eat('=') {
            let is_list = self.eat('{');
            let mut at = 0;
            loop {
                let value = match self.next()? {
                    Word::Number(number) => number.bits(size)?,
                    other => return self.error(&format!("{other:?} is not an initial value")),
                };
                let Some(place) = data.get_mut(at..at + size) else {
                    return self.error("more initial values than the variable has");
                };
                place.copy_from_slice(&value.to_le_bytes()[..size]);
                at += size;
                if !(is_list && self.eat(',')) {
                    break;
                }
            }
            if is_list {
                self.expect('}')?;
            }
        }
        self.expect(';')?;
        let index = self.parsed.variables.len() as i64;
        self.parsed.variables.push(Variable { bytes: data });
        self.globals.insert(name, index << VARIABLE);
        Ok(())
    }

    fn function(&mut self, is_entry: bool) -> Result<(), String> {
        let mut function = Function { is_entry, ..Function::default() };
        self.static_shared = 0;
        self.scopes = vec![HashMap::new()];
        if !is_entry && self.eat('(') {
            function.results = self.parameters(&mut function)?;
        }
        function.name = self.name()?.to_string();
        if self.eat('(') {
            function.parameters = self.parameters(&mut function)?;
        }
        loop {
            match self.peek() {
                Some(Word::Sign(';')) => {
                    self.at += 1;
                    return Ok(());
                }
                Some(Word::Sign('{')) => break,
                _ => match self.name()? {
                    ".maxntid" => {
                        let mut sizes = [1; 3];
                        for (i, size) in sizes.iter_mut().enumerate() {
                            if i == 0 || self.eat(',') {
                                *size = self.number()? as u32;
                            }
                        }
                        function.max_block = Some(sizes);
                    }
                    ".minnctapersm" => drop(self.number()?),
                    other => return self.error(&format!("`{other}` is not understood")),
                },
            }
        }
        self.body(&mut function)?;
        // Dynamic shared memory begins after the static part, at the declared alignment.
        let dynamic = self.shared.values().filter(|(_, bytes)| *bytes == 0);
        let align = dynamic.map(|(align, _)| *align as u32).fold(16, u32::max);
        function.static_shared = self.static_shared.next_multiple_of(align);
        self.parsed.functions.push(function);
        Ok(())
    }

    /// Parses parameters up to the closing bracket.
    fn parameters(&mut self, function: &mut Function) -> Result<Vec<(i64, usize)>, String> {
        let mut list = Vec::new();
        while !self.eat(')') {
            if self.name()? != ".param" {
                return self.error("`.param` is missing");
            }
            let (name, align, bytes) = self.declared()?;
            let (end, space) = if function.is_entry {
                (function.parameter_bytes, Space::Parameter)
            } else {
                (function.local_bytes as usize, Space::Local)
            };
            let offset = end.next_multiple_of(align.max(1));
            match space {
                Space::Parameter => function.parameter_bytes = offset + bytes,
                _ => function.local_bytes = (offset + bytes) as u32,
            }
            list.push((offset as i64, bytes));
            self.define(name, Operand::Place(space, offset as i64));
            self.eat(',');
        }
        Ok(list)
    }

    fn define(&mut self, name: &str, operand: Operand) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_string(), operand);
        }
    }

    fn body(&mut self, function: &mut Function) -> Result<(), String> {
        let mut depth = 0;
        let mut labels: Vec<(HashMap<String, usize>, usize)> = vec![];
        loop {
            if self.eat('{') {
                depth += 1;
                self.scopes.push(HashMap::new());
                labels.push((HashMap::new(), function.body.len()));
                continue;
            }
            if self.eat('}') {
                depth -= 1;
                self.scopes.pop();
                if let Some((own, first)) = labels.pop() {
                    function.close(own, first);
                }
                if depth == 0 {
                    return Ok(());
                }
                continue;
            }
            if self.eat(';') {
                continue;
            }
            let guard = if self.eat('@') { Some(self.guard()?) } else { None };
            let line = self.tokens.get(self.at).map_or(0, |token| token.line);
            let name = self.name()?;
            if self.eat(':') {
                if let Some((own, _)) = labels.last_mut() {
                    own.insert(name.to_string(), function.body.len());
                }
                continue;
            }
            match name {
                ".reg" => self.registers(function)?,
                ".shared" | ".local" | ".param" => {
                    let (variable, align, bytes) = self.declared()?;
                    let is_shared = name == ".shared";
                    let end =
                        if is_shared { &mut self.static_shared } else { &mut function.local_bytes };
                    let offset = end.next_multiple_of(align.max(1) as u32);
                    *end = offset + bytes as u32;
                    let space = if is_shared { Space::Shared } else { Space::Local };
                    self.define(variable, Operand::Place(space, offset.into()));
                    self.expect(';')?;
                }
                ".pragma" => {
                    self.next()?;
                    self.expect(';')?;
                }
                ".loc" => {
                    let numbers = [self.number()?, self.number()?, self.number()?];
                    self.source_line = numbers[1] as u32;
                }
                opcode if !opcode.starts_with('.') => {
                    let opcode = opcode.to_string();
                    let operands = self.operands()?;
                    let source_line = self.source_line;
                    function.body.push(Instruction { guard, opcode, operands, line, source_line });
                }
                other => return self.error(&format!("`{other}` is not understood")),
            }
        }
    }

    fn guard(&mut self) -> Result<(u32, bool), String> {
        let negated = self.eat('!');
        match self.operand()? {
            Operand::Register(register) => Ok((register, negated)),
            _ => self.error("a guard must be a predicate"),
        }
    }

    fn registers(&mut self, function: &mut Function) -> Result<(), String> {
        let kind = self.name()?;
        let class = match kind {
            ".pred" => Class::Predicate,
            _ => match bytes_of(kind) {
                Some(2 | 4) => Class::Word,
                Some(8) => Class::Double,
                _ => return self.error(&format!("registers of `{kind}` are not understood")),
            },
        };
        loop {
            let name = self.name()?;
            let mut add = |parser: &mut Self, name: &str| {
                let number = function.registers.len() as u32;
                function.registers.push(class);
                parser.define(name, Operand::Register(number));
            };
            if self.eat('<') {
                let count = self.number()?;
                self.expect('>')?;
                for i in 0..count {
                    add(self, &format!("{name}{i}"));
                }
            } else {
                add(self, name);
            }
            if !self.eat(',') {
                return self.expect(';');
            }
        }
    }

    fn operands(&mut self) -> Result<Vec<Operand>, String> {
        let mut list = Vec::new();
        if self.eat(';') {
            return Ok(list);
        }
        loop {
            list.push(self.operand()?);
            if self.eat(',') {
                continue;
            }
            self.expect(';')?;
            return Ok(list);
        }
    }

    fn list(&mut self, end: char) -> Result<Operand, String> {
        let mut list = Vec::new();
        while !self.eat(end) {
            list.push(self.operand()?);
            self.eat(',');
        }
        Ok(Operand::Vector(list))
    }

    fn operand(&mut self) -> Result<Operand, String> {
        match self.next()? {
            Word::Sign('{') => self.list('}'),
            Word::Sign('(') => self.list(')'),
            Word::Sign('[') => {
                let base = self.operand()?;
                let offset = if self.eat('+') { self.number()? } else { 0 };
                let address = Operand::Address(Box::new(base), offset);
                let coordinates = if self.eat(',') { Some(self.operand()?) } else { None };
                self.expect(']')?;
                Ok(match coordinates {
                    Some(coordinates) => Operand::Vector(vec![address, coordinates]),
                    None => address,
                })
            }
            Word::Number(number) => Ok(Operand::Number(number)),
            Word::Name(name) => {
                let first = self.resolve(name);
                if !self.eat('|') {
                    return Ok(first);
                }
                match (first, self.operand()?) {
                    (Operand::Register(first), Operand::Register(second)) => {
                        Ok(Operand::Pair(first, second))
                    }
                    (Operand::Name(none), second) if none == "_" => Ok(second),
                    _ => self.error("a pair must consist of registers"),
                }
            }
            other => self.error(&format!("{other:?} is not an operand")),
        }
    }

    fn resolve(&mut self, name: &'a str) -> Operand {
        if let Some(found) = self.scopes.iter().rev().find_map(|scope| scope.get(name)) {
            return found.clone();
        }
        if let Some(place) = self.globals.get(name) {
            return Operand::Place(Space::Global, *place);
        }
        if let Some((align, bytes)) = self.shared.get(name) {
            if *bytes == 0 {
                // The offset is resolved when the function is complete.
                return Operand::Place(Space::Shared, DYNAMIC);
            }
            let offset = self.static_shared.next_multiple_of(*align as u32);
            self.static_shared = offset + *bytes as u32;
            let place = Operand::Place(Space::Shared, offset.into());
            if let Some(scope) = self.scopes.first_mut() {
                scope.insert(name.to_string(), place.clone());
            }
            return place;
        }
        if name.starts_with('%') {
            return Operand::Special(name.to_string());
        }
        Operand::Name(name.to_string())
    }
}

/// Placeholder for the offset of dynamic shared memory until the size of the static part is known.
pub(super) const DYNAMIC: i64 = -1;
