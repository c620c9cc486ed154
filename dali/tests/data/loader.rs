//! Slots: their contents, no data of earlier batches, and prefetching.

use std::sync::Arc;

use dali::DaliError;
use dali::loader::{
    Array, Batch, Clear, Element, ImageRows, Loader, SEGM_POLYGONS, SEGM_RUNS, Slot, SlotLayout,
    fill_slot,
};
use dali::store::{Capacities, Stores};
use serde_json::json;

use crate::fixture::{Fixture, altered, annotation, assert_fails, assert_says};

/// Images 3 (16x16, empty), 7 (20x10: polygon, crowd, two rings, runs) and 2^33 + 5 (8x8).
fn prepared() -> Stores {
    let mut fixture = Fixture::new();
    fixture.add_picture(3, "b.jpg", 16, 16);
    fixture.add_picture((1 << 33) + 5, "c.jpg", 8, 8);
    let runs = json!({"size": [10, 20], "counts": [21, 4, 6, 4, 165]});
    let rings = json!([[1.0, 1.0, 5.0, 1.0, 5.0, 6.0], [9.0, 1.0, 15.0, 1.0, 15.0, 6.0]]);
    let bbox = json!([2.0, 1.0, 2.0, 4.0]);
    fixture.add_annotation(altered(101, json!({"iscrowd": 1, "segmentation": runs})));
    fixture.add_annotation(altered(102, json!({"segmentation": rings})));
    fixture.add_annotation(altered(103, json!({"segmentation": runs, "bbox": bbox})));
    fixture.add_annotation(annotation(104, (1 << 33) + 5, 90));
    // The files may be removed, as the store keeps them mapped.
    fixture.made().1.into()
}

fn array(name: &str, element: Element, extents: &[usize]) -> Array {
    let (name, extents) = (name.to_string(), extents.to_vec());
    Array { name, element, per_image: true, extents, clear: Clear::Zeros }
}

/// The arrays that `fill_slot` fills, large enough for images with these capacities.
fn arrays(c: Capacities) -> Vec<Array> {
    use Element::{F32, I32, U8};
    vec![
        Array { clear: Clear::Kept, ..array("pixels", U8, &[3 * c.pixels]) },
        array("image_keys", I32, &[4]),
        Array { per_image: false, ..array("num_images", I32, &[1]) },
        array("gt_boxes", F32, &[c.objects, 4]),
        array("gt_classes", I32, &[c.objects]),
        array("gt_counts", I32, &[]),
        array("segm_index", I32, &[c.objects, 3]),
        array("segm_parts", I32, &[c.parts, 2]),
        array("coords", F32, &[c.coords]),
        array("runs", I32, &[c.runs]),
    ]
}

fn layout(images: usize, capacities: Capacities) -> Arc<SlotLayout> {
    Arc::new(SlotLayout::new(images, arrays(capacities), 64).unwrap())
}

fn slots(layout: &Arc<SlotLayout>, count: usize) -> Vec<Slot> {
    (0..count).map(|_| Slot::plain(layout.clone())).collect()
}

/// A filler that fills no additional arrays.
fn nothing(_: &Stores, _: usize, _: &mut ImageRows<'_>) -> Result<(), DaliError> {
    Ok(())
}

fn ints<'a>(slot: &'a Slot, name: &str) -> &'a [i32] {
    slot.view(name).unwrap()
}

#[test]
fn slot_holds_batch_in_declared_layout() {
    let store = prepared();
    let capacities = store.contents().capacities;
    let expected = Capacities { pixels: 256, objects: 3, parts: 4, coords: 20, runs: 5 };
    assert_eq!(capacities, expected);
    let mut slot = Slot::plain(layout(3, capacities));
    fill_slot(&store, &[2, 1], 4, &mut slot, &nothing).unwrap();

    assert_eq!(ints(&slot, "num_images"), [2]);
    assert_eq!(ints(&slot, "image_keys"), [5, 2, 2, 4, 7, 0, 1, 4, 0, 0, 0, 0]);
    assert_eq!(ints(&slot, "gt_counts"), [1, 3, 0]);
    assert_eq!(ints(&slot, "gt_classes"), [2, 0, 0, 2, 1, 1, 0, 0, 0]);
    let of_second = 12..24;
    let boxes = [2., 1., 6., 5., 2., 1., 6., 5., 2., 1., 4., 5.];
    assert_eq!(slot.view::<f32>("gt_boxes").unwrap()[of_second], boxes);
    let (p, r) = (SEGM_POLYGONS, SEGM_RUNS);
    assert_eq!(ints(&slot, "segm_index")[..9], [p, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ints(&slot, "segm_index")[9..18], [p, 0, 1, p, 1, 2, r, 3, 1]);
    assert_eq!(ints(&slot, "segm_parts")[8..16], [0, 8, 8, 6, 14, 6, 0, 5]);
    let coords: &[f32] = slot.view("coords").unwrap();
    assert_eq!(coords[20 + 8..20 + 14], [1., 1., 5., 1., 5., 6.]);
    assert_eq!(ints(&slot, "runs")[5..10], [21, 4, 6, 4, 165]);
    let mut rgb = Vec::new();
    for (row, idx) in [(0, 2), (1, 1)] {
        store.decode_rgb(idx, &mut rgb).unwrap();
        let pixels: &[u8] = slot.view("pixels").unwrap();
        assert_eq!(pixels[row * 3 * capacities.pixels..][..rgb.len()], rgb);
    }
    let starts: Vec<usize> = slot
        .arrays()
        .map(|(_, b)| b.as_ptr().addr() - slot.memory().as_ref().as_ptr().addr())
        .collect();
    let ranges: Vec<usize> = (0..starts.len()).map(|i| slot.layout().range(i).start).collect();
    assert_eq!(starts, ranges, "each array lies in the block where the layout says");
}

#[test]
fn slot_keeps_nothing_of_earlier_batch() {
    let store = prepared();
    let layout = layout(2, store.contents().capacities);
    let mut used = Slot::plain(layout.clone());
    fill_slot(&store, &[1, 1], 1, &mut used, &nothing).unwrap();
    fill_slot(&store, &[0], 2, &mut used, &nothing).unwrap();
    let mut fresh = Slot::plain(layout);
    fill_slot(&store, &[0], 2, &mut fresh, &nothing).unwrap();
    for ((array, used), (_, fresh)) in used.arrays().zip(fresh.arrays()) {
        if array.clear == Clear::Kept {
            assert_eq!(array.name, "pixels");
            assert!(used != fresh, "pixels past the images in use are kept");
        } else {
            assert_eq!(used, fresh, "{}", array.name);
        }
    }
}

/// To add an array, the caller adds it to the layout, and fills it in the filler.
#[test]
fn additional_slot_array_is_filled_by_filler() {
    let store = Arc::new(prepared());
    let mut all = arrays(store.contents().capacities);
    all.insert(3, Array { clear: Clear::Ones, ..array("areas", Element::I32, &[1]) });
    let layout = Arc::new(SlotLayout::new(3, all, 64).unwrap());
    let area = |store: &Stores, idx: usize, rows: &mut ImageRows<'_>| {
        let image = store.image(idx);
        rows.row_mut("areas")?[0] = (image.height * image.width) as i32;
        Ok(())
    };
    let batch = Batch { indices: vec![2, 1], epoch: 4, copies: vec![0, 3] };
    let mut loader = Loader::new(store, vec![batch], slots(&layout, 1), 1, Box::new(area)).unwrap();
    let slot = loader.next().unwrap().unwrap().slot;
    assert_eq!(ints(&slot, "areas"), [64, 200, 1], "the image out of use has what clears it");
    assert_eq!(ints(&slot, "gt_counts"), [1, 3, 0]);
    let keys = ints(&slot, "image_keys");
    assert_eq!([keys[3], keys[7], keys[11]], [4, 4 | 3 << 20, 0], "a copy has a key of its own");
    let error = slot.view::<f32>("areas").unwrap_err().to_string();
    assert_says(&error, &["no array `areas` of F32"]);
}

#[test]
fn error_about_too_small_slot_names_array() {
    let store = prepared();
    let whole = store.contents().capacities;
    let error = |capacities: Capacities, indices: &[usize]| {
        let mut slot = Slot::plain(layout(1, capacities));
        fill_slot(&store, indices, 0, &mut slot, &nothing).unwrap_err().to_string()
    };
    assert_says(&error(whole, &[0, 1]), &["images", "2 needed, room for 1"]);
    assert_says(&error(whole, &[3]), &["images of the store", "room for 3"]);
    let small = Capacities { pixels: 199, ..whole };
    assert_says(&error(small, &[1]), &["pixels of image 7", "600 needed, room for 597"]);
    assert_says(&error(Capacities { objects: 2, ..whole }, &[1]), &["gt_boxes of image 7"]);
    assert_says(&error(Capacities { parts: 3, ..whole }, &[1]), &["segm_parts of image 7"]);
    assert_says(&error(Capacities { coords: 19, ..whole }, &[1]), &["coords of image 7"]);
    assert_says(&error(Capacities { runs: 4, ..whole }, &[1]), &["runs of image 7"]);
}

#[test]
fn slot_layout_with_missing_or_wrong_array_is_rejected() {
    let store = Arc::new(prepared());
    let error = |change: &dyn Fn(&mut Vec<Array>)| {
        let mut all = arrays(store.contents().capacities);
        change(&mut all);
        let layout = Arc::new(SlotLayout::new(1, all, 64).unwrap());
        let [mut slot] = <[Slot; 1]>::try_from(slots(&layout, 1)).unwrap();
        let filled = fill_slot(&store, &[1], 0, &mut slot, &nothing).unwrap_err().to_string();
        let loader = Loader::new(store.clone(), vec![], vec![slot], 1, Box::new(nothing));
        assert_eq!(loader.unwrap_err().to_string(), filled);
        filled
    };
    assert_says(&error(&|all| drop(all.pop())), &["no array `runs` of I32"]);
    assert_says(&error(&|all| all[3].extents[1] = 5), &["`gt_boxes` has [3, 5]", "[0, 4]"]);
    assert_says(&error(&|all| all[5].per_image = false), &["`gt_counts`", "the batch"]);
    let retyped = error(&|all| all[1].element = Element::F32);
    assert_says(&retyped, &["no array `image_keys` of I32"]);

    let twice = [array("a", Element::U8, &[1]), array("a", Element::U8, &[1])];
    assert_fails(SlotLayout::new(1, twice.to_vec(), 64), &["two arrays are called `a`"]);
    let layout = layout(1, store.contents().capacities);
    let small = Slot::new(layout, vec![0u8; 64]).unwrap_err().to_string();
    assert_says(&small, &["do not fit 64 bytes"]);
}

#[test]
fn loader_yields_all_batches_in_order_then_none() {
    let store = Arc::new(prepared());
    let layout = layout(2, store.contents().capacities);
    let batches: Vec<Batch> = (0..20)
        .map(|epoch| Batch { indices: vec![epoch as usize % 3, 1], epoch, copies: vec![] })
        .collect();
    for (num_slots, num_threads) in [(1, 1), (3, 2)] {
        let own = slots(&layout, num_slots);
        let places: Vec<_> = own.iter().map(|slot| slot.memory().as_ref().as_ptr()).collect();
        let mut loader =
            Loader::new(store.clone(), batches.clone(), own, num_threads, Box::new(nothing))
                .unwrap();
        let mut epochs = Vec::new();
        while let Some(filled) = loader.next().unwrap() {
            let mut expected = Slot::plain(layout.clone());
            let batch = &batches[epochs.len()];
            fill_slot(&store, &batch.indices, batch.epoch, &mut expected, &nothing).unwrap();
            for ((array, got), (_, want)) in filled.slot.arrays().zip(expected.arrays()) {
                assert!(array.clear == Clear::Kept || got == want, "{}", array.name);
            }
            assert!(places.contains(&filled.slot.memory().as_ref().as_ptr()), "filled in place");
            assert!(filled.waited_seconds >= 0.0 && filled.fill_seconds > 0.0);
            epochs.push(ints(&filled.slot, "image_keys")[3]);
            loader.recycle(filled.slot);
        }
        assert_eq!(epochs, (0..20).collect::<Vec<i32>>());
        assert!(loader.next().unwrap().is_none());
    }
}

#[test]
fn loader_stops_early_without_hanging_and_reports_errors() {
    let store = Arc::new(prepared());
    let layout = layout(1, store.contents().capacities);
    let batch = |idx| Batch { indices: vec![idx], epoch: 0, copies: vec![] };
    let start = |batches: Box<dyn Iterator<Item = Batch> + Send>, num_slots| {
        Loader::new(store.clone(), batches, slots(&layout, num_slots), 1, Box::new(nothing))
    };
    let endless = std::iter::repeat_with(move || batch(1));
    let mut loader = start(Box::new(endless), 2).unwrap();
    let first = loader.next().unwrap().unwrap();
    let second = loader.next().unwrap().unwrap();
    let error = loader.next().unwrap_err();
    assert!(matches!(error, DaliError::Loader(_)), "{error}");
    loader.recycle(first.slot);
    assert!(loader.next().unwrap().is_some());
    drop(second);
    drop(loader); // must not hang

    let batches = vec![batch(0), batch(99), batch(0)];
    let mut loader = start(Box::new(batches.into_iter()), 2).unwrap();
    let filled = loader.next().unwrap().unwrap();
    loader.recycle(filled.slot);
    assert_fails(loader.next(), &["images of the store"]);
    assert!(loader.next().unwrap().is_none());
    assert!(start(Box::new(std::iter::empty()), 0).is_err());
}
