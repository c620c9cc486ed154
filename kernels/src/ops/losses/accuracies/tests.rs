//! A tally by hand.

use super::{Accuracies, COUNTS, Count};
use crate::case::hand::{ints, run, tensor};

/// Every count differs from those beside it, so that none can take another's place.
#[test]
fn a_tally_by_hand() {
    let rows: [([f32; 3], i32); 9] = [
        ([0.0, 2.0, 1.0], 1), // right
        ([0.0, 1.0, 1.0], 2), // wrong: class 1 ties and is lower
        ([3.0, 1.0, 1.0], 2), // in the background
        ([1.0, 1.0, 0.0], 1), // in the background by a tie
        ([1.0, f32::NAN, 0.0], 1),
        ([1.0, 0.0, 0.0], 0), // right
        ([0.0, 0.0, 0.0], 0), // right by a tie
        ([0.0, 0.1, 0.0], 0),
        ([9.0, 0.0, 0.0], -1), // counts nowhere
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
    assert_eq!((of(Count::Positives), of(Count::Negatives), of(Count::PositivesFound)), (3, 2, 1));
    assert_eq!((of(Count::Objects), of(Count::ObjectsCovered)), (3, 1));
    assert_eq!((of(Count::Inside), of(Count::InsideWrong)), (3, 1));
    assert_eq!((of(Count::Outside), of(Count::OutsideWrong)), (5, 4));
    let boxes_alone = run(&Accuracies { plus_one: false, masks: false }, &inputs[..9]);
    let pixels = Count::Inside as usize;
    assert_eq!(boxes_alone[0].as_i32()[..pixels], tally[0].as_i32()[..pixels]);
    assert_eq!(boxes_alone[0].as_i32()[pixels..], [0; COUNTS - 11]);
}
