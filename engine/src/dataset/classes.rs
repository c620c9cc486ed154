//! The classes of a split's data: merges the classes of several sets, and applies `data.classes`
//! and `data.single_class`.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::config::Data;
use dali::plain;
use dali::store::{Classes, Store, Stores};

use super::Split;
use crate::error::EngineError;
use crate::progress::{Progress, counted};

/// Number of suggestions for a misspelled name.
const NEAREST: usize = 3;
/// Maximum number of rows of the table of classes.
const ROWS: usize = 30;

/// Combines the stores of a split, with the classes that the config selects. Prints how many
/// objects are left out.
///
/// # Errors
/// [`EngineError::Usage`] if a class in `data.classes` is missing from the training data, or if the
/// validation data has none of them.
pub(super) fn read_as_one(
    data: &Data,
    split: Split,
    stores: Vec<Store>,
    progress: &Progress,
) -> Result<Stores, EngineError> {
    let categories = stores.iter().flat_map(|store| &store.header().categories);
    let found: BTreeSet<String> = categories.map(|category| category.name.clone()).collect();
    let classes = Classes { names: data.classes.clone(), as_one: data.single_class };
    let stores = Stores::new(stores, &classes)?;
    let lacks = |name: &&String| !found.contains(*name);
    let refused = match split {
        Split::Train => data.classes.iter().find(lacks),
        Split::Val => data.classes.first().filter(|_| data.classes.iter().all(|n| lacks(&n))),
    };
    if let Some(name) = refused {
        let names: Vec<_> =
            nearest(name, &found).iter().map(|n| format!("`{}`", plain(n))).collect();
        return Err(EngineError::Usage(format!(
            "data.classes: {stores} has no class `{}`{}; the most similar of its {} classes are {}",
            plain(name),
            if split == Split::Val { ", nor any other class in the list" } else { "" },
            found.len(),
            names.join(", ")
        )));
    }
    // With `data.val_fraction`, the sets are those of training, which were already described.
    let is_new = split == Split::Train || data.val_fraction == 0.0;
    if stores.stores().len() > 1 && is_new {
        progress.say(&table(&stores));
    }
    let contents = stores.contents();
    if !data.classes.is_empty() && is_new {
        let left_out = counted(contents.num_left_out, "object");
        let named: BTreeSet<&String> = data.classes.iter().collect();
        progress.say(&format!(
            "{stores}: using {} of {} classes (data.classes), {left_out} of other classes ignored \
             ({} objects in total)",
            found.iter().filter(|name| named.contains(name)).count(),
            found.len(),
            contents.num_left_out + contents.num_annotations
        ));
    }
    Ok(stores)
}

/// A table with the number of objects of each class in each set. Classes that are missing from some
/// set come first: they may be the same class under two names.
fn table(stores: &Stores) -> String {
    let (contents, by_set) = (stores.contents(), stores.objects_by_class());
    let counts = |label: u32| by_set.iter().map(move |of_set| of_set[label as usize]);
    let mut rows: Vec<_> = contents.categories.iter().collect();
    let has = |label, any: bool| counts(label).any(|count| (count > 0) == any);
    rows.sort_by_key(|class| !(has(class.label, true) && has(class.label, false)));
    let width = rows.iter().take(ROWS).map(|class| class.name.chars().count()).fold(5, usize::max);
    let mut text = format!("{} classes in {} sets", rows.len(), by_set.len());
    for (store, number) in stores.stores().zip(1..) {
        let images = counted(store.len(), "image");
        text += &format!("\n  set {number}: {}, {images}", store.path().display());
    }
    text += &format!("\n  {:width$}", "class");
    (1..=by_set.len()).for_each(|number| text += &format!("  {:>8}", format!("set {number}")));
    for class in rows.iter().take(ROWS) {
        text += &format!("\n  {:width$}", plain(&class.name));
        counts(class.label).for_each(|count| text += &format!("  {count:>8}"));
    }
    if rows.len() > ROWS {
        text += &format!("\n  and {} more classes", rows.len() - ROWS);
    }
    text
}

/// The most similar names, most similar first.
fn nearest<'a>(name: &str, names: &'a BTreeSet<String>) -> Vec<&'a str> {
    let likeness = |other: &str| {
        let [ours, theirs] = [name, other].map(str::to_lowercase);
        (1e6 * strsim::normalized_damerau_levenshtein(&ours, &theirs)) as u32
    };
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_by_key(|other| Reverse(likeness(other)));
    names.truncate(NEAREST);
    names
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn similar_names_sort_first_ignoring_case() {
        let names = ["dog", "Cat", "car", "zebra"].map(str::to_string).into();
        assert_eq!(nearest("cta", &names), ["Cat", "car", "zebra"]);
    }
}
