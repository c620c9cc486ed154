//! The counts as a Markdown table.

use super::Sm;
use super::counts::{Counts, MainLoop};
use super::figures::issue_slots;
use super::record::Record;

const MATRIX: &str = "\
| kernel | instructions per k-block | HMMA, LDSM, LDGSTS | INT | INT per HMMA \
| before the first HMMA | issue slots per HMMA cycle | 16-bit loads: main loop, all loops |
|---|---|---|---|---|---|---|---|
";
const PLAIN: &str = "\
| kernel | instructions | of them in loops | 16-bit loads in loops |
|---|---|---|---|
";

/// Two tables: kernels that multiply matrices, and the others. Of two numbers, the first is for
/// sm_80, the second for sm_90a.
pub(crate) fn table(record: &Record) -> String {
    let (mut matrix, mut plain) = (MATRIX.to_string(), PLAIN.to_string());
    let mut names: Vec<&str> = record.kernels().map(|kernel| kernel.name.as_str()).collect();
    names.dedup();
    for name in names {
        let on = Sm::ALL.map(|target| Some((target, record.kernel(name, target.name())?)));
        let [Some(a), Some(b)] = on else { continue };
        let both = [(a.0, &a.1.counts), (b.0, &b.1.counts)];
        match [&a.1.counts.main_loop, &b.1.counts.main_loop] {
            [Some(a), Some(b)] => matrix.push_str(&matrix_row(name, both, [a, b])),
            _ => plain.push_str(&plain_row(name, both)),
        }
    }
    format!("{matrix}\n{plain}")
}

fn matrix_row(name: &str, both: [(Sm, &Counts); 2], bodies: [&MainLoop; 2]) -> String {
    let of = |text: fn(&MainLoop) -> String| pair(bodies.map(text));
    let slots = both.map(|(target, counts)| {
        format!("{:.0} %", 100.0 * issue_slots(counts, target).unwrap_or_default())
    });
    let loads = [0, 1].map(|i| format!("{}, {}", bodies[i].loads_16_bit, both[i].1.loads_16_bit));
    let cells = [
        of(|l| per_k_block(l, l.instructions)),
        of(|l| [l.hmma, l.ldsm, l.ldgsts].map(|count| per_k_block(l, count)).join(", ")),
        of(|l| per_k_block(l, l.int)),
        of(|l| format!("{:.2}", f64::from(l.int) / f64::from(l.hmma))),
        of(|l| l.before_hmma.to_string()),
        pair(slots),
        pair(loads),
    ];
    format!("| `{name}` | {} |\n", cells.join(" | "))
}

fn plain_row(name: &str, both: [(Sm, &Counts); 2]) -> String {
    let of = |count: fn(&Counts) -> u32| pair(both.map(|(_, counts)| count(counts).to_string()));
    let cells = [of(|c| c.instructions), of(|c| c.in_loops), of(|c| c.loads_16_bit)];
    format!("| `{name}` | {} |\n", cells.join(" | "))
}

fn per_k_block(body: &MainLoop, count: u32) -> String {
    match count % body.blocks {
        0 => (count / body.blocks).to_string(),
        _ => format!("{:.1}", f64::from(count) / f64::from(body.blocks)),
    }
}

/// One text if both are the same.
fn pair([a, b]: [String; 2]) -> String {
    if a == b { a } else { format!("{a} / {b}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sass::Measured;

    #[test]
    fn both_gpus_stand_in_one_row_and_loops_are_told_by_the_block() {
        // The forward pass in large tiles, on an H100 unrolled to two k-blocks.
        let on = |target, kernel: &str, blocks: u32, instructions: u32| {
            let body = MainLoop {
                blocks,
                instructions: instructions * blocks,
                int: 163 * blocks,
                hmma: 64 * blocks,
                ldsm: 16 * blocks,
                ldgsts: 8 * blocks,
                loads_16_bit: 0,
                before_hmma: 195,
            };
            let main_loop = (kernel == "k").then_some(body);
            let counts =
                Counts { instructions, in_loops: 9, loads_16_bit: 32, local: 0, main_loop };
            Measured { kernel: kernel.into(), target, counts }
        };
        let (a100, h100) = (Sm::Sm80, Sm::Sm90a);
        let mut record = Record::default();
        record.add("a.ptx", "1", &[on(h100, "k", 2, 283), on(a100, "k", 1, 272)]);
        record.add("b.ptx", "1", &[on(h100, "l", 1, 90), on(a100, "l", 1, 80)]);
        let table = table(&record);
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(
            rows,
            [
                "| `k` | 272 / 283 | 64, 16, 8 | 163 | 2.55 | 195 | 53 % / 70 % | 0, 32 |",
                "| `l` | 80 / 90 | 9 | 32 |",
            ]
        );
    }
}
