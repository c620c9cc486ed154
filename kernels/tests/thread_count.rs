//! Results of every op are bit-identical for any number of threads.

use kernels::OpError;
use kernels::case::OpCase;
use kernels::cpu::HostTensor;
use kernels::on_cpu::run_updating;
use kernels::ops::cases;

/// The outputs of a case, then the state it updated.
fn run(case: &OpCase) -> Result<Vec<HostTensor>, OpError> {
    let mut updates = case.updates.clone();
    let mut outputs = run_updating(case.op.as_ref(), &case.inputs, &mut updates)?;
    outputs.append(&mut updates);
    Ok(outputs)
}

#[test]
fn results_are_bit_identical_with_one_and_three_threads() {
    let pool = |threads| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(|e| e.to_string())
    };
    let (one, three) = match (pool(1), pool(3)) {
        (Ok(one), Ok(three)) => (one, three),
        (Err(e), _) | (_, Err(e)) => panic!("no threads for the test: {e}"),
    };
    let mut faults = Vec::new();
    for case in cases() {
        let alone = one.install(|| run(&case));
        let shared = three.install(|| run(&case));
        match (alone, shared) {
            (Ok(a), Ok(b)) => {
                let same = a.iter().zip(&b).all(|(a, b)| a.bytes() == b.bytes());
                if !same {
                    faults.push(case.to_string());
                }
            }
            (Err(e), _) | (_, Err(e)) => faults.push(format!("{case}: {e}")),
        }
    }
    assert!(faults.is_empty(), "differ or fail: {}", faults.join("\n"));
}
