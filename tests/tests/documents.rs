//! Every command in README.md, CONTRIBUTING.md and `docs` is valid: its options, presets, keys,
//! files, tests and variables exist.

#[allow(dead_code)]
#[path = "tidy/files.rs"]
mod files;
mod documents {
    pub(crate) mod check;
    pub(crate) mod page;
}

use std::fs;
use std::process::Command;

use documents::check::{Checkout, unknown_keys};
use documents::page::shown;
use files::{File, root, tracked};

/// Languages of blocks: `python/tests` runs Python, and `sh` blocks are commands.
const LANGUAGES: [&str; 5] = ["cpp\n", "python\n", "sh\n", "text\n", "toml\n"];

/// The user documents that contain commands; ARCHITECTURE.md and CHANGELOG.md have none.
fn pages() -> Vec<File> {
    let is_page =
        |path: &str| matches!(path, "README.md" | "CONTRIBUTING.md") || path.starts_with("docs/");
    let is_page = |file: &File| file.path.ends_with(".md") && is_page(&file.path);
    tracked().into_iter().filter(is_page).map(without_others_keys).collect()
}

/// `docs/coming-from.md` without the first column of its tables, which contains the keys of other
/// tools.
fn without_others_keys(page: File) -> File {
    if page.path != "docs/coming-from.md" {
        return page;
    }
    let ours = |line: &str| match line.strip_prefix('|').and_then(|row| row.split_once('|')) {
        Some((_, ours)) => format!("| |{ours}\n"),
        None => format!("{line}\n"),
    };
    File { text: page.text.lines().map(ours).collect(), ..page }
}

fn faults(checkout: &Checkout, page: &File) -> Vec<String> {
    let mut faults = Vec::new();
    for command in shown(page) {
        let checked = checkout.check(&command.words, command.is_fenced);
        let at = |why| format!("{}:{}: {:?}: {why}", page.path, command.line, command.words);
        faults.extend(checked.err().map(at));
    }
    let blocks = page.text.split("```").skip(1).step_by(2);
    let unnamed = blocks.filter(|block| !LANGUAGES.iter().any(|name| block.starts_with(name)));
    faults.extend(unnamed.map(|block| format!("{}: a block of no language: {block}", page.path)));
    faults.extend(checkout.variables(page));
    faults.extend(unknown_keys(page));
    faults
}

#[test]
fn every_documented_command_is_accepted() {
    let (checkout, pages) = (Checkout::new(), pages());
    let found: Vec<String> = pages.iter().flat_map(|page| faults(&checkout, page)).collect();
    assert!(found.is_empty(), "{} faults:\n{}", found.len(), found.join("\n"));
    let fenced = pages.iter().flat_map(shown).filter(|command| command.is_fenced);
    assert!(fenced.count() > 50, "the pages' commands are not found");
}

/// Figures and names that pages copy from the code.
#[test]
fn figures_copied_into_documents_match_code() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("a file");
    let holds = |page: &str, words: &str| {
        assert!(read(page).contains(words), "{page} does not say `{words}`, as the code does");
    };
    let script = read("tools/gpu.sh");
    let limit = |name: &str| script.split(name).nth(1).and_then(|rest| rest.split(' ').next());
    holds("docs/gpu-check.md", &format!("at most {} MiB", limit("most_mib=").expect("a limit")));
    holds("docs/gpu-check.md", &format!("at most {} seconds", limit(" seconds=").expect("one")));

    let quickstart = engine::config::Config::load("quickstart", &[]).expect("a preset");
    holds("docs/convergence.md", &format!("2,400 steps of {})", quickstart.train.batch_size));

    let is_source =
        |file: &File| file.path.starts_with("emulator/src/") && !file.path.contains("/tests");
    for source in tracked().into_iter().filter(is_source) {
        let is_name = |word: &&str| {
            word.starts_with("DRIVER_") && word.bytes().all(|c| c == b'_' || c.is_ascii_uppercase())
        };
        for literal in source.text.split('"').filter(is_name) {
            holds("docs/emulated-driver.md", &format!("`{literal}`"));
        }
    }

    let plan = ["inspect", "plan", "torchvision_r50", "--set", "train.batch_size=12"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_onegraph-under-test"));
    let output = command.args(plan).args(["--set", "train.images_per_group=12"]).output();
    let text = String::from_utf8(output.expect("it starts").stdout).expect("text");
    let (summary, _) = text.split_once("\n\n").expect("a summary");
    holds("docs/measurements.md", summary);
    let words = summary.lines().nth(1).expect("an arena").split([' ', '(']);
    let gib: Vec<&str> = words.filter(|word| word.parse::<f64>().is_ok()).collect();
    let [arena, peak, unshared] = gib[..] else { panic!("{summary}") };
    holds(
        "README.md",
        &format!("{arena} GiB | {peak} GiB live at the peak launch; {unshared} GiB"),
    );
}
