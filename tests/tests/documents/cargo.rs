//! Commands of cargo: packages, features, targets, and filters of tests.

use std::path::Path;

use cargo_metadata::{Package, Target, TargetKind};
use clap::Parser;

use super::check::Checkout;
use crate::files::{File, root};

/// Commands of cargo's that are not about the workspace's targets.
const WHOLE: [&str; 2] = ["install --locked cargo-deny@0.20.2", "deny check licenses sources"];

/// The part of cargo's command line that the documents use.
#[derive(Parser)]
struct Cargo {
    #[arg(value_parser = ["build", "run", "test"])]
    verb: String,
    #[arg(short, long)]
    package: Vec<String>,
    #[arg(long, value_delimiter = ',')]
    features: Vec<String>,
    #[arg(long)]
    test: Vec<String>,
    #[arg(long)]
    example: Option<String>,
    #[arg(long)]
    bin: Vec<String>,
    #[arg(long)]
    lib: bool,
    #[arg(long)]
    release: bool,
    #[arg(long)]
    workspace: bool,
    filter: Option<String>,
    #[arg(last = true)]
    theirs: Vec<String>,
}

/// The part of a test program's.
#[derive(Parser)]
struct OfTests {
    filters: Vec<String>,
    #[arg(long)]
    nocapture: bool,
    #[arg(long)]
    test_threads: Option<usize>,
}

/// The value that clap parses from words, or its message if they do not parse.
pub(super) fn parsed<T: Parser>(words: &[String]) -> Result<T, String> {
    let words = std::iter::once("program".to_string()).chain(words.iter().cloned());
    T::try_parse_from(words)
        .map_err(|fault| fault.to_string().lines().next().unwrap_or_default().into())
}

impl Checkout {
    /// Checks the arguments of `cargo`.
    ///
    /// # Errors
    /// A package, target or feature that the workspace does not have.
    pub(super) fn cargo(&self, words: &[String]) -> Result<(), String> {
        if WHOLE.contains(&words.join(" ").as_str()) {
            return Ok(());
        }
        let cargo: Cargo = parsed(words)?;
        let all = &self.metadata.packages;
        let packages: Vec<&Package> = match &cargo.package[..] {
            [] if cargo.workspace => all.iter().collect(),
            [] => self.metadata.workspace_default_packages(),
            names => {
                let of = |name: &String| all.iter().find(|package| *package.name == **name);
                let found = names.iter().map(|name| of(name).ok_or(format!("no package {name}")));
                found.collect::<Result<_, _>>()?
            }
        };
        for feature in &cargo.features {
            let (package, feature) = feature.split_once('/').unwrap_or(("", feature));
            let mut of = packages.iter().filter(|p| package.is_empty() || *p.name == package);
            let is_there = of.any(|package| package.features.contains_key(feature));
            is_there.then_some(()).ok_or(format!("no feature {feature}"))?;
        }
        let tests = cargo.test.iter().map(|name| (name, TargetKind::Test));
        let named = tests.chain(cargo.example.iter().map(|name| (name, TargetKind::Example)));
        let named = named.chain(cargo.bin.iter().map(|name| (name, TargetKind::Bin)));
        let target = |(name, kind): (&String, TargetKind)| {
            let mut targets = packages.iter().flat_map(|package| &package.targets);
            let found = targets.find(|target| target.name == *name && target.is_kind(kind.clone()));
            found.ok_or(format!("no {kind} {name}"))
        };
        let targets = named.map(target).collect::<Result<Vec<_>, _>>()?;
        match (cargo.verb.as_str(), &packages[..]) {
            ("build", _) if cargo.theirs.is_empty() => Ok(()),
            ("run", [package]) => self.run(package, &cargo.theirs),
            ("test", packages) => {
                let theirs: OfTests = parsed(&cargo.theirs)?;
                let filters = theirs.filters.iter().chain(&cargo.filter);
                self.tests(packages, &targets, filters)
            }
            _ => Err("it runs nothing".into()),
        }
    }

    /// Checks what a program of the workspace is given.
    fn run(&self, package: &Package, arguments: &[String]) -> Result<(), String> {
        let as_program =
            |name: &str| self.program(name, arguments, true).expect("one of ours, by its name");
        match package.name.as_str() {
            "engine" => as_program("onegraph"),
            "bench" => as_program("bench"),
            name => arguments.iter().filter(|word| word.starts_with("--")).try_for_each(|option| {
                let takes = self.takes(&format!("{}/src/", folder_of(package)), option);
                takes.then_some(()).ok_or(format!("{name} does not take {option}"))
            }),
        }
    }

    /// Checks that each filter is a part of a test's name.
    fn tests<'a>(
        &self,
        packages: &[&Package],
        targets: &[&Target],
        mut filters: impl Iterator<Item = &'a String>,
    ) -> Result<(), String> {
        let places: Vec<String> = match targets {
            [] => packages.iter().map(|package| format!("{}/", folder_of(package))).collect(),
            targets => targets.iter().map(|target| place_of(target)).collect(),
        };
        let is_in = |file: &&File| places.iter().any(|place| file.path.starts_with(place));
        let names: Vec<String> = self.sources.iter().filter(is_in).flat_map(tests_of).collect();
        let unknown = filters.find(|filter| !names.iter().any(|name| name.contains(*filter)));
        unknown.map_or(Ok(()), |filter| Err(format!("no test is called {filter}")))
    }
}

/// A package's folder, from the checkout's root.
fn folder_of(package: &Package) -> String {
    let folder = package.manifest_path.parent().expect("a manifest lies in a folder");
    in_checkout(folder.as_std_path())
}

fn in_checkout(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().into_owned()
}

/// The start of the paths of a target's sources: its file with the folder of that name, or the
/// folder of its `main.rs`.
fn place_of(target: &Target) -> String {
    let path = in_checkout(target.src_path.as_std_path());
    path.strip_suffix("main.rs").unwrap_or(path.trim_end_matches(".rs")).to_string()
}

/// The tests of a file, below it as a module.
fn tests_of(file: &File) -> Vec<String> {
    let module = Path::new(&file.path).file_stem().unwrap_or_default().to_string_lossy();
    let functions = file.text.split("#[test]\n").skip(1);
    let name = |text: &str| Some(text.split_once("fn ")?.1.split_once('(')?.0.to_string());
    functions.filter_map(name).map(|name| format!("{module}::{name}")).collect()
}
