//! Chooses the padded shapes that minimize padding on a data set.

/// A shape to which all images of a batch are padded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PaddedShape {
    /// Rows, in pixels.
    pub height: usize,
    /// Columns, in pixels.
    pub width: usize,
}

impl PaddedShape {
    /// Pixels of the shape.
    #[must_use]
    pub fn area(self) -> usize {
        self.height.saturating_mul(self.width)
    }

    /// True if an image or shape of this size fits.
    #[must_use]
    pub fn holds(self, height: usize, width: usize) -> bool {
        height <= self.height && width <= self.width
    }
}

impl std::str::FromStr for PaddedShape {
    type Err = String;

    /// Parses `HEIGHTxWIDTH`, the format of [`Display`](std::fmt::Display).
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not HEIGHTxWIDTH, such as 800x1344");
        let (height, width) = text.split_once('x').ok_or_else(wrong)?;
        let side = |text: &str| text.parse().ok().filter(|n| *n > 0).ok_or_else(wrong);
        Ok(Self { height: side(height)?, width: side(width)? })
    }
}

impl std::fmt::Display for PaddedShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.height, self.width)
    }
}

/// Chooses up to `k_per_orientation` shapes per orientation that minimize the total padded area, if
/// each image is padded to the smallest shape of its orientation in which it fits. The result has
/// the landscape shapes first, then the portrait shapes; within an orientation each shape contains
/// the previous one. Square images count as landscape.
///
/// An orientation without images has no shape. A `k_per_orientation` of 0 counts as 1.
///
/// # Shapes
/// `sizes`: height and width of each image after resizing.
///
/// # Panics
/// If `divisor` is 0.
#[must_use]
pub fn choose_shapes(
    sizes: &[(u32, u32)],
    k_per_orientation: usize,
    divisor: usize,
) -> Vec<PaddedShape> {
    let oriented: Vec<_> = sizes.iter().map(|&(h, w)| (h > w, (h, w))).collect();
    choose_oriented_shapes(&oriented, k_per_orientation, divisor).concat()
}

/// Like [`choose_shapes`], but the orientation is given: an image counts as portrait if its first
/// value is true, regardless of its size. Returns the landscape and the portrait shapes.
///
/// # Panics
/// If `divisor` is 0.
#[must_use]
pub fn choose_oriented_shapes(
    sizes: &[(bool, (u32, u32))],
    k_per_orientation: usize,
    divisor: usize,
) -> [Vec<PaddedShape>; 2] {
    assert!(divisor > 0, "choose_shapes: the divisor of padded sides is 0");
    let up = |side: u32| (side as usize).div_ceil(divisor).saturating_mul(divisor);
    [false, true].map(|portrait| {
        let of = sizes.iter().filter(|(is_portrait, _)| *is_portrait == portrait);
        let sides = of.map(|&(_, (h, w))| if portrait { (up(h), up(w)) } else { (up(w), up(h)) });
        let (chosen, _) = least_waste(sides.collect(), k_per_orientation.max(1));
        let shape = |(long, short)| match portrait {
            false => PaddedShape { height: short, width: long },
            true => PaddedShape { height: long, width: short },
        };
        chosen.into_iter().map(shape).collect()
    })
}

/// A candidate long side of a shape.
struct Candidate {
    long: usize,
    /// The largest short side of images whose long side is at most `long`, so that shapes are
    /// nested.
    short: usize,
    /// Number of images whose long side is at most `long`.
    images_up_to: usize,
}

/// The `k` (long, short) pairs with the minimum total area, and this area; fewer pairs if they
/// achieve the same area. Dynamic programming over the number of shapes: `best[j]` is the minimum
/// total area of the images up to candidate `j` if `j` is the largest shape.
pub(crate) fn least_waste(mut sides: Vec<(usize, usize)>, k: usize) -> (Vec<(usize, usize)>, u64) {
    sides.sort_unstable();
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut short = 0;
    for (i, &(long, own_short)) in sides.iter().enumerate() {
        short = short.max(own_short);
        if candidates.last().is_none_or(|last| last.long != long) {
            candidates.push(Candidate { long, short, images_up_to: 0 });
        }
        if let Some(last) = candidates.last_mut() {
            (last.short, last.images_up_to) = (short, i + 1);
        }
    }
    let n = candidates.len();
    if n == 0 {
        return (vec![], 0);
    }
    let cost = |from: usize, j: usize| {
        let Candidate { long, short, images_up_to } = candidates[j];
        let area = (long as u64).saturating_mul(short as u64);
        area.saturating_mul((images_up_to - from) as u64)
    };
    let mut best: Vec<u64> = (0..n).map(|j| cost(0, j)).collect();
    let mut before: Vec<Vec<usize>> = Vec::new();
    for _ in 1..k.min(n) {
        let mut next = best.clone();
        // A candidate that is its own predecessor marks that one shape fewer is equally good.
        let mut from: Vec<usize> = (0..n).collect();
        for j in 1..n {
            for i in 0..j {
                let area = best[i].saturating_add(cost(candidates[i].images_up_to, j));
                if area < next[j] {
                    (next[j], from[j]) = (area, i);
                }
            }
        }
        before.push(from);
        best = next;
    }
    let mut chosen = vec![n - 1];
    let mut at = n - 1;
    for from in before.iter().rev() {
        if from[at] != at {
            at = from[at];
            chosen.push(at);
        }
    }
    let shape = |&j: &usize| (candidates[j].long, candidates[j].short);
    (chosen.iter().rev().map(shape).collect(), best[n - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded_area(sizes: &[(u32, u32)], shapes: &[PaddedShape]) -> usize {
        let area = |&(h, w): &(u32, u32)| {
            let same = |s: &&PaddedShape| (s.height > s.width) == (h > w) || s.height == s.width;
            let held = shapes.iter().filter(same).filter(|s| s.holds(h as usize, w as usize));
            held.map(|s| s.area()).min().expect("every image has a shape of its orientation")
        };
        sizes.iter().map(area).sum()
    }

    fn shape(height: usize, width: usize) -> PaddedShape {
        PaddedShape { height, width }
    }

    #[test]
    fn padded_shape_parses_from_height_x_width() {
        let shape = |text: &str| text.parse::<PaddedShape>().map(|p| (p.height, p.width));
        assert_eq!(shape("800x1344"), Ok((800, 1344)));
        for wrong in ["800", "800x", "x800", "0x800", "800x1344x3", "-1x800"] {
            assert!(shape(wrong).is_err_and(|e| e.contains(wrong)), "{wrong}");
        }
    }

    #[test]
    fn single_shape_per_orientation_is_the_largest() {
        let sizes = [(800, 1066), (800, 1199), (666, 1333), (1066, 800), (800, 800)];
        let shapes = choose_shapes(&sizes, 1, 32);
        assert_eq!(shapes, [shape(800, 1344), shape(1088, 800)]);
        assert_eq!(choose_shapes(&sizes[3..4], 1, 32), [shape(1088, 800)]);
        assert_eq!(choose_shapes(&[], 3, 32), []);
    }

    #[test]
    fn two_distinct_sizes_become_the_two_shapes() {
        // Nine images of 64x64 and one of 64x320: the two shapes are these two sizes.
        let mut sizes = vec![(64, 64); 9];
        sizes.push((64, 320));
        assert_eq!(choose_shapes(&sizes, 2, 32), [shape(64, 64), shape(64, 320)]);
        assert_eq!(choose_shapes(&sizes, 5, 32), [shape(64, 64), shape(64, 320)]);
    }

    /// Compares with brute force over every choice of long sides.
    #[test]
    fn chosen_shapes_minimise_padding() {
        let mut state = 1_u64;
        let mut random = |n: u32| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u32 % n
        };
        for _ in 0..60 {
            let sizes: Vec<(u32, u32)> =
                (0..30).map(|_| (1 + random(200), 1 + random(200))).collect();
            let landscape: Vec<_> = sizes.iter().copied().filter(|(h, w)| h <= w).collect();
            let all = choose_shapes(&landscape, 99, 32);
            for k in 1..4 {
                let chosen = choose_shapes(&landscape, k, 32);
                assert!(chosen.len() <= k);
                let area = padded_area(&landscape, &chosen);
                // Every set of k candidates that includes the last one.
                let least = (0..1_u32 << (all.len() - 1))
                    .filter(|set| (set.count_ones() as usize) < k)
                    .map(|set| {
                        let mut shapes = vec![all[all.len() - 1]];
                        shapes.extend(
                            (0..all.len() - 1).filter(|i| set >> i & 1 == 1).map(|i| all[i]),
                        );
                        padded_area(&landscape, &shapes)
                    })
                    .min();
                assert_eq!(Some(area), least);
            }
            padded_area(&sizes, &choose_shapes(&sizes, 2, 32));
        }
    }
}
