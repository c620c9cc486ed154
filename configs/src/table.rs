//! The definition of a table: each key with its default and properties, in one place.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The rule for changing a key when a run is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResumeRule {
    /// The key does not affect training: a change is allowed. This includes the location of
    /// training data, whose content is compared by its identity.
    Free,
    /// The key affects training: a change is allowed if the user accepts it.
    Step,
    /// The number of steps: like `Step` if the learning rate depends on it, else like `Free`.
    Length,
    /// The number of classes: like `Step`, unless the resulting number is unchanged.
    Classes,
    /// A setting of the synthetic images: like `Step`, unless the old or the new config reads the
    /// images from files; then the identity of the data is compared.
    Drawing,
    /// The key is only used when a run begins: a change is rejected.
    Start,
    /// State in the checkpoint depends on the key: a change is rejected.
    State,
}

/// The rule of MLPerf's closed division for a key whose value differs from the reference's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MlperfRule {
    /// The key does not change the computation, or the rules do not restrict it.
    Free,
    /// MLPerf has a specific rule for its value, which is checked separately.
    Rule,
    /// It describes the model.
    Model,
    /// It describes data and images.
    Preprocessing,
    /// It determines how quality is measured.
    Quality,
    /// Any other hyperparameter.
    Hyperparameter,
}

/// A struct that `table!` defines.
pub trait Table: Default + Serialize {
    /// The default of each key as TOML; converted through text so that an f32 becomes the decimal
    /// number that a user would write.
    fn defaults() -> BTreeMap<String, String> {
        let text = toml::to_string(&Self::default()).unwrap_or_default();
        let table: toml::Table = text.parse().unwrap_or_default();
        table.into_iter().map(|(name, value)| (name, value.to_string())).collect()
    }
}

/// Defines a table of the config. A field with a default is a key. Its attribute `key` contains, in
/// this order: the value of the table's `kind` for which the key is used (`of`); the limits of a
/// number (`range`), of each number in a list (`each`) or in a table with arbitrary keys
/// (`entries`); the `unit`; and the rules for changing the value when a run is resumed
/// ([`ResumeRule`]) and under MLPerf's rules ([`MlperfRule`]). A field without a default is an
/// inner table. A crate that uses the macro must depend on `schemars`, `serde` and `serde_json`.
#[macro_export]
macro_rules! table {
    (
        $(#[doc = $about:tt])*
        pub struct $table:ident {
            $(
                $(#[doc = $doc:tt])*
                $(#[key(
                    $(of = $of:literal,)?
                    $(range = $min:literal..=$max:expr,)?
                    $(each = $least:literal..=$most:expr,)?
                    $(entries = $low:literal..=$high:expr,)?
                    $(unit = $unit:literal,)?
                    resume = $resume:ident,
                    mlperf = $mlperf:ident
                )])?
                pub $field:ident: $type:ty $(= $default:expr)?,
            )*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[derive(schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        #[schemars(extend("defaults" = <$table as $crate::Table>::defaults()))]
        pub struct $table {
            $(
                $(#[doc = $doc])*
                $(#[schemars(
                    $(range(min = $min, max = $max),)?
                    $(inner(range(min = $least, max = $most)),)?
                    extend(
                        $("of" = $of,)?
                        $("entries" = serde_json::json!({ "minimum": $low, "maximum": $high }),)?
                        $("unit" = $unit,)?
                        "resume" = $crate::ResumeRule::$resume,
                        "mlperf" = $crate::MlperfRule::$mlperf,
                    )
                )])?
                pub $field: $type,
            )*
        }

        impl Default for $table {
            fn default() -> Self {
                Self { $($field: $crate::table!(@ $type $(, $resume $default)?),)* }
            }
        }

        impl $crate::Table for $table {}
    };
    // Matches `resume`, so that a field with a default but without the attribute `key` does not
    // compile.
    (@ $type:ty, $resume:ident $default:expr) => { $default };
    (@ $type:ty) => { <$type as ::std::default::Default>::default() };
}
