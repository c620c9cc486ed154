//! Random mutations of inputs: bits, bytes, numbers in binary and in text, moved fragments.

/// SplitMix64: the same seed gives the same inputs.
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 for 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Typical edge cases: zero, the limits of integer types, and beyond.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    127,
    255,
    32_767,
    65_535,
    65_536,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    (1 << 63) - 1,
    u64::MAX,
];

/// Edge cases as text, including values that only text can express.
const WORDS: [&str; 20] = [
    "0",
    "-1",
    "1e308",
    "-1e308",
    "1e999",
    "0.5",
    "4294967296",
    "18446744073709551616",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "NaN",
    "-0",
    "1e-320",
    "9223372036854775808",
    "\"../x\"",
    "[[]]",
    "2147483648",
];

/// Longer inputs are truncated, because reading them would take most of the time.
const MAX_BYTES: usize = 1 << 17;

/// One to four changes to `bytes`; `other` supplies fragments.
pub(crate) fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(4) {
        change(bytes, other, random);
    }
    bytes.truncate(MAX_BYTES);
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let len = bytes.len();
    let at = random.below(len);
    let piece = |len: usize, random: &mut Random| {
        let from = random.below(len);
        from..len.min(from + 1 + random.below(64))
    };
    match random.below(12) {
        0 if len > 0 => bytes[at] ^= 1 << random.below(8),
        1 if len > 0 => bytes[at] = random.below(256) as u8,
        2 => bytes.insert(at, random.below(256) as u8),
        3 if len > 0 => drop(bytes.drain(piece(len, random))),
        4 if len > 0 => {
            let again = bytes[piece(len, random)].to_vec();
            bytes.splice(at..at, again);
        }
        5 if !other.is_empty() => {
            let lent = other[piece(other.len(), random)].to_vec();
            bytes.splice(at..at, lent);
        }
        6 => bytes.truncate(at),
        7 | 8 => binary_number(bytes, at, random),
        _ => text_number(bytes, at, random),
    }
}

/// Writes a number of 1 to 8 bytes in either byte order.
fn binary_number(bytes: &mut [u8], at: usize, random: &mut Random) {
    let number = NUMBERS[random.below(NUMBERS.len())];
    let size = 1 << random.below(4);
    let (little, big) = (number.to_le_bytes(), number.to_be_bytes());
    let value = if random.below(2) == 0 { &little[..size] } else { &big[8 - size..] };
    if let Some(to) = bytes.get_mut(at..at + size) {
        to.copy_from_slice(value);
    }
}

/// Replaces the first number in the text after `at` by one of [`WORDS`].
fn text_number(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let is_part = |byte: &u8| byte.is_ascii_digit() || b".-+eE".contains(byte);
    let Some(from) = bytes[at..].iter().position(u8::is_ascii_digit).map(|skip| at + skip) else {
        return;
    };
    let end =
        bytes[from..].iter().position(|byte| !is_part(byte)).map_or(bytes.len(), |n| from + n);
    let word = WORDS[random.below(WORDS.len())];
    bytes.splice(from..end, word.bytes());
}
