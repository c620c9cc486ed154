//! The messages between ranks, as bytes: their length as a little-endian `u32`, then the frame in
//! postcard's format. A [`Frame::Message`] is followed by its bytes.

use std::io::{self, ErrorKind, Read};

use serde::{Deserialize, Serialize};

use crate::lost::Lost;
use crate::member::Member;

/// Bytes of a proof of knowing the token.
pub(crate) const PROOF_BYTES: usize = 32;

/// Maximum frame length: a list of all ranks.
pub(crate) const MAX_FRAME_BYTES: usize = 1 << 20;

/// Maximum frame length of a rank that has not proved that it knows the token.
pub(crate) const MAX_JOIN_BYTES: usize = 1024;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Frame {
    /// A rank that was started as one of `ranks` requests to join, and proves that it knows the
    /// token.
    Join { member: Member, ranks: usize, proof: [u8; PROOF_BYTES] },
    /// The request is accepted; rank 0 proves that it knows the token, too.
    Welcome { proof: [u8; PROOF_BYTES] },
    /// The request is rejected. The rank may try `again` if it may have reached rank 0 of another
    /// run.
    Refused { again: bool, reason: String },
    /// All ranks have joined; their list.
    Start(Vec<Member>),
    /// A heartbeat: the rank's step, and its current activity.
    Alive { step: u64, doing: String },
    /// A message of `bytes` bytes, and the operation that it belongs to.
    Message { what: String, bytes: u64 },
    /// The rank leaves: regularly, or with an exit code and an error.
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
            _ => Err(invalid("it sent bytes that are not a frame".into())),
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
                    // It is another frame, or invalid; nothing panics.
                    assert!(read(&changed).ok().as_ref() != Some(&frame));
                }
            }
        }
    }
}
