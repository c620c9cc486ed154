//! The exchange between the processes of a run on the host: the CPU's counterpart to
//! [`Device::all_reduce`](crate::Device::all_reduce).

use std::fmt::Debug;

use crate::Ranks;

/// Moves values between the ranks of a run. It adds nothing: the caller that sums chooses the
/// order.
///
/// All ranks call it the same number of times, in the same order, with lengths that agree.
pub trait Exchange: Debug + Send + Sync {
    /// This rank, and how many there are.
    fn ranks(&self) -> Ranks;

    /// Sends `send[r]` to rank `r`, and receives what rank `r` sends to this one into `receive[r]`:
    /// one slice per rank each, also for this rank itself, whose slices have one length.
    ///
    /// If another rank is lost meanwhile, all of `receive` becomes NaN, and [`Self::fault`] says
    /// why: the results of the step are then of no use.
    fn exchange(&self, send: &[&[f32]], receive: &mut [&mut [f32]]);

    /// Why an exchange failed, if one has.
    fn fault(&self) -> Option<String>;

    /// Ends the exchange on all ranks together, when none of them has anything left to send.
    ///
    /// # Errors
    /// Why it could not end in order.
    fn finish(&self) -> Result<(), String> {
        Ok(())
    }
}

/// One process, which sends to itself.
#[derive(Debug, Clone, Copy)]
pub struct Alone;

impl Exchange for Alone {
    fn ranks(&self) -> Ranks {
        Ranks::ALONE
    }

    fn exchange(&self, send: &[&[f32]], receive: &mut [&mut [f32]]) {
        receive[0].copy_from_slice(send[0]);
    }

    fn fault(&self) -> Option<String> {
        None
    }
}
