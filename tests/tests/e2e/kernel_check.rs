//! The self-test of the wgmma kernels when a GPU is first used, on the emulated driver with
//! modified kernels.

use std::fs;

use kernels::compiled::kernels;

use crate::common::driver::Gpus;
use crate::common::{Said, assert_has, micro, said};

/// `DRIVER_EDIT` that replaces the first line of a kernel that contains `find`.
fn edit_of(
    kernel: &str,
    find: &str,
    with: impl Fn(&str) -> String,
) -> Option<(&'static str, String)> {
    let entry = format!(".entry {kernel}(");
    let sources = &kernels().manifest().sources;
    let text = sources.iter().map(|source| kernels().ptx(source)).find(|t| t.contains(&entry));
    let lines: Vec<&str> = text.expect("the kernel's module").lines().collect();
    let first = lines.iter().position(|line| line.contains(&entry)).expect("its entry");
    let end = first + lines[first..].iter().position(|line| *line == "}").expect("its end");
    let found = first + lines[first..end].iter().position(|line| line.contains(find))?;
    Some(("DRIVER_EDIT", format!("{kernel}:{}={}", found + 1, with(lines[found]))))
}

/// The destination of an instruction.
fn register(line: &str) -> &str {
    let at = line.find('%').expect("a register");
    line[at..].split(',').next().expect("an operand")
}

/// An edit that omits some MMAs.
fn wrong(kernel: &str) -> (&'static str, String) {
    let of_warps = edit_of(kernel, "mma.sync", |_| String::new());
    of_warps.or_else(|| edit_of(kernel, "mma_async", |_| String::new())).expect("its MMAs")
}

/// An edit that makes the first pointer invalid.
fn faulty(kernel: &str) -> (&'static str, String) {
    let nowhere = |line: &str| format!("mov.u64 {}, 16;", register(line));
    edit_of(kernel, "cvta.to.global.u64", nowhere).expect("a pointer")
}

fn run(gpus: &Gpus, arguments: &str, (key, value): &(&str, String)) -> Said {
    let cache = gpus.place.join("cache").display().to_string();
    said(&mut gpus.command(arguments, &[(key, value.as_str()), ("XDG_CACHE_HOME", cache.as_str())]))
}

fn weights(gpus: &Gpus, run: &str) -> Vec<u8> {
    let file = format!("runs/{run}/checkpoints/step_00000003/model.safetensors");
    fs::read(gpus.place.join(&file)).expect("weights")
}

const TRAIN: &str = "--device cuda --set train.steps=3";

/// If wgmma kernels give wrong results or fault, the GPU trains without them and a notice is
/// printed at each start; the self-test runs only once.
#[test]
fn wgmma_kernels_that_fail_self_test_are_disabled() {
    for made in [wrong("conv2d_f16_tall"), faulty("conv2d_grad_weight_f16_low")] {
        let gpus = Gpus::new("H100");
        let kernel = made.1.split(':').next().expect("a kernel").to_string();
        let train = |name: &str| {
            let more = format!("{TRAIN} --set train.name={name}");
            run(&gpus, &micro(&more), &made)
        };
        for name in ["first", "second"] {
            let said = train(name);
            assert_eq!(said.code, 0, "{}", said.err);
            let told = said.err.lines().find(|line| line.starts_with("warning: GEMMs run without"));
            let told = told.unwrap_or_else(|| panic!("{}", said.err));
            assert_has(told, &[&kernel]);
        }
        assert_eq!(weights(&gpus, "first"), weights(&gpus, "second"));
        let known = gpus.place.json("cache/onegraph/checked-gpus.json");
        assert!(known.to_string().contains(&kernel), "{known}");
    }
}
