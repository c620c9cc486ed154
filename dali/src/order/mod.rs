//! The order of images.
