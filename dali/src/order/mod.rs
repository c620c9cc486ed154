//! The image order: a pure function of (seed, epoch), divided into global batches of one padded
//! shape each.
//!
//! **Invariant**: nothing here depends on ranks or on earlier calls. Every rank that requests a
//! step gets the same batch, and resuming needs only the step number.

mod batches;
mod resize;
mod shapes;

pub use batches::{Batch, DrawnSizes, Order, SizeOf};
pub use resize::resized_size;
pub(crate) use shapes::least_waste;
pub use shapes::{PaddedShape, choose_oriented_shapes, choose_shapes};

/// Why no order exists.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// There is nothing to order.
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
        /// The image, by index in the store.
        index: usize,
        /// Its height after resizing, in pixels.
        height: u32,
        /// Its width after resizing, in pixels.
        width: u32,
        /// The available shapes.
        shapes: String,
    },
}
