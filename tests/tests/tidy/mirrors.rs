//! Constants that Rust and CUDA both know are equal: a launch and its kernels share names for them.

use std::collections::{BTreeMap, BTreeSet};

use super::files::File;
use super::rust::code_only;

const OPS: &str = "kernels/src/ops/";
const HEADERS: &str = "kernels/src/cuda/";
/// Files of an op that no kernel has to agree with.
const APART: [&str; 3] = ["cpu.rs", "cases.rs", "tests.rs"];
/// Rust outside the ops that shares constants with a header of [`HEADERS`].
const PAIRS: [(&str, &str); 3] = [
    ("kernels/src/boxes/coder.rs", "boxes.cuh"),
    ("kernels/src/matmul/launch/mod.rs", "gemm/tile.cuh"),
    ("kernels/src/matmul/launch/variants.rs", "gemm/stepped.cuh"),
];

/// The expression of each constant.
type Constants = BTreeMap<String, String>;

/// Constants of one name, in Rust that launches and in the CUDA sources that it launches, that
/// differ or cannot be compared.
pub(crate) fn faults(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut compared = 0;
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let sources = sources_of(file, files);
        let cuda = constants(&visible(&sources, files), "constexpr ");
        let rust = constants(&file.text, "const ");
        for (name, expression) in &rust {
            let Some(other) = cuda.get(name) else { continue };
            compared += 1;
            let (ours, theirs) = (value(expression, &rust), value(other, &cuda));
            // f32 is written with as many digits as it takes, and no more.
            let equal = ours.zip(theirs).is_some_and(|(a, b)| a as f32 == b as f32);
            if !equal {
                let path = &file.path;
                faults.push(format!(
                    "{path}: `{name}` is `{expression}`, and in CUDA `{other}`; make them equal, \
                     or name two things differently"
                ));
            }
        }
    }
    if compared == 0 {
        faults.push(format!("{OPS}: shares no constant with CUDA; this check proves nothing"));
    }
    faults
}

/// The CUDA sources that a Rust file launches.
fn sources_of<'a>(file: &File, files: &'a [File]) -> Vec<&'a File> {
    let pair = PAIRS.iter().find(|(rust, _)| *rust == file.path);
    if let Some((_, header)) = pair {
        let path = format!("{HEADERS}{header}");
        return files.iter().filter(|other| other.path == path).collect();
    }
    let inside: Vec<&str> = file.path.strip_prefix(OPS).unwrap_or("").splitn(3, '/').collect();
    match inside[..] {
        [kind, op, _] if !APART.contains(&file.name()) => {
            let prefix = format!("{OPS}{kind}/{op}/");
            let is_source =
                |other: &&File| other.path.starts_with(&prefix) && other.path.ends_with(".cu");
            files.iter().filter(is_source).collect()
        }
        _ => vec![],
    }
}

/// The text of sources and of all headers that they include.
fn visible(sources: &[&File], files: &[File]) -> String {
    let mut seen = BTreeSet::new();
    let mut todo = sources.to_vec();
    let mut text = String::new();
    while let Some(file) = todo.pop() {
        if !seen.insert(&file.path) {
            continue;
        }
        text += &file.text;
        let folder = file.path.trim_end_matches(file.name());
        for line in file.text.lines() {
            let Some(name) = line.strip_prefix("#include \"") else { continue };
            let name = name.trim_end_matches('"');
            let paths = [format!("{folder}{name}"), format!("{HEADERS}{name}")];
            todo.extend(files.iter().filter(|other| paths.contains(&other.path)));
        }
    }
    text
}

/// Constants at the start of a line; a C++ line may define several.
fn constants(source: &str, keyword: &str) -> Constants {
    let mut found = Constants::new();
    for line in code_only(source).lines() {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let Some((definition, _)) = line.strip_prefix(keyword).and_then(|l| l.split_once(';'))
        else {
            continue;
        };
        for part in definition.split(',') {
            let Some((left, right)) = part.split_once(" = ") else { continue };
            // `NAME: usize` or `int NAME`.
            let name = left.split(':').next().and_then(|left| left.split(' ').next_back());
            found.extend(name.map(|name| (name.to_owned(), right.trim().to_owned())));
        }
    }
    found
}

/// The value of sums and products of numbers and other constants, integer where both sides are.
fn value(expression: &str, constants: &Constants) -> Option<f64> {
    let spaced: String = expression
        .chars()
        .flat_map(|c| if "()".contains(c) { vec![' ', c, ' '] } else { vec![c] })
        .collect();
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let value = sum(&tokens, &mut at, constants, 0)?;
    (at == tokens.len()).then_some(value)
}

/// Operators by how tightly they bind, loosest first.
const OPERATORS: [&[&str]; 3] = [&["<<"], &["+", "-"], &["*", "/"]];

fn sum(tokens: &[&str], at: &mut usize, constants: &Constants, level: usize) -> Option<f64> {
    let Some(operators) = OPERATORS.get(level) else { return term(tokens, at, constants) };
    let mut left = sum(tokens, at, constants, level + 1)?;
    while let Some(operator) = tokens.get(*at).filter(|token| operators.contains(token)) {
        *at += 1;
        let right = sum(tokens, at, constants, level + 1)?;
        left = match *operator {
            "+" => left + right,
            "-" => left - right,
            "*" => left * right,
            "/" if left.fract() == 0.0 && right.fract() == 0.0 => (left / right).trunc(),
            "/" => left / right,
            _ => left * right.exp2(),
        };
    }
    Some(left)
}

fn term(tokens: &[&str], at: &mut usize, constants: &Constants) -> Option<f64> {
    let token = *tokens.get(*at)?;
    *at += 1;
    let value = if token == "(" {
        let value = sum(tokens, at, constants, 0)?;
        (tokens.get(*at) == Some(&")")).then(|| *at += 1)?;
        value
    } else if let Some(other) = constants.get(token) {
        value(other, constants)?
    } else {
        let digits = token.replace('_', "");
        match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex.trim_end_matches('u'), 16).ok()? as f64,
            None => digits.trim_end_matches(['f', 'u']).parse().ok()?,
        }
    };
    if tokens.get(*at) == Some(&"as") {
        *at += 2;
    }
    Some(value)
}
