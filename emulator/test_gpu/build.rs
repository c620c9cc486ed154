//! Passes the directory of the libraries that cargo builds to the crate.

use std::env;
use std::path::PathBuf;

fn main() {
    // PROFILE/build/PACKAGE/out
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let profile = out.ancestors().nth(3).map(|folder| folder.join("deps")).unwrap_or_default();
    println!("cargo:rustc-env=LIBRARIES={}", profile.display());
    println!("cargo:rerun-if-changed=build.rs");
}
