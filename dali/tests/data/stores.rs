//! Several stores as one data set, and a selection of their classes.

use dali::store::{Classes, Store, Stores};
use serde_json::json;

use crate::fixture::{Fixture, altered, annotation, assert_fails};

/// Image 7 with an ant and a zebra (ids 3 and 90); image 9 with only an ant.
fn ours() -> Fixture {
    let mut fixture = Fixture::of([annotation(101, 7, 3)]);
    fixture.add_picture(9, "b.jpg", 16, 16);
    fixture.add_annotation(annotation(102, 9, 3));
    fixture.prep().unwrap();
    fixture
}

/// Image 7 with a different size, a zebra, a bee and an object without a mask; `zebra` has the id
/// of `ant` in the other store.
fn theirs() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.json["categories"] =
        json!([{"id": 3, "name": "zebra"}, {"id": 90, "name": "bee"}, {"id": 4, "name": "cow"}]);
    fixture.json["images"][0]["width"] = 8.into();
    fixture.write_jpeg("a.jpg", 8, 10);
    fixture.add_annotation(annotation(101, 7, 3));
    fixture.add_annotation(altered(102, json!({"category_id": 4, "segmentation": []})));
    fixture.prep_with(|options| options.masks = dali::prep::Masks::Optional).unwrap();
    fixture
}

fn both(classes: &Classes) -> Stores {
    // The files may be removed, as the stores keep them mapped.
    Stores::new([ours(), theirs()].map(|fixture| fixture.store()).into(), classes).unwrap()
}

/// Annotation id and label of each object of an image.
fn objects(stores: &Stores, image: usize) -> Vec<(u64, u32)> {
    let objects = stores.image(image).objects.map(|i| stores.object(i));
    objects.map(|object| (object.annotation_id, object.label)).collect()
}

const SECOND: u64 = 1_000_000_000_000_000;

#[test]
fn stores_are_joined_by_class_name() {
    let stores = both(&Classes::default());
    let of = &stores.contents().categories;
    let named: Vec<_> = of.iter().map(|c| (c.name.as_str(), c.coco_id, c.label)).collect();
    // `bee` gets a new id, as `zebra` in the first store has its id.
    assert_eq!(named, [("ant", 3, 1), ("zebra", 90, 2), ("cow", 4, 3), ("bee", 1, 4)]);
    assert_eq!([0, 1, 2].map(|i| stores.image(i).image_id), [7, 9, SECOND + 7]);
    assert_eq!([0, 1, 2].map(|i| stores.stable_id(i)), [7, 9, 7]);
    assert_eq!([0, 1, 2].map(|i| stores.store_of(i)), [0, 0, 1]);
    assert_eq!([0, 1, 2].map(|i| stores.image(i).width), [20, 16, 8]);
    assert_eq!(objects(&stores, 1), [(102, 1)]);
    assert_eq!(objects(&stores, 2), [(SECOND + 100, 4), (SECOND + 101, 2), (SECOND + 102, 3)]);
    assert_eq!(stores.objects_by_class(), [[0, 2, 1, 0, 0], [0, 0, 1, 1, 1]]);
    let contents = stores.contents();
    assert_eq!((contents.num_annotations, contents.num_without_mask), (6, 1));
    assert_eq!((contents.capacities.pixels, contents.capacities.objects), (256, 3));
    let mut rgb = Vec::new();
    stores.decode_rgb(2, &mut rgb).unwrap();
    assert_eq!(rgb.len(), 3 * 80);
    assert_eq!((stores.len(), stores.file_name(1), stores.file_name(2)), (3, "b.jpg", "a.jpg"));
}

#[test]
fn objects_of_unselected_classes_are_dropped() {
    let names = vec!["zebra".to_string(), "bee".to_string()];
    let stores = both(&Classes { names, as_one: false });
    assert_eq!([0, 1, 2].map(|i| objects(&stores, i).len()), [1, 0, 2]);
    assert_eq!(objects(&stores, 2), [(SECOND + 100, 2), (SECOND + 101, 1)]);
    let contents = stores.contents();
    let counts = (contents.num_annotations, contents.num_empty_images, contents.num_left_out);
    assert_eq!(counts, (3, 1, 3));
    assert_eq!(contents.num_without_mask, 0, "the cow");
    assert_eq!(stores.objects_by_class(), [[2, 1, 0], [1, 1, 1]]);
}

#[test]
fn single_class_option_merges_all_classes() {
    let stores = both(&Classes { names: vec![], as_one: true });
    let categories = &stores.contents().categories;
    assert_eq!((categories.len(), categories[0].name.as_str()), (1, "object"));
    assert_eq!(objects(&stores, 2).iter().map(|(_, label)| *label).collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!((stores.contents().num_annotations, stores.contents().num_left_out), (6, 0));
}

#[test]
fn single_store_is_unchanged_by_joining() {
    let mut fixture = Fixture::new();
    fixture.json["images"][0]["id"] = (SECOND + 1).into();
    fixture.json["annotations"][0]["image_id"] = (SECOND + 1).into();
    fixture.prep().unwrap();
    let (store, stores) = (fixture.store(), Stores::from(fixture.store()));
    assert_eq!(stores.image(0), store.image(0));
    assert_eq!(stores.object(0), store.object(0));
    assert_eq!(stores.contents().categories, store.header().categories);
    assert_eq!(stores.to_string(), store.path().display().to_string());
    let twice: Vec<Store> = vec![store, fixture.store()];
    assert_fails(Stores::new(twice, &Classes::default()), &[&(SECOND + 1).to_string(), "10^15"]);
}

/// Ids and names must be looked up in maps: with a linear search this took minutes.
#[test]
fn joining_many_categories_takes_linear_time() {
    const MANY: u64 = 200_000;
    let [a, b] = ["a", "b"].map(|word| {
        let mut fixture = Fixture::new();
        let category = |id| json!({"id": id, "name": format!("{word}{id}")});
        fixture.json["categories"] = (1..=MANY).map(category).collect();
        fixture.prep().unwrap();
        fixture.store()
    });
    // Every id occurs twice, so the categories of the second store get the next free ids.
    let names = (1..=MANY).flat_map(|id| [format!("a{id}"), format!("b{id}")]).collect();
    let stores = Stores::new(vec![a, b], &Classes { names, as_one: false }).unwrap();
    let last = stores.contents().categories.last().unwrap();
    let name = format!("b{MANY}");
    assert_eq!((last.name.as_str(), last.coco_id), (name.as_str(), 2 * MANY));
}
