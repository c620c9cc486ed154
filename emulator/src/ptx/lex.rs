//! Splits PTX into tokens.

/// A literal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Integer(i64),
    /// Bits of an `0f` literal.
    Single(u32),
    /// Bits of an `0d` literal.
    Double(u64),
    /// A decimal number in tenths, for versions.
    Decimal(u32),
}

impl Number {
    /// The literal's bits in a type of `bytes` bytes.
    ///
    /// # Errors
    /// A float literal of a different size.
    pub(super) fn bits(self, bytes: usize) -> Result<u64, String> {
        match (self, bytes) {
            (Self::Integer(value), 8) => Ok(value as u64),
            (Self::Integer(value), _) => Ok(value as u64 & ((1 << (8 * bytes)) - 1)),
            (Self::Single(bits), 4) => Ok(bits.into()),
            (Self::Double(bits), 8) => Ok(bits),
            _ => Err(format!("{self:?} is not a literal of {bytes} bytes")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Word<'a> {
    /// A name, an opcode, a directive or a register.
    Name(&'a str),
    Number(Number),
    Text(&'a str),
    Sign(char),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) word: Word<'a>,
    pub(super) line: u32,
}

/// The tokens of a text.
///
/// # Errors
/// A one-line message with the line of an invalid token.
pub(super) fn lex(text: &str) -> Result<Vec<Token<'_>>, String> {
    let bytes = text.as_bytes();
    let (mut at, mut line) = (0, 1);
    let mut tokens = Vec::with_capacity(bytes.len() / 6);
    while let Some(&byte) = bytes.get(at) {
        let rest = &text[at..];
        let (word, length) = match byte {
            b'\n' => {
                line += 1;
                at += 1;
                continue;
            }
            _ if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'/' if rest.starts_with("//") => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            b'/' if rest.starts_with("/*") => {
                let end = rest.find("*/").map_or(rest.len(), |end| end + 2);
                line += rest[..end].matches('\n').count() as u32;
                at += end;
                continue;
            }
            b'"' => {
                let end = rest[1..].find('"').ok_or(format!("line {line}: unterminated string"))?;
                (Word::Text(&rest[1..=end]), end + 2)
            }
            b'0'..=b'9' => number(rest, line)?,
            b'-' if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => {
                let (word, length) = number(&rest[1..], line)?;
                let Word::Number(Number::Integer(value)) = word else {
                    return Err(format!("line {line}: a sign before a float literal"));
                };
                (Word::Number(Number::Integer(value.wrapping_neg())), length + 1)
            }
            _ if is_name(byte) => {
                let mut length = 1;
                while let Some(&next) = bytes.get(at + length) {
                    if is_name(next) {
                        length += 1;
                    } else if rest[length..].starts_with("::") {
                        length += 2;
                    } else {
                        break;
                    }
                }
                (Word::Name(&rest[..length]), length)
            }
            _ if byte.is_ascii_punctuation() => (Word::Sign(byte.into()), 1),
            _ => return Err(format!("line {line}: invalid character")),
        };
        tokens.push(Token { word, line });
        at += length;
    }
    Ok(tokens)
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

fn number(text: &str, line: u32) -> Result<(Word<'_>, usize), String> {
    let length = text.bytes().take_while(|byte| is_name(*byte)).count();
    let digits = &text[..length];
    let bad = || format!("line {line}: `{digits}` is not a number");
    let hex = |digits: &str| u64::from_str_radix(digits, 16).map_err(|_| bad());
    let number = match digits.get(..2) {
        Some("0f" | "0F") => Number::Single(hex(&digits[2..])? as u32),
        Some("0d" | "0D") => Number::Double(hex(&digits[2..])?),
        Some("0x" | "0X") => Number::Integer(hex(digits[2..].trim_end_matches('U'))? as i64),
        _ => match digits.split_once('.') {
            Some((whole, tenth)) => {
                let part = |digits: &str| digits.parse::<u32>().map_err(|_| bad());
                Number::Decimal(part(whole)? * 10 + part(tenth)?)
            }
            None => {
                let value: u64 = digits.trim_end_matches('U').parse().map_err(|_| bad())?;
                Number::Integer(value as i64)
            }
        },
    };
    Ok((Word::Number(number), length))
}
