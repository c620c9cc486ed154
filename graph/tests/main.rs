//! Tests of the passes over a Program and of its execution, with toy ops.

mod anatomy;
mod autodiff;
mod buckets;
mod common;
mod device;
mod device_random;
mod examples;
mod execution;
mod fuse;
mod log;
mod plan;
mod program;
mod scale;
mod schedule;
mod streams;
mod tasks;
