//! Lists the compiled kernels of `ptx/`, so that the library holds them.

use std::env;
use std::fmt::Write;
use std::fs;
use std::io::Error;
use std::path::PathBuf;

fn main() {
    if let Err(reason) = list() {
        panic!("the compiled kernels of ptx/ were not listed: {reason}");
    }
}

/// Writes, as Rust, the manifest's text and the name and text of each PTX file.
fn list() -> Result<(), Error> {
    let variable = |name| env::var_os(name).map(PathBuf::from).unwrap_or_default();
    let folder = variable("CARGO_MANIFEST_DIR").join("../ptx");
    println!("cargo:rerun-if-changed=build.rs");
    let mut names: Vec<String> = fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_, Error>>()?;
    names.retain(|name| name.ends_with(".ptx"));
    names.sort();
    // Not the folder: what is recorded there beside the kernels is no reason to build again.
    for name in names.iter().map(String::as_str).chain(["manifest.json"]) {
        println!("cargo:rerun-if-changed={}", folder.join(name).display());
    }
    let include = |name: &str| format!("include_str!({:?})", folder.join(name));
    let mut code = String::new();
    for name in &names {
        let _ = writeln!(code, "    ({name:?}, {}),", include(name));
    }
    let manifest = include("manifest.json");
    let code = format!("(\n{manifest},\n&[\n{code}]\n)\n");
    fs::write(variable("OUT_DIR").join("ptx.rs"), code)
}
