//! The command as the kit starts it.

use std::process::{Command, Output};

use device::DeviceError;
use device::cuda::Installed;

fn probe(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_probe"));
    command.args(arguments).output().expect("the probe starts")
}

#[test]
fn without_a_gpu_the_probe_fails_with_the_sentence() {
    let sentence = match Installed::find() {
        Err(DeviceError::Absent(sentence)) => sentence,
        other => return println!("SKIPPED: there may be a GPU here ({other:?})"),
    };
    // A measurement by itself says the same as all of them.
    for arguments in [&[][..], &["variant", "control", "res5_3x3", "3", "0"]] {
        let output = probe(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, format!("error: {sentence}\n"), "{arguments:?}");
    }
}

#[test]
fn the_list_names_variants_registers_and_predictions() {
    let output = probe(&["--list"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    for word in ["wgmma_n256", "res2_c3", "409/409", "columns_of_both", "not verified on hardware"]
    {
        assert!(text.contains(word), "{word}");
    }
    assert!(!text.contains("not compiled"), "{text}");
}
