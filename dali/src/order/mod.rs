//! The order of images: a pure function of seed and epoch, divided into global batches. All images
//! of a batch have the same padded shape.
//!
//! **Invariant**: the order does not depend on ranks or on earlier calls. Every rank gets the same
//! batch for a step, and a resumed run needs only the step number.

mod batches;
mod resize;
mod shapes;

pub use batches::{Batch, DrawnSizes, Order, SizeOf};
pub use resize::resized_size;
pub(crate) use shapes::least_waste;
pub use shapes::{PaddedShape, choose_oriented_shapes, choose_shapes};

/// Why there is no valid order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// There are no images.
    #[error("there are no images to train on; prepare a store that has some")]
    NoImages,
    /// The batch size is 0.
    #[error("the batch size is 0, expected 1 or more images")]
    NoBatch,
    /// An image is larger than every padded shape.
    #[error(
        "image {index} of {height}x{width} (height x width, resized) fits none of the padded \
         shapes {shapes}; choose the shapes for these sizes"
    )]
    NoShape {
        /// Index of the image in the store.
        index: usize,
        /// Height of the image after resizing, in pixels.
        height: u32,
        /// Width of the image after resizing, in pixels.
        width: u32,
        /// The available shapes.
        shapes: String,
    },
}
