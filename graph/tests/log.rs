//! Log events of a program on a device: planned, loaded, chosen, captured.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, PoisonError};

use device::cuda::CudaDevice;
use graph::{GraphError, Program, StateSet};
use kernels::ops::relu_mask::ReluMask;
use kernels::{Role, TensorDesc};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::common::Build;
use crate::common::on_device::{captured, prepared};

/// Keeps every event as `message field=value ...`.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?} "),
            name => write!(self.0, "{name}={value:?} "),
        };
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().expect("no panic").push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The log of planning and capturing one ReLU mask on `device`, and the result of the capture.
/// Tests that call this are serialized, because tracing caches interest in an event per process,
/// not per subscriber.
fn log_of(device: CudaDevice) -> (Vec<String>, Result<(), GraphError>) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let lines = Lines::default();
    let ended = tracing::subscriber::with_default(lines.clone(), || {
        // A concurrent test may have registered an event while there was no subscriber.
        tracing::callsite::rebuild_interest_cache();
        let mut program = Program::new();
        let x = program.input("x", TensorDesc::new(Role::Gradient, &[64]));
        let y = program.node(ReluMask, [x, x]);
        program.keep("y", y);
        let programs = vec![prepared(&device, Arc::new(program))];
        captured(Arc::new(device), programs, &StateSet::new(), &[]).map(|_| ())
    });
    let lines = lines.0.lock().expect("no panic");
    (lines.clone(), ended)
}

#[test]
fn planning_loading_and_capture_are_logged() {
    let (lines, ended) = log_of(test_gpu::open("H100"));
    ended.expect("a captured step");
    let starts =
        ["planned a program", "loaded the kernels", "chose relu_mask_f16", "captured a graph"];
    for start in starts {
        assert!(lines.iter().any(|line| line.starts_with(start)), "{start}: {lines:?}");
    }
    assert!(!lines.iter().any(|line| line.contains("did not load")), "{lines:?}");
}

#[test]
fn unloadable_module_is_reported() {
    // One line of the kernel's module is replaced by invalid PTX.
    let log_of = |kernel: &str| log_of(test_gpu::open(&format!("A100 EDIT={kernel}:20=planted;")));
    let (lines, ended) = log_of("relu_mask_f16");
    let named = |line: &&String| line.contains("did not load") && line.contains("planted");
    assert!(lines.iter().any(|line| named(&line)), "{lines:?}");
    let fault = ended.expect_err("its kernel is launched").to_string();
    assert!(fault.contains("compiling the PTX of kernels/src/ops/gemm_ops/relu_mask"), "{fault}");
    // A module whose kernels are never launched is not loaded.
    let (lines, ended) = log_of("max_pool_f16");
    ended.expect("a captured step");
    assert!(!lines.iter().any(|line| line.contains("max_pool")), "{lines:?}");
}
