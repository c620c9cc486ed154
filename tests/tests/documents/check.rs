//! Checks that a command is one that the programs, scripts and files of the checkout take.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cargo_metadata::{Metadata, MetadataCommand};
use clap::ArgMatches;
use clap::error::ErrorKind;
use configs::{Config, preset_names};

use crate::files::{File, root, tracked};

/// Programs that are not this checkout's, and keywords of the shell: their arguments are their own.
const OTHERS: [&str; 11] =
    ["apt-get", "aws", "curl", "done", "for", "kubectl", "ln", "mkdir", "openssl", "pip", "tar"];
/// Modules that `python3 -m` runs.
const MODULES: [&str; 5] = [
    "mlperf_logging.compliance_checker",
    "mlperf_logging.package_checker",
    "mlperf_logging.system_desc_checker",
    "pytest",
    "venv",
];
/// Beginnings of variables that other programs read.
const OTHERS_VARIABLES: [&str; 7] = ["FI_", "GLIBC_", "NCCL_", "OMP_", "OMPI_", "ONEDNN_", "PATH"];
/// Options in prose that are no program's of this checkout.
const OTHERS_OPTIONS: [&str; 7] =
    ["--bind-to", "--build-arg", "--fatbin", "--map-by", "--release", "--signal", "--tool"];
/// Placeholders of values that must parse.
const STANDS_FOR: [(&str, &str); 9] = [
    ("$b", "50"),
    ("BATCH", "96"),
    ("CONFIG", "tiny"),
    ("GPU", "h100"),
    ("KEY", "train.steps"),
    ("N", "1"),
    ("NETWORK", "efa"),
    ("RANKS", "8"),
    ("STORE", "plan"),
];
/// The user's own config: README.md's block of TOML.
const OWN_CONFIG: &str = "mine.toml";

/// The checkout, as far as commands can name it.
pub(crate) struct Checkout {
    pub(super) metadata: Metadata,
    /// All but documents and this test.
    pub(super) sources: Vec<File>,
    /// Options of `onegraph` and `bench`.
    options: BTreeSet<String>,
    /// With the user's own config.
    folder: tempfile::TempDir,
}

impl Checkout {
    pub(crate) fn new() -> Self {
        let manifest = root().join("Cargo.toml");
        let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec();
        let metadata = metadata.expect("cargo metadata reads the workspace");
        let mut sources = tracked();
        let readme = sources.iter().find(|file| file.path == "README.md").expect("a README");
        let own = readme.text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(OWN_CONFIG), own.expect("a config")).expect("a file");
        sources
            .retain(|f| !f.path.ends_with(".md") && !f.path.starts_with("tests/tests/documents"));
        let mut options = BTreeSet::from(["--help".into(), "--version".into()]);
        options_of(&engine::cli::command(), &mut options);
        options_of(&bench::command(), &mut options);
        Self { metadata, sources, options, folder }
    }

    /// The config that README.md shows.
    pub(crate) fn own_config(&self) -> PathBuf {
        self.folder.path().join(OWN_CONFIG)
    }

    /// True if a command is one whose options are checked.
    pub(crate) fn knows(&self, words: &[String]) -> bool {
        let mut words = words.iter().map(String::as_str).skip_while(|word| is_assignment(word));
        let (program, rest) = (words.next().unwrap_or_default(), words.collect::<Vec<_>>());
        let ours = ["bench", "cargo", "do", "mpirun", "onegraph", "python3", "sbatch"];
        let is_ours = ours.contains(&program) || (program.contains('/') && !is_others(program));
        is_ours
            && !rest.is_empty()
            && !rest.iter().any(|word| ["-m", "--help", "--version"].contains(word))
    }

    /// Checks a command; in prose the name of a command may stand without its arguments.
    ///
    /// # Errors
    /// A path, program or option that does not exist, or words that do not parse.
    pub(crate) fn check(&self, words: &[String], is_fenced: bool) -> Result<(), String> {
        words.iter().try_for_each(|word| self.path(word))?;
        let begin = words.iter().position(|word| !is_assignment(word)).unwrap_or(words.len());
        words[..begin].iter().try_for_each(|word| self.variable(word))?;
        let Some((program, rest)) = words[begin..].split_first() else { return Ok(()) };
        if program == "bench" && is_fenced {
            return Err("nothing builds bench: cargo run --release -p bench -- ..".into());
        }
        if !(is_fenced || self.knows(words)) {
            return self.prose(words);
        }
        if let Some(checked) = self.program(program, rest, is_fenced) {
            return checked;
        }
        match (program.as_str(), rest) {
            ("cargo", [option]) if option == "--version" => Ok(()),
            ("cargo", rest) => self.cargo(rest),
            ("do", rest) => self.check(rest, is_fenced),
            ("export", rest) => rest.iter().try_for_each(|word| self.variable(word)),
            ("mpirun", rest) => self.check(self.after_options(rest)?, is_fenced),
            ("python3", [option, module, ..]) if option == "-m" => {
                let is_known = MODULES.contains(&module.as_str());
                is_known.then_some(()).ok_or(format!("no module {module} that this test knows"))
            }
            ("python3", [script, rest @ ..]) => self.script(script, rest, is_fenced),
            ("sbatch", rest) => {
                let script = rest.iter().position(|word| !word.starts_with('-'));
                self.check(&rest[script.ok_or("no script")?..], is_fenced)
            }
            (name, _) if is_others(name) => Ok(()),
            (path, rest) => self.script(path, rest, is_fenced),
        }
    }

    /// Parses the arguments of `onegraph` or `bench`, and reads the config that they name. `None`
    /// for any other program.
    pub(super) fn program(
        &self,
        program: &str,
        arguments: &[String],
        is_fenced: bool,
    ) -> Option<Result<(), String>> {
        let command = match program.rsplit('/').next() {
            Some("onegraph") => engine::cli::command(),
            Some("bench") => bench::command(),
            _ => return None,
        };
        let words = std::iter::once("program".into()).chain(stand_ins(arguments));
        let parsed = match command.try_get_matches_from(words) {
            Ok(parsed) => parsed,
            Err(fault) => {
                let is_name = match fault.kind() {
                    ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
                    ErrorKind::MissingRequiredArgument | ErrorKind::MissingSubcommand => !is_fenced,
                    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => !is_fenced,
                    // An option without its value.
                    ErrorKind::InvalidValue => {
                        !is_fenced && arguments.last().is_some_and(|word| word.starts_with("--"))
                    }
                    _ => false,
                };
                let why = fault.to_string().lines().next().unwrap_or_default().to_string();
                return Some(if is_name { Ok(()) } else { Err(why) });
            }
        };
        Some(self.meaning(&parsed))
    }

    /// The key or the config that a command names, with its overrides.
    fn meaning(&self, mut parsed: &ArgMatches) -> Result<(), String> {
        while let Some((_, inner)) = parsed.subcommand() {
            parsed = inner;
        }
        if let Some(key) = values(parsed, "key").first() {
            let is_table = configs::keys_of_table(key).next().is_some();
            let is_known = is_table || configs::key(key).is_some();
            return is_known.then_some(()).ok_or(format!("no key {key}"));
        }
        let named = ["config", "preset"].map(|id| values(parsed, id)).concat();
        let path = match named.first().map_or("", String::as_str) {
            "" => "tiny".into(),
            OWN_CONFIG => self.own_config(),
            name if preset_names().any(|preset| preset == name) => name.into(),
            name if root().join(name).exists() => root().join(name),
            name => return Err(format!("{name} is no preset, and no file of the checkout")),
        };
        let mut sets = values(parsed, "set");
        // Else a name for several.
        sets.retain(|set| set.contains('='));
        Config::load(path, &sets).map(drop).map_err(|fault| fault.to_string())
    }

    /// Checks a script of the checkout with its arguments: its text has each option.
    fn script(&self, path: &str, rest: &[String], is_fenced: bool) -> Result<(), String> {
        let text = std::fs::read_to_string(root().join(path));
        let text = text.map_err(|_| "no program that this test knows, and no file".to_string())?;
        let train = |rest: &[String]| {
            let words = [&["onegraph".to_string(), "train".into()], rest].concat();
            self.check(&words, is_fenced)
        };
        match path {
            "configs/launch/mpirun.sh" => match self.after_options(rest)? {
                [dashes, command @ ..] if dashes == "--" => self.check(command, is_fenced),
                rest => train(rest),
            },
            "configs/launch/slurm.sbatch" => train(rest),
            "configs/launch/two-hosts.sh" => self.check(rest, is_fenced),
            _ => rest.iter().filter(|word| word.starts_with("--")).try_for_each(|option| {
                text.contains(option).then_some(()).ok_or(format!("{path} does not take {option}"))
            }),
        }
    }

    /// True if a field of the sources below `folder` is an option's.
    pub(super) fn takes(&self, folder: &str, option: &str) -> bool {
        let field = format!(" {}: ", option.trim_start_matches('-').replace('-', "_"));
        let mut files = self.sources.iter().filter(|file| file.path.starts_with(folder));
        files.any(|file| file.text.contains(&field))
    }

    /// The words after the options of `mpirun`, or of our script of that name.
    fn after_options<'a>(&self, mut words: &'a [String]) -> Result<&'a [String], String> {
        while let [option, rest @ ..] = words {
            words = match (option.as_str(), rest) {
                ("-np" | "-n" | "-H" | "--bind-to" | "--map-by", [_, rest @ ..]) => rest,
                ("-x", [variable, rest @ ..]) => self.variable(variable).map(|()| rest)?,
                (option, _) if option.starts_with('-') && option != "--" => {
                    return Err(format!("no option that this test knows: {option}"));
                }
                _ => break,
            };
        }
        Ok(words)
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

    /// Checks that something reads the variable that is set.
    fn variable(&self, word: &str) -> Result<(), String> {
        let name = word.split('=').next().unwrap_or(word);
        let forms = [format!("\"{name}\""), format!("${name}"), format!("${{{name}")];
        let is_read = |file: &File| forms.iter().any(|form| file.text.contains(form));
        let is_known = OTHERS_VARIABLES.iter().any(|begin| name.starts_with(begin))
            || self.sources.iter().any(is_read);
        is_known.then_some(()).ok_or(format!("nothing reads the variable {name}"))
    }

    /// Checks options in prose, and names that begin as presets do.
    fn prose(&self, words: &[String]) -> Result<(), String> {
        for word in words {
            let option = word.split('=').next().unwrap_or(word);
            let is_known = self.options.contains(option)
                || OTHERS_OPTIONS.contains(&option)
                || self.takes("", option);
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

    /// Checks the variables in a page's text, whatever stands around them; what is not ours may be
    /// a constant of the sources.
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

/// Names in a page's prose that look like a key of the config, and are none.
pub(crate) fn unknown_keys(page: &File) -> Vec<String> {
    const FILES: [&str; 7] = ["json", "jsonl", "md", "safetensors", "store", "toml", "yaml"];
    let is_name = |word: &&str| {
        word.contains('.')
            && word.bytes().all(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.'))
    };
    let is_key = |word: &&str| {
        let mut names = word.split('.');
        let is_table = |first| configs::keys_of_table(first).next().is_some();
        let is_file = names.clone().next_back().is_some_and(|last| FILES.contains(&last));
        names.next().is_some_and(is_table) && !is_file
    };
    // A key may hold a table of a user's names.
    let is_known = |word: &str| {
        let is_here = |name: &str| {
            configs::key(name).is_some() || configs::keys_of_table(name).next().is_some()
        };
        is_here(word)
            || word.rsplit_once('.').is_some_and(|(table, _)| configs::key(table).is_some())
    };
    let mut faults = Vec::new();
    for (line, number) in page.text.lines().zip(1..) {
        let spans = line.split('`').skip(1).step_by(2);
        let keys = spans.filter(is_name).filter(is_key).filter(|word| !is_known(word));
        faults.extend(keys.map(|word| format!("{}:{number}: no key {word}", page.path)));
    }
    faults
}

/// A command's own name and arguments if it starts `onegraph` or `bench`.
pub(crate) fn started(words: &[String]) -> Option<Vec<String>> {
    let words: Vec<String> = words.iter().filter(|word| !is_assignment(word)).cloned().collect();
    let cargo = |end: usize, program: &str| Some((program.to_string(), &words[end..]));
    let (program, rest) = match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["onegraph", ..] => cargo(1, "onegraph"),
        ["bench", ..] => cargo(1, "bench"),
        ["cargo", "run", "--release", "-p", "bench", "--", ..] => cargo(6, "bench"),
        ["do", "cargo", "run", "--release", "-p", "bench", "--", ..] => cargo(7, "bench"),
        ["cargo", "run", "--release", "--", ..] => cargo(4, "onegraph"),
        _ => None,
    }?;
    Some(std::iter::once(program).chain(stand_ins(rest)).collect())
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

/// The values of an argument, if the command has one of this name.
fn values(parsed: &ArgMatches, id: &str) -> Vec<String> {
    let raw = parsed.try_get_raw(id).ok().flatten().into_iter().flatten();
    raw.map(|value| value.to_string_lossy().into_owned()).collect()
}

/// Also by its path in an environment of Python's.
fn is_others(program: &str) -> bool {
    program.rsplit('/').next().is_some_and(|name| OTHERS.contains(&name))
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

/// The words with values in place of what stands for one.
fn stand_ins(words: &[String]) -> impl Iterator<Item = String> {
    words.iter().map(|word| {
        let (key, value) = word.rsplit_once('=').map_or(("", &**word), |(key, value)| (key, value));
        match STANDS_FOR.iter().find(|(name, _)| *name == value) {
            Some((_, value)) if key.is_empty() => value.to_string(),
            Some((_, value)) => format!("{key}={value}"),
            None => word.clone(),
        }
    })
}
