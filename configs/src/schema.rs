//! The schema of a config: the shape of its tables, its keys, and the names of the keys in other
//! projects.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;

use crate::keys::{Key, is_short_for, keys_of, table_of};
use crate::shape::Shape;

/// Minimum similarity (0 to 1) of a suggested key.
const MIN_SIMILARITY: f64 = 0.5;
/// Maximum amount by which a suggested key may be less similar than the best match.
const MAX_DISTANCE: f64 = 0.3;
/// Maximum number of keys that [`Schema::similar`] suggests.
const MAX_SUGGESTIONS: usize = 5;

/// Properties of a config's keys that the definitions of its tables do not contain.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Names used in other projects, each with the corresponding key or an explanation of why there
    /// is none.
    pub synonyms: &'static [(&'static [&'static str], &'static str)],
    /// Pairs of alternative keys for one value: a layer that sets one key of a pair unsets the
    /// other.
    pub forms: &'static [[&'static str; 2]],
    /// Obsolete keys of earlier versions, which are ignored, and why they were removed.
    pub removed: &'static [(&'static str, &'static str)],
}

/// The schema of a config.
#[derive(Debug)]
pub struct Schema {
    pub(crate) shape: Shape,
    pub(crate) facts: Facts,
    keys: Vec<Key>,
}

/// The key for a name that other projects use, or the reason why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synonym {
    /// The key of this name.
    Key(&'static str),
    /// There is no corresponding key, for this reason.
    NoKey(&'static str),
}

impl Schema {
    /// The schema of a config of this type.
    pub fn of<C: DeserializeOwned + JsonSchema>(facts: Facts) -> Self {
        let settings = SchemaSettings::draft2020_12();
        let generator = settings.with(|s| s.inline_subschemas = true).into_generator();
        let shape = Shape::of::<C>();
        let keys = keys_of(generator.into_root_schema_for::<C>().as_value(), &shape);
        Self { shape, facts, keys }
    }

    /// Every key, in the order of the tables; the keys of a table precede those of its inner
    /// tables.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The key of this name.
    pub fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// Keys of a table and of its inner tables; none if there is no table of this name.
    pub fn keys_of_table(&self, name: &str) -> impl Iterator<Item = &Key> {
        let table = format!("{name}.");
        self.keys.iter().filter(move |key| key.name.starts_with(&table))
    }

    /// Keys that a mistyped, partial or abbreviated name may mean, most likely first.
    pub fn similar(&self, name: &str) -> Vec<&str> {
        let last = |key: &str| key.rsplit('.').next().unwrap_or(key).to_string();
        let asked = last(name);
        let alike = |key: &str| {
            let whole = strsim::normalized_damerau_levenshtein(name, key);
            let part = strsim::normalized_damerau_levenshtein(name, &last(key));
            let holds = if asked.len() > 2 && last(key).contains(&asked) { 0.9 } else { 0.0 };
            let is_short = is_short_for(&asked, &last(key)) && key.starts_with(table_of(name));
            whole.max(part).max(holds).max(if is_short { 1.0 } else { 0.0 })
        };
        let scored = self.keys.iter().map(|key| (alike(&key.name), key.name.as_str()));
        let mut scored: Vec<_> = scored.filter(|(alike, _)| *alike >= MIN_SIMILARITY).collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        // If one match is much better, the others are not suggested.
        let best = scored.first().map_or(0.0, |(best, _)| *best);
        scored.retain(|(alike, _)| best - alike <= MAX_DISTANCE);
        scored.into_iter().take(MAX_SUGGESTIONS).map(|(_, key)| key).collect()
    }

    /// The counterpart of a name (without its table) from other projects; `None` if the name is
    /// unknown.
    pub fn synonym(&self, name: &str) -> Option<Synonym> {
        let (_, answer) = self.facts.synonyms.iter().find(|(names, _)| names.contains(&name))?;
        Some(match self.key(answer) {
            Some(_) => Synonym::Key(answer),
            None => Synonym::NoKey(answer),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, unreachable_pub)]

    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::table;

    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Kind {
        /// The first.
        FirstWord,
        /// The other.
        Second,
    }

    table! {
        /// An inner table.
        pub struct Inner {
            /// A share.
            #[key(range = 0.0..=1.0, unit = "share", resume = Step, mlperf = Model)]
            pub share: f32 = 0.1,
        }
    }

    table! {
        /// A table.
        pub struct Outer {
            /// A count.
            #[key(range = 1..=9, resume = Free, mlperf = Free)]
            pub count: usize = 3,
            /// A word.
            #[key(resume = Start, mlperf = Rule)]
            pub kind: Kind = Kind::FirstWord,
            /// A name.
            #[key(resume = Free, mlperf = Free)]
            pub name: Option<String> = None,
            /// Three numbers.
            #[key(each = 0.0..=255.0, resume = Step, mlperf = Model)]
            pub mean: [f32; 3] = [0.5, 1.0, 0.25],
            /// A table that may be absent.
            #[key(resume = Free, mlperf = Free)]
            pub maybe: Option<Inner> = None,
            /// Tables.
            #[key(resume = Free, mlperf = Free)]
            pub list: Vec<Inner> = vec![],
            /// A table.
            pub inner: Inner,
        }
    }

    #[test]
    fn every_field_type_has_a_schema() {
        let schema = Schema::of::<Outer>(Facts { synonyms: &[], forms: &[], removed: &[] });
        let keys = schema.keys().iter().map(|key| {
            let Key { name, kind, default, resume, in_list, .. } = key;
            format!("{name}: {kind}: {default}: {resume:?} {in_list}")
        });
        let words = "one of \"first_word\", \"second\": \"first_word\": Start false";
        let expected = [
            "count: an integer, at least 0: 3: Free false",
            &format!("kind: {words}"),
            "name: a quoted string, or \"none\": \"none\": Free false",
            "mean: a list of 3 numbers: [0.5, 1.0, 0.25]: Step false",
            "maybe: a table, or \"none\": \"none\": Free false",
            "list: a list of tables of share: []: Free false",
            "maybe.share: a number: 0.1: Step false",
            "list.share: a number: 0.1: Step true",
            "inner.share: a number: 0.1: Step false",
        ];
        assert_eq!(keys.collect::<Vec<_>>(), expected);
        assert_eq!(schema.key("inner.share").unwrap().values(), "a number, 0 to 1");
        assert_eq!(schema.key("kind").unwrap().words[1], ("second".into(), "The other.".into()));
        let defaults = crate::to_toml(&Outer::default()).unwrap();
        assert!(defaults.starts_with("count = 3\nkind = \"first_word\"\n"), "{defaults}");
    }
}
