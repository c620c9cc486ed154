//! The command `onegraph`, built as a binary of this package for the end-to-end tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    engine::cli::main()
}
