//! Rust source without comments and literals.

/// The source with comments and the contents of string and character literals blanked; line numbers
/// are unchanged.
pub(crate) fn code_only(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = skipped_end(&chars, at);
        if end == at {
            code.push(chars[at]);
            at += 1;
            continue;
        }
        for &c in &chars[at..end] {
            code.push(if c == '\n' { '\n' } else { ' ' });
        }
        at = end;
    }
    code
}

/// The end of the comment or literal that begins at `at`; `at` itself if none begins there.
fn skipped_end(chars: &[char], at: usize) -> usize {
    let rest = &chars[at..];
    let in_word = at > 0 && is_word(chars[at - 1]);
    match rest {
        ['/', '/', ..] => at + length_until(rest, |rest| rest[0] == '\n'),
        ['"', ..] => at + quoted_length(rest, '"'),
        ['r', '"' | '#', ..] if !in_word => at + raw_string_length(rest),
        ['b', 'r', '"' | '#', ..] if !in_word => at + 1 + raw_string_length(&rest[1..]),
        // A character literal: a lifetime is not followed by a second quote.
        ['\'', '\\', ..] => at + quoted_length(rest, '\''),
        ['\'', _, '\'', ..] => at + 3,
        _ => at,
    }
}

fn length_until(rest: &[char], stop: impl Fn(&[char]) -> bool) -> usize {
    (0..rest.len()).find(|&i| stop(&rest[i..])).unwrap_or(rest.len())
}

fn quoted_length(rest: &[char], quote: char) -> usize {
    let mut i = 1;
    while i < rest.len() {
        match rest[i] {
            '\\' => i += 2,
            c if c == quote => return i + 1,
            _ => i += 1,
        }
    }
    rest.len()
}

/// Length of `r"..."`, `r#"..."#` and so on; 0 for a raw identifier such as `r#type`.
fn raw_string_length(rest: &[char]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&c| c == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return 0;
    }
    let body = 2 + hashes;
    let closes = |tail: &[char]| {
        tail[0] == '"' && tail[1..].iter().take_while(|&&c| c == '#').count() >= hashes
    };
    let inside = length_until(&rest[body..], closes);
    (body + inside + 1 + hashes).min(rest.len())
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
