//! The command `bench`.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::main()
}
