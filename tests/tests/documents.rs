//! Every command that README.md, CONTRIBUTING.md and `docs` show is one that the programs take: its
//! options, presets, keys, files, tests and variables exist, and what needs only the checkout runs.

#[allow(dead_code)]
#[path = "tidy/files.rs"]
mod files;
mod documents {
    pub(crate) mod cargo;
    pub(crate) mod check;
    pub(crate) mod page;
}

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use documents::check::{Checkout, started, unknown_keys};
use documents::page::shown;
use files::{File, root, tracked};

/// The user's documents that hold commands; ARCHITECTURE.md and CHANGELOG.md have none.
fn pages() -> Vec<File> {
    let is_page =
        |path: &str| matches!(path, "README.md" | "CONTRIBUTING.md") || path.starts_with("docs/");
    let is_page = |file: &File| file.path.ends_with(".md") && is_page(&file.path);
    tracked().into_iter().filter(is_page).map(without_others_keys).collect()
}

/// `docs/coming-from.md` without the first column of its tables, which holds other tools' keys.
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
    let (shown, mut faults) = shown(page);
    for command in &shown {
        let checked = checkout.check(&command.words, command.is_fenced);
        let at = |why| format!("{}:{}: `{}`: {why}", page.path, command.line, command.text());
        faults.extend(checked.err().map(at));
    }
    faults.extend(checkout.variables(page));
    faults.extend(unknown_keys(page));
    faults
}

#[test]
fn every_command_of_the_documents_is_one_that_the_programs_take() {
    let (checkout, pages) = (Checkout::new(), pages());
    let found: Vec<String> = pages.iter().flat_map(|page| faults(&checkout, page)).collect();
    assert!(found.is_empty(), "{} faults:\n{}", found.len(), found.join("\n"));
    let fenced = |page: &File| shown(page).0.iter().filter(|command| command.is_fenced).count();
    assert!(pages.iter().map(fenced).sum::<usize>() > 50, "the pages' commands are not found");
}

/// In every page, after its own text, and in each of its own commands.
#[test]
fn a_planted_mistake_is_caught_in_every_page() {
    const FENCED: [&str; 15] = [
        "onegraph train micro --no-such-option",
        "onegraph train mlperf_999",
        "onegraph train configs/none.toml",
        "onegraph train micro --set train.stepz=3",
        "onegraph train micro --set train.steps=many",
        "onegraph config train.stepz",
        "cargo run --release -p bench -- --plan --gpus many",
        "cargo run --release -p compile -- --fetchh",
        "cargo test --release -p tests --test none",
        "cargo test --release -p tests --test tidy -- no_such_test",
        "cargo build --features none",
        "ONEGRAPH_NONE=1 onegraph doctor",
        "tools/gpu.sh --no-such-option",
        "configs/launch/mpirun.sh -H a:8,b:8 micro --no-such-option",
        "nosuchprogram --help",
    ];
    const PROSE: [&str; 8] = [
        "`solver.learning_rat`",
        "`onegraph train micro --no-such-option`",
        "`mlperf_999`",
        "`--no-such-option`",
        "`cargo test -p tests --test none`",
        "`ONEGRAPH_NONE`",
        "the variable MASTER_PROT",
        "| `bench --plan --set train.stepz=3` |",
    ];
    let checkout = Checkout::new();
    for page in pages() {
        let lines = page.text.lines().count() + 1;
        let text = format!("{}\n```sh\n{}\n```\n", page.text, FENCED.join("\n"));
        let text = format!("{text}\n{}\n", PROSE.join("\n\n"));
        let found = faults(&checkout, &File { path: page.path.clone(), text });
        let first = lines + 2;
        let prose = first + FENCED.len() + 2;
        let planted = FENCED.iter().enumerate().map(|(i, plant)| (first + i, plant));
        let planted = planted.chain(PROSE.iter().enumerate().map(|(i, p)| (prose + 2 * i, p)));
        for (line, plant) in planted {
            let at = format!("{}:{line}: ", page.path);
            assert!(found.iter().any(|f| f.starts_with(&at)), "{at}{plant}\n{}", found.join("\n"));
        }
        for command in shown(&page).0.iter().filter(|command| checkout.knows(&command.words)) {
            let wrong = [&command.words[..], &["--no-such-option".into()]].concat();
            let checked = checkout.check(&wrong, command.is_fenced);
            assert!(checked.is_err(), "{}:{}: {wrong:?}", page.path, command.line);
        }
    }
}

/// Commands run whose subcommand reads nothing but the checkout, unless they name a run or a folder
/// of the user's or their data; commands that train, draw data or measure take minutes.
#[test]
fn commands_that_need_only_the_checkout_run() {
    const RUN: [&str; 5] = ["config", "doctor", "inspect", "plan", "history"];
    let (checkout, scratch) = (Checkout::new(), tempfile::tempdir().expect("a folder"));
    std::os::unix::fs::symlink(root().join("configs"), scratch.path().join("configs"))
        .expect("a link");
    fs::copy(checkout.own_config(), scratch.path().join("mine.toml")).expect("a copy");
    for folder in ["docs", "bench/history"] {
        fs::create_dir_all(scratch.path().join(folder)).expect("a folder");
        for file in fs::read_dir(root().join(folder)).expect("a folder").flatten() {
            // Without the folder of pictures.
            let _ = fs::copy(file.path(), scratch.path().join(folder).join(file.file_name()));
        }
    }
    let mut commands = BTreeSet::new();
    for command in pages().iter().flat_map(|page| shown(page).0) {
        commands.extend(started(&command.words).map(|words| (words, command.is_fenced)));
    }
    let mut ran = 0;
    for (words, is_fenced) in commands {
        let theirs = ["RUN", "FOLDER", "--help", "--verify", "data"];
        let named = words.get(1).is_some_and(|verb| RUN.contains(&verb.as_str()))
            || words.iter().any(|word| word == "--print-config");
        if !named || words.iter().any(|word| theirs.contains(&word.as_str())) {
            continue;
        }
        let program = match words[0].as_str() {
            "onegraph" => env!("CARGO_BIN_EXE_onegraph-under-test"),
            _ => env!("CARGO_BIN_EXE_bench-under-test"),
        };
        let mut command = Command::new(program);
        command.args(&words[1..]).current_dir(scratch.path()).stdin(Stdio::null());
        let output = command.env("CUDA_VISIBLE_DEVICES", "").output().expect("it starts");
        // In prose a subcommand's name may stand for it.
        let is_name = !is_fenced && words.len() < 4;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || is_name, "{}\n{said}", words.join(" "));
        ran += 1;
    }
    assert!(ran > 10, "{ran} commands ran");
}

/// Figures and names that a page takes from the code.
#[test]
fn what_the_documents_take_from_the_code_is_there() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("a file");
    let holds = |page: &str, words: &str| {
        assert!(read(page).contains(words), "{page} does not say `{words}`, as the code does");
    };
    let script = read("tools/gpu.sh");
    let limit = |name: &str| script.split(name).nth(1).and_then(|rest| rest.split(' ').next());
    holds("docs/gpu-check.md", &format!("at most {} MiB", limit("most_mib=").expect("a limit")));
    holds("docs/gpu-check.md", &format!("at most {} seconds", limit(" seconds=").expect("one")));

    let quickstart = configs::Config::load("quickstart", &[]).expect("a preset");
    holds("docs/convergence.md", &format!("2,400 steps of {})", quickstart.train.batch_size));

    let is_source =
        |file: &File| file.path.starts_with("driver/src/") && !file.path.contains("/tests");
    for source in tracked().into_iter().filter(is_source) {
        let is_name = |word: &&str| {
            word.starts_with("DRIVER_") && word.bytes().all(|c| c == b'_' || c.is_ascii_uppercase())
        };
        for literal in source.text.split('"').filter(is_name) {
            holds("docs/driver.md", &format!("`{literal}`"));
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
