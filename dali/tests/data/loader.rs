//! Slots: what stands in them, that nothing of an earlier batch stays, and prefetching.

use std::sync::Arc;

use dali::DaliError;
use dali::loader::{Batch, Loader, OwnedSlot, SEGM_POLYGONS, SEGM_RUNS, SlotShape, fill_slot};
use serde_json::json;

use crate::fixture::{Fixture, annotation, assert_says};

/// Images 3 (16x16, empty), 7 (20x10: polygon, crowd, two rings, runs) and 2^33 + 5 (8x8).
fn prepared() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.add_image(3, "b.jpg", 16, 16);
    fixture.write_jpeg("b.jpg", 16, 16);
    fixture.add_image((1 << 33) + 5, "c.jpg", 8, 8);
    fixture.write_jpeg("c.jpg", 8, 8);
    let runs = json!({"size": [10, 20], "counts": [21, 4, 6, 4, 165]});
    let mut crowd = annotation(101, 7, 3);
    crowd["iscrowd"] = json!(1);
    crowd["segmentation"] = runs.clone();
    fixture.add_annotation(crowd);
    let mut two_rings = annotation(102, 7, 3);
    two_rings["segmentation"] =
        json!([[1.0, 1.0, 5.0, 1.0, 5.0, 6.0], [9.0, 1.0, 15.0, 1.0, 15.0, 6.0]]);
    fixture.add_annotation(two_rings);
    let mut as_runs = annotation(103, 7, 3);
    as_runs["segmentation"] = runs;
    as_runs["bbox"] = json!([2.0, 1.0, 2.0, 4.0]);
    fixture.add_annotation(as_runs);
    fixture.add_annotation(annotation(104, (1 << 33) + 5, 90));
    fixture.prep().unwrap();
    fixture
}

#[test]
fn a_slot_holds_the_batch_in_the_stated_layout() {
    let fixture = prepared();
    let store = fixture.store();
    let shape = SlotShape::for_store(store.header(), 3);
    let expected =
        SlotShape { images: 3, pixels: 256 * 3, objects: 3, parts: 4, coords: 20, runs: 5 };
    assert_eq!(shape, expected);
    let mut slot = OwnedSlot::new(shape);
    fill_slot(&store, &[2, 1], 4, slot.as_slot()).unwrap();

    assert_eq!(slot.num_images, [2]);
    assert_eq!(slot.image_sizes, [8, 8, 10, 20, 0, 0]);
    assert_eq!(slot.image_keys, [5, 2, 2, 4, 7, 0, 1, 4, 0, 0, 0, 0]);
    assert_eq!(slot.gt_counts, [1, 3, 0]);
    assert_eq!(slot.gt_classes, [2, 0, 0, 2, 1, 1, 0, 0, 0]);
    let of_second = 12..24;
    let boxes = [2., 1., 6., 5., 2., 1., 6., 5., 2., 1., 4., 5.];
    assert_eq!(slot.gt_boxes[of_second], boxes);
    let (p, r) = (SEGM_POLYGONS, SEGM_RUNS);
    assert_eq!(slot.segm_index[..9], [p, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(slot.segm_index[9..18], [p, 0, 1, p, 1, 2, r, 3, 1]);
    assert_eq!(slot.segm_parts[8..16], [0, 8, 8, 6, 14, 6, 0, 5]);
    assert_eq!(slot.coords[20 + 8..20 + 14], [1., 1., 5., 1., 5., 6.]);
    assert_eq!(slot.runs[5..10], [21, 4, 6, 4, 165]);
    let mut rgb = Vec::new();
    for (row, idx) in [(0, 2), (1, 1)] {
        store.decode_rgb(idx, &mut rgb).unwrap();
        assert_eq!(slot.pixels[row * shape.pixels..][..rgb.len()], rgb);
    }
}

#[test]
fn nothing_of_an_earlier_batch_stays() {
    let fixture = prepared();
    let store = fixture.store();
    let shape = SlotShape::for_store(store.header(), 2);
    let mut used = OwnedSlot::new(shape);
    fill_slot(&store, &[1, 1], 1, used.as_slot()).unwrap();
    fill_slot(&store, &[0], 2, used.as_slot()).unwrap();
    let mut fresh = OwnedSlot::new(shape);
    fill_slot(&store, &[0], 2, fresh.as_slot()).unwrap();
    used.pixels.clear();
    fresh.pixels.clear();
    assert_eq!(used, fresh);
}

#[test]
fn too_small_a_slot_is_refused_by_name() {
    let fixture = prepared();
    let store = fixture.store();
    let whole = SlotShape::for_store(store.header(), 1);
    let error = |shape: SlotShape, indices: &[usize]| {
        let mut slot = OwnedSlot::new(shape);
        fill_slot(&store, indices, 0, slot.as_slot()).unwrap_err().to_string()
    };
    assert_says(&error(whole, &[0, 1]), &["images", "2 needed, room for 1"]);
    assert_says(&error(whole, &[3]), &["images of the store", "room for 3"]);
    let shape = SlotShape { pixels: 599, ..whole };
    assert_says(&error(shape, &[1]), &["pixels of image 7", "600 needed, room for 599"]);
    assert_says(&error(SlotShape { objects: 2, ..whole }, &[1]), &["gt_boxes of image 7"]);
    assert_says(&error(SlotShape { parts: 3, ..whole }, &[1]), &["segm_parts of image 7"]);
    assert_says(&error(SlotShape { coords: 19, ..whole }, &[1]), &["coords of image 7"]);
    assert_says(&error(SlotShape { runs: 4, ..whole }, &[1]), &["runs of image 7"]);
}

#[test]
fn the_loader_gives_all_batches_in_order_and_then_none() {
    let fixture = prepared();
    let store = Arc::new(fixture.store());
    let shape = SlotShape::for_store(store.header(), 2);
    let batches: Vec<Batch> =
        (0..20).map(|epoch| Batch { indices: vec![epoch as usize % 3, 1], epoch }).collect();
    for (num_slots, num_threads) in [(1, 1), (3, 2)] {
        let mut loader =
            Loader::new(store.clone(), batches.clone(), shape, num_slots, num_threads).unwrap();
        let mut epochs = Vec::new();
        while let Some(filled) = loader.next().unwrap() {
            let mut expected = OwnedSlot::new(shape);
            let batch = &batches[epochs.len()];
            fill_slot(&store, &batch.indices, batch.epoch, expected.as_slot()).unwrap();
            assert_eq!(filled.slot.gt_boxes, expected.gt_boxes);
            assert_eq!(filled.slot.image_keys, expected.image_keys);
            assert!(filled.waited_seconds >= 0.0 && filled.fill_seconds > 0.0);
            epochs.push(filled.slot.image_keys[3]);
            loader.recycle(filled.slot);
        }
        assert_eq!(epochs, (0..20).collect::<Vec<i32>>());
        assert!(loader.next().unwrap().is_none());
    }
}

#[test]
fn the_loader_ends_early_refuses_to_hang_and_reports_errors() {
    let fixture = prepared();
    let store = Arc::new(fixture.store());
    let shape = SlotShape::for_store(store.header(), 1);
    let batch = |idx| Batch { indices: vec![idx], epoch: 0 };
    let endless = std::iter::repeat_with(move || batch(1));
    let mut loader = Loader::new(store.clone(), endless, shape, 2, 1).unwrap();
    let first = loader.next().unwrap().unwrap();
    let second = loader.next().unwrap().unwrap();
    let error = loader.next().unwrap_err();
    assert!(matches!(error, DaliError::Loader(_)), "{error}");
    loader.recycle(first.slot);
    assert!(loader.next().unwrap().is_some());
    drop(second);
    drop(loader); // must not hang

    let mut loader =
        Loader::new(store.clone(), vec![batch(0), batch(99), batch(0)], shape, 2, 1).unwrap();
    let filled = loader.next().unwrap().unwrap();
    loader.recycle(filled.slot);
    assert_says(&loader.next().unwrap_err().to_string(), &["images of the store"]);
    assert!(loader.next().unwrap().is_none());
    assert!(Loader::new(store, vec![], shape, 0, 1).is_err());
}
