//! Messages between ranks: frames of an all-reduce, and short texts during the rendezvous.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::add::Type;

/// Maximum size of a payload that is sent in one write with its header.
const MAX_TOGETHER: usize = 1 << 14;
/// Maximum length of a text message.
const MAX_TEXT: usize = 1 << 16;
const HEADER: usize = 33;

/// Identifies the all-reduce that a frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct What {
    /// Number of the execution among all executions of the group's all-reduces, including replays.
    pub(crate) sequence: u64,
    /// Number of the `ncclAllReduce` call on the group; replays have the number of the captured
    /// call.
    pub(crate) call: u64,
    pub(crate) count: u64,
    pub(crate) of: Type,
}

/// The contents of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One rank's contribution, or the sum of all contributions.
    Numbers,
    /// The text of an error: the ranks' calls differ.
    Differs,
    /// The text of an error: a rank has exited.
    Gone,
}

/// A message between two ranks.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) what: What,
    pub(crate) payload: Vec<u8>,
}

/// Sends a frame. Callers must serialize calls.
pub(crate) fn send(
    mut stream: &TcpStream,
    kind: Kind,
    what: &What,
    payload: &[u8],
) -> io::Result<()> {
    let mut header = Vec::with_capacity(HEADER + MAX_TOGETHER);
    header.push(kind as u8 | (what.of.number() as u8) << 4);
    for number in [what.sequence, what.call, what.count, payload.len() as u64] {
        header.extend(number.to_le_bytes());
    }
    if payload.len() <= MAX_TOGETHER {
        header.extend(payload);
        return stream.write_all(&header);
    }
    stream.write_all(&header)?;
    stream.write_all(payload)
}

/// Waits for a frame; `spare` provides the payload's buffer.
pub(crate) fn receive(
    mut stream: &TcpStream,
    spare: impl FnOnce() -> Vec<u8>,
) -> io::Result<Frame> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header)?;
    let numbers = header[1..].as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let numbers: Vec<u64> = numbers.collect();
    let kinds = [Kind::Numbers, Kind::Differs, Kind::Gone];
    let kind = kinds.into_iter().find(|kind| *kind as u8 == header[0] & 15).ok_or_else(broken)?;
    let of = Type::of((header[0] >> 4).into()).ok_or_else(broken)?;
    let what = What { sequence: numbers[0], call: numbers[1], count: numbers[2], of };
    let mut payload = spare();
    payload.clear();
    payload.reserve_exact(numbers[3] as usize);
    if stream.take(numbers[3]).read_to_end(&mut payload)? as u64 != numbers[3] {
        return Err(broken());
    }
    Ok(Frame { kind, what, payload })
}

/// Sends a text.
pub(crate) fn send_text(mut stream: &TcpStream, text: &str) -> io::Result<()> {
    let mut bytes = (text.len() as u32).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    stream.write_all(&bytes)
}

/// Waits for a text.
pub(crate) fn receive_text(mut stream: &TcpStream) -> io::Result<String> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_TEXT {
        return Err(broken());
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| broken())
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a message from a rank")
}
