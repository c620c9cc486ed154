//! Has no code: see Cargo.toml.

use futures_channel as _;
use futures_util as _;
use num_traits as _;
use simdutf8 as _;
use subtle as _;
