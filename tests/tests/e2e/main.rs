//! The commands end to end, as users run them; all files are one test program, which is linked
//! once.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code)]
#[path = "../../src/step/program.rs"]
mod program;
#[path = "../../golden/support.rs"]
mod support;

mod augment;
mod boxes;
mod compare;
mod controls;
mod cpu_precision;
mod data;
mod device;
mod disk_full;
mod driver;
mod driver_faults;
mod driver_ranks;
mod earlier;
mod exchange;
mod faults;
mod kernel_check;
mod keypoints;
mod labels;
mod limits;
mod mistakes;
mod mlperf;
mod output;
mod places;
mod predict;
mod rank_faults;
mod ranks;
mod recipe;
mod report;
mod resume;
mod s3;
mod serve;
mod signals;
mod step;
mod tensors;
mod train;
mod weights;
