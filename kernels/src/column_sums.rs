//! CUDA launches that sum over the rows of a matrix: first within chunks of rows, then over the
//! chunks' sums.

use device::{Arg, Buffer, Launch};

/// Vectors of adjacent columns (8 or 1) per thread block; as in `vector.cuh`.
const TILE: usize = 32;
/// Minimum rows per chunk: with far fewer rows, the second pass would read as much as the first.
const MIN_CHUNK: usize = 64;
/// Maximum number of chunks, which fills the largest GPU and keeps the second pass short.
const MAX_CHUNKS: usize = 512;

/// The division of a matrix into chunks of rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunks {
    pub rows: usize,
    pub width: usize,
    /// Rows of a chunk.
    pub chunk: usize,
}

impl Chunks {
    pub(crate) fn of(rows: usize, width: usize) -> Self {
        Self { rows, width, chunk: rows.div_ceil(MAX_CHUNKS).max(MIN_CHUNK) }
    }

    /// A matrix whose rows already are sums of chunks.
    pub(crate) fn of_sums(rows: usize, width: usize) -> Self {
        Self { rows, width, chunk: 1 }
    }

    fn count(&self) -> usize {
        self.rows.div_ceil(self.chunk)
    }

    /// Bytes of the sums of all chunks.
    pub(crate) fn bytes(&self) -> usize {
        self.count() * self.width * size_of::<f32>()
    }

    /// The launch that sums each chunk, without arguments. It uses the kernel `wide`, for vectors
    /// of 8 columns, if the width is a multiple of 8, else `narrow`.
    pub(crate) fn launch(&self, [wide, narrow]: [&'static str; 2]) -> Launch {
        let Self { rows, chunk, .. } = *self;
        assert!(i32::try_from(rows + chunk).is_ok(), "{rows} rows do not fit an int");
        let fits = self.width.is_multiple_of(8);
        let (kernel, vector) = if fits { (wide, 8) } else { (narrow, 1) };
        Launch::new(kernel, [self.count(), (self.width / vector).div_ceil(TILE), 1])
    }

    /// Adds the arguments: rows, columns, and rows per chunk.
    pub(crate) fn sizes(&self, launch: Launch) -> Launch {
        launch.int(self.rows).int(self.width).int(self.chunk)
    }

    /// The launch that adds the sums of all chunks.
    pub(crate) fn total(&self, partial: Arg, out: Buffer<'_>) -> Launch {
        let launch = Self::total_of(partial, Arg::Null, out, self.width);
        launch.int(self.rows).int(1).int(self.width).int(self.chunk)
    }

    /// [`Self::total`] with a device-side count of used rows, and without the size arguments.
    pub(crate) fn total_of(partial: Arg, count: Arg, out: Buffer<'_>, width: usize) -> Launch {
        let launch = Launch::new("bias_grad_total", [width.div_ceil(32), 1, 1]);
        launch.arg(partial).arg(count).arg(out.write())
    }
}
