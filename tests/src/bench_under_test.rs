//! The command `bench`, built as a binary of this package for tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::main()
}
