//! How much of a model a file is to fill.

use super::names::BODY;
use crate::model::{Param, depends_on_classes};

/// The part of a model that a file is to fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The body of the backbone and nothing else: from a classifier, or from a whole detector.
    Backbone,
    /// The whole model.
    Model,
    /// The whole model except for what depends on its classes, as the file's are others.
    AllButClasses,
}

impl Extent {
    /// True if a parameter is to be filled.
    pub(super) fn holds(self, param: &Param) -> bool {
        match self {
            Extent::Backbone => param.name.starts_with(BODY),
            Extent::Model => true,
            Extent::AllButClasses => !depends_on_classes(&param.name, &param.shape),
        }
    }
}
