//! The command `onegraph`.

use std::process::ExitCode;

fn main() -> ExitCode {
    engine::cli::main()
}
