//! Mutual authentication of two ranks: each proves that it knows the token, without sending the
//! token.
//!
//! ```text
//! both:   greeting, nonce
//! rank:   Join, HMAC(token, "rank", both nonces, who it is)
//! rank 0: Welcome, HMAC(token, "first", both nonces)        or Refused
//! ```

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::frame::{Frame, MAX_JOIN_BYTES, PROOF_BYTES};
use crate::member::Member;

/// Name and version of the protocol; any other bytes come from a different program or a different
/// version.
const GREETING: [u8; 10] = *b"onegraph\x03\x00";

/// Length of the random number in a greeting.
const NONCE_BYTES: usize = 16;

/// The random numbers of both sides, rank 0's last; they prevent replay attacks.
type Nonces = [[u8; NONCE_BYTES]; 2];

/// A stream with one deadline for all reads and writes, which a slow peer cannot extend by sending
/// single bytes.
pub(crate) struct Timed<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) deadline: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }

    pub(crate) fn send(&mut self, frame: &Frame) -> Result<(), String> {
        self.write_all(&frame.to_bytes()).map_err(in_words)
    }

    pub(crate) fn receive(&mut self, max: usize) -> Result<Frame, String> {
        Frame::read(self, max).map_err(in_words)
    }

    /// Exchanges greetings; returns this side's nonce and the peer's.
    fn greet(&mut self) -> Result<Nonces, String> {
        let mut own = [0; NONCE_BYTES];
        getrandom::fill(&mut own).map_err(|error| error.to_string())?;
        self.write_all(&[&GREETING[..], &own].concat()).map_err(in_words)?;
        // The first bytes are sufficient to recognise a peer with a different protocol.
        let mut greeting = [0; GREETING.len()];
        self.read_exact(&mut greeting).map_err(in_words)?;
        let (name, version) = greeting.split_at(GREETING.len() - 2);
        if name != &GREETING[..name.len()] {
            return Err(format!("it uses another protocol (`{}`)", greeting.escape_ascii()));
        }
        if greeting != GREETING {
            return Err(format!(
                "it uses version {} of the protocol, and this rank version {}; run the same \
                 onegraph on all ranks",
                version[0],
                GREETING[name.len()]
            ));
        }
        let mut theirs = [0; NONCE_BYTES];
        self.read_exact(&mut theirs).map_err(in_words)?;
        Ok([own, theirs])
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

/// An authenticated rank that waits for rank 0 to accept it.
pub(crate) struct Asking {
    pub(crate) stream: TcpStream,
    pub(crate) member: Member,
    /// The number of ranks that it was started with.
    pub(crate) ranks: usize,
    /// Rank 0's own proof.
    proof: [u8; PROOF_BYTES],
}

impl Asking {
    /// Rank 0's side of the handshake on a new connection.
    ///
    /// # Errors
    /// The reason why the peer is not a rank of this run. It is also sent to peers that use the
    /// protocol.
    pub(crate) fn accept(stream: TcpStream, token: &str, limit: Duration) -> Result<Self, String> {
        let mut timed = Timed { stream: &stream, deadline: Instant::now() + limit };
        let [own, theirs] = timed.greet()?;
        let nonces = [theirs, own];
        match timed.receive(MAX_JOIN_BYTES)? {
            Frame::Join { member, ranks, proof } => {
                if mac(token, &asked(&member, ranks), &nonces).verify_slice(&proof).is_err() {
                    let reason = "the tokens differ".to_owned();
                    // The peer may have disconnected; then the reason is only logged.
                    let _ = timed.send(&Frame::Refused { again: true, reason: reason.clone() });
                    return Err(reason);
                }
                let proof = mac(token, b"first", &nonces).finalize().into_bytes().into();
                Ok(Self { stream, member, ranks, proof })
            }
            other => Err(format!("it sent {other:?} first")),
        }
    }

    /// Accepts the rank; false if it has disconnected.
    pub(crate) fn welcome(&self) -> bool {
        self.answer(&Frame::Welcome { proof: self.proof })
    }

    pub(crate) fn refuse(&self, reason: String) {
        self.answer(&Frame::Refused { again: false, reason });
    }

    fn answer(&self, frame: &Frame) -> bool {
        let deadline = Instant::now() + Duration::from_secs(1);
        Timed { stream: &self.stream, deadline }.send(frame).is_ok()
    }
}

/// Asks rank 0 to accept this rank as one of `ranks` ranks. `Ok(Err)` is a permanent rejection.
///
/// # Errors
/// The reason why the peer is not rank 0 of this run.
pub(crate) fn ask(
    stream: &TcpStream,
    token: &str,
    member: &Member,
    ranks: usize,
    limit: Duration,
) -> Result<Result<(), String>, String> {
    let mut timed = Timed { stream, deadline: Instant::now() + limit };
    let nonces = timed.greet()?;
    let proof = mac(token, &asked(member, ranks), &nonces).finalize().into_bytes().into();
    timed.send(&Frame::Join { member: member.clone(), ranks, proof })?;
    match timed.receive(MAX_JOIN_BYTES * 8)? {
        Frame::Welcome { proof } => match mac(token, b"first", &nonces).verify_slice(&proof) {
            Ok(()) => Ok(Ok(())),
            Err(_) => Err("it does not know the token".into()),
        },
        Frame::Refused { again: false, reason } => Ok(Err(reason)),
        Frame::Refused { reason, .. } => Err(reason),
        other => Err(format!("it sent {other:?}")),
    }
}

/// The bytes that a rank's proof covers, in addition to the nonces.
fn asked(member: &Member, ranks: usize) -> Vec<u8> {
    let frame = Frame::Join { member: member.clone(), ranks, proof: [0; PROOF_BYTES] };
    [b"rank", frame.to_bytes().as_slice()].concat()
}

fn mac(token: &str, what: &[u8], nonces: &Nonces) -> Hmac<Sha256> {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(token.as_bytes()) else {
        unreachable!("HMAC takes keys of any length")
    };
    mac.update(nonces.as_flattened());
    mac.update(what);
    mac
}

/// The message for an I/O error during the handshake.
fn in_words(error: io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "it did not complete the handshake".into(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            "it disconnected during the handshake".into()
        }
        _ => error.to_string(),
    }
}
