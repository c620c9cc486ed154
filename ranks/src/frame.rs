//! The messages between ranks, as bytes.
//!
//! A connection begins with two greetings of fixed length: [`GREETING`] and a nonce, from each
//! side. Frames follow: their length as a `u32`, then a byte for the kind, then the fields; all
//! numbers are little-endian. Reading is a pure function of the bytes: [`Frame::parse`].

use crate::host::Member;

/// The protocol and its version: other bytes are no rank, or one of another version.
pub const GREETING: [u8; 10] = *b"onegraph\x02\x00";

/// Bytes of the random number in a greeting.
pub(crate) const NONCE_BYTES: usize = 16;

/// Bytes of a proof of the token.
pub(crate) const PROOF_BYTES: usize = 32;

/// The longest piece of a message; longer messages are several frames, so that signs of life pass
/// between them.
pub(crate) const MAX_PIECE_BYTES: usize = 1 << 20;

/// The longest frame.
pub const MAX_FRAME_BYTES: usize = MAX_PIECE_BYTES + 1024;

/// The longest frame of a rank that has not proved that it knows the token.
pub const MAX_JOIN_BYTES: usize = 1024;

/// The most bytes of a text in a frame; longer ones are cut.
const MAX_TEXT_BYTES: usize = 4096;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A rank asks to take its place.
    Join {
        /// Its identity.
        member: Member,
        /// The number of ranks that it was started with.
        ranks: usize,
        /// The proof that it knows the token.
        proof: [u8; PROOF_BYTES],
    },
    /// It has its place; rank 0 proves that it knows the token, too.
    Welcome {
        /// The proof.
        proof: [u8; PROOF_BYTES],
    },
    /// It has none.
    Refused {
        /// True if it may ask again: it may have found the rendezvous of another run.
        again: bool,
        /// The reason, as a sentence.
        reason: String,
    },
    /// All ranks came: these.
    Start(Vec<Member>),
    /// A sign of life.
    Alive {
        /// The step that the rank is at.
        step: u64,
        /// Its activity in that step.
        doing: String,
    },
    /// A piece of a message.
    Piece {
        /// The operation that it belongs to.
        what: String,
        /// True if it is the message's last piece.
        last: bool,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The rank ends: in order, or with an exit code and an error.
    Leave(Option<(u8, String)>),
    /// The other side has read that this one leaves.
    Bye,
    /// A rank is gone.
    Lost {
        /// Which.
        rank: usize,
        /// The step that it was at.
        step: u64,
        /// Its last activity.
        last: String,
        /// How it was noticed.
        why: String,
        /// The exit code that it ended with, if it reported one.
        code: Option<u8>,
    },
}

impl Frame {
    /// The frame with its length before it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        self.write(&mut out);
        // A frame is far shorter than 4 GiB: texts are cut, pieces are short.
        let length = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&length.to_le_bytes());
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Join { member, ranks, proof } => {
                out.push(1);
                put_member(out, member);
                put_number(out, *ranks as u64);
                out.extend(proof);
            }
            Self::Welcome { proof } => {
                out.push(2);
                out.extend(proof);
            }
            Self::Refused { again, reason } => {
                out.extend([3, u8::from(*again)]);
                put_text(out, reason);
            }
            Self::Start(members) => {
                out.push(4);
                members.iter().for_each(|member| put_member(out, member));
            }
            Self::Alive { step, doing } => {
                out.push(5);
                put_number(out, *step);
                put_text(out, doing);
            }
            Self::Piece { what, last, bytes } => {
                out.extend([6, u8::from(*last)]);
                put_text(out, what);
                out.extend(bytes);
            }
            Self::Leave(fault) => {
                out.extend([7, u8::from(fault.is_some())]);
                let (code, text) = fault.as_ref().map_or((0, ""), |(code, text)| (*code, text));
                out.push(code);
                put_text(out, text);
            }
            Self::Bye => out.push(8),
            Self::Lost { rank, step, last, why, code } => {
                out.extend([9, u8::from(code.is_some()), code.unwrap_or(0)]);
                put_number(out, *rank as u64);
                put_number(out, *step);
                put_text(out, last);
                put_text(out, why);
            }
        }
    }

    /// Reads what follows the length of a frame; none if it is no frame.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let mut fields = Fields(rest);
        let frame = match kind {
            1 => Self::Join {
                member: fields.member()?,
                ranks: fields.size()?,
                proof: fields.take()?,
            },
            2 => Self::Welcome { proof: fields.take()? },
            3 => Self::Refused { again: fields.flag()?, reason: fields.text()? },
            4 => {
                let mut members = Vec::new();
                while !fields.0.is_empty() {
                    members.push(fields.member()?);
                }
                Self::Start(members)
            }
            5 => Self::Alive { step: fields.number()?, doing: fields.text()? },
            6 => Self::Piece {
                last: fields.flag()?,
                what: fields.text()?,
                bytes: std::mem::take(&mut fields.0).to_vec(),
            },
            7 => {
                let failed = fields.flag()?;
                let fault = (fields.byte()?, fields.text()?);
                Self::Leave(failed.then_some(fault))
            }
            8 => Self::Bye,
            9 => {
                let (is_told, code) = (fields.flag()?, fields.byte()?);
                Self::Lost {
                    rank: fields.size()?,
                    step: fields.number()?,
                    last: fields.text()?,
                    why: fields.text()?,
                    code: is_told.then_some(code),
                }
            }
            _ => return None,
        };
        fields.0.is_empty().then_some(frame)
    }
}

fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = &text[..end];
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_member(out: &mut Vec<u8>, member: &Member) {
    put_number(out, member.rank as u64);
    put_number(out, member.local_rank as u64);
    put_number(out, u64::from(member.pid));
    put_text(out, &member.host);
    put_text(out, &member.host_id);
}

/// The fields of a frame that are still to be read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.take()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn size(&mut self) -> Option<usize> {
        self.number()?.try_into().ok()
    }

    /// A text, without control characters: it is printed to terminals.
    fn text(&mut self) -> Option<String> {
        let length = usize::from(u16::from_le_bytes(self.take()?));
        if length > MAX_TEXT_BYTES {
            return None;
        }
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        let text = std::str::from_utf8(text).ok()?;
        Some(text.replace(|c: char| c.is_control() && c != '\n', "?"))
    }

    fn member(&mut self) -> Option<Member> {
        let (rank, local_rank) = (self.size()?, self.size()?);
        let pid = self.number()?.try_into().ok()?;
        Some(Member { rank, local_rank, pid, host: self.text()?, host_id: self.text()? })
    }
}

#[cfg(test)]
mod tests {
    use super::{Frame, MAX_TEXT_BYTES};
    use crate::host::Member;

    fn frames() -> Vec<Frame> {
        let member =
            Member { rank: 3, local_rank: 1, pid: 77, host: "a".into(), host_id: "a 1 2".into() };
        vec![
            Frame::Join { member: member.clone(), ranks: 4, proof: [7; 32] },
            Frame::Welcome { proof: [9; 32] },
            Frame::Refused { again: true, reason: "no".into() },
            Frame::Start(vec![member.clone(), member]),
            Frame::Alive { step: 12, doing: "reading".into() },
            Frame::Piece { what: "scores".into(), last: true, bytes: vec![0, 255, 3] },
            Frame::Piece { what: String::new(), last: false, bytes: Vec::new() },
            Frame::Leave(None),
            Frame::Leave(Some((4, "out of disk".into()))),
            Frame::Bye,
            Frame::Lost { rank: 1, step: 2, last: "x".into(), why: "é".into(), code: None },
            Frame::Lost { rank: 3, step: 0, last: "".into(), why: "x".into(), code: Some(255) },
        ]
    }

    #[test]
    fn frames_survive_the_wire() {
        for frame in frames() {
            let bytes = frame.to_bytes();
            let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            assert_eq!(length as usize, bytes.len() - 4);
            assert_eq!(Frame::parse(&bytes[4..]), Some(frame));
        }
    }

    #[test]
    fn a_frame_that_is_cut_or_padded_is_none() {
        for frame in frames() {
            let bytes = &frame.to_bytes()[4..];
            let is_open = matches!(frame, Frame::Piece { .. } | Frame::Start(_));
            for end in 0..bytes.len() {
                let cut = Frame::parse(&bytes[..end]);
                assert!(is_open || cut.is_none(), "{frame:?} cut at {end}: {cut:?}");
            }
            let padded = Frame::parse(&[bytes, &[0]].concat());
            assert!(is_open || padded.is_none(), "{padded:?}");
        }
        assert_eq!(Frame::parse(&[]), None);
        assert_eq!(Frame::parse(&[200]), None);
    }

    #[test]
    fn changed_bytes_never_panic_and_texts_hold_no_escapes() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize
        };
        let mut read = 0;
        for _ in 0..20_000 {
            let all = frames();
            let mut bytes = all[random() % all.len()].to_bytes().split_off(4);
            for _ in 0..random() % 4 {
                let at = random() % bytes.len();
                bytes[at] = random() as u8;
            }
            read += usize::from(Frame::parse(&bytes).is_some());
        }
        assert!((1000..20_000).contains(&read), "{read} of the changed frames are frames");
        let red = Frame::Leave(Some((1, "\u{1b}[31mred".into())));
        let parsed = Frame::parse(&red.to_bytes()[4..]);
        assert_eq!(parsed, Some(Frame::Leave(Some((1, "?[31mred".into())))));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let long = Frame::Leave(Some((1, "é".repeat(MAX_TEXT_BYTES))));
        let Some(Frame::Leave(Some((_, text)))) = Frame::parse(&long.to_bytes()[4..]) else {
            panic!("it is a frame");
        };
        assert_eq!(text, "é".repeat(MAX_TEXT_BYTES / 2));
    }
}
