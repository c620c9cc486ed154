//! Has no code: without a build script, cargo ignores the features of build dependencies.

use cc as _;

fn main() {}
