//! Every op case on the CPU: all outputs written, two runs bit-identical, and the backward rule
//! against finite differences.

use kernels::case::{check_gradients, check_runs};
use kernels::ops::cases;

#[test]
fn every_case_writes_all_outputs_and_is_bit_identical() {
    let mut faults = Vec::new();
    for case in cases() {
        faults.extend(check_runs(&case).err().map(|e| e.to_string()));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_gradient_matches_finite_differences() {
    let mut faults = Vec::new();
    for case in cases().iter().filter(|c| !c.grad_inputs.is_empty()) {
        match check_gradients(case) {
            Ok(worst) => println!("{case}: worst {worst:.1e}"),
            Err(e) => faults.push(e.to_string()),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
