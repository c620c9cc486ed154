//! Checks unordered operations of a graph: bytes that one of them writes may not be accessed by
//! another.

use std::collections::HashSet;

use super::errors::{Outcome, STREAM_CAPTURE_INVALIDATED, misuse};
use super::graph::Node;
use super::work::Work;
use crate::exec::Declared;

/// Rejects graphs with two operations that race according to their declared ranges, or with two
/// unordered all-reduces, which ranks could execute in different orders.
pub(super) fn check(nodes: &[Node]) -> Outcome {
    let touches: Vec<Vec<Declared>> =
        nodes.iter().map(|node| node.work.touches().unwrap_or_default()).collect();
    let mut before: Vec<HashSet<usize>> = Vec::with_capacity(nodes.len());
    for (second, node) in nodes.iter().enumerate() {
        let mut done: HashSet<usize> = node.after.iter().copied().collect();
        node.after.iter().for_each(|first| done.extend(&before[*first]));
        for first in (0..second).filter(|first| !done.contains(first)) {
            let name = |at: usize| format!("`{}` (node {at})", nodes[at].work.name());
            let both = || format!("{} and {}", name(first), name(second));
            if let Some(bytes) = race(&touches[first], &touches[second]) {
                let text = "bytes, one writes them, and no event orders them";
                let sentence = format!("{} use the same {bytes} {text}", both());
                return Err(misuse(STREAM_CAPTURE_INVALIDATED, sentence));
            }
            let is_sum = |at: usize| matches!(&*nodes[at].work, Work::External(_));
            if is_sum(first) && is_sum(second) {
                let text = "are unordered: ranks could execute them in different orders";
                return Err(misuse(STREAM_CAPTURE_INVALIDATED, format!("{} {text}", both())));
            }
        }
        before.push(done);
    }
    Ok(())
}

/// Number of bytes that both operations access and at least one writes, in the first such range.
fn race(a: &[Declared], b: &[Declared]) -> Option<u64> {
    let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (x, y)));
    let writing = pairs.filter(|(x, y)| x.writes + y.writes > 0);
    let shared = writing.map(|(x, y)| {
        let end = (x.first + x.bytes).min(y.first + y.bytes);
        end.saturating_sub(x.first.max(y.first))
    });
    shared.into_iter().find(|bytes| *bytes > 0)
}
