//! The ratchet on new counts: improvements are recorded, regressions need a reason.

use super::figures::figures;
use super::record::{Record, RecordedKernel};
use crate::{FOLDER, Fault};

/// How to accept a regression.
const MEND: &str = "mend the kernel, or record it with --accept-worse REASON";

/// New counts compared with the recorded ones.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The new record: the new counts, with the reasons that still hold.
    pub record: Record,
    /// One sentence per figure that regressed.
    pub worse: Vec<String>,
    /// One sentence per figure that improved, per new kernel, and per kernel that is gone.
    pub unrecorded: Vec<String>,
}

/// Compares new counts with the recorded ones. A kernel that regresses gets the reason, if there is
/// one; an earlier reason stays until a figure of its kernel improves.
pub fn judge(recorded: &Record, measured: Record, reason: Option<&str>) -> Verdict {
    let mut verdict = Verdict { record: measured, ..Verdict::default() };
    for kernel in verdict.record.sources.iter_mut().flat_map(|source| &mut source.kernels) {
        let Some(old) = recorded.kernel(&kernel.name, &kernel.target) else {
            let RecordedKernel { name, target, .. } = kernel;
            verdict.unrecorded.push(format!("{name} on {target}: is not recorded"));
            continue;
        };
        let (worse, better) = changes(old, kernel);
        kernel.accepted = match (reason, worse.is_empty(), better.is_empty()) {
            (Some(reason), false, _) => Some(reason.to_string()),
            (_, true, false) => None,
            _ => old.accepted.clone(),
        };
        verdict.worse.extend(worse);
        verdict.unrecorded.extend(better);
    }
    let gone =
        recorded.kernels().filter(|old| verdict.record.kernel(&old.name, &old.target).is_none());
    let gone = gone.map(|old| format!("{} on {}: is recorded, and gone", old.name, old.target));
    verdict.unrecorded.extend(gone);
    verdict
}

/// Sentences on regressions, and on improvements.
fn changes(old: &RecordedKernel, new: &RecordedKernel) -> (Vec<String>, Vec<String>) {
    let (mut worse, mut better) = (Vec::new(), Vec::new());
    let Some(target) = new.target() else { return (worse, better) };
    let was = figures(&old.counts, target);
    for is in figures(&new.counts, target) {
        // A kernel that starts or stops multiplying matrices has different figures.
        let Some(was) = was.iter().find(|was| was.name == is.name) else {
            better.push(format!("{} on {}: {} is {}", new.name, new.target, is.name, is.text));
            continue;
        };
        let change = format!(
            "{} on {}: {} was {} and is {}",
            new.name, new.target, is.name, was.text, is.text
        );
        if is.value > was.value {
            worse.push(format!("{change}; {MEND}"));
        } else if is.value < was.value {
            better.push(format!("{change}, which is better"));
        }
    }
    (worse, better)
}

/// The record of a checkout; empty if there is none yet.
///
/// # Errors
/// A file that is not a record: its contents must not be lost.
pub fn recorded(text: Option<&Vec<u8>>) -> Result<Record, Fault> {
    let Some(text) = text else { return Ok(Record::default()) };
    Record::parse(&String::from_utf8_lossy(text))
        .map_err(|fault| Fault(format!("{FOLDER}/{fault}; take the file from the last commit")))
}

/// Parses the reason for a regression.
///
/// # Errors
/// A reason that is empty, or more than one line.
pub fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err("say in one line why the figures may be worse".into());
    }
    Ok(text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sass::counts::{Counts, MainLoop};
    use crate::sass::{Measured, Sm};

    fn plain(instructions: u32, loads_16_bit: u32) -> Counts {
        Counts { instructions, in_loops: 10, loads_16_bit, local: 0, main_loop: None }
    }

    fn matrix(blocks: u32, instructions: u32, int: u32) -> Counts {
        let hmma = 64 * blocks;
        let main_loop = MainLoop {
            blocks,
            instructions,
            int,
            hmma,
            ldsm: 16,
            ldgsts: 8,
            loads_16_bit: 0,
            before_hmma: 195,
        };
        Counts { main_loop: Some(main_loop), ..plain(2000, 0) }
    }

    /// A record of kernels on an A100.
    fn record(kernels: &[(&str, Counts)]) -> Record {
        let mut record = Record::default();
        let kernels: Vec<Measured> = kernels
            .iter()
            .map(|(name, counts)| Measured {
                kernel: name.to_string(),
                target: Sm::Sm80,
                counts: counts.clone(),
            })
            .collect();
        record.add("a.ptx", "1", &kernels);
        record
    }

    #[test]
    fn the_same_counts_are_no_news() {
        let old = record(&[("k", matrix(1, 272, 163)), ("l", plain(90, 0))]);
        let verdict = judge(&old, old.clone(), None);
        assert_eq!(verdict, Verdict { record: old, ..Verdict::default() });
    }

    #[test]
    fn each_worse_figure_is_a_sentence() {
        let old = record(&[("k", matrix(1, 272, 160)), ("l", plain(90, 0))]);
        let new = record(&[("k", matrix(1, 280, 168)), ("l", plain(90, 2))]);
        let verdict = judge(&old, new, None);
        assert_eq!(
            verdict.worse,
            [
                "k on sm_80: instructions per k-block was 272 and is 280; mend the kernel, or \
                 record it with --accept-worse REASON",
                "k on sm_80: INT per HMMA was 2.500 and is 2.625; mend the kernel, or record it \
                 with --accept-worse REASON",
                "k on sm_80: issue slots per HMMA cycle was 53.1 % and is 54.7 %; mend the kernel, \
                 or record it with --accept-worse REASON",
                "l on sm_80: 16-bit global loads in loops was 0 and is 2; mend the kernel, or \
                 record it with --accept-worse REASON",
            ]
        );
        assert!(verdict.unrecorded.is_empty());
    }

    #[test]
    fn a_better_figure_is_to_be_recorded() {
        let old = record(&[("k", matrix(1, 272, 163))]);
        let new = record(&[("k", matrix(1, 271, 163))]);
        let verdict = judge(&old, new.clone(), None);
        assert!(verdict.worse.is_empty());
        assert_eq!(
            verdict.unrecorded,
            [
                "k on sm_80: instructions per k-block was 272 and is 271, which is better",
                "k on sm_80: issue slots per HMMA cycle was 53.1 % and is 52.9 %, which is better",
            ]
        );
        assert_eq!(verdict.record, new);
    }

    #[test]
    fn a_loop_that_is_unrolled_is_compared_by_the_block() {
        let old = record(&[("k", matrix(1, 272, 163))]);
        assert!(judge(&old, record(&[("k", matrix(2, 544, 326))]), None).worse.is_empty());
        let worse = judge(&old, record(&[("k", matrix(2, 545, 326))]), None).worse;
        assert_eq!(worse.len(), 2, "{worse:?}");
        assert!(worse[0].contains("k-block was 272 and is 272.50;"), "{worse:?}");
    }

    #[test]
    fn one_better_figure_does_not_make_up_for_a_worse_one() {
        let old = record(&[("k", matrix(1, 272, 163))]);
        let verdict = judge(&old, record(&[("k", matrix(1, 270, 164))]), None);
        assert_eq!((verdict.worse.len(), verdict.unrecorded.len()), (1, 2), "{verdict:?}");
    }

    #[test]
    fn kernels_that_are_new_or_gone_are_told() {
        let (old, new) = (record(&[("k", plain(90, 0))]), record(&[("l", plain(90, 0))]));
        let verdict = judge(&old, new.clone(), None);
        assert!(verdict.worse.is_empty());
        assert_eq!(
            verdict.unrecorded,
            ["l on sm_80: is not recorded", "k on sm_80: is recorded, and gone"]
        );
        assert_eq!(verdict.record, new);
    }

    #[test]
    fn a_reason_stays_until_its_kernel_becomes_better() {
        let of = |record: &Record, name| record.kernel(name, "sm_80").unwrap().accepted.clone();
        let old = record(&[("k", plain(90, 0)), ("l", plain(90, 0))]);
        let worse = record(&[("k", plain(95, 0)), ("l", plain(90, 0))]);
        let accepted = judge(&old, worse.clone(), Some("wider loads")).record;
        assert_eq!(of(&accepted, "k").as_deref(), Some("wider loads"));
        assert_eq!(of(&accepted, "l"), None, "a reason is for what became worse");
        let again = judge(&accepted, worse, None);
        assert_eq!((again.worse.len(), again.record == accepted), (0, true));
        let better = record(&[("k", plain(94, 0)), ("l", plain(90, 0))]);
        assert_eq!(of(&judge(&accepted, better, None).record, "k"), None);
        let worst = record(&[("k", plain(99, 0)), ("l", plain(90, 0))]);
        let worst = judge(&accepted, worst, Some("wider still")).record;
        assert_eq!(of(&worst, "k").as_deref(), Some("wider still"));
    }

    #[test]
    fn a_reason_is_one_line_that_says_something() {
        assert_eq!(reason(" wider loads "), Ok("wider loads".into()));
        for text in ["", "  ", "two\nlines"] {
            assert!(reason(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut old = record(&[("k", matrix(1, 272, 163)), ("l", plain(90, 0))]);
        old.sources[0].kernels[1].accepted = Some("wider \"loads\"".into());
        old.add("b.ptx", "2", &[]);
        let text = old.text().unwrap();
        assert_eq!(text.lines().filter(|line| line.contains("\"name\"")).count(), 2, "{text}");
        assert_eq!(recorded(Some(&text.into_bytes())).unwrap(), old);
        assert_eq!(recorded(None).unwrap(), Record::default());
        let fault = recorded(Some(&"{}".into())).unwrap_err();
        assert!(fault.0.starts_with("ptx/sass.json: missing field `assembler`"), "{fault}");
    }
}
