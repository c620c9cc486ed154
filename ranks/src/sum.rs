//! All-reduce on CPUs: rank 0 receives the values of all ranks, adds them, and sends the sum to all
//! ranks.

use crate::group::Group;

/// The operation's name in messages.
const WHAT: &str = "the all-reduce of a step";

impl Group {
    /// Sends the `own` values of every rank to rank 0, and the sum to all ranks. On rank 0, `add`
    /// gets the values of all ranks, in rank order, and must write the sum to the first `width`
    /// values. Only rank 0 adds, so all ranks get bit-identical sums.
    ///
    /// If a rank is lost, this sum and all later sums are NaN, and [`Self::fault`] returns the
    /// reason.
    pub fn sum(&self, own: &[f32], width: usize, add: impl FnOnce(&mut [f32])) -> Vec<f32> {
        let sum = || {
            let gathered = self.gather(WHAT, bytemuck::cast_slice(own))?;
            let mut all: Vec<f32> = gathered.iter().flat_map(|of_one| floats(of_one)).collect();
            if self.is_first() {
                add(&mut all);
                all.truncate(width);
            }
            self.broadcast(WHAT, bytemuck::cast_slice(&all))
        };
        let summed = match self.fault() {
            None => sum().map(|sum| floats(&sum)).map_err(|error| error.to_string()),
            Some(fault) => Err(fault),
        };
        match summed {
            Ok(sum) if sum.len() == width => sum,
            Ok(sum) => {
                self.fail(format!("rank 0 sent a sum of {} values instead of {width}", sum.len()));
                vec![f32::NAN; width]
            }
            Err(fault) => {
                self.fail(fault);
                vec![f32::NAN; width]
            }
        }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytemuck::allocation::pod_collect_to_vec(bytes)
}
