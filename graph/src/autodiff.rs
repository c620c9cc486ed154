//! Reverse-mode differentiation by the ops' backward rules.
//!
//! Each op states its backward ops as data. This pass chains them, sums the gradients of tensors
//! that are read more than once, and emits only ops whose results are needed: frozen parts of a
//! model get no backward ops.

use kernels::ops::fill::Fill;
use kernels::ops::sum::Sum;
use kernels::{BackwardRule, BackwardStep, Role, Sink, Source, TensorDesc};

use crate::program::Pass;
use crate::{GraphError, NodeId, Program, TensorId};

/// Adds the backward pass of the sum of `losses` to the program. `seed` (`[1]`) is the gradient of
/// each loss, usually the loss scale.
///
/// Returns the gradient of each tensor of `wrt`, in order. If a backward rule states that gradients
/// are equal, the same tensor may be returned twice, and `seed` itself may be returned.
///
/// # Errors
/// [`GraphError::NoGradient`] names a tensor that no loss depends on. [`GraphError::Op`] if a
/// backward op rejects its tensors, or a loss and `seed` differ in shape.
/// [`GraphError::DifferentCounts`] names a tensor whose readers have different row counts.
pub fn differentiate(
    program: &mut Program,
    losses: &[TensorId],
    seed: TensorId,
    wrt: &[TensorId],
) -> Result<Vec<TensorId>, GraphError> {
    let seeded: Vec<_> = losses.iter().map(|loss| (*loss, seed)).collect();
    differentiate_seeded(program, &seeded, wrt)
}

/// [`differentiate`] with a seed for each loss: `(loss, seed)`.
///
/// # Errors
/// As for [`differentiate`].
pub fn differentiate_seeded(
    program: &mut Program,
    losses: &[(TensorId, TensorId)],
    wrt: &[TensorId],
) -> Result<Vec<TensorId>, GraphError> {
    let saved = program.current();
    let gradients = Differentiation::new(program, losses, wrt).run(wrt);
    program.restore(saved);
    gradients
}

struct Differentiation<'a> {
    program: &'a mut Program,
    forward_nodes: usize,
    /// Per tensor of the forward pass: true if it depends on a tensor of `wrt`.
    wanted: Vec<bool>,
    /// Per tensor of the forward pass: its incoming gradients, not yet summed. The reverse walk
    /// visits a tensor's readers before its writer, so the list is complete when the writer needs
    /// the sum.
    arriving: Vec<Vec<Term>>,
}

/// A gradient of a tensor that is read several times.
#[derive(Clone, Copy)]
struct Term {
    gradient: TensorId,
    /// The number of rows in use; all if `None`.
    count: Option<TensorId>,
}

/// Results of the steps of one node's backward rule that have been emitted.
struct Known {
    temps: Vec<Option<TensorId>>,
    /// Zero tensors used as gradients of outputs that no node reads. They are not incoming
    /// gradients: a request for the gradient of such an output must still fail.
    zeros: Vec<Option<TensorId>>,
}

impl Known {
    fn new(node: &crate::Node) -> Self {
        Self { temps: Vec::new(), zeros: vec![None; node.outputs.len()] }
    }
}

impl<'a> Differentiation<'a> {
    fn new(program: &'a mut Program, losses: &[(TensorId, TensorId)], wrt: &[TensorId]) -> Self {
        let mut wanted = vec![false; program.tensors.len()];
        for t in wrt {
            wanted[t.index()] = true;
        }
        for node in &program.nodes {
            let rule = rule_of(program, node);
            let reached = node
                .inputs
                .iter()
                .enumerate()
                .any(|(i, t)| wanted[t.index()] && gives_gradient(&rule, i));
            for t in node.outputs.iter().filter(|_| reached) {
                wanted[t.index()] = true;
            }
        }
        let mut arriving = vec![Vec::new(); program.tensors.len()];
        for (loss, seed) in losses {
            arriving[loss.index()].push(Term { gradient: *seed, count: None });
        }
        let forward_nodes = program.nodes.len();
        Self { program, forward_nodes, wanted, arriving }
    }

    fn run(mut self, wrt: &[TensorId]) -> Result<Vec<TensorId>, GraphError> {
        self.program.set_pass(Pass::Backward);
        for node in (0..self.forward_nodes).rev() {
            self.visit(NodeId(node as u32))?;
        }
        let mut gradients = Vec::with_capacity(wrt.len());
        for &t in wrt {
            // The gradients of a shared parameter are summed here; the sum's cost is assigned to
            // the model part that reads the parameter first.
            let reader = self.program.nodes.iter().find(|n| n.inputs.contains(&t));
            if let Some(part) = reader.map(|n| n.part.clone()) {
                self.program.set_part(&part);
            }
            match self.gradient(t)? {
                Some(gradient) => gradients.push(gradient),
                None => {
                    let name = self.program.tensors[t.index()].name.clone();
                    return Err(GraphError::NoGradient(name));
                }
            }
        }
        Ok(gradients)
    }

    fn visit(&mut self, id: NodeId) -> Result<(), GraphError> {
        let node = self.program.nodes[id.index()].clone();
        let reached = node.outputs.iter().any(|t| !self.arriving[t.index()].is_empty());
        let wanted = |i: usize| self.wanted[node.inputs[i].index()];
        let rule = rule_of(self.program, &node);
        let live = live_steps(&rule, wanted);
        let aliases: Vec<_> = rule.aliases.iter().copied().filter(|(_, i)| wanted(*i)).collect();
        if !reached || (live.is_empty() && aliases.is_empty()) {
            return Ok(());
        }
        self.program.set_part(&node.part);
        let mut known = Known::new(&node);
        for step in live.iter().map(|i| &rule.steps[*i]) {
            let inputs = step
                .inputs
                .iter()
                .map(|s| self.resolve(&node, &mut known, *s))
                .collect::<Result<Vec<_>, _>>()?;
            let outputs = self.program.add(step.op.clone(), &inputs, &[])?;
            let count = step.op.traits().count_input.map(|i| inputs[i]);
            self.bind(&node, step, &outputs, count, &mut known);
        }
        for (source, input) in aliases {
            let gradient = self.resolve(&node, &mut known, source)?;
            let count = node.op.traits().count_input.map(|i| node.inputs[i]);
            self.arriving[node.inputs[input].index()].push(Term { gradient, count });
        }
        Ok(())
    }

    fn bind(
        &mut self,
        node: &crate::Node,
        step: &BackwardStep,
        outputs: &[TensorId],
        count: Option<TensorId>,
        known: &mut Known,
    ) {
        assert_eq!(step.outputs.len(), outputs.len(), "{}: rule and op differ", step.op.name());
        for (target, &output) in step.outputs.iter().zip(outputs) {
            match *target {
                Sink::GradInput(i) => {
                    let input = node.inputs[i].index();
                    if self.wanted[input] {
                        self.arriving[input].push(Term { gradient: output, count });
                    }
                }
                Sink::Temp(i) => {
                    if known.temps.len() <= i {
                        known.temps.resize(i + 1, None);
                    }
                    known.temps[i] = Some(output);
                }
            }
        }
    }

    fn resolve(
        &mut self,
        node: &crate::Node,
        known: &mut Known,
        source: Source,
    ) -> Result<TensorId, GraphError> {
        Ok(match source {
            Source::Input(i) => node.inputs[i],
            Source::Output(i) => node.outputs[i],
            Source::Temp(i) => match known.temps.get(i).copied().flatten() {
                Some(t) => t,
                None => panic!("{}: rule reads temp {i} before it is written", node.op.name()),
            },
            Source::GradOutput(i) => match (self.gradient(node.outputs[i])?, known.zeros[i]) {
                (Some(t), _) | (None, Some(t)) => t,
                (None, None) => {
                    let shape = &self.program.desc(node.outputs[i]).shape;
                    let desc = TensorDesc::new(Role::Gradient, shape);
                    let zeros = self.program.apply1(Fill { desc, value: 0.0 }, [])?;
                    *known.zeros[i].insert(zeros)
                }
            },
        })
    }

    /// The gradient of a tensor: the sum of its incoming gradients.
    fn gradient(&mut self, tensor: TensorId) -> Result<Option<TensorId>, GraphError> {
        let arriving = std::mem::take(&mut self.arriving[tensor.index()]);
        let Some(&Term { mut gradient, count }) = arriving.first() else { return Ok(None) };
        if arriving.iter().any(|term| term.count != count) {
            let name = self.program.tensors[tensor.index()].name.clone();
            return Err(GraphError::DifferentCounts(name));
        }
        if arriving.len() > 1 {
            let terms: Vec<_> = arriving.iter().map(|term| term.gradient).collect();
            gradient = self.program.apply1(Sum, terms)?;
        }
        self.arriving[tensor.index()] = vec![Term { gradient, count }];
        Ok(Some(gradient))
    }
}

fn rule_of(program: &Program, node: &crate::Node) -> BackwardRule {
    node.op.backward(&program.descs(&node.inputs), &program.descs(&node.outputs))
}

fn gives_gradient(rule: &BackwardRule, input: usize) -> bool {
    let by_step = |s: &BackwardStep| s.outputs.contains(&Sink::GradInput(input));
    rule.steps.iter().any(by_step) || rule.aliases.iter().any(|(_, i)| *i == input)
}

/// The rule's steps on which the gradient of a wanted input depends, in order.
fn live_steps(rule: &BackwardRule, wanted: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut needed_temps: Vec<usize> = Vec::new();
    let temp = |s: &Source| match s {
        Source::Temp(i) => Some(*i),
        _ => None,
    };
    for (source, input) in &rule.aliases {
        needed_temps.extend(temp(source).filter(|_| wanted(*input)));
    }
    let mut live = Vec::new();
    for (i, step) in rule.steps.iter().enumerate().rev() {
        let needed = step.outputs.iter().any(|t| match *t {
            Sink::GradInput(input) => wanted(input),
            Sink::Temp(i) => needed_temps.contains(&i),
        });
        if needed {
            live.push(i);
            needed_temps.extend(step.inputs.iter().filter_map(temp));
        }
    }
    live.reverse();
    live
}
