//! Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011).
//!
//! A number is a pure function of key and counter, so it is the same on every device and on any
//! number of ranks, and resuming a run needs no stored state.

const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words from `key` and `counter`.
pub fn philox4x32(mut key: [u32; 2], mut counter: [u32; 4]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let p0 = u64::from(MULTIPLIER[0]) * u64::from(counter[0]);
        let p1 = u64::from(MULTIPLIER[1]) * u64::from(counter[2]);
        counter = [
            (p1 >> 32) as u32 ^ counter[1] ^ key[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ counter[3] ^ key[1],
            p0 as u32,
        ];
    }
    counter
}

/// The purpose of a random number, so that an image has independent numbers for each purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// Horizontal flip of the image.
    Flip = 1,
    /// Sampling of anchors for the RPN losses.
    Anchors = 2,
    /// Sampling of RoIs for the RoI heads.
    Rois = 3,
    /// Network input size of the image, and the part of it that is cropped.
    Scale = 4,
    /// Window of the source.
    Crop = 5,
    /// Ratio of the image's sides.
    Aspect = 6,
    /// Vertical flip of the image.
    VerticalFlip = 7,
    /// Colours of the image.
    Colour = 8,
    /// Rotation of the image by a multiple of 90 degrees.
    QuarterTurn = 9,
    /// Stochastic depth: dropping a residual branch for the image.
    Depth = 10,
}

/// A random word keyed by (seed, epoch, image, purpose, index). `image_key` is a row of the
/// loader's `image_keys`: image id (low, high word), store index, epoch.
pub fn keyed(seed: u64, image_key: &[i32], purpose: Purpose, index: u32) -> u32 {
    let key = [seed as u32 ^ (image_key[3] as u32).rotate_left(16), (seed >> 32) as u32];
    let counter = [index, purpose as u32, image_key[0] as u32, image_key[1] as u32];
    philox4x32(key, counter)[0]
}

#[cfg(test)]
mod tests {
    use super::philox4x32;

    /// Known answers of Random123's kat_vectors for philox4x32-10.
    #[test]
    fn philox_matches_published_vectors() {
        let ones = u32::MAX;
        assert_eq!(
            philox4x32([0, 0], [0, 0, 0, 0]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32([ones, ones], [ones, ones, ones, ones]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
    }
}
