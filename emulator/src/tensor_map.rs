//! Tensor maps, which `cuTensorMapEncodeTiled` writes and tile copies read. NVIDIA's format is
//! undocumented; this format is specific to the emulated driver.

/// Number of 64-bit words in a map.
pub(crate) const WORDS: usize = 16;
/// Maximum number of dimensions, and maximum extent of a tile in each dimension.
const MAX_RANK: usize = 5;
const MAX_BOX: u32 = 256;
/// Exclusive upper bound of a tensor's strides in bytes.
const MAX_STRIDE: u64 = 1 << 40;
const MAX_EXTENT: u64 = 1 << 32;
/// Magic number at the start of a map.
const MAGIC: u64 = 0x7469_6c65_2d6d_6170;
/// Bytes of each element type, indexed by CUDA's type number, and the first floating-point type.
const ELEMENTS: [u64; 13] = [1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4];
const FIRST_FLOAT: usize = 6;

/// A tensor in global memory, and the shape of its tiles. The innermost dimension is first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorMap {
    pub(crate) address: u64,
    /// CUDA's number of the element type.
    pub(crate) kind: usize,
    pub(crate) extents: Vec<u64>,
    /// Strides in bytes of all dimensions but the first.
    pub(crate) strides: Vec<u64>,
    pub(crate) tile: Vec<u32>,
    /// Swizzle size in 16-byte pieces: 1, 2, 4 or 8.
    pub(crate) pieces: usize,
    /// True if elements outside of the tensor are NaN instead of 0.
    pub(crate) fills_nan: bool,
}

impl TensorMap {
    /// Bytes per element.
    pub(crate) fn element(&self) -> u64 {
        ELEMENTS.get(self.kind).copied().unwrap_or(1)
    }

    /// Describes the first value that the CUDA driver API ("Tensor Map Object Management") does not
    /// allow.
    pub(crate) fn fault(&self) -> Option<String> {
        let rank = self.extents.len();
        if !(1..=MAX_RANK).contains(&rank) || self.kind >= ELEMENTS.len() {
            return Some(format!("rank {rank}, element type {}", self.kind));
        }
        if self.address == 0 || !self.address.is_multiple_of(16) {
            return Some(format!("the address {:#x} is not a multiple of 16", self.address));
        }
        let is_extent = |extent: &u64| (1..=MAX_EXTENT).contains(extent);
        if let Some(extent) = self.extents.iter().find(|extent| !is_extent(extent)) {
            return Some(format!("an extent of {extent}"));
        }
        let mut least = self.extents[0] * self.element();
        for (stride, extent) in self.strides.iter().zip(&self.extents[1..]) {
            if stride % 16 != 0 || *stride >= MAX_STRIDE || *stride < least {
                return Some(format!("a stride of {stride} bytes (minimum {least}, 16-aligned)"));
            }
            least = stride.saturating_mul(*extent);
        }
        if let Some(bad) = self.tile.iter().find(|count| !(1..=MAX_BOX).contains(*count)) {
            return Some(format!("a tile of {bad} elements"));
        }
        let (line, most) = (u64::from(self.tile[0]) * self.element(), 16 * self.pieces as u64);
        if line % 16 != 0 {
            return Some(format!("a tile's line of {line} bytes, not a multiple of 16"));
        }
        if self.pieces > 1 && line > most {
            return Some(format!("a tile's line of {line} bytes, more than the swizzle's {most}"));
        }
        if self.fills_nan && self.kind < FIRST_FLOAT {
            return Some("integers that are filled with NaN".into());
        }
        None
    }

    pub(crate) fn encode(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let flags = self.extents.len() | self.kind << 8 | self.pieces << 16;
        words[..2].copy_from_slice(&[MAGIC, self.address]);
        words[2] = flags as u64 | u64::from(self.fills_nan) << 24;
        for (i, extent) in self.extents.iter().enumerate() {
            words[3 + i] = *extent;
            words[12 + i / 2] |= u64::from(self.tile[i]) << (32 * (i % 2));
        }
        words[8..8 + self.strides.len()].copy_from_slice(&self.strides);
        words
    }

    /// The map in these bytes; `None` if [`TensorMap::encode`] did not write them.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |i: usize| {
            bytes
                .get(8 * i..8 * i + 8)
                .and_then(|b| b.try_into().ok())
                .map_or(0, u64::from_le_bytes)
        };
        let (rank, flags) = ((word(2) & 0xff) as usize, word(2));
        if word(0) != MAGIC || !(1..=MAX_RANK).contains(&rank) {
            return None;
        }
        Some(Self {
            address: word(1),
            kind: (flags >> 8 & 0xff) as usize,
            extents: (0..rank).map(|i| word(3 + i)).collect(),
            strides: (1..rank).map(|i| word(7 + i)).collect(),
            tile: (0..rank).map(|i| (word(12 + i / 2) >> (32 * (i % 2))) as u32).collect(),
            pieces: (flags >> 16 & 0xff) as usize,
            fills_nan: flags >> 24 & 1 != 0,
        })
    }
}
