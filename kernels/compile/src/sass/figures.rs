//! The figures that must not regress. For each, lower is better.

use super::Sm;
use super::counts::Counts;

/// One figure of a kernel on a GPU.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    /// The value as text.
    pub(crate) text: String,
}

/// The figures of a kernel: those of its main loop if it multiplies matrices, else of all its code.
/// Quotients of equal fractions are equal, so values can be compared.
pub(crate) fn figures(counts: &Counts, target: Sm) -> Vec<Figure> {
    let whole = |name, count: u32| Figure { name, value: count.into(), text: count.to_string() };
    let mut figures = match &counts.main_loop {
        Some(body) => {
            let by_block = f64::from(body.instructions) / f64::from(body.blocks);
            let int = f64::from(body.int) / f64::from(body.hmma);
            let slots = issue_slots(counts, target).unwrap_or_default();
            vec![
                Figure {
                    name: "instructions per k-block",
                    value: by_block,
                    text: decimal(by_block),
                },
                Figure { name: "INT per HMMA", value: int, text: format!("{int:.3}") },
                whole("instructions before the first HMMA", body.before_hmma),
                Figure {
                    name: "issue slots per HMMA cycle",
                    value: slots,
                    text: format!("{:.1} %", 100.0 * slots),
                },
            ]
        }
        None => vec![
            whole("instructions", counts.instructions),
            whole("instructions in loops", counts.in_loops),
        ],
    };
    figures.push(whole("16-bit global loads in loops", counts.loads_16_bit));
    figures
}

/// Instructions that a warp scheduler issues per cycle that its tensor core spends on the `HMMA`
/// among them. It issues one per cycle, so from 1 on the tensor core must wait. However many warps
/// a scheduler has, they share both.
pub(crate) fn issue_slots(counts: &Counts, target: Sm) -> Option<f64> {
    let body = counts.main_loop.as_ref()?;
    Some(f64::from(body.instructions) / f64::from(body.hmma) / target.cycles_per_hmma())
}

/// With two decimal places, unless it is a whole number.
fn decimal(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value}") } else { format!("{value:.2}") }
}
