//! Runs the unmodified commands on emulated GPUs, with the emulated driver in place of NVIDIA's.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

// Imported only so that cargo builds the dynamic libraries.
use emulator as _;
use emulator_nccl as _;

use super::{GPUS, Place, Said, said};

/// Cache of GPU self-test results, shared by all tests; results are valid for kernels with the same
/// hash.
const CACHE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/checked");

/// A [`Place`] whose commands run on emulated GPUs, one per name.
pub(crate) struct Gpus {
    pub(crate) place: Place,
    models: String,
}

impl Gpus {
    pub(crate) fn new(models: &str) -> Self {
        let place = Place::new();
        let folder = place.join("driver");
        fs::create_dir(&folder).expect("a folder");
        for (name, library) in [
            ("libcuda.so", "libemulator.so"),
            ("libcuda.so.1", "libemulator.so"),
            ("libnvidia-ml.so.1", "libemulator.so"),
            ("libnccl.so.2", "libemulator_nccl.so"),
        ] {
            symlink(built(library), folder.join(name)).expect("a link");
        }
        let gpus = Self { place, models: models.into() };
        if !models.starts_with("A100") {
            // Runs the kernel self-test once, before a test injects failures.
            said(&mut gpus.command("doctor", &[]));
        }
        gpus
    }

    /// Makes the GPUs visible to a command.
    pub(crate) fn show(&self, command: &mut Command) {
        command.env_remove(GPUS).env("DRIVER_GPUS", &self.models);
        command.env("LD_LIBRARY_PATH", self.place.join("driver"));
        command.env("DRIVER_REPORT", self.place.join("findings"));
        command.env("XDG_CACHE_HOME", CACHE);
    }

    /// The command in this folder, with `arguments` split at spaces and additional environment
    /// variables.
    pub(crate) fn command(&self, arguments: &str, more: &[(&str, &str)]) -> Command {
        let mut command = self.place.command(arguments);
        self.show(&mut command);
        command.envs(more.iter().copied());
        command
    }

    /// The command `bench` in this folder.
    pub(crate) fn bench(&self, arguments: &str) -> Command {
        let mut command = self.place.bench(arguments);
        self.show(&mut command);
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> Said {
        said(&mut self.command(arguments, &[]))
    }

    /// Runs a command that must succeed and for which the driver must find no errors.
    pub(crate) fn good(&self, arguments: &str) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, 0, "onegraph {arguments}\n{}", said.err);
        assert_eq!(self.findings(), "", "onegraph {arguments}");
        said.out
    }

    /// The errors that the driver has found: leaks, misuse, failures.
    pub(crate) fn findings(&self) -> String {
        fs::read_to_string(self.place.join("findings")).unwrap_or_default()
    }
}

/// A library that cargo builds next to the tests.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this program's path");
    let path = test.parent().unwrap_or(Path::new(".")).join(name);
    assert!(path.is_file(), "{} is not built", path.display());
    path
}
