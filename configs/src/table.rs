//! The form of a table: each key with its default and the facts about it, in one place.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The rule for a change of a key when a run resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResumeRule {
    /// It does not reach a step: it may. Where training data is counts as this: its content has an
    /// identity.
    Free,
    /// It changes what a step means: only if the user accepts it.
    Step,
    /// The number of steps: as for `Step`, where the learning rate depends on it.
    Length,
    /// The number of classes: as for `Step`, unless it is the same in another form.
    Classes,
    /// A setting of the synthetic images: as for `Step`, unless files replace it, whose identity is
    /// compared.
    Drawing,
    /// It is read only when a run begins: it may not.
    Start,
    /// The checkpoint holds state that depends on it: it may not.
    State,
}

/// The rule of MLPerf's closed division for a key that differs from the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MlperfRule {
    /// It does not change what a run computes, or the rules leave it free.
    Free,
    /// A specific rule checks its value.
    Rule,
    /// It describes the model.
    Model,
    /// It describes data and images.
    Preprocessing,
    /// It decides how quality is measured.
    Quality,
    /// Any other hyperparameter.
    Hyperparameter,
}

/// A struct that `table!` defines.
pub trait Table: Default + Serialize {
    /// The default of each key as TOML; by way of text, so that an f32 is the number that a user
    /// would write.
    fn defaults() -> BTreeMap<String, String> {
        let text = toml::to_string(&Self::default()).unwrap_or_default();
        let table: toml::Table = text.parse().unwrap_or_default();
        table.into_iter().map(|(name, value)| (name, value.to_string())).collect()
    }
}

/// Defines a table of the config. A field with a default is a key; its attribute `key` gives, in
/// this order, the word of the table's `kind` that it belongs to (`of`), the limits of a number
/// (`range`), of each number of a list (`each`) or of a table of any keys (`entries`), the `unit`,
/// and what a change of it means when a run resumes ([`ResumeRule`]) and by MLPerf's rules
/// ([`MlperfRule`]). A field without a default is an inner table. The crate that uses it depends on
/// `schemars`, `serde` and `serde_json`.
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
    // With `resume`, so that a default without the attribute does not compile.
    (@ $type:ty, $resume:ident $default:expr) => { $default };
    (@ $type:ty) => { <$type as ::std::default::Default>::default() };
}
