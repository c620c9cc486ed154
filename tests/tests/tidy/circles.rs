//! The modules of a crate must not import each other in a cycle.
//!
//! Imports between two sibling modules, including their submodules, may go in one direction only. A
//! module and its submodules are one unit and may import each other. Tests may import anything. The
//! engine's config combines tables of keys, which modules declare next to the code that reads them:
//! the config's imports are ignored, and a table imported from the config counts as part of it.

use std::collections::{BTreeMap, BTreeSet};

use super::files::File;
use super::rust::code_only;

/// A module, as its path from the crate's root.
type Module = Vec<String>;

/// The module that combines other modules' declarations.
const ASSEMBLY: &str = "config";

/// The modules of one crate, and their imports.
#[derive(Default)]
struct Crate {
    code: BTreeMap<Module, String>,
    /// Paths that a module re-exports, as written in the source, by exported name; `*` may have
    /// several.
    handed_on: BTreeMap<(Module, String), Vec<Vec<String>>>,
}

/// Cycles between sibling modules, one line each.
pub(crate) fn faults(files: &[File]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Crate> = BTreeMap::new();
    for file in files {
        let Some((root, inside)) = file.path.split_once("/src/") else { continue };
        let Some(module) = module_of(inside) else { continue };
        let code = code_only(&file.text);
        let end = code.find("#[cfg(test)]\nmod tests {").unwrap_or(code.len());
        crates.entry(root).or_default().code.entry(module).or_default().push_str(&code[..end]);
    }
    let mut faults = Vec::new();
    for (root, krate) in &mut crates {
        krate.read_names();
        faults.extend(krate.circles(root));
    }
    if crates.is_empty() {
        faults.push("no crate was found: nothing was checked".into());
    }
    faults
}

/// The module of a file below `src`; none for tests.
fn module_of(inside: &str) -> Option<Module> {
    let mut names: Module = inside.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        names.pop();
    }
    (names.last().map(String::as_str) != Some("tests")).then_some(names)
}

impl Crate {
    fn read_names(&mut self) {
        for (module, code) in &self.code {
            for path in uses(code, true) {
                let path: Vec<String> =
                    path.into_iter().skip_while(|name| name == "self").collect();
                if let Some(name) = path.last().cloned() {
                    self.handed_on.entry((module.clone(), name)).or_default().push(path);
                }
            }
        }
    }

    /// The module that a path refers to from `here`, through re-exports.
    fn resolve(&self, here: &Module, path: &[String], depth: usize) -> Module {
        let mut at = match path.first().map(String::as_str) {
            Some("self" | "super") => here.clone(),
            _ => vec![],
        };
        let mut rest = path;
        while let Some((name, later)) = rest.split_first() {
            match name.as_str() {
                "crate" | "self" => {}
                "super" => drop(at.pop()),
                _ => {
                    at.push(name.clone());
                    if !self.code.contains_key(&at) {
                        at.pop();
                        break;
                    }
                }
            }
            rest = later;
        }
        let Some(name) = rest.first().filter(|_| depth < 5) else { return at };
        if at == [ASSEMBLY] {
            return at;
        }
        let targets = |name: &str| self.handed_on.get(&(at.clone(), name.into()));
        let lead = |target: &[String]| {
            let own = !["crate", "super"].contains(&target[0].as_str());
            let prefix = own.then(|| "self".to_string());
            let target: Vec<String> = prefix.iter().chain(target).cloned().collect();
            self.resolve(&at, &target, depth + 1)
        };
        if let Some(target) = targets(name).and_then(|targets| targets.last()) {
            return lead(target);
        }
        // A glob re-exports the submodules of the module that it names.
        let mut globs = targets("*").into_iter().flatten().map(|glob| {
            let whole: Vec<_> = glob[..glob.len() - 1].iter().chain([name]).cloned().collect();
            lead(&whole)
        });
        globs.find(|found| found.last() == Some(name)).unwrap_or_else(|| at.clone())
    }

    fn circles(&self, root: &str) -> Vec<String> {
        // For each module, the imports between its children.
        let mut below: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        let others = self.code.iter().filter(|(of, _)| of.first().is_none_or(|of| of != ASSEMBLY));
        for (module, code) in others {
            let paths = uses(code, false).into_iter().chain(paths_in_code(code));
            for target in paths.map(|path| self.resolve(module, &path, 0)) {
                let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (module.get(shared), target.get(shared)) {
                    let edges = below.entry(module[..shared].to_vec()).or_default();
                    edges.entry(from.clone()).or_default().insert(to.clone());
                }
            }
        }
        let mut faults = Vec::new();
        for (parent, edges) in &below {
            let parent: String = parent.iter().map(|name| format!("/{name}")).collect();
            for from in edges.keys() {
                let reached = reach(edges, from);
                let back = |to: &&String| *from < **to && reach(edges, to).contains(from);
                faults.extend(reached.iter().filter(back).map(|to| {
                    format!(
                        "{root}/src{parent}: `{from}` and `{to}` import each other in a cycle; \
                         move what both need into a separate module"
                    )
                }));
            }
        }
        faults
    }
}

/// All modules reachable from `from`.
fn reach(edges: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let (mut seen, mut todo) = (BTreeSet::new(), vec![from.to_string()]);
    while let Some(name) = todo.pop() {
        for next in edges.get(&name).into_iter().flatten() {
            if seen.insert(next.clone()) {
                todo.push(next.clone());
            }
        }
    }
    seen
}

/// The paths of all `use` items, with braces expanded: only re-exports, or only paths within the
/// crate.
fn uses(code: &str, handed_on: bool) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let flat: String = code.split_whitespace().collect::<Vec<_>>().join(" ");
    for piece in flat.split(';') {
        let Some((before, tree)) = piece.rsplit_once("use ") else { continue };
        let is_pub = before.trim_end().ends_with("pub") || before.trim_end().ends_with(')');
        let local = ["crate", "super", "self"].iter().any(|start| tree.starts_with(start));
        if if handed_on { is_pub } else { local } {
            expand("", tree, &mut found);
        }
    }
    found
}

/// `a::{b, c::d}` as `a::b` and `a::c::d`.
fn expand(prefix: &str, tree: &str, found: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let Some((head, body)) = tree.split_once('{') else {
        let path = format!("{prefix}{tree}");
        let path = path.split(" as ").next().unwrap_or_default();
        // Nothing follows the last comma of a list.
        if !path.is_empty() && !path.ends_with("::") {
            found.push(path.split("::").map(|name| name.trim().to_owned()).collect());
        }
        return;
    };
    let body = body.strip_suffix('}').unwrap_or(body);
    let (mut depth, mut start) = (0, 0);
    for (i, c) in body.char_indices().chain([(body.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&format!("{prefix}{head}"), &body[start..i], found);
                start = i + 1;
            }
            _ => {}
        }
    }
}

/// Paths within the crate that appear in code.
fn paths_in_code(code: &str) -> Vec<Vec<String>> {
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let paths = words.map(|word| word.split("::").map(str::to_owned).collect::<Vec<_>>());
    paths.filter(|path| path.len() > 1 && ["crate", "super"].contains(&path[0].as_str())).collect()
}
