//! Packs the PTX of all kernels into one compressed file, which the library embeds.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

#[allow(dead_code, unreachable_pub)] // unpacking is the library's part
#[path = "device/src/archive.rs"]
mod archive;

/// The folder of compiled kernels, and those of their PTX, by architecture.
const FOLDER: &str = "../ptx";
const PTX: [&str; 2] = ["compute_80", "compute_90a"];

/// From here on a level gains little, and takes seconds in a build script, which is not optimized.
const ZSTD_LEVEL: i32 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={FOLDER}");
    println!("cargo::rerun-if-changed=device/src/archive.rs");
    let mut files = Vec::new();
    for ptx in PTX {
        for entry in fs::read_dir(Path::new(FOLDER).join(ptx))? {
            let path = entry?.path();
            let name = format!("{ptx}/{}", path.file_name().unwrap_or_default().to_string_lossy());
            files.push(archive::Packed { name, made_from: "-".into(), bytes: fs::read(path)? });
        }
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let packed = zstd::bulk::compress(&archive::pack(&files), ZSTD_LEVEL)?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("ptx.zst"), packed)?;
    Ok(())
}
