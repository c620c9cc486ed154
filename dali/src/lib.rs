//! The data pipeline of onegraph, host only: from COCO files to batches, and from detections back
//! to scores.

pub mod order;
pub mod score;
