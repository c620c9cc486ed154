//! Compares the CPU executor with an interpreter in which no tensors share memory.

use std::sync::Arc;
use std::time::Instant;

use device::Target;
use graph::exec::device::Prepared;
use graph::{CpuArena, CpuExecutor, GraphError, Program, StateSet};
use kernels::{Role, TensorDesc};

use crate::common::interpreter::naive;
use crate::common::mix::Mix;
use crate::common::random::{Sample, sample};
use crate::common::{Build, bound, panic_message, state, tensor, vector};

fn executor(sample: &Sample) -> CpuExecutor {
    fed(bound(&sample.program, &sample.state), sample)
}

fn fed(mut executor: CpuExecutor, sample: &Sample) -> CpuExecutor {
    for (name, values) in &sample.inputs {
        executor.input_mut(name).expect("declared").as_f32_mut().copy_from_slice(values);
    }
    executor
}

/// The bits of all kept values, in order.
fn kept_bits(executor: &CpuExecutor) -> Vec<Vec<u32>> {
    let names = executor.program().kept_names();
    let values = names.iter().map(|(name, _)| executor.f32(name).expect("kept"));
    values.map(|v| v.iter().map(|x| x.to_bits()).collect()).collect()
}

#[test]
fn random_programs_match_naive_interpreter() {
    let mut kept = 0;
    for seed in 0..300 {
        let sample = sample(seed, 5 + seed as usize % 40);
        let mut state = sample.state.clone();
        let mut executor = executor(&sample);
        executor.run(&mut state);
        let truth = naive(&sample);
        for (name, id) in sample.program.kept_names() {
            let expected = truth.values[&id.index()].as_f32();
            assert_eq!(executor.f32(name).expect("kept"), expected, "seed {seed}: {name}");
            assert!(expected.iter().all(|x| x.is_finite()), "seed {seed}: the truth is garbage");
            kept += 1;
        }
        assert!(state.iter().eq(truth.state.iter()), "seed {seed}: state");
    }
    assert!(kept > 300, "only {kept} tensors compared");
}

#[test]
fn results_do_not_depend_on_arena_contents() {
    for seed in 0..100 {
        let sample = sample(seed, 5 + seed as usize % 40);
        let mut executor = executor(&sample);
        let outcomes = [0xFF, 0x00, 0x7B].map(|garbage| {
            executor.poison_arena(garbage);
            let mut state = sample.state.clone();
            executor.run(&mut state);
            let state: Vec<_> = state.iter().map(|(_, t)| t.clone()).collect();
            (kept_bits(&executor), state)
        });
        assert_eq!(outcomes[0], outcomes[1], "seed {seed}");
        assert_eq!(outcomes[0], outcomes[2], "seed {seed}");
    }
}

/// Programs that use a shared arena one after another give the same results as with separate
/// arenas.
#[test]
fn programs_sharing_an_arena_do_not_interfere() {
    for seed in 0..40 {
        let samples = [0, 1, 2].map(|i| sample(3 * seed + i, 5 + seed as usize + 9 * i as usize));
        let arena = CpuArena::default();
        let mut shared = samples.each_ref().map(|sample| {
            let program = Arc::new(sample.program.clone());
            let prepared = Prepared::new(program, Target::Cpu).expect("a schedule");
            fed(CpuExecutor::in_arena(prepared, &sample.state, &arena).expect("bound"), sample)
        });
        let plans = shared.iter().map(|executor| executor.plan().arena_bytes());
        assert_eq!(Some(arena.bytes()), plans.max(), "seed {seed}");
        for turn in [0, 1, 2, 1, 0, 2, 0] {
            shared[turn].run(&mut samples[turn].state.clone());
        }
        for (shared, sample) in shared.iter().zip(&samples) {
            let mut alone = executor(sample);
            alone.run(&mut sample.state.clone());
            assert_eq!(kept_bits(shared), kept_bits(&alone), "seed {seed}");
        }
    }
}

#[test]
fn state_update_is_visible_to_next_run() {
    let mut program = Program::new();
    let s = program.state("s", vector(1));
    let y = program.node(Mix::of(&[1]), [s]);
    program.keep("y", y);
    let step = Mix { outputs: vec![], scratch: 0, salt: 0.25 };
    program.add(Arc::new(step), &[], &[s]).expect("state");
    let mut state = state("s", &[0.125]);
    let mut executor = bound(&program, &state);
    let seen = [0.25, 0.75, 0.25].map(|expected| {
        executor.run(&mut state);
        (executor.f32("y").expect("kept")[0], expected)
    });
    assert!(seen.iter().all(|(got, expected)| got == expected), "{seen:?}");
    assert_eq!(state.get("s").expect("there").as_f32(), [0.875]);
}

#[test]
fn cancelled_run_stops_before_next_launch() {
    let sample = sample(7, 20);
    let mut executor = executor(&sample);
    let launches = executor.schedule().launches().len();
    assert!(launches > 4);
    let asked = std::cell::Cell::new(0);
    let until = |last: usize| {
        asked.set(0);
        let asked = &asked;
        move || asked.replace(asked.get() + 1) < last
    };
    assert!(!executor.run_while(&mut sample.state.clone(), until(3)));
    assert_eq!((asked.get(), executor.runs()), (4, 0), "the fourth launch is refused");
    assert!(executor.run_while(&mut sample.state.clone(), until(launches)));
    assert_eq!((asked.get(), executor.runs()), (launches, 1));
}

#[test]
fn missing_or_misshapen_state_is_reported_by_name() {
    let mut program = Program::new();
    program.state("layer.weight", vector(3));
    let program = Arc::new(program);
    let error = |state: &StateSet| {
        CpuExecutor::new(program.clone(), state).expect_err("should be refused").to_string()
    };
    let mut state = StateSet::new();
    assert_eq!(
        error(&state),
        "the program needs state `layer.weight`, which is neither initialised nor loaded"
    );
    state.insert("layer.weight", tensor(&[1.0; 4]));
    assert_eq!(error(&state), "state `layer.weight` should be Activation[3], got Activation[4]");
    let counter = TensorDesc::new(Role::Index, &[3]);
    state.insert("layer.weight", kernels::cpu::HostTensor::i32(counter, vec![0; 3]));
    assert_eq!(error(&state), "state `layer.weight` should be Activation[3], got Index[3]");
    state.insert("layer.weight", tensor(&[1.0; 3]));
    assert!(CpuExecutor::new(program.clone(), &state).is_ok());
}

#[test]
fn state_set_with_different_layout_is_rejected() {
    let message = panic_message(|| {
        let mut program = Program::new();
        let s = program.state("s", vector(1));
        program.node(Mix::of(&[1]), [s]);
        let mut executor = bound(&program, &state("s", &[0.0]));
        let mut other = state("r", &[0.0]);
        other.insert("s", tensor(&[0.0]));
        executor.run(&mut other);
    });
    assert!(message.contains("not laid out as"), "{message}");
}

#[test]
fn reading_unknown_name_or_wrong_type_is_an_error() {
    let mut program = Program::new();
    let x = program.input("x", vector(2));
    program.input("count", TensorDesc::new(Role::Index, &[1]));
    program.set_part("part");
    let y = program.node(Mix::of(&[2]), [x]);
    program.node(Mix { outputs: vec![2], scratch: 0, salt: 0.5 }, [y]);
    program.keep("y", y);
    program.keep("also y", y);
    let mut state = StateSet::new();
    let mut executor = bound(&program, &state);
    let unknown = |r: Result<_, GraphError>| matches!(r, Err(GraphError::UnknownTensor(_)));
    assert!(unknown(executor.input_mut("y").map(|_| ())));
    assert!(unknown(executor.input_mut("z").map(|_| ())));
    assert!(unknown(executor.f32("part.mix").map(|_| ())));
    assert!(unknown(executor.inputs_mut(["x", "x"]).map(|_| ())));
    let [count, x] = executor.inputs_mut(["count", "x"]).expect("two inputs");
    count.as_i32_mut()[0] = 7;
    x.as_f32_mut().copy_from_slice(&[0.25, 0.125]);
    executor.run(&mut state);
    assert_eq!(executor.i32("count").expect("an input"), [7]);
    assert_eq!(executor.f32("y").expect("kept"), [0.5, 0.375]);
    assert_eq!(executor.f32("also y").expect("kept"), [0.5, 0.375]);
    let message = executor.i32("y").expect_err("holds floats").to_string();
    assert_eq!(message, "`y` holds F32 (Activation[2]), not I32");
}

/// A value with the same name as an input must not hide it.
#[test]
fn input_is_found_by_name_if_a_node_has_the_same_name() {
    let mut program = Program::new();
    program.set_part("part");
    let x = program.input("part.mix", vector(1));
    program.node(Mix::of(&[1]), [x]);
    let mut executor = bound(&program, &StateSet::new());
    assert!(executor.inputs_mut(["part.mix"]).is_ok());
}

/// A launch costs less than 5 microseconds; more would be noticeable in a step of a thousand nodes.
/// The fastest of many runs is used, since the machine may be busy.
#[test]
fn launch_overhead_is_below_five_microseconds() {
    const NODES: usize = 1000;
    let mut program = Program::new();
    let mut state = StateSet::new();
    let weights: Vec<_> = (0..300)
        .map(|i| {
            state.insert(&format!("w{i}"), tensor(&[0.5]));
            program.state(&format!("w{i}"), vector(1))
        })
        .collect();
    let mut x = program.input("x", vector(1));
    for i in 0..NODES {
        let op = Mix { outputs: vec![1], scratch: i % 2, salt: 0.0 };
        x = program.node(op, [x, weights[i % 300]]);
    }
    let mut executor = bound(&program, &state);
    executor.input_mut("x").expect("declared").as_f32_mut()[0] = 0.5;
    let mut micros = |executor: &mut CpuExecutor| {
        let started = Instant::now();
        executor.run(&mut state);
        started.elapsed().as_secs_f64() * 1e6 / NODES as f64
    };
    let best = (0..50).map(|_| micros(&mut executor)).fold(f64::INFINITY, f64::min);
    println!("{best:.3} us a launch");
    if cfg!(not(debug_assertions)) {
        assert!(best < 5.0, "{best} us a launch");
    }
}
