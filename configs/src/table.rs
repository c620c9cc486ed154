//! The definition of a table: each key with its default and properties, in one place.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The rule for changing a key when a run is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResumeRule {
    /// It does not affect training: allowed. This includes the location of training data: its
    /// content has an identity.
    Free,
    /// It affects training: only if the user accepts it.
    Step,
    /// The number of steps: as for `Step`, if the learning rate depends on it.
    Length,
    /// The number of classes: as for `Step`, unless it is the same number given differently.
    Classes,
    /// A setting of the synthetic images: as for `Step`, unless files replace them, whose identity
    /// is compared.
    Drawing,
    /// It is only read when a run begins: not allowed.
    Start,
    /// The checkpoint has state that depends on it: not allowed.
    State,
}

/// The rule of MLPerf's closed division for a key that differs from the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MlperfRule {
    /// It does not change the computation, or the rules do not restrict it.
    Free,
    /// A specific rule checks its value.
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
    /// The default of each key as TOML; converted through text, so that an f32 is the number that a
    /// user would write.
    fn defaults() -> BTreeMap<String, String> {
        let text = toml::to_string(&Self::default()).unwrap_or_default();
        let table: toml::Table = text.parse().unwrap_or_default();
        table.into_iter().map(|(name, value)| (name, value.to_string())).collect()
    }
}

/// Defines a table of the config. A field with a default is a key; its attribute `key` has, in this
/// order, the value of the table's `kind` that it belongs to (`of`), the limits of a number
/// (`range`), of each number in a list (`each`) or in a table with arbitrary keys (`entries`), the
/// `unit`, and the rules for changing it when a run is resumed ([`ResumeRule`]) and under MLPerf's
/// rules ([`MlperfRule`]). A field without a default is an inner table. The crate that uses it must
/// depend on `schemars`, `serde` and `serde_json`.
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
