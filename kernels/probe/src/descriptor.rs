//! Where an operand of wgmma lies in shared memory: the 64-bit descriptor, and the swizzle.
//!
//! As the PTX ISA (8.2, "Asynchronous warpgroup level matrix instructions", shared memory matrix
//! layout and matrix-descriptor format) gives them. Not verified on hardware: that is what
//! [`crate::identity`] is for.

/// How 16-byte chunks are crossed within a repeating pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Not at all: matrices of 8 rows of 16 bytes, each 128 bytes in one piece.
    None,
    /// Lines of 128 bytes, in patterns of 8.
    Swizzle128,
    /// Lines of 64 bytes, in patterns of 8.
    Swizzle64,
    /// Lines of 32 bytes, in patterns of 8.
    Swizzle32,
}

impl Layout {
    /// Bytes of a line.
    pub fn line_bytes(self) -> usize {
        match self {
            Layout::None => 16,
            Layout::Swizzle128 => 128,
            Layout::Swizzle64 => 64,
            Layout::Swizzle32 => 32,
        }
    }

    /// Bits 62-63 of a descriptor.
    fn code(self) -> u64 {
        match self {
            Layout::None => 0,
            Layout::Swizzle128 => 1,
            Layout::Swizzle64 => 2,
            Layout::Swizzle32 => 3,
        }
    }

    /// Where byte `offset` of memory aligned to 1,024 bytes is really kept. Address bits from 4 on
    /// are crossed with those from 7 on: three of them, two, one, or none.
    pub fn place(self, offset: usize) -> usize {
        let bits = match self {
            Layout::None => 0,
            Layout::Swizzle128 => 0b111,
            Layout::Swizzle64 => 0b011,
            Layout::Swizzle32 => 0b001,
        };
        offset ^ ((offset >> 7 & bits) << 4)
    }
}

/// A descriptor without the address, which the kernel adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// The swizzle.
    pub layout: Layout,
    /// Leading dimension byte offset, a multiple of 16.
    pub leading_bytes: usize,
    /// Stride dimension byte offset, a multiple of 16.
    pub stride_bytes: usize,
}

impl Descriptor {
    /// The 64 bits: address / 16 in bits 0-13 (here 0), leading offset / 16 in 16-29, stride offset
    /// / 16 in 32-45, base offset in 49-51 (0: patterns begin at multiples of their length),
    /// swizzle in 62-63. Panics for offsets that do not fit.
    pub fn bits(&self) -> u64 {
        let field = |bytes: usize| {
            assert!(bytes.is_multiple_of(16) && bytes >> 4 < 1 << 14, "an offset of {bytes} bytes");
            (bytes >> 4) as u64
        };
        field(self.leading_bytes) << 16 | field(self.stride_bytes) << 32 | self.layout.code() << 62
    }
}

/// The operands of the wgmma variants: rows whose values of k lie side by side, in one line of the
/// swizzle. Eight lines are a pattern, and patterns follow one another; the leading offset is not
/// used, as no row is longer than a line.
pub fn hopper_operand(layout: Layout) -> Descriptor {
    Descriptor { layout, leading_bytes: 16, stride_bytes: 8 * layout.line_bytes() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked out by hand from the format's table: 16 / 16 = 1 at bit 16; 1,024 / 16 = 64 = 0x40 at
    /// bit 32; swizzle 1 at bit 62.
    #[test]
    fn the_bits_of_a_descriptor_are_where_the_isa_puts_them() {
        assert_eq!(hopper_operand(Layout::Swizzle128).bits(), 0x4000_0040_0001_0000);
        assert_eq!(hopper_operand(Layout::Swizzle64).bits(), 0x8000_0020_0001_0000);
        assert_eq!(hopper_operand(Layout::Swizzle32).bits(), 0xC000_0010_0001_0000);
        let none = |leading_bytes, stride_bytes| {
            Descriptor { layout: Layout::None, leading_bytes, stride_bytes }.bits()
        };
        assert_eq!(none(0, 0), 0);
        // 2,048 / 16 = 128, 128 / 16 = 8.
        assert_eq!(none(2048, 128), 0x0000_0008_0080_0000);
        // The largest that fit: 14 bits of ones in each field, 13 zeros and two fields of 2
        // between.
        assert_eq!(none(0x3fff << 4, 0x3fff << 4), 0x0000_3fff_3fff_0000);
    }

    #[test]
    #[should_panic(expected = "an offset of 262144 bytes")]
    fn an_offset_that_does_not_fit_is_refused() {
        Descriptor { layout: Layout::None, leading_bytes: 1 << 18, stride_bytes: 0 }.bits();
    }

    /// By hand: byte 0x90 is line 1 (128 bytes each), chunk 1: chunk 1 ^ 1 = 0, so 0x80. Byte 0x3f4
    /// is line 7, chunk 7, byte 4: chunk 0, so 0x384. Line 8 begins a pattern anew.
    #[test]
    fn chunks_are_crossed_by_their_line() {
        let wide = |offset| Layout::Swizzle128.place(offset);
        assert_eq!([0x00, 0x70, 0x90, 0x3f4, 0x400].map(wide), [0x00, 0x70, 0x80, 0x384, 0x400]);
        // Lines of 64: bit 7 is the pair of lines. Line 2 (0x80), chunk 0 goes to chunk 1.
        let middle = |offset| Layout::Swizzle64.place(offset);
        assert_eq!([0x40, 0x80, 0x1c0, 0x200].map(middle), [0x40, 0x90, 0x1f0, 0x200]);
        // Lines of 32: line 4 (0x80), chunk 0 goes to chunk 1.
        let narrow = |offset| Layout::Swizzle32.place(offset);
        assert_eq!([0x60, 0x80, 0x90, 0x100].map(narrow), [0x60, 0x90, 0x80, 0x100]);
        assert_eq!(Layout::None.place(0x3f4), 0x3f4);
    }

    /// What the kernels' copies write (`SwizzledRows` of wgmma_loop.cuh: chunk ^ line & 7) is the
    /// swizzle of 128 bytes.
    #[test]
    fn the_kernels_place_chunks_as_the_swizzle_does() {
        for line in 0..256usize {
            for chunk in 0..8usize {
                let kernel = line * 128 + ((chunk ^ line) & 7) * 16;
                assert_eq!(Layout::Swizzle128.place(line * 128 + chunk * 16), kernel);
            }
        }
    }
}
