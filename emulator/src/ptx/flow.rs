//! An entry and the functions it calls, as one list of instructions.

use super::parse::{Class, DYNAMIC, Function, Instruction, Operand, Parsed, Space, VARIABLE};

/// The code of a kernel and of the functions it calls, each of which has its own registers and
/// local memory.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) body: Vec<Instruction>,
    pub(super) registers: Vec<Class>,
    pub(super) local_bytes: u32,
    /// The called functions: name, instruction range, and the offsets of results and parameters.
    pub(super) called: Vec<Called>,
    /// Indices of the module variables that the kernel uses.
    pub(super) variables: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Called {
    pub(super) name: String,
    pub(super) start: usize,
    end: usize,
    pub(super) results: Vec<(i64, usize)>,
    pub(super) parameters: Vec<(i64, usize)>,
}

/// True if the first operand is written.
pub(super) fn defines(opcode: &str) -> bool {
    let base = opcode.split('.').next().unwrap_or_default();
    match base {
        "st" | "red" | "bra" | "ret" | "exit" | "call" | "cp" | "membar" | "fence"
        | "nanosleep" => false,
        "bar" | "barrier" => opcode.contains(".red"),
        _ => true,
    }
}

impl Flow {
    /// Joins an entry with the functions it calls.
    ///
    /// # Errors
    /// A function or label is missing, or a function calls another function.
    pub(super) fn of(parsed: &Parsed, entry: &Function) -> Result<Self, String> {
        let mut flow = Self::default();
        let shared = i64::from(entry.static_shared);
        flow.append(entry, shared)?;
        let names: Vec<(String, u32)> = flow.calls(0..flow.body.len());
        for (name, line) in names {
            if flow.called.iter().any(|called| called.name == name) {
                continue;
            }
            let function = parsed.functions.iter().find(|f| !f.is_entry && f.name == name);
            let Some(function) = function else {
                return Err(format!("line {line}: function `{name}` is missing"));
            };
            let (start, local) = (flow.body.len(), i64::from(flow.local_bytes));
            flow.append(function, shared)?;
            let end = flow.body.len();
            if !flow.calls(start..end).is_empty() {
                return Err(format!("line {line}: `{name}` calls another function (unsupported)"));
            }
            let moved = |list: &[(i64, usize)]| -> Vec<(i64, usize)> {
                list.iter().map(|(at, bytes)| (at + local, *bytes)).collect()
            };
            flow.called.push(Called {
                name,
                start,
                end,
                results: moved(&function.results),
                parameters: moved(&function.parameters),
            });
        }
        Ok(flow)
    }

    fn calls(&self, range: std::ops::Range<usize>) -> Vec<(String, u32)> {
        let calls = self.body[range].iter().filter(|i| i.opcode.starts_with("call"));
        calls
            .filter_map(|instruction| {
                instruction.operands.iter().find_map(|operand| match operand {
                    Operand::Name(name) => Some((name.clone(), instruction.line)),
                    _ => None,
                })
            })
            .collect()
    }

    fn append(&mut self, function: &Function, shared: i64) -> Result<(), String> {
        let (first, registers) = (self.body.len(), self.registers.len() as u32);
        let local = i64::from(self.local_bytes.next_multiple_of(16));
        self.local_bytes = local as u32 + function.local_bytes;
        self.registers.extend(&function.registers);
        for from in &function.body {
            let is_branch = from.opcode.starts_with("bra");
            let mut operands = from.operands.clone();
            for operand in &mut operands {
                self.place(operand, registers, local, shared);
                if let (true, Operand::Name(label)) = (is_branch, &*operand) {
                    let Some(target) = function.labels.get(label) else {
                        return Err(format!("line {}: label `{label}` is missing", from.line));
                    };
                    *operand = Operand::Place(Space::Local, (first + target) as i64);
                }
            }
            self.body.push(Instruction {
                guard: from.guard.map(|(register, negated)| (register + registers, negated)),
                opcode: from.opcode.clone(),
                operands,
                ..*from
            });
        }
        let ends = |last: &Instruction| {
            last.guard.is_none() && matches!(&*last.opcode, "ret" | "exit" | "bra" | "bra.uni")
        };
        if !self.body.last().is_some_and(ends) {
            return Err(format!("`{}` runs past its end", function.name));
        }
        Ok(())
    }

    /// Converts the numbers in an operand from the function's numbering to the kernel's.
    fn place(&mut self, operand: &mut Operand, registers: u32, local: i64, shared: i64) {
        match operand {
            Operand::Register(register) => *register += registers,
            Operand::Pair(first, second) => {
                *first += registers;
                *second += registers;
            }
            Operand::Place(Space::Local, at) => *at += local,
            Operand::Place(Space::Shared, at) if *at == DYNAMIC => *at = shared,
            Operand::Place(Space::Global, at) => {
                let variable = (*at >> VARIABLE) as usize;
                if !self.variables.contains(&variable) {
                    self.variables.push(variable);
                }
            }
            Operand::Address(base, _) => self.place(base, registers, local, shared),
            Operand::Vector(list) => {
                for operand in list {
                    self.place(operand, registers, local, shared);
                }
            }
            _ => {}
        }
    }

    /// The function of this name.
    pub(super) fn function(&self, name: &str) -> Option<&Called> {
        self.called.iter().find(|called| called.name == name)
    }

    /// Instructions that a thread may execute after instruction `at`.
    pub(super) fn next(&self, at: usize) -> Vec<usize> {
        let instruction = &self.body[at];
        let mut next = Vec::new();
        let is_guarded = instruction.guard.is_some();
        match &*instruction.opcode {
            "bra" | "bra.uni" => {
                if let Some(Operand::Place(Space::Local, target)) = instruction.operands.first() {
                    next.push(*target as usize);
                }
                if is_guarded {
                    next.push(at + 1);
                }
            }
            "ret" | "exit" => {
                if let Some(called) = self.called.iter().find(|c| (c.start..c.end).contains(&at)) {
                    next.extend(self.returns(&called.name));
                }
                if is_guarded {
                    next.push(at + 1);
                }
            }
            "call.uni" => {
                let name = instruction.operands.iter().find_map(|operand| match operand {
                    Operand::Name(name) => self.function(name),
                    _ => None,
                });
                next.extend(name.map(|called| called.start));
                next.push(at + 1);
            }
            _ => next.push(at + 1),
        }
        next.retain(|at| *at < self.body.len());
        next
    }

    fn returns(&self, name: &str) -> Vec<usize> {
        let calls = |i: &Instruction| {
            i.operands.iter().any(|operand| matches!(operand, Operand::Name(n) if n == name))
        };
        let at = self.body.iter().enumerate().filter(|(_, instruction)| calls(instruction));
        at.map(|(at, _)| at + 1).collect()
    }
}
