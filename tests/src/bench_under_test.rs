//! The command `bench`, built as a binary of this package for the tests of the GPU kit.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::main()
}
