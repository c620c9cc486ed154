//! The parts of a model that a weights file must contain.

use super::names::BODY;
use crate::model::{Param, depends_on_classes};

/// The part of a model that a weights file must contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Only the backbone: from a classifier, or from a complete detector.
    Backbone,
    /// The whole model.
    Model,
    /// The complete model except the parameters that depend on its classes, as the file's classes
    /// are different.
    AllButClasses,
}

impl Extent {
    /// True if a parameter must be filled.
    pub(super) fn holds(self, param: &Param) -> bool {
        match self {
            Extent::Backbone => param.name.starts_with(BODY),
            Extent::Model => true,
            Extent::AllButClasses => !depends_on_classes(&param.name, &param.shape),
        }
    }
}
