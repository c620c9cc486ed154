//! The library against a driver of a few lines: sums, and each rule that it is strict about.

#![allow(clippy::unwrap_used)]

mod nccl {
    mod common;
    mod faults;
    mod joining;
    mod lookup;
    mod misuse;
    mod sums;
}
