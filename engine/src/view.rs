//! The view of a training image that the network sees: drawn on the host, a pure function of seed,
//! image and epoch.

use configs::Config;
use dali::DaliError;
use dali::loader::ImageRows;
use kernels::philox::{Purpose, keyed};
use kernels::view::View;

/// Draws views by the rules of a config.
#[derive(Debug, Clone)]
pub struct Views {
    seed: u64,
    /// Words below this mirror an image: in f64 exact, and beyond every word at probability 1.
    mirrored_below: f64,
}

impl Views {
    /// Views of a run with this config.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let mirrored_below = f64::from(config.input.flip_probability) * 2f64.powi(32);
        Self { seed: config.train.seed, mirrored_below }
    }

    /// The view of the image with this row of `image_keys`, from its height and width in the
    /// source to those in the network.
    #[must_use]
    pub fn draw(&self, key: &[i32], source: [i32; 2], network: [i32; 2]) -> View {
        let mut view = View::whole(source, network);
        let word = keyed(self.seed, key, Purpose::Flip, 0);
        view.x.mirrored = i32::from(f64::from(word) < self.mirrored_below);
        view
    }

    /// Draws the view of an image into its rows, which hold its key.
    ///
    /// # Errors
    /// Rows without `image_keys`, `views` or `network_sizes`.
    pub fn fill(
        &self,
        source: [i32; 2],
        network: [i32; 2],
        rows: &mut ImageRows<'_>,
    ) -> Result<(), DaliError> {
        let view = self.draw(rows.row_mut("image_keys")?, source, network);
        rows.row_mut("views")?.copy_from_slice(view.row());
        rows.row_mut("network_sizes")?.copy_from_slice(&network);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Views;

    fn mirrored(seed: u64, probability: f64, n: i32) -> Vec<bool> {
        let views = Views { seed, mirrored_below: probability * 2f64.powi(32) };
        let draw = |id| views.draw(&[100 + id, 0, id, 3], [4, 6], [8, 12]).x.mirrored == 1;
        (0..n).map(draw).collect()
    }

    #[test]
    fn the_share_is_the_probability() {
        let share = |probability| {
            mirrored(1, probability, 10_000).into_iter().filter(|mirrored| *mirrored).count()
        };
        assert_eq!((share(0.0), share(1.0)), (0, 10_000));
        // Four standard deviations of 10,000 draws at 0.25 are 173.
        assert!((2327..=2673).contains(&share(0.25)), "{}", share(0.25));
    }

    #[test]
    fn an_image_decides_for_itself_and_a_seed_for_all() {
        let all = mirrored(7, 0.5, 64);
        assert_eq!(mirrored(7, 0.5, 13), all[..13], "the batch around an image does not matter");
        assert_ne!(mirrored(8, 0.5, 64), all);
    }

    #[test]
    fn more_are_mirrored_at_a_higher_chance() {
        let pairs = mirrored(3, 0.3, 500).into_iter().zip(mirrored(3, 0.6, 500));
        assert!(pairs.into_iter().all(|(low, high)| low <= high));
    }
}
