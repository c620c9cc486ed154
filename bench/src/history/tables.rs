//! `bench history --tables`: the GPU tables of a document, generated from the history.

use std::fmt::Write;

use anyhow::ensure;

use super::predictions::{self, TABLE, judged};
use super::schema::{Infer, Session};
use super::trends::short;

const BEGIN: &str = "<!-- history: begin -->";
const END: &str = "<!-- history: end -->";
/// Number of slowest nodes listed.
const NODES: usize = 10;

/// The document with the text between its markers regenerated.
///
/// # Errors
/// A document that does not have the two markers, each once and in order.
pub(super) fn rewritten(document: &str, sessions: &[Session]) -> anyhow::Result<String> {
    let once = |marker: &str| document.matches(marker).count() == 1;
    ensure!(once(BEGIN) && once(END), "wants `{BEGIN}` and `{END}`, once each");
    let (head, rest) = document.split_once(BEGIN).unwrap_or_default();
    let Some((_, tail)) = rest.split_once(END) else {
        anyhow::bail!("`{END}` stands before `{BEGIN}`")
    };
    Ok(format!("{head}{BEGIN}\n{}{END}{tail}", section(sessions)))
}

/// The newest session of each GPU, and the predictions.
fn section(sessions: &[Session]) -> String {
    let mut text = String::new();
    let mut newest: Vec<&Session> = Vec::new();
    for session in sessions.iter().filter(|session| session.is_gpu()) {
        newest.retain(|other| other.device_name() != session.device_name());
        newest.push(session);
    }
    if newest.is_empty() {
        text += "Not verified on hardware: `bench/history` holds no session on a GPU.\n\n";
    }
    for session in &newest {
        // Writing into a string cannot fail.
        let _ = of_session(&mut text, session);
    }
    let _ = of_predictions(&mut text, &newest);
    text
}

fn of_session(text: &mut String, session: &Session) -> std::fmt::Result {
    writeln!(text, "### {}, {}, commit {}\n", session.device_name(), session.date, session.commit)?;
    let told = [
        ("CUDA", session.cuda.as_deref().map(|cuda| cuda.trim_start_matches("CUDA "))),
        ("driver", session.driver.as_deref()),
        ("capability", session.capability.as_deref()),
        ("clocks", session.clocks.as_deref()),
        ("power", session.power.as_deref()),
    ];
    let told: Vec<String> =
        told.iter().filter_map(|(name, value)| Some(format!("{name} {}", (*value)?))).collect();
    if !told.is_empty() {
        writeln!(text, "{}.\n", told.join("; "))?;
    }
    session.remarks.iter().try_for_each(|remark| writeln!(text, "- {remark}"))?;
    if !session.remarks.is_empty() {
        writeln!(text)?;
    }
    if !session.steps.is_empty() {
        writeln!(text, "| step | batch | images/s | p50 ms | p95 ms | GiB |")?;
        writeln!(text, "|---|---|---|---|---|---|")?;
    }
    for s in &session.steps {
        let gib = s.bytes.map_or("".into(), |b| format!("{:.1}", b as f64 / (1u64 << 30) as f64));
        let (rate, p50, p95) = (short(s.images_per_second), short(s.p50_ms), short(s.p95_ms));
        let (preset, batch) = (s.title(), s.batch);
        writeln!(text, "| {preset}, {} | {batch} | {rate} | {p50} | {p95} | {gib} |", s.padded)?;
    }
    if !session.steps.is_empty() {
        writeln!(text)?;
    }
    of_detection(text, &session.infer)?;
    of_peers(text, session)?;
    of_nodes(text, session)
}

fn of_detection(text: &mut String, all: &[Infer]) -> std::fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "| detection | batch | detections an image | program, images/s | + masks | + scores | p50 ms |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|")?;
    for i in all {
        writeln!(
            text,
            "| {}, {} | {} | {} | {} | {} | {} | {} |",
            i.preset,
            i.padded,
            i.batch,
            short(i.detections_per_image),
            short(i.program.images_per_second),
            short(i.masks.images_per_second),
            short(i.scored_images_per_second),
            short(i.masks.p50_ms),
        )?;
    }
    writeln!(text)
}

fn of_peers(text: &mut String, session: &Session) -> std::fmt::Result {
    if session.peers.is_empty() {
        return Ok(());
    }
    writeln!(text, "| beside it, same GPU | work | |")?;
    writeln!(text, "|---|---|---|")?;
    for peer in &session.peers {
        let (value, unit) = (short(peer.value), &peer.unit);
        writeln!(text, "| {} | {} | {value} {unit} |", peer.product, peer.what)?;
    }
    writeln!(text)
}

fn of_nodes(text: &mut String, session: &Session) -> std::fmt::Result {
    if session.nodes.is_empty() {
        return Ok(());
    }
    let mut nodes: Vec<_> = session.nodes.iter().collect();
    nodes.sort_by(|a, b| b.us.total_cmp(&a.us));
    let sum: f64 = nodes.iter().map(|node| node.us / 1e3).sum();
    writeln!(text, "| ms a step, of {} in all | nodes | op | of the ceiling |", short(sum))?;
    writeln!(text, "|---|---|---|---|")?;
    for node in nodes.into_iter().take(NODES) {
        let (ms, count) = (short(node.us / 1e3), node.count);
        let share = node.share_of_ceiling.map_or("".into(), |s| format!("{:.0} %", 100.0 * s));
        let (op, pass, shapes) = (&node.op, &node.pass, &node.shapes);
        writeln!(text, "| {ms} | {count} | `{op}` {pass}, {shapes} | {share} |")?;
    }
    writeln!(text)
}

/// Every prediction, with the measurement from the newest session of its device.
fn of_predictions(text: &mut String, newest: &[&Session]) -> std::fmt::Result {
    writeln!(
        text,
        "Predicted before anything ran on a GPU ({}), for\n12 images of 800x1344 and 64 mask positives \
         an image:\n",
        predictions::source()
    )?;
    writeln!(text, "| device | what | predicted | measured |")?;
    writeln!(text, "|---|---|---|---|")?;
    for row in TABLE {
        let judged = newest.iter().rev().find_map(|session| {
            judged(session).into_iter().find(|judged| std::ptr::eq(judged.row, row))
        });
        let measured = judged.map_or("not verified on hardware".to_string(), |judged| {
            format!("{} {}: {}", short(judged.measured), row.unit, judged.verdict())
        });
        writeln!(text, "| {} | {} | {} | {measured} |", row.device, row.what, row.text())?;
    }
    writeln!(text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::history::collect::read_all;
    use crate::history::samples::gpu;

    const DOCUMENT: &str = "# A\n\n<!-- history: begin -->\nSTALE\n<!-- history: end -->\n\nB\n";

    #[test]
    fn without_a_gpu_the_section_says_so() {
        let mut cpu = gpu("2026-12-01", "aaa", 66.0);
        cpu.device = "cpu: X, 2 threads".into();
        let text = rewritten(DOCUMENT, &[cpu]).expect("markers");
        assert!(text.starts_with("# A\n\n<!-- history: begin -->\nNot verified on hardware"));
        assert!(
            text.ends_with("<!-- history: end -->\n\nB\n") && !text.contains("STALE"),
            "{text}"
        );
        let row = "| H100 | step, batch 12, 800x1344, 64 positives | 38 +- 4 ms | not verified on";
        assert!(text.contains(row), "{text}");
        assert!(!text.contains("###"), "{text}");
        assert_eq!(rewritten(&text, &[]).expect("markers"), text, "once is enough");
    }

    #[test]
    fn the_newest_session_of_a_gpu_stands_beside_the_predictions() {
        let sessions = [gpu("2026-12-01", "aaa", 66.0), gpu("2026-12-03", "ccc", 99.0)];
        let text = rewritten(DOCUMENT, &sessions).expect("markers");
        assert!(text.contains("### NVIDIA H100 80GB HBM3, 2026-12-03, commit ccc"), "{text}");
        assert!(!text.contains("commit aaa"), "{text}");
        assert!(text.contains("| 38 +- 4 ms | 99.00 ms: wrong by +160.5 % |"), "{text}");
        assert!(text.contains("| torchvision_r50, 800x1344 | 12 | 121.2 | 99.00 |"), "{text}");
        assert!(text.contains("| 4.000 | 20 | `upsample_grad` backward, 12x200x336x256"), "{text}");
        assert!(text.contains("not verified on hardware"), "nothing ran on an A100");
    }

    #[test]
    fn a_document_without_its_markers_is_refused() {
        for wrong in ["", BEGIN, END, &format!("{END}{BEGIN}"), &format!("{DOCUMENT}{BEGIN}")] {
            assert!(rewritten(wrong, &[]).is_err(), "{wrong}");
        }
    }

    /// The document matches `bench history --tables`, and every file of the history follows this
    /// schema.
    #[test]
    fn the_tables_of_the_document_are_those_of_the_history() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let sessions = read_all(&root.join("bench/history")).expect("sessions");
        assert!(!sessions.is_empty(), "the history is empty");
        for session in &sessions {
            let path = root.join("bench/history").join(session.file_name());
            let text = std::fs::read_to_string(&path).expect("a session");
            assert_eq!(session.text().expect("text"), text, "{}: not as written", path.display());
        }
        let document = std::fs::read_to_string(root.join("docs/measurements.md")).expect("text");
        let made = rewritten(&document, &sessions).expect("markers");
        assert!(made == document, "run `cargo run --release -p bench -- history --tables`");
    }
}
