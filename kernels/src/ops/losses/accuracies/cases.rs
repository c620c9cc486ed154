//! Test and benchmark cases of `accuracies`.

use super::Accuracies;
use crate::Role;
use crate::case::boxes::boxes;
use crate::case::{OpCase, constant, integers, uniform};
use crate::cpu::HostTensor;

/// No inputs, one of each, prime sizes, no masks, more rows than the launch has warps and threads,
/// equal logits, and a COCO batch.
pub fn cases() -> Vec<OpCase> {
    let mut cases = vec![
        case([0, 1, 0, 1, 0, 0], Some([0, 7]), false),
        case([1, 1, 1, 1, 1, 1], Some([1, 1]), true),
        case([13, 5, 11, 5, 31, 7], Some([7, 5]), false),
        case([13, 33, 257, 2, 33, 3], None, true),
        case([1031, 81, 33_001, 3, 101, 400], Some([43, 29]), false),
        case([512, 81, 512, 2, 1000, 40], Some([128, 28]), false),
    ];
    let mut equal = case([64, 67, 64, 2, 3, 3], Some([3, 4]), false);
    equal.label = "equal logits".into();
    for input in [0, 2, 9] {
        let values = equal.inputs[input].as_f32_mut().iter_mut();
        values.for_each(|value| *value = value.round().clamp(-1.0, 1.0));
    }
    cases.push(equal);
    let mut broken = case([64, 67, 64, 2, 3, 3], Some([3, 4]), false);
    broken.label = "logits that are not numbers".into();
    for input in [0, 2, 9] {
        broken.inputs[input].as_f32_mut().iter_mut().step_by(5).for_each(|v| *v = f32::NAN);
    }
    cases.push(broken);
    cases
}

/// The sizes are rows, classes, anchors, images, and proposals and objects per image; `masks` is
/// the number of mask rows and the side of a mask. See [`decide`] for the predictions.
fn case([m, k, a, n, p, g]: [usize; 6], masks: Option<[usize; 2]>, plus_one: bool) -> OpCase {
    let logits = |shape: &[usize], seed| uniform(Role::Activation, shape, seed, -3.0, 3.0);
    let mut inputs = vec![
        logits(&[m, k], 1),
        integers(&[m], 2, -1, k as i32),
        logits(&[a, 1], 3),
        integers(&[a], 4, -1, 2),
        boxes(&[n, p, 4], 5, 120.0, 90.0),
        integers(&[n], 6, p as i32 / 2, p as i32 + 1),
        boxes(&[n, g, 4], 7, 120.0, 90.0),
        integers(&[n], 8, g as i32 / 2, g as i32 + 1),
        constant(&[1], (n as i32 - 1).max(1)),
    ];
    if let Some([rows, side]) = masks {
        let shape = [rows, side, side];
        inputs.push(logits(&shape, 9));
        inputs.push(integers(&[rows], 10, -1, 3));
        inputs.push(uniform(Role::Mask, &shape, 11, 0.0, 1.0));
    }
    decide(&mut inputs[..2], k);
    let label = format!("M {m}, K+1 {k}, A {a}, N {n}, P {p}, G {g}, masks {masks:?}, {plus_one}");
    let op = Accuracies { plus_one, masks: masks.is_some() };
    OpCase::new(label, op, inputs)
}

/// Makes every third row predict its label and every fifth row the background, since random logits
/// rarely do.
fn decide(classes: &mut [HostTensor], k: usize) {
    let [logits, labels] = classes else { panic!("logits and labels") };
    for (row, label) in labels.as_i32().iter().enumerate() {
        let class = match row {
            _ if row % 3 == 0 => usize::try_from(*label).unwrap_or(0),
            _ if row % 5 == 0 => 0,
            _ => continue,
        };
        logits.as_f32_mut()[row * k + class] = 4.0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{COUNTS, Count};
    use super::*;
    use crate::case::hand::{ints, run, tensor};

    /// Neighbouring counts differ, so that a swap is detected.
    #[test]
    fn accuracies_match_hand_computed_counts() {
        let rows: [([f32; 3], i32); 9] = [
            ([0.0, 2.0, 1.0], 1), // correct
            ([0.0, 1.0, 1.0], 2), // wrong: class 1 ties and is lower
            ([3.0, 1.0, 1.0], 2), // predicted as background
            ([1.0, 1.0, 0.0], 1), // predicted as background by a tie
            ([1.0, f32::NAN, 0.0], 1),
            ([1.0, 0.0, 0.0], 0), // correct
            ([0.0, 0.0, 0.0], 0), // correct by a tie
            ([0.0, 0.1, 0.0], 0),
            ([9.0, 0.0, 0.0], -1), // ignored
        ];
        let logits: Vec<f32> = rows.iter().flat_map(|(logits, _)| *logits).collect();
        let proposals = [
            [0.0, 0.0, 10.0, 10.0],
            [50.0, 50.0, 60.0, 60.0],
            [20.0, 0.0, 30.0, 10.0], // past the count
        ];
        let objects = [
            [0.0, 0.0, 10.0, 5.0],   // IoU 0.5
            [0.0, 0.0, 10.0, 4.9],   // less
            [20.0, 0.0, 30.0, 10.0], // no proposal in use
        ];
        let boxes = |rows: &[[f32; 4]; 3]| {
            let other = [[0.0, 0.0, 10.0, 10.0]; 3];
            tensor(&[2, 3, 4], [*rows, other].concat().concat())
        };
        let inputs = [
            tensor(&[9, 3], &logits),
            ints(&rows.map(|(_, label)| label)),
            tensor(&[6, 1], [0.1, 0.0, -1.0, 2.0, f32::NAN, 5.0]),
            ints(&[1, 1, 0, 0, 1, -1]),
            boxes(&proposals),
            ints(&[2, 3]),
            boxes(&objects),
            ints(&[3, 3]),
            ints(&[1]), // the second image is not in use
            tensor(&[3, 2, 2], [1.0, -1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0]),
            ints(&[2, 1, -1]),
            tensor(&[3, 2, 2], [1.0, 0.6, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ];
        let tally = run(&Accuracies { plus_one: false, masks: true }, &inputs);
        let of = |count: Count| tally[0].as_i32()[count as usize];
        assert_eq!(of(Count::Images), 1);
        assert_eq!((of(Count::Foreground), of(Count::Background)), (5, 3));
        assert_eq!((of(Count::ForegroundRight), of(Count::BackgroundRight)), (1, 2));
        assert_eq!(of(Count::Missed), 2);
        assert_eq!(
            (of(Count::Positives), of(Count::Negatives), of(Count::PositivesFound)),
            (3, 2, 1)
        );
        assert_eq!((of(Count::Objects), of(Count::ObjectsCovered)), (3, 1));
        assert_eq!((of(Count::Inside), of(Count::InsideWrong)), (3, 1));
        assert_eq!((of(Count::Outside), of(Count::OutsideWrong)), (5, 4));
        let boxes_alone = run(&Accuracies { plus_one: false, masks: false }, &inputs[..9]);
        let pixels = Count::Inside as usize;
        assert_eq!(boxes_alone[0].as_i32()[..pixels], tally[0].as_i32()[..pixels]);
        assert_eq!(boxes_alone[0].as_i32()[pixels..], [0; COUNTS - 11]);
    }
}
