//! The whole training step as a program: invariance to the composition of the batch, and gradients
//! compared with finite differences.

use dali::store::Stores;
use engine::config::Config;
use tests::SAMPLES;

use crate::common::Place;
use crate::program::{Changes, OnCpu, SQUARE, empty_slot, images, inputs_from, micro};

/// A training step of `micro`, with its initial state.
struct Step(OnCpu);

/// A loss and its name.
type Loss = (&'static str, f64);

/// Results of a step: its losses, and the gradient of each trained parameter.
#[derive(Debug, Clone)]
struct Outcome {
    losses: Vec<Loss>,
    grads: Vec<(String, Vec<f32>)>,
}

fn config(batch: usize, images_per_group: usize) -> Config {
    let batch = format!("train.batch_size={batch}");
    let group = format!("train.images_per_group={images_per_group}");
    // With this size, RoIs of the synthetic shapes are on every level of the pyramid.
    micro(&[&batch, &group, "model.roi.canonical_size=20"])
}

impl Step {
    /// The step with readable intermediate tensors; the tensors in `given` are inputs.
    fn new(store: &Stores, config: &Config, given: &'static [&'static str]) -> Self {
        let mut step = OnCpu::new(store, config, SQUARE, Changes { given, ..Changes::OBSERVED });
        step.state.get_mut("loss_scale").expect("a state").as_f32_mut()[0] = 1.0;
        Self(step)
    }

    /// Writes a batch of the store's images. The remaining slots are filled as in training: with
    /// zeros, pixels of an earlier image, and a network size of 1 x 1.
    fn feed(&mut self, store: &Stores, batch: &[usize]) {
        let places = self.0.executor.input_mut("gt_counts").expect("an input").desc.dim(0);
        let mut slot = empty_slot(store, &config(2, 2), places);
        slot.view_mut("pixels").expect("an array").fill(200u8);
        for (name, bytes) in inputs_from(store, &config(2, 2), batch, slot) {
            self.0.write(&name, &bytes);
        }
    }

    fn f32(&self, name: &str) -> Vec<f32> {
        self.0.executor.f32(name).expect("an observed tensor").to_vec()
    }

    /// Runs the step from its initial state, regardless of earlier runs.
    fn run(&mut self) -> Outcome {
        let mut state = self.0.state.clone();
        self.0.executor.run(&mut state);
        let loss = |name: &&'static str| (*name, f64::from(self.f32(name)[0]));
        let grad = |name: &String| (name.clone(), self.f32(&format!("grad/{name}")));
        Outcome {
            losses: self.0.losses.iter().map(loss).collect(),
            grads: self.0.trained.iter().map(grad).collect(),
        }
    }

    /// The losses and gradients of one batch.
    fn of(store: &Stores, config: &Config, batch: &[usize]) -> Outcome {
        let mut step = Self::new(store, config, &[]);
        step.feed(store, batch);
        step.run()
    }
}

/// Compares losses, and the largest difference of each gradient relative to its largest value.
fn assert_close(got: &Outcome, want: &Outcome, tolerance: f64) {
    for ((name, got), (_, want)) in got.losses.iter().zip(&want.losses) {
        assert!(*want > 0.0, "{name}: nothing to compare");
        assert!((got - want).abs() <= tolerance * want, "{name}: {got} and {want}");
    }
    for ((name, got), (_, want)) in got.grads.iter().zip(&want.grads) {
        let largest = want.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        assert!(largest > 0.0, "{name}: no gradient");
        let error = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
        assert!(f64::from(error / largest) <= tolerance, "{name}: {error} of {largest}");
    }
}

fn mean(a: &Outcome, b: &Outcome) -> Outcome {
    let half = |((name, x), (_, y)): (&Loss, &Loss)| (*name, 0.5 * (x + y));
    let grads = a.grads.iter().zip(&b.grads).map(|((name, x), (_, y))| {
        (name.clone(), x.iter().zip(y).map(|(x, y)| 0.5 * (x + y)).collect())
    });
    Outcome { losses: a.losses.iter().zip(&b.losses).map(half).collect(), grads: grads.collect() }
}

/// With groups of two in a batch of four, the gradient is the mean over the groups, for any order
/// of the images.
#[test]
fn batch_gradient_is_mean_over_image_groups() {
    let place = Place::new();
    let store = images(place.path());
    let four = Step::of(&store, &config(4, 2), &[4, 5, 6, 7]);
    let two = |batch| Step::of(&store, &config(2, 2), batch);
    assert_close(&four, &mean(&two(&[4, 5]), &two(&[6, 7])), 1e-5);
    assert_close(&Step::of(&store, &config(4, 2), &[6, 7, 4, 5]), &four, 1e-5);
    // Images 4 to 7 have different numbers of positives, so one group of four gives a different
    // mask loss: a step that ignored the groups would fail.
    let one = Step::of(&store, &config(4, 4), &[4, 5, 6, 7]);
    let mask = |outcome: &Outcome| {
        outcome.losses.iter().find(|(name, _)| *name == "loss_mask").expect("a loss").1
    };
    assert!((mask(&one) / mask(&four) - 1.0).abs() > 1e-2, "groups have no effect");
}

/// Unused slots in the last batch of an epoch have no weight.
#[test]
fn partial_batch_equals_smaller_batch() {
    let place = Place::new();
    let store = images(place.path());
    for (batch, group, small_batch, small_group) in
        [(&[0, 1][..], 2, 2, 2), (&[4, 5], 4, 2, 2), (&[6], 4, 1, 1), (&[1, 2, 3], 4, 3, 3)]
    {
        let part = Step::of(&store, &config(4, group), batch);
        let full = Step::of(&store, &config(small_batch, small_group), batch);
        assert_close(&part, &full, 1e-5);
    }
    // A partly filled group counts as one group.
    let (a, b) = (Step::of(&store, &config(2, 2), &[0, 1]), Step::of(&store, &config(1, 1), &[2]));
    assert_close(&Step::of(&store, &config(4, 2), &[0, 1, 2]), &mean(&a, &b), 1e-5);
}

/// A step whose samples are inputs, fixed to the samples for the initial weights, so that losses
/// change smoothly with the weights.
fn with_fixed_samples(store: &Stores, config: &Config, batch: &[usize]) -> Step {
    let mut first = Step::new(store, config, &[]);
    first.feed(store, batch);
    first.run();
    assert!(first.0.executor.i32("num_mask_rois").expect("observed")[0] >= 2, "masks to train on");
    let mut step = Step::new(store, config, &SAMPLES);
    step.feed(store, batch);
    for name in SAMPLES {
        step.0.write(name, first.0.read(name).bytes());
    }
    let (a, b) = (first.run(), step.run());
    assert_eq!(a.losses, b.losses, "the samples are the same");
    step
}

impl Step {
    /// The sum of the losses after adding `by` times `direction` to a parameter.
    fn loss_at(&mut self, name: &str, direction: &[f32], by: f32) -> f64 {
        let at_rest = self.0.state.get(name).expect("a parameter").as_f32().to_vec();
        let moved = self.0.state.get_mut(name).expect("a parameter").as_f32_mut();
        moved.iter_mut().zip(direction).for_each(|(w, d)| *w += by * d);
        let loss = self.run().losses.iter().map(|(_, loss)| loss).sum();
        self.0.state.get_mut(name).expect("a parameter").as_f32_mut().copy_from_slice(&at_rest);
        loss
    }

    /// The relative error between the slope of the losses along a direction and the slope computed
    /// from the gradient.
    ///
    /// A long step crosses kinks of ReLU and max-pooling, and for a short step the rounding of the
    /// losses (1e-7) dominates: the best of four lengths is used. A wrong gradient agrees with none
    /// of them.
    fn slope_error(&mut self, name: &str, grad: &[f32], direction: &[f32]) -> f64 {
        let product = |(g, d): (&f32, &f32)| f64::from(*g) * f64::from(*d);
        let slope: f64 = grad.iter().zip(direction).map(product).sum();
        let error = |rise_wanted: f64| {
            let h = (rise_wanted / slope.abs()).min(1e-2) as f32;
            let rise = self.loss_at(name, direction, h) - self.loss_at(name, direction, -h);
            (rise / (2.0 * f64::from(h)) - slope).abs() / slope.abs()
        };
        [1e-3, 3e-4, 1e-4, 2e-5].map(error).into_iter().fold(f64::INFINITY, f64::min)
    }
}

/// Checks the directional derivative of the losses in two directions per trained tensor: along its
/// gradient, and along the weight with the largest gradient.
#[test]
fn gradients_match_finite_differences_of_losses() {
    // For smaller slopes the rounding of the losses dominates, with a step of 1e-2.
    const MIN_SLOPE: f64 = 1e-3;
    let place = Place::new();
    let store = images(place.path());
    let mut step = with_fixed_samples(&store, &config(2, 2), &[0, 3]);
    let at_rest = step.run();
    let (mut tried, mut worst) = (0, 0.0f64);
    for (name, grad) in &at_rest.grads {
        let norm = grad.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        let along: Vec<f32> = grad.iter().map(|g| (f64::from(*g) / norm) as f32).collect();
        let steepest = (0..grad.len()).max_by(|a, b| grad[*a].abs().total_cmp(&grad[*b].abs()));
        let steepest = steepest.expect("no parameter is empty");
        let mut alone = vec![0.0; grad.len()];
        alone[steepest] = 1.0;
        let ways = [(along, norm), (alone, f64::from(grad[steepest].abs()))];
        for (direction, _) in ways.iter().filter(|(_, slope)| *slope >= MIN_SLOPE) {
            let error = step.slope_error(name, grad, direction);
            assert!(error <= 2e-2, "{name}: off by {error:.1e}");
            (tried, worst) = (tried + 1, worst.max(error));
        }
    }
    assert!(tried == 2 * at_rest.grads.len(), "{tried} slopes of {} tensors", at_rest.grads.len());
    println!("{tried} slopes of {} tensors, worst error {worst:.1e}", at_rest.grads.len());
}
