//! `onegraph tune`, the table that runs follow, and the check of a GPU's kernels at its first
//! start: on the test driver, whose times mean nothing, with kernels that were made wrong.

use std::fs;

use kernels::compiled::kernels;
use serde_json::Value;

use crate::common::driver::Gpus;
use crate::common::{BAD_CONFIG, Said, micro, said};

/// `DRIVER_EDIT` with another text for the first line of a kernel that holds `find`.
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

/// One product in some is left out.
fn wrong(kernel: &str) -> (&'static str, String) {
    let of_warps = edit_of(kernel, "mma.sync", |_| String::new());
    of_warps.or_else(|| edit_of(kernel, "mma_async", |_| String::new())).expect("its products")
}

/// The first pointer leads nowhere.
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

/// Each product gets its fastest kernel, among those that compute the same and do not fault; a run
/// follows the table, says so, and repeats.
#[test]
fn a_table_holds_the_fastest_kernels_that_are_right() {
    let gpus = Gpus::new("A100");
    for (made, reason) in [
        (wrong("conv2d_f16_unaligned"), "expected"),
        (faulty("conv2d_grad_input_f16_unaligned"), "ended its process with"),
    ] {
        let kernel = made.1.split(':').next().expect("a kernel").to_string();
        let said = run(&gpus, "tune micro --repeats 1 --out made.json", &made);
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(said.out.contains("train.tuning=made.json"), "{}", said.out);
        let table = gpus.place.json("made.json");
        let products = table["products"].as_object().expect("products");
        assert!(products.len() > 50, "{table}");
        // A product whose only kernel is this one is compared with itself.
        let others = products.iter().filter(|(_, row)| row["model"]["kernel"] != kernel.as_str());
        let refused = |row: &Value| row["refused"].to_string();
        let mut count = 0;
        for (name, row) in others {
            assert_ne!(row["best"]["kernel"], kernel.as_str(), "{name}: {row}");
            count += usize::from(refused(row).contains(&kernel) && refused(row).contains(reason));
        }
        assert!(count > 5, "{table}");
    }
    fs::remove_file(gpus.place.join("findings")).expect("the planted faults");
    let tuned = format!("{TRAIN} --set train.tuning=made.json");
    for name in ["first", "second"] {
        gpus.good(&micro(&format!("{tuned} --set train.name={name}")));
    }
    assert_eq!(weights(&gpus, "first"), weights(&gpus, "second"));
    let sha256 = gpus.place.json("runs/first/report.json")["tuning_sha256"].clone();
    let checkpoint = "runs/first/checkpoints/step_00000003/checkpoint.json";
    assert_eq!(gpus.place.json(checkpoint)["tuning"], sha256, "the checkpoint's table");
    let told = format!("tuned by {}", &sha256.as_str().expect("a hash")[..16]);
    assert!(gpus.place.text("runs/first/log.txt").contains(&told), "{told}");
    refused_tables(&gpus);
}

/// Tables of other GPUs and kernels, files that are none, and a run that changes its table.
fn refused_tables(gpus: &Gpus) {
    let table = gpus.place.text("made.json");
    let refuses = |arguments: &str, words: &str| {
        let Said { code, err, .. } = gpus.run(arguments);
        assert_eq!(code, BAD_CONFIG, "{err}");
        assert!(err.contains(words) && err.matches("error: ").count() == 1, "{words}: {err}");
    };
    let changes = [
        ("\"gpu\": \"NVIDIA", "\"gpu\": \"Another", "is of another GPU"),
        ("\"kernels_sha256\": \"", "\"kernels_sha256\": \"0", "is of the kernels of commit"),
        ("\"kernel\": \"conv2d", "\"kernel\": \"none", "states no kernel for"),
        ("\"format\": 1", "\"format\": 7", "has format 7"),
        ("\"format\"", "\"form\"", "is no table of tuning"),
    ];
    for (from, to, words) in changes {
        fs::write(gpus.place.join("other.json"), table.replace(from, to)).expect("room");
        let other = "--set train.tuning=other.json";
        refuses(&micro(&format!("{TRAIN} {other}")), words);
    }
    refuses("train --resume runs/first --device cuda --set train.tuning=none", "--override");
    let more = "--set train.steps=4 --set train.tuning=none --override";
    gpus.good(&format!("train --resume runs/first --device cuda {more}"));
}

/// A GPU whose kernels of warpgroups are wrong, or fault, trains without them, and says so at each
/// start; it is checked once.
#[test]
fn kernels_of_warpgroups_that_fail_their_check_are_left_out() {
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
            let told = said.err.lines().find(|line| line.starts_with("warning: products run"));
            let told = told.unwrap_or_else(|| panic!("{}", said.err));
            assert!(told.contains(&kernel), "{told}");
        }
        assert_eq!(weights(&gpus, "first"), weights(&gpus, "second"));
        let known = gpus.place.json("cache/onegraph/checked-gpus.json");
        assert!(known.to_string().contains(&kernel), "{known}");
    }
}
