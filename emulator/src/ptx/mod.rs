//! Parses PTX into executable kernels.

mod decode;
mod flow;
pub(crate) mod hopper;
mod lex;
mod operand;
mod parse;
pub(crate) mod program;
mod registers;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::memory::Memory;
use flow::Flow;
use parse::Parsed;
use program::Program;

/// The newest supported PTX version, times ten.
const MAX_VERSION: u32 = 90;

/// One parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// Offset in the launch's parameter bytes.
    pub(crate) offset: usize,
    /// Length in bytes.
    pub(crate) bytes: usize,
}

/// A kernel (`.entry`) of a module.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    /// Bytes of all parameters.
    pub(crate) parameter_bytes: usize,
    /// Bytes of static shared memory.
    pub(crate) static_shared: u32,
    /// `.maxntid`, if given.
    pub(crate) max_block: Option<[u32; 3]>,
    /// Bytes of local memory per thread.
    pub(crate) local_bytes: u32,
    pub(crate) program: Program,
}

/// The kernels of a module by name.
type Kernels = BTreeMap<String, Arc<Kernel>>;

/// Cache of parsed modules without variables, by text: all GPUs of a process load the same modules.
static READ: LazyLock<Mutex<HashMap<String, Kernels>>> = LazyLock::new(Mutex::default);

/// A loaded module; dropping it frees the memory of its variables.
#[derive(Debug)]
pub(crate) struct Module {
    kernels: Kernels,
    memory: Arc<Memory>,
    variables: Vec<u64>,
}

impl Module {
    /// Parses PTX, and allocates its variables in device memory.
    ///
    /// # Errors
    /// A one-line message with the first line that is not supported.
    pub(crate) fn load(text: &str, memory: &Arc<Memory>) -> Result<Self, String> {
        let read = || READ.lock().unwrap_or_else(PoisonError::into_inner);
        let known = read().get(text).cloned();
        if let Some(kernels) = known {
            return Ok(Self { kernels, memory: memory.clone(), variables: vec![] });
        }
        let module = Self::read(text, memory)?;
        if module.variables.is_empty() {
            read().insert(text.into(), module.kernels.clone());
        }
        Ok(module)
    }

    fn read(text: &str, memory: &Arc<Memory>) -> Result<Self, String> {
        let parsed = parse::parse(text)?;
        if parsed.version == 0 || parsed.version > MAX_VERSION {
            return Err(format!("PTX version {} is unsupported", f64::from(parsed.version) / 10.0));
        }
        let mut module =
            Self { kernels: BTreeMap::new(), memory: memory.clone(), variables: vec![] };
        let mut places = vec![None; parsed.variables.len()];
        for function in parsed.functions.iter().filter(|function| function.is_entry) {
            let flow = Flow::of(&parsed, function)?;
            for variable in &flow.variables {
                if places[*variable].is_none() {
                    places[*variable] = Some(module.place(&parsed, *variable)?);
                }
            }
            let program = decode::program(&flow, &places, &parsed.target)?;
            let parameters = function.parameters.iter();
            let parameters = parameters
                .map(|(offset, bytes)| Parameter { offset: *offset as usize, bytes: *bytes });
            let kernel = Kernel {
                name: function.name.clone(),
                parameters: parameters.collect(),
                parameter_bytes: function.parameter_bytes,
                static_shared: function.static_shared,
                max_block: function.max_block,
                local_bytes: flow.local_bytes,
                program,
            };
            module.kernels.insert(function.name.clone(), Arc::new(kernel));
        }
        Ok(module)
    }

    /// A kernel by name.
    pub(crate) fn kernel(&self, name: &str) -> Option<Arc<Kernel>> {
        self.kernels.get(name).cloned()
    }

    #[allow(unsafe_code)]
    fn place(&mut self, parsed: &Parsed, variable: usize) -> Result<u64, String> {
        let bytes = &parsed.variables[variable].bytes;
        let address =
            self.memory.allocate_variable(bytes.len()).ok_or("too little memory for a variable")?;
        self.variables.push(address);
        // SAFETY: the source is an entire slice.
        unsafe { self.memory.write(address, bytes.as_ptr(), bytes.len()) };
        Ok(address)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        for address in &self.variables {
            self.memory.release(*address);
        }
    }
}
