//! The data pipeline against files: prep, store, loader, synthetic set, and real COCO images.
#![allow(clippy::unwrap_used)]

mod bombs;
mod coco_open;
mod fixture;
mod formats;
mod formats_mistakes;
mod formats_readers;
mod keypoints;
mod loader;
mod places;
mod prep_annotations;
mod prep_images;
mod store;
mod stores;
mod synthetic;
