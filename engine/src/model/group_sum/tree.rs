//! The tree in which the gradients of a step's groups are added. It depends only on the number of
//! groups, so the sum is bit-identical for any assignment of groups to ranks.
//!
//! Leaf `i` is group `i`. A node of level `l` covers the existing leaves among `k * 2^l .. (k + 1)
//! * 2^l`, and is the sum left child + right child. A rank has consecutive leaves; it adds up their
//!   largest complete nodes, its [`pieces`]. [`fold`] lists the additions that combine the pieces
//!   of all ranks into the root.

use std::ops::Range;

/// A complete node: `2^level` leaves starting at `first`, a multiple of `2^level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) first: usize,
    pub(super) level: u32,
}

impl Piece {
    fn leaf(first: usize) -> Self {
        Self { first, level: 0 }
    }

    /// The parent node, if `self` and `right` are its two children.
    fn join(self, right: Self) -> Option<Self> {
        let is_left = self.first.is_multiple_of(2 << self.level);
        let are_siblings =
            self.level == right.level && self.first + (1 << self.level) == right.first;
        (is_left && are_siblings).then_some(Self { level: self.level + 1, ..self })
    }
}

/// Adds leaf `leaf` to the pieces of the preceding leaves. Returns how many times the last two
/// pieces must then be added together.
pub(super) fn push(pieces: &mut Vec<Piece>, leaf: usize) -> usize {
    pieces.push(Piece::leaf(leaf));
    let mut joined = 0;
    while let [.., left, right] = pieces[..]
        && let Some(parent) = left.join(right)
    {
        pieces.truncate(pieces.len() - 2);
        pieces.push(parent);
        joined += 1;
    }
    joined
}

/// The pieces of consecutive leaves.
pub(super) fn pieces(leaves: Range<usize>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    leaves.for_each(|leaf| {
        push(&mut pieces, leaf);
    });
    pieces
}

/// The maximum number of pieces held at once while these leaves are added one by one.
pub(super) fn depth(leaves: Range<usize>) -> usize {
    let mut pieces = Vec::new();
    let held = leaves.map(|leaf| {
        let before = pieces.len();
        push(&mut pieces, leaf);
        before + 1
    });
    held.max().unwrap_or(0)
}

/// The additions that combine the pieces of all ranks into the root: for each `(left, right)`, add
/// piece `right` to piece `left`. The root is then in piece 0.
pub(super) fn fold(pieces: &[Piece]) -> Vec<(usize, usize)> {
    let leaves = pieces.last().map_or(0, |last| last.first + (1 << last.level));
    let mut additions = Vec::new();
    node(pieces, 0..leaves.next_power_of_two(), &mut additions);
    additions
}

/// Appends the additions for the node over `range`, and returns the piece that holds the node;
/// `None` if it has no leaves.
fn node(
    pieces: &[Piece],
    range: Range<usize>,
    additions: &mut Vec<(usize, usize)>,
) -> Option<usize> {
    let is_node = |piece: &Piece| piece.first == range.start && 1 << piece.level == range.len();
    if let Some(whole) = pieces.iter().position(is_node) {
        return Some(whole);
    }
    if range.len() < 2 {
        return None;
    }
    let middle = range.start + range.len() / 2;
    let left = node(pieces, range.start..middle, additions);
    let right = node(pieces, middle..range.end, additions);
    if let (Some(left), Some(right)) = (left, right) {
        additions.push((left, right));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum over `leaves` as text, by the definition of the tree.
    fn root(leaves: Range<usize>, count: usize) -> String {
        match leaves.len() {
            1 => leaves.start.to_string(),
            len => {
                let middle = leaves.start + len / 2;
                let left = root(leaves.start..middle, count);
                if middle >= count {
                    return left;
                }
                format!("({left}+{})", root(middle..leaves.end, count))
            }
        }
    }

    /// The sum as text, as computed by ranks whose leaves are split at `bounds`.
    fn by_ranks(bounds: &[usize]) -> String {
        let (mut all, mut sums) = (Vec::new(), Vec::new());
        for leaves in bounds.windows(2).map(|w| w[0]..w[1]) {
            let (mut mine, mut held): (Vec<Piece>, Vec<String>) = Default::default();
            for leaf in leaves.clone() {
                held.push(leaf.to_string());
                assert!(held.len() <= depth(leaves.clone()));
                for _ in 0..push(&mut mine, leaf) {
                    let right = held.pop().expect("two");
                    let left = held.pop().expect("two");
                    held.push(format!("({left}+{right})"));
                }
            }
            assert_eq!(mine, pieces(leaves));
            all.extend(mine);
            sums.extend(held);
        }
        for (left, right) in fold(&all) {
            sums[left] = format!("({}+{})", sums[left], sums[right]);
        }
        sums.swap_remove(0)
    }

    #[test]
    fn group_sum_order_is_independent_of_rank_count() {
        for count in 1..=33_usize {
            let expected = root(0..count.next_power_of_two(), count);
            for ranks in (1..=count).filter(|ranks| count.is_multiple_of(*ranks)) {
                let bounds: Vec<usize> = (0..=ranks).map(|rank| rank * count / ranks).collect();
                assert_eq!(by_ranks(&bounds), expected, "{count} groups on {ranks} ranks");
            }
        }
        assert_eq!(by_ranks(&[0, 6]), "(((0+1)+(2+3))+(4+5))");
        assert_eq!(by_ranks(&[0, 3, 6]), "(((0+1)+(2+3))+(4+5))");
    }

    #[test]
    fn group_sum_keeps_few_partial_sums() {
        assert_eq!((depth(0..1), depth(0..2), depth(0..8), depth(3..6)), (1, 2, 4, 3));
        assert!((1..2000).all(|count| depth(0..count) <= count.ilog2() as usize + 1));
    }
}
