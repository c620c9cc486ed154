//! Checks that a command is valid for the programs, scripts and files of the checkout.

use std::collections::BTreeSet;

use clap::ArgMatches;
use clap::error::ErrorKind;
use configs::preset_names;
use engine::config::{Config, schema};
use serde_json::Value;

use crate::files::{File, packages, root, tracked};

/// External programs and shell keywords, whose arguments are not checked.
const OTHERS: [&str; 14] = [
    "apt-get", "aws", "curl", "do", "done", "export", "for", "kubectl", "ln", "mkdir", "openssl",
    "pip", "python3", "tar",
];
/// Programs that start the program given among their arguments.
const STARTERS: [&str; 5] = ["do", "mpirun", "sbatch", "srun", "configs/launch/two-hosts.sh"];
/// Prefixes of variables that external programs read.
const OTHERS_VARIABLES: [&str; 7] = ["FI_", "GLIBC_", "NCCL_", "OMP_", "OMPI_", "ONEDNN_", "PATH"];
/// Options in prose that belong to external programs.
const OTHERS_OPTIONS: [&str; 7] =
    ["--bind-to", "--build-arg", "--fatbin", "--map-by", "--release", "--signal", "--tool"];
/// Placeholders in documents, and values that parse in their place.
const STANDS_FOR: [(&str, &str); 9] = [
    ("$b", "50"),
    ("BATCH", "96"),
    ("CONFIG", "tiny"),
    ("GPU", "h100"),
    ("KEY", "train.steps"),
    ("N", "1"),
    ("RANKS", "8"),
    ("RUN", "plan"),
    ("STORE", "plan"),
];
/// The user's config: the TOML block in README.md.
const OWN_CONFIG: &str = "mine.toml";

/// The parts of the checkout to which commands can refer.
pub(crate) struct Checkout {
    packages: Vec<Value>,
    /// All files except documents and this test.
    sources: Vec<File>,
    /// Options of `onegraph` and `bench`.
    options: BTreeSet<String>,
    /// A folder with the user's config.
    folder: tempfile::TempDir,
}

impl Checkout {
    pub(crate) fn new() -> Self {
        let mut sources = tracked();
        let readme = sources.iter().find(|file| file.path == "README.md").expect("a README");
        let own = readme.text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(OWN_CONFIG), own.expect("a config")).expect("a file");
        sources
            .retain(|f| !f.path.ends_with(".md") && !f.path.starts_with("tests/tests/documents"));
        let mut options = BTreeSet::from(["--help".into(), "--version".into()]);
        for program in ["onegraph", "bench"] {
            options_of(&command(program), &mut options);
        }
        Self { packages: packages(), sources, options, folder }
    }

    /// Checks a command; in prose a command name may appear without its arguments.
    ///
    /// # Errors
    /// A path, program or option that does not exist, or arguments that do not parse.
    pub(crate) fn check(&self, words: &[String], is_fenced: bool) -> Result<(), String> {
        words.iter().try_for_each(|word| self.path(word))?;
        let begin = words.iter().position(|word| !is_assignment(word)).unwrap_or(words.len());
        let (variables, words) = words.split_at(begin);
        variables.iter().try_for_each(|word| self.variable(word))?;
        if let Some((program, arguments)) = started(words) {
            return self.program(&program, arguments, is_fenced);
        }
        match words {
            [cargo, rest @ ..] if cargo == "cargo" => self.cargo(rest),
            [python, script, ..] if python == "python3" && script != "-m" => {
                self.check(&words[1..], is_fenced)
            }
            [script, rest @ ..] if root().join(script).is_file() => {
                let text = std::fs::read_to_string(root().join(script)).unwrap_or_default();
                let options = rest.iter().filter(|word| word.starts_with("--"));
                let is_known = |option: &&String| {
                    let name = option.split('=').next().unwrap_or(option);
                    name == "--" || text.contains(name) || self.options.contains(name)
                };
                let unknown = options.clone().find(|option| !is_known(option));
                unknown.map_or(Ok(()), |option| Err(format!("{script} does not take {option}")))
            }
            words if !is_fenced => self.prose(words),
            // `target` contains the built and installed programs.
            [program, ..] if !program.starts_with("target/") && !OTHERS.contains(&&**program) => {
                Err(format!("{program} is no program that this test knows, and no file"))
            }
            _ => Ok(()),
        }
    }

    /// Parses the arguments of `onegraph` or `bench`, and reads the config that they select.
    fn program(
        &self,
        program: &str,
        arguments: Vec<String>,
        is_fenced: bool,
    ) -> Result<(), String> {
        let ends_in_option = arguments.last().is_some_and(|word| word.starts_with("--"));
        let words = std::iter::once(program.to_string()).chain(arguments);
        command(program).try_get_matches_from(words).map_or_else(
            |fault| {
                let is_name = match fault.kind() {
                    ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
                    ErrorKind::MissingRequiredArgument
                    | ErrorKind::MissingSubcommand
                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => !is_fenced,
                    // Prose may contain an option without its value.
                    ErrorKind::InvalidValue => !is_fenced && ends_in_option,
                    _ => false,
                };
                let why = fault.to_string().lines().next().unwrap_or_default().to_string();
                if is_name { Ok(()) } else { Err(why) }
            },
            |parsed| self.meaning(&parsed),
        )
    }

    /// Checks the key or the config to which a command refers, with its overrides.
    fn meaning(&self, mut parsed: &ArgMatches) -> Result<(), String> {
        while let Some((_, inner)) = parsed.subcommand() {
            parsed = inner;
        }
        if let Some(key) = values(parsed, "key").first() {
            let is_table = schema().keys_of_table(key).next().is_some();
            let is_known = is_table || schema().key(key).is_some();
            return is_known.then_some(()).ok_or(format!("no key {key}"));
        }
        let named = ["config", "preset"].map(|id| values(parsed, id)).concat();
        let path = match named.first().map_or("", String::as_str) {
            "" => "tiny".into(),
            OWN_CONFIG => self.folder.path().join(OWN_CONFIG),
            name if preset_names().any(|preset| preset == name) => name.into(),
            name if root().join(name).exists() => root().join(name),
            name => return Err(format!("{name} is no preset, and no file of the checkout")),
        };
        let mut sets = values(parsed, "set");
        // A word without `=` is a placeholder for several overrides.
        sets.retain(|set| set.contains('='));
        let config = Config::load(path, &sets).and_then(|config| config.validate());
        config.map_err(|fault| fault.to_string())
    }

    /// Checks packages and targets given to `cargo`, and filters of tests.
    fn cargo(&self, words: &[String]) -> Result<(), String> {
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        let (ours, theirs) = words.split_at(end);
        let packages = || self.packages.iter();
        let targets = |of: &'_ Value| of["targets"].as_array().cloned().unwrap_or_default();
        for pair in ours.windows(2) {
            let name = &pair[1];
            let is_there = match pair[0].as_str() {
                "-p" => packages().any(|package| package["name"] == **name),
                "--test" | "--example" | "--bin" => {
                    packages().flat_map(targets).any(|of| of["name"] == **name)
                }
                _ => true,
            };
            is_there.then_some(()).ok_or(format!("no {} {name}", pair[0]))?;
        }
        let is = |verb: &str| words.first().is_some_and(|word| word == verb);
        let (runs, tests) = (is("run"), is("test"));
        let mut options = theirs.iter().skip(1).filter(|word| runs && word.starts_with("--"));
        if let Some(option) = options.find(|option| !self.takes(option)) {
            return Err(format!("no option {option}"));
        }
        let mut filters = words.iter().filter(|word| tests && word.contains(['_', ':']));
        let is_named = |filter: &&String| {
            let name = filter.trim_end_matches(':');
            let name = name.rsplit("::").next().unwrap_or(name);
            self.sources.iter().any(|file| file.text.contains(name) || file.path.contains(name))
        };
        let unknown = filters.find(|filter| !is_named(filter));
        unknown.map_or(Ok(()), |filter| Err(format!("no test is called {filter}")))
    }

    /// True if a field in the sources declares this option.
    fn takes(&self, option: &str) -> bool {
        let field = format!(" {}: ", option.trim_start_matches('-').replace('-', "_"));
        self.sources.iter().any(|file| file.text.contains(&field))
    }

    /// Checks that a path of the checkout exists.
    fn path(&self, word: &str) -> Result<(), String> {
        let path = word.rsplit(['=', ':']).next().unwrap_or(word);
        let folder = path.split_once('/').map_or(String::new(), |(room, _)| format!("{room}/"));
        let is_ours = self.sources.iter().any(|file| file.path.starts_with(&folder));
        let is_path = folder.len() > 1 && is_ours && !path.contains(['*', '<', '{']);
        let is_missing = is_path && !root().join(path).exists();
        if is_missing { Err(format!("{path} is not in the checkout")) } else { Ok(()) }
    }

    /// Checks that the program reads an environment variable that a command sets.
    fn variable(&self, word: &str) -> Result<(), String> {
        let name = word.split('=').next().unwrap_or(word);
        let forms = [format!("\"{name}\""), format!("${name}"), format!("${{{name}")];
        let is_read = |file: &File| forms.iter().any(|form| file.text.contains(form));
        let is_known = OTHERS_VARIABLES.iter().any(|begin| name.starts_with(begin))
            || self.sources.iter().any(is_read);
        is_known.then_some(()).ok_or(format!("nothing reads the variable {name}"))
    }

    /// Checks options in prose, and names that begin like those of presets.
    fn prose(&self, words: &[String]) -> Result<(), String> {
        for word in words {
            let option = word.split('=').next().unwrap_or(word);
            let is_known = self.options.contains(option)
                || OTHERS_OPTIONS.contains(&option)
                || self.takes(option);
            if option.len() > 2 && option.starts_with("--") && !is_known {
                return Err(format!("no program takes {option}"));
            }
            let family = word.split_once('_').map_or("", |(family, _)| family);
            let is_named = preset_names().any(|preset| preset.split('_').next() == Some(family));
            let is_word = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let is_preset = preset_names().any(|preset| preset == word);
            let is_in = |file: &File| file.text.contains(word.as_str());
            if is_named && is_word && !is_preset && !self.sources.iter().any(is_in) {
                return Err(format!("{word} is no preset"));
            }
        }
        Ok(())
    }

    /// Checks the environment variables in a page's text; other upper-case names may be constants
    /// in the sources.
    pub(crate) fn variables(&self, page: &File) -> Vec<String> {
        let is_end = |c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        let is_name = |name: &&str| name.trim_matches('_').contains('_') && !name.ends_with('_');
        let check = |name: &str| match self.variable(name) {
            Err(why) if name.starts_with("ONEGRAPH_") => Err(why),
            Err(_) if self.sources.iter().any(|file| file.text.contains(name)) => Ok(()),
            checked => checked,
        };
        let lines = page.text.lines().zip(1..);
        let names =
            lines.flat_map(|(line, n)| line.split(is_end).filter(is_name).map(move |w| (w, n)));
        let wrong = names.filter_map(|(name, n)| Some((n, check(name).err()?)));
        wrong.map(|(n, why)| format!("{}:{n}: {why}", page.path)).collect()
    }
}

/// Names in a page's prose that look like a config key, but are not.
pub(crate) fn unknown_keys(page: &File) -> Vec<String> {
    const FILES: [&str; 7] = ["json", "jsonl", "md", "safetensors", "store", "toml", "yaml"];
    let is_name = |word: &&str| {
        word.contains('.')
            && word.bytes().all(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.'))
    };
    let is_key = |word: &&str| {
        let mut names = word.split('.');
        let is_table = |first| schema().keys_of_table(first).next().is_some();
        let is_file = names.clone().next_back().is_some_and(|last| FILES.contains(&last));
        names.next().is_some_and(is_table) && !is_file
    };
    // A key may name a table whose entries the user names.
    let is_known = |word: &str| {
        let is_here = |name: &str| {
            schema().key(name).is_some() || schema().keys_of_table(name).next().is_some()
        };
        is_here(word)
            || word.rsplit_once('.').is_some_and(|(table, _)| schema().key(table).is_some())
    };
    let mut faults = Vec::new();
    for (line, number) in page.text.lines().zip(1..) {
        let spans = line.split('`').skip(1).step_by(2);
        let keys = spans.filter(is_name).filter(is_key).filter(|word| !is_known(word));
        faults.extend(keys.map(|word| format!("{}:{number}: no key {word}", page.path)));
    }
    faults
}

/// The program of this checkout that a command starts, and its arguments, with placeholders
/// replaced by values.
fn started(words: &[String]) -> Option<(String, Vec<String>)> {
    let mut words = words.iter().map(String::as_str);
    let mut first = words.next()?;
    if STARTERS.contains(&first) {
        first = words.find(|word| *word == "cargo" || word.ends_with("onegraph"))?;
    }
    let rest: Vec<&str> = words.collect();
    let (program, arguments) = match (first.rsplit('/').next()?, &rest[..]) {
        (program @ ("onegraph" | "bench"), rest) => (program, rest),
        ("cargo", ["run", "--release", "-p", "bench", "--", rest @ ..]) => ("bench", rest),
        ("cargo", ["run", "--release", "--", rest @ ..]) => ("onegraph", rest),
        _ => return None,
    };
    let value = |word: &&str| {
        let (key, value) = word.rsplit_once('=').map_or(("", *word), |(key, value)| (key, value));
        match STANDS_FOR.iter().find(|(name, _)| *name == value) {
            Some((_, value)) if key.is_empty() => value.to_string(),
            Some((_, value)) => format!("{key}={value}"),
            None => word.to_string(),
        }
    };
    Some((program.to_string(), arguments.iter().map(value).collect()))
}

fn command(program: &str) -> clap::Command {
    match program {
        "onegraph" => engine::cli::command(),
        _ => bench::command(),
    }
}

/// The long options of a command and of its subcommands.
fn options_of(command: &clap::Command, options: &mut BTreeSet<String>) {
    options.extend(command.get_long_flag().map(|long| format!("--{long}")));
    for argument in command.get_arguments() {
        let longs = argument.get_long_and_visible_aliases().unwrap_or_default();
        options.extend(longs.iter().map(|long| format!("--{long}")));
    }
    command.get_subcommands().for_each(|inner| options_of(inner, options));
}

/// The values of an argument, if the command has one with this name.
fn values(parsed: &ArgMatches, id: &str) -> Vec<String> {
    let raw = parsed.try_get_raw(id).ok().flatten().into_iter().flatten();
    raw.map(|value| value.to_string_lossy().into_owned()).collect()
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}
