//! Matching of parameter names with the user's patterns, and suggestions for misspelled names.

use std::collections::BTreeSet;

/// Maximum number of names that [`nearest`] returns.
const NEAREST: usize = 3;

/// True if a name matches the pattern, in which each `*` matches any text.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let head = parts.next().unwrap_or_default();
    let Some(tail) = parts.next_back() else { return pattern == name };
    let rest = name.strip_prefix(head).and_then(|rest| rest.strip_suffix(tail));
    // Matching each piece of the pattern as early as possible leaves the most text for the next
    // pieces.
    let after = |rest: &str, part: &str| rest.find(part).map(|at| at + part.len());
    let mut places = parts;
    rest.is_some_and(|mut rest| {
        places.all(|part| after(rest, part).map(|end| rest = &rest[end..]).is_some())
    })
}

/// The error message for a pattern that matches none of `names`, with suggestions: similar names,
/// and patterns for parts of the model. `kind` is what the pattern selects, such as `parameter`.
/// `None` if the pattern matches.
pub(crate) fn misfit(pattern: &str, kind: &str, names: &[&str]) -> Option<String> {
    if names.iter().any(|name| matches(pattern, name)) {
        return None;
    }
    let parts = names.iter().flat_map(|name| name.match_indices('.').map(|(end, _)| &name[..end]));
    let parts: BTreeSet<String> = parts.map(|part| format!("{part}.*")).collect();
    let near = nearest(pattern, names.iter().map(ToString::to_string).chain(parts)).join(", ");
    Some(format!("is \"{pattern}\", which matches no {kind}; did you mean {near}?"))
}

/// The candidates with the most similar spelling, most similar first.
pub(crate) fn nearest(name: &str, candidates: impl IntoIterator<Item = String>) -> Vec<String> {
    let likeness = |known: &str| strsim::normalized_damerau_levenshtein(name, known);
    let mut scored: Vec<_> =
        candidates.into_iter().map(|known| (likeness(&known), known)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(NEAREST).map(|(_, known)| known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_in_pattern_matches_any_text() {
        let name = "backbone.body.layer1.0.conv1.weight";
        for pattern in
            ["*", name, "backbone.*", "*.weight", "*layer1*", "backbone.*.conv1.weight", "*0*1*t"]
        {
            assert!(matches(pattern, name), "{pattern}");
        }
        for pattern in [
            "",
            "backbone",
            "body.*",
            "*.bias",
            "*conv1*layer1*",
            "backbone.body.layer1.0.conv1.weight*t",
        ] {
            assert!(!matches(pattern, name), "{pattern}");
        }
        // Prefix and suffix must not overlap.
        assert!(!matches("aba*aba", "ababa"));
    }

    #[test]
    fn most_similar_names_sort_first() {
        let known = ["cat", "dog", "person", "car", "bus"].map(String::from);
        assert_eq!(nearest("cats", known)[..2], ["cat", "car"]);
    }
}
