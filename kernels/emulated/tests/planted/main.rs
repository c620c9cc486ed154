//! Tests of the emulated device itself: bugs planted in kernels and in their launches, each of
//! which it must catch, and right kernels, which it must run as CUDA would.

#![allow(clippy::unwrap_used)]

mod emulation;
mod memory;
mod sanitizers;
mod speed;
mod streams;
mod support;
mod tensor_cores;
mod threads;
mod traffic;
