//! How two ranks make sure of each other: both prove that they know the token, and neither sends
//! it.
//!
//! ```text
//! rank:   greeting, nonce             rank 0: greeting, nonce
//! rank:   Join, HMAC(token, "rank", both nonces, who it is)
//! rank 0: Welcome, HMAC(token, "first", both nonces)        or Refused
//! ```

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::frame::{Frame, GREETING, MAX_JOIN_BYTES, NONCE_BYTES, PROOF_BYTES};
use crate::host::Member;

/// A random number of each side, so that nothing overheard serves twice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nonces {
    rank: [u8; NONCE_BYTES],
    first: [u8; NONCE_BYTES],
}

/// A stream whose reads and writes all end by one deadline: a peer that sends a byte now and then
/// gains nothing.
pub(crate) struct Timed<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) deadline: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(Some(left))
    }

    /// Reads one frame of at most `max` bytes.
    pub(crate) fn frame(&mut self, max: usize) -> io::Result<Frame> {
        let mut length = [0; 4];
        self.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > max {
            return Err(invalid(format!("a frame of {length} bytes")));
        }
        let mut bytes = vec![0; length];
        self.read_exact(&mut bytes)?;
        Frame::parse(&bytes).ok_or_else(|| invalid("bytes that are no frame".into()))
    }

    pub(crate) fn send(&mut self, frame: &Frame) -> io::Result<()> {
        self.write_all(&frame.to_bytes())
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Rank 0's side: the member that asks to join, and the number of ranks that it expects.
///
/// # Errors
/// The reason, in words, why the peer is not a rank of this run. It is also sent to a peer that can
/// read it.
pub(crate) fn receive(
    stream: &TcpStream,
    token: &str,
    deadline: Instant,
) -> Result<(Member, usize, Nonces), String> {
    let mut timed = Timed { stream, deadline };
    let first = random().map_err(|error| error.to_string())?;
    let mut greeting = [0; GREETING.len() + NONCE_BYTES];
    read_greeting(&mut timed, &mut greeting)?;
    let mut answer = GREETING.to_vec();
    answer.extend(first);
    timed.write_all(&answer).map_err(|error| in_words(&error))?;
    let nonces = Nonces { rank: nonce_of(&greeting), first };
    match timed.frame(MAX_JOIN_BYTES).map_err(|error| in_words(&error))? {
        Frame::Join { member, ranks, proof } => {
            if !proves(token, &asked(&member, ranks), &nonces, &proof) {
                let reason = "the token is another one".to_owned();
                // The stranger may be gone; the line in the log is what matters.
                let _ = timed.send(&Frame::Refused { again: true, reason: reason.clone() });
                return Err(reason);
            }
            Ok((member, ranks, nonces))
        }
        other => Err(format!("it sent {other:?} first")),
    }
}

/// Reads the other side's greeting into `greeting`, and says what is wrong with it.
fn read_greeting(timed: &mut Timed<'_>, greeting: &mut [u8]) -> Result<(), String> {
    // Its first bytes suffice to recognise a peer that speaks another protocol.
    let (start, nonce) = greeting.split_at_mut(GREETING.len());
    timed.read_exact(start).map_err(|error| in_words(&error))?;
    let name = GREETING.len() - 2;
    if start[..name] != GREETING[..name] {
        return Err(format!("it speaks another protocol (`{}`)", start.escape_ascii()));
    }
    if start != GREETING {
        let version = |bytes: &[u8]| u16::from_le_bytes([bytes[name], bytes[name + 1]]);
        let (theirs, ours) = (version(start), version(&GREETING));
        return Err(format!(
            "it speaks version {theirs} of the protocol, and this rank version {ours}; run one \
             version of onegraph on all ranks"
        ));
    }
    timed.read_exact(nonce).map_err(|error| in_words(&error))
}

/// Rank 0's answer to a rank that has its place.
pub(crate) fn welcome(stream: &TcpStream, token: &str, nonces: &Nonces) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(1);
    let proof = proof(token, b"first", nonces);
    Timed { stream, deadline }.send(&Frame::Welcome { proof })
}

/// How a request to join ended.
pub(crate) enum Asked {
    Welcome,
    Refused { again: bool, reason: String },
}

/// The other ranks' side: asks to join.
///
/// # Errors
/// The reason, in words, why the peer is not rank 0 of this run.
pub(crate) fn ask(
    stream: &TcpStream,
    token: &str,
    member: &Member,
    ranks: usize,
    deadline: Instant,
) -> Result<Asked, String> {
    let mut timed = Timed { stream, deadline };
    let rank = random().map_err(|error| error.to_string())?;
    let mut hello = GREETING.to_vec();
    hello.extend(rank);
    timed.write_all(&hello).map_err(|error| in_words(&error))?;
    let mut greeting = [0; GREETING.len() + NONCE_BYTES];
    read_greeting(&mut timed, &mut greeting)?;
    let nonces = Nonces { rank, first: nonce_of(&greeting) };
    let proof = proof(token, &asked(member, ranks), &nonces);
    let join = Frame::Join { member: member.clone(), ranks, proof };
    timed.send(&join).map_err(|error| in_words(&error))?;
    match timed.frame(MAX_JOIN_BYTES * 8).map_err(|error| in_words(&error))? {
        Frame::Welcome { proof } if proves(token, b"first", &nonces, &proof) => Ok(Asked::Welcome),
        Frame::Welcome { .. } => Err("it does not know the token".into()),
        Frame::Refused { again, reason } => Ok(Asked::Refused { again, reason }),
        other => Err(format!("it sent {other:?}")),
    }
}

fn nonce_of(greeting: &[u8; GREETING.len() + NONCE_BYTES]) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce.copy_from_slice(&greeting[GREETING.len()..]);
    nonce
}

/// The bytes that a rank's proof covers besides the nonces.
fn asked(member: &Member, ranks: usize) -> Vec<u8> {
    let frame = Frame::Join { member: member.clone(), ranks, proof: [0; PROOF_BYTES] };
    [b"rank", frame.to_bytes().as_slice()].concat()
}

fn mac(token: &str, what: &[u8], nonces: &Nonces) -> Hmac<Sha256> {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(token.as_bytes()) else {
        unreachable!("HMAC takes keys of any length")
    };
    mac.update(&nonces.rank);
    mac.update(&nonces.first);
    mac.update(what);
    mac
}

fn proof(token: &str, what: &[u8], nonces: &Nonces) -> [u8; PROOF_BYTES] {
    mac(token, what, nonces).finalize().into_bytes().into()
}

/// In constant time.
fn proves(token: &str, what: &[u8], nonces: &Nonces, proof: &[u8; PROOF_BYTES]) -> bool {
    mac(token, what, nonces).verify_slice(proof).is_ok()
}

/// Random bytes of the system's.
pub(crate) fn random() -> io::Result<[u8; NONCE_BYTES]> {
    let mut bytes = [0; NONCE_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

fn invalid(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("it sent {what}"))
}

/// An error of a handshake, for the log.
pub(crate) fn in_words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "it did not finish its greeting".into(),
        ErrorKind::UnexpectedEof => "it closed the connection in its greeting".into(),
        _ => error.to_string(),
    }
}
