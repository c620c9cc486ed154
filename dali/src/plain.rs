//! Makes text from files safe to print.

/// The text as one line that is safe to print: control characters, line ends and characters that
/// change the text direction are escaped, such as `\u{1b}`.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                out.extend(c.escape_unicode());
            }
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn control_characters_in_names_are_escaped() {
        let hostile = "a\x1b[2J\x1b]0;title\x07\n\u{202e}gpj.b\u{9b}1m";
        assert_eq!(plain(hostile), "a\\u{1b}[2J\\u{1b}]0;title\\u{7}\\n\\u{202e}gpj.b\\u{9b}1m");
        assert_eq!(plain("Straße 東京 'q' \\ 🦀"), "Straße 東京 'q' \\ 🦀");
    }
}
