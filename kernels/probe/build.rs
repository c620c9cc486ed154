//! Lists the compiled variants of `ptx/`, so that the library holds them.

use std::env;
use std::fmt::Write;
use std::fs;
use std::io::Error;
use std::path::PathBuf;

fn main() {
    if let Err(reason) = list() {
        panic!("the compiled variants of kernels/probe/ptx were not listed: {reason}");
    }
}

/// Writes, as Rust, the manifest's text and the name and text of each PTX file.
fn list() -> Result<(), Error> {
    let variable = |name| env::var_os(name).map(PathBuf::from).unwrap_or_default();
    let folder = variable("CARGO_MANIFEST_DIR").join("ptx");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut names: Vec<String> = fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_, Error>>()?;
    names.retain(|name| name.ends_with(".ptx"));
    names.sort();
    let include = |name: &str| format!("include_str!({:?})", folder.join(name));
    let mut code = String::new();
    for name in &names {
        let _ = writeln!(code, "    ({name:?}, {}),", include(name));
    }
    let manifest = include("manifest.json");
    let code = format!("(\n{manifest},\n&[\n{code}]\n)\n");
    fs::write(variable("OUT_DIR").join("ptx.rs"), code)
}
