//! Bugs that only instrumented kernels show, with file and line. A sanitizer ends the process, so
//! each bug runs in a child; `kernels/emulated/sanitize` builds and runs these tests.

use std::process::Command;

use device::Launch;
use emulated::{EmulatedDevice, Order};

use crate::support::{Bench, assert_says, place};

/// Names a bug to the child.
const BUG: &str = "ONEGRAPH_PLANTED_BUG";

/// Launches of the wrong kernels.
fn run_bug(bug: &str) {
    let bench = Bench::of(EmulatedDevice::new(Order::Given).with_os_threads(2));
    let (a, b) = (bench.upload(&[1.0f32; 64]), bench.upload(&[1.0f32; 64]));
    let increment = |from, to, end| {
        let launch = Launch::new("planted_increment", [1, 1, 1]).arg(from).arg(to);
        launch.int(0).int(end)
    };
    let block = |kernel, threads| Launch::new(kernel, [1, 1, 1]).block(threads);
    let out = || bench.alloc(1024).write();
    let launch = match bug {
        "read past the end" => increment(a.read(), bench.alloc(512).write(), 65),
        "undeclared buffer" => {
            // The buffer is alive, but the launch declares half of it.
            increment(a.first(128).read(), b.write(), 33)
        }
        "shared read" => block("planted_shared_read_past_end", 64).arg(out()).int(1),
        "shared write" => block("planted_shared_write_past_end", 64).arg(out()).int(1),
        "misaligned vector" => {
            block("planted_misaligned_vector", 4).arg(a.read()).int(2).arg(out())
        }
        "missing barrier" => block("planted_missing_barrier", 256)
            .arg(bench.upload(&[1.0f32; 256]).read())
            .arg(out()),
        "no barriers" => block("planted_race_without_barriers", 64).arg(out()),
        "between blocks" => {
            let count = bench.upload(&[0i32]);
            Launch::new("planted_race_between_blocks", [64, 1, 1]).block(32).arg(count.update())
        }
        other => panic!("no bug is called {other}"),
    };
    bench.run(&launch).unwrap();
}

#[test]
fn child() {
    if let Ok(bug) = std::env::var(BUG) {
        run_bug(&bug);
    }
}

/// The sanitizer's report of a bug, which must end the child.
fn report(bug: &str) -> String {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sanitizers::child", "--nocapture"])
        .env(BUG, bug)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stderr).into_owned();
    assert!(!child.status.success(), "the bug `{bug}` went unnoticed:\n{text}");
    text
}

/// False, with a word on it, in a build without the sanitizer.
fn built_with(sanitizer: &str) -> bool {
    let built = emulated::SANITIZE.split(',').any(|name| name == sanitizer);
    if !built {
        println!("SKIPPED: the kernels were built without the {sanitizer} sanitizer");
    }
    built
}

#[test]
fn address_sanitizer_reports_reads_past_a_buffer() {
    if built_with("address") {
        let line = place("global_memory.cu", "reaches what the launch does not declare");
        assert_says(&report("read past the end"), &["AddressSanitizer", "READ of size 4", &line]);
    }
}

#[test]
fn address_sanitizer_reports_live_memory_that_a_launch_does_not_declare() {
    if built_with("address") {
        let line = place("global_memory.cu", "reaches what the launch does not declare");
        assert_says(&report("undeclared buffer"), &["AddressSanitizer", "READ of size 4", &line]);
    }
}

#[test]
fn address_sanitizer_reports_shared_memory_out_of_bounds() {
    if built_with("address") {
        let line = place("shared_memory.cu", "read past a shared array");
        assert_says(&report("shared read"), &["AddressSanitizer", "READ of size 4", &line]);
        let line = place("shared_memory.cu", "write past a shared array");
        assert_says(&report("shared write"), &["AddressSanitizer", "WRITE of size 4", &line]);
    }
}

#[test]
fn undefined_behaviour_sanitizer_reports_misaligned_vectors() {
    if built_with("undefined") {
        let line = place("global_memory.cu", "misaligned vector");
        assert_says(&report("misaligned vector"), &["runtime error", "misaligned address", &line]);
    }
}

#[test]
fn thread_sanitizer_reports_a_missing_barrier() {
    if built_with("thread") {
        let line = place("shared_memory.cu", "missing barrier");
        assert_says(&report("missing barrier"), &["ThreadSanitizer: data race", &line]);
        let line = place("global_memory.cu", "race without a barrier in sight");
        assert_says(&report("no barriers"), &["ThreadSanitizer: data race", &line]);
    }
}

#[test]
fn thread_sanitizer_reports_a_race_between_blocks() {
    if built_with("thread") {
        let line = place("global_memory.cu", "race between blocks");
        assert_says(&report("between blocks"), &["ThreadSanitizer: data race", &line]);
    }
}
