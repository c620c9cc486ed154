//! The extension module of the Python package `onegraph`; its Python interface is described in
//! `onegraph/_native.pyi`.

mod predictor;
mod store;
mod train;

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::OnceLock;

use engine::gpu::checked_by;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyDict;

create_exception!(onegraph, Error, PyException, "A command or call failed; see its message.");

fn error(fault: impl Display) -> PyErr {
    Error::new_err(fault.to_string())
}

/// Starts the threads of all parallel loops, once per process.
fn prepare() -> PyResult<()> {
    static PREPARED: OnceLock<Result<(), String>> = OnceLock::new();
    let done = PREPARED.get_or_init(|| engine::cli::prepare().map_err(|fault| fault.to_string()));
    done.as_ref().copied().map_err(error)
}

/// Each override as `key=value`, the form of `--set`. Values are numbers, strings, booleans, lists,
/// or `None`, which unsets a key.
fn overrides(values: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<String>> {
    let Some(values) = values else { return Ok(Vec::new()) };
    let json = values.py().import("json")?.getattr("dumps")?;
    let mut all = Vec::new();
    for (key, value) in values {
        // JSON strings, numbers, booleans and lists are valid TOML.
        let value = if value.is_none() {
            "\"none\"".to_string()
        } else {
            let default = PyDict::new(values.py());
            default.set_item("default", values.py().get_type::<pyo3::types::PyString>())?;
            json.call((value,), Some(&default))?.extract()?
        };
        all.push(format!("{}={value}", key.extract::<String>()?));
    }
    Ok(all)
}

/// Makes the self-test of the kernels, which runs when a GPU is first opened, use the `onegraph`
/// command that the wheel installs.
fn check_gpus_by_the_command(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let scripts = module.py().import("sysconfig")?.call_method1("get_path", ("scripts",))?;
    let command = scripts.extract::<PathBuf>()?.join("onegraph");
    if command.is_file() {
        checked_by(vec![command.into(), "check-kernels".into()]);
    }
    Ok(())
}

/// The extension module.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::check_gpus_by_the_command(module)
    }

    #[pymodule_export]
    use super::Error;
    #[pymodule_export]
    use super::predictor::{Detections, Predictor};
    #[pymodule_export]
    use super::store::Store;
    #[pymodule_export]
    use super::train::train;
}
