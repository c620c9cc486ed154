//! Turns kept values into inputs: the program then uses given tensors instead of computed ones.

use crate::Program;
use crate::program::{Tensor, TensorId, TensorKind};
use crate::prune::prune;

/// Turns each kept value named in `names` into an input of the same name, shape and role, which
/// replaces the value for all its readers; drops nodes that only the replaced values needed. The
/// values are then no longer kept.
///
/// Used for comparisons with recorded tensors; the program is otherwise unchanged. Panics if a name
/// is not the name of a kept value.
pub fn substitute(program: &mut Program, names: &[&str]) {
    for name in names {
        let is_value = |id: &TensorId| program.tensors[id.index()].kind == TensorKind::Value;
        let Some(value) = program.find(name).filter(is_value) else {
            panic!("`{name}` is no kept value of the program")
        };
        let input = TensorId(program.tensors.len() as u32);
        let desc = program.desc(value).clone();
        program.tensors.push(Tensor { name: name.to_string(), desc, kind: TensorKind::Input });
        program.kept.retain(|kept| *kept != value);
        program.names.values_mut().filter(|id| **id == value).for_each(|id| *id = input);
        for node in &mut program.nodes {
            node.inputs.iter_mut().filter(|id| **id == value).for_each(|id| *id = input);
            if node.outputs.contains(&value) {
                let unnamed = format!("{}.{}", node.part, node.op.name());
                program.tensors[value.index()].name = unnamed;
            }
        }
    }
    prune(program);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kernels::cpu::HostTensor;
    use kernels::ops::sum::Sum;
    use kernels::{Role, TensorDesc};

    use super::*;
    use crate::{CpuExecutor, StateSet};

    fn desc() -> TensorDesc {
        TensorDesc::new(Role::Activation, &[1])
    }

    /// `twice = w + w`, `more = twice + x`, `all = more + twice`.
    fn program() -> Program {
        let mut program = Program::new();
        let x = program.input("x", desc());
        let w = program.state("w", desc());
        let twice = program.apply1(Sum, [w, w]).expect("shapes fit");
        let more = program.apply1(Sum, [twice, x]).expect("shapes fit");
        let all = program.apply1(Sum, [more, twice]).expect("shapes fit");
        program.keep("twice", twice);
        program.keep("more", more);
        program.keep("all", all);
        program
    }

    fn run(program: Program, given: &[(&str, f32)]) -> CpuExecutor {
        let mut state = StateSet::new();
        state.insert("w", HostTensor::f32(desc(), vec![3.0]));
        let mut executor = CpuExecutor::new(Arc::new(program), &state).expect("a plan");
        for (name, value) in given {
            executor.input_mut(name).expect("an input").as_f32_mut()[0] = *value;
        }
        executor.run(&mut state);
        executor
    }

    #[test]
    fn input_replaces_substituted_value_for_all_readers() {
        let mut program = program();
        substitute(&mut program, &["more"]);
        assert_eq!(program.nodes().len(), 2, "x is not read");
        let inputs: Vec<_> = program.inputs().map(|(_, t)| t.name.as_str()).collect();
        assert_eq!(inputs, ["x", "more"], "those of the program come first");
        let executor = run(program, &[("more", 10.0)]);
        assert_eq!(executor.f32("all").expect("kept"), [16.0]);
        assert_eq!(executor.f32("twice").expect("kept"), [6.0]);
    }

    #[test]
    fn substituting_computed_values_does_not_change_results() {
        let free = run(program(), &[("x", 2.0)]);
        let mut fixed = program();
        substitute(&mut fixed, &["twice", "more"]);
        assert_eq!(fixed.nodes().len(), 1);
        let given = ["twice", "more"].map(|name| (name, free.f32(name).expect("kept")[0]));
        let fixed = run(fixed, &given);
        assert_eq!(fixed.f32("all").expect("kept"), free.f32("all").expect("kept"));
    }

    #[test]
    #[should_panic(expected = "`x` is no kept value")]
    fn substituting_an_input_panics() {
        substitute(&mut program(), &["x"]);
    }
}
