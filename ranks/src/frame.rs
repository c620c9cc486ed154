//! The encoding of messages between ranks: a frame's length as a little-endian `u32`, then the
//! frame in postcard's format. After a [`Frame::Message`] come the bytes of the message.

use std::io::{self, ErrorKind, Read};

use serde::{Deserialize, Serialize};

use crate::lost::Lost;
use crate::member::Member;

/// Length of a proof that a rank knows the token.
pub(crate) const PROOF_BYTES: usize = 32;

/// Maximum frame length; the longest frame is a list of all ranks.
pub(crate) const MAX_FRAME_BYTES: usize = 1 << 20;

/// Maximum length of a frame from a rank that is not yet authenticated.
pub(crate) const MAX_JOIN_BYTES: usize = 1024;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Frame {
    /// A rank requests to join: itself, the number of ranks it was started with, and its proof.
    Join { member: Member, ranks: usize, proof: [u8; PROOF_BYTES] },
    /// Rank 0 accepts the request, with its own proof.
    Welcome { proof: [u8; PROOF_BYTES] },
    /// Rank 0 rejects the request. With `again`, the rank may retry: it may have reached rank 0 of
    /// a different run.
    Refused { again: bool, reason: String },
    /// All ranks have joined; contains the list of ranks.
    Start(Vec<Member>),
    /// A heartbeat: the rank's step, and its current activity.
    Alive { step: u64, doing: String },
    /// The header of a message: its operation and its number of bytes.
    Message { what: String, bytes: u64 },
    /// The rank leaves: normally (`None`), or with an exit code and an error.
    Leave(Option<(u8, String)>),
    /// A rank was lost.
    Lost(Lost),
}

impl Frame {
    /// The frame, preceded by its length.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let Ok(mut out) = postcard::to_extend(self, vec![0; 4]) else {
            unreachable!("a frame has nothing that postcard cannot write")
        };
        let length = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&length.to_le_bytes());
        out
    }

    /// Reads a frame of at most `max` bytes.
    pub(crate) fn read(from: &mut impl Read, max: usize) -> io::Result<Self> {
        let invalid = |what: String| io::Error::new(ErrorKind::InvalidData, what);
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > max {
            return Err(invalid(format!("it sent a frame of {length} bytes")));
        }
        let mut bytes = vec![0; length];
        from.read_exact(&mut bytes)?;
        match postcard::take_from_bytes(&bytes) {
            Ok((frame, [])) => Ok(frame),
            _ => Err(invalid("it sent an invalid frame".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Frame, MAX_FRAME_BYTES};
    use crate::member::Member;

    #[test]
    fn frame_round_trips_and_changed_or_truncated_is_rejected() {
        let member =
            Member { rank: 3, local_rank: 1, pid: 77, host: "a".into(), host_id: "a 1 2".into() };
        let read = |bytes: &[u8]| Frame::read(&mut &bytes[..], MAX_FRAME_BYTES);
        for frame in [
            Frame::Join { member: member.clone(), ranks: 4, proof: [7; 32] },
            Frame::Start(vec![member.clone(), member]),
            Frame::Message { what: "scores".into(), bytes: 1 << 40 },
            Frame::Leave(Some((4, "out of disk: é".into()))),
        ] {
            let bytes = frame.to_bytes();
            assert_eq!(read(&bytes).expect("a frame"), frame);
            let mut padded = [&bytes[..], &[0]].concat();
            padded[0] += 1;
            assert!(read(&padded).is_err(), "{frame:?}");
            for at in 0..bytes.len() {
                assert!(read(&bytes[..at]).is_err(), "{frame:?} cut at {at}");
                for bit in 0..8 {
                    let mut changed = bytes.clone();
                    changed[at] ^= 1 << bit;
                    // Changed bytes decode to a different frame or are rejected, without a panic.
                    assert!(read(&changed).ok().as_ref() != Some(&frame));
                }
            }
        }
    }
}
