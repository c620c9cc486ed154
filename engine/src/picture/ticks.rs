//! Ticks of an axis, and their labels.

/// Approximate number of tick labels per axis.
const TICKS: f64 = 5.0;

/// Round numbers from `low` to `high`.
pub fn ticks(low: f64, high: f64) -> Vec<f64> {
    let step = step(low, high);
    let first = (low / step).ceil();
    let end = high + 1e-9 * step;
    (0..20).map(|i| (first + f64::from(i)) * step).take_while(|tick| *tick <= end).collect()
}

/// Extends a range to the next ticks.
pub fn to_ticks((low, high): (f64, f64)) -> (f64, f64) {
    let step = step(low, high);
    ((low / step + 1e-3).floor() * step, (high / step - 1e-3).ceil() * step)
}

/// The distance between ticks.
fn step(low: f64, high: f64) -> f64 {
    let rough = (high - low) / TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|step| step * power >= rough * (1.0 - 1e-9));
    step.unwrap_or(10.0) * power
}

/// Labels of evenly spaced ticks, with as many digits as their distance needs. Large values are in
/// thousands (`k`) or millions (`M`); very small ones have an exponent.
pub fn labels(ticks: &[f64]) -> Vec<String> {
    let top = ticks.iter().fold(0.0_f64, |top, tick| top.max(tick.abs()));
    let step = match ticks {
        [first, second, ..] => second - first,
        _ => top,
    };
    let exponent = |value: f64| (value.log10() + 1e-9).floor() as i32;
    let (scale, unit) = match top {
        t if t >= 1e7 => (1e6, "M".to_string()),
        t if t >= 1e5 => (1e3, "k".to_string()),
        _ if top > 0.0 && exponent(step) < -4 => {
            (10f64.powi(exponent(top)), format!("e{}", exponent(top)))
        }
        _ => (1.0, String::new()),
    };
    let digits = if step > 0.0 { (-exponent(step / scale)).max(0) as usize } else { 0 };
    let label = |tick: &f64| match tick.abs() < 1e-6 * step {
        true => "0".to_string(),
        false => {
            let text = format!("{:.digits$}", tick / scale);
            let text = match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.'),
                false => &text,
            };
            format!("{text}{unit}")
        }
    };
    ticks.iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_extended_to_next_ticks() {
        assert_eq!(to_ticks((0.0, 3.6)), (0.0, 4.0));
        // A learning rate of 0.02, as f32.
        let (_, high) = to_ticks((0.0, f64::from(0.02_f32)));
        assert_eq!(labels(&ticks(0.0, high)).last().map(String::as_str), Some("0.02"));
        assert_eq!(to_ticks((-0.3, 1.0)), (-0.5, 1.0));
    }

    #[test]
    fn tick_labels_have_enough_digits_to_differ() {
        let of = |high: f64| labels(&ticks(0.0, high));
        assert_eq!(of(0.0025), ["0", "0.0005", "0.001", "0.0015", "0.002", "0.0025"]);
        assert_eq!(of(1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(of(2400.0), ["0", "500", "1000", "1500", "2000"]);
        assert_eq!(of(270_000.0), ["0", "100k", "200k"]);
        assert_eq!(of(0.000_02), ["0", "0.5e-5", "1e-5", "1.5e-5", "2e-5"]);
        // For 1, 2.5, 3.3 and 9.9 times each power of 10: labels are distinct, and parse to the
        // values of their ticks.
        for power in -9..9 {
            for high in [1.0, 2.5, 3.3, 9.9] {
                let ticks = ticks(0.0, high * 10f64.powi(power));
                let labels = labels(&ticks);
                for (tick, label) in ticks.iter().zip(&labels) {
                    assert!(label.len() <= 7, "{labels:?}");
                    let plain = label.replace('k', "e3").replace('M', "e6");
                    let value: f64 = plain.parse().expect("a number");
                    assert!((value - tick).abs() <= 1e-9 * tick.abs(), "{labels:?}: {tick}");
                }
                assert!(labels.windows(2).all(|pair| pair[0] != pair[1]), "{labels:?}");
            }
        }
    }
}
