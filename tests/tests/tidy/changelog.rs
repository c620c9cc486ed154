//! The version of the workspace is the newest of CHANGELOG.md, and versions fall from there.

use super::files::File;

const CHANGELOG: &str = "CHANGELOG.md";
const MANIFEST: &str = "Cargo.toml";

/// The heading of changes since the newest version; only the first may be it.
const UNRELEASED: &str = "[Unreleased]";

/// Headings of CHANGELOG.md that are not `## [1.2.3] - 2026-01-31`, or not newest first, and a
/// newest one that is not the workspace's version.
pub(crate) fn faults(files: &[File]) -> Vec<String> {
    let text = |path: &str| files.iter().find(|f| f.path == path).map_or("", |f| &f.text);
    let mut headings: Vec<&str> =
        text(CHANGELOG).lines().filter_map(|line| line.strip_prefix("## ")).collect();
    if headings.first() == Some(&UNRELEASED) {
        headings.remove(0);
    }
    let versions: Vec<Option<Version>> = headings.iter().map(|h| heading(h)).collect();
    let mut faults = Vec::new();
    for (heading, _) in headings.iter().zip(&versions).filter(|(_, v)| v.is_none()) {
        faults.push(format!(
            "{CHANGELOG}: the heading \"{heading}\" is not \"[1.2.3] - 2026-01-31\"; write \
             version and day"
        ));
    }
    for (i, _) in versions.windows(2).enumerate().filter(|(_, pair)| pair[0] <= pair[1]) {
        faults.push(format!(
            "{CHANGELOG}: \"{}\" stands above \"{}\"; put the newest version first",
            headings[i],
            headings[i + 1]
        ));
    }
    let package = text(MANIFEST).split("[workspace.package]").nth(1).unwrap_or("");
    let stated = package.lines().find_map(|line| line.strip_prefix("version = "));
    let stated = stated.map(|version| version.trim_matches('"'));
    let newest = versions.first().copied().flatten();
    if newest.is_none() || newest != stated.and_then(version) {
        let (newest, stated) = (headings.first().unwrap_or(&"nothing"), stated.unwrap_or("none"));
        faults.push(format!(
            "{CHANGELOG}: its newest version is \"{newest}\", that of {MANIFEST} is {stated}; say \
             what a user notices of {stated} in a section of its own"
        ));
    }
    faults
}

type Version = [u32; 3];

/// The version of `[1.2.3] - 2026-01-31`.
fn heading(text: &str) -> Option<Version> {
    let (number, day) = text.strip_prefix('[')?.split_once("] - ")?;
    let lengths = day.split('-').map(str::len).eq([4, 2, 2]);
    let digits = day.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    version(number).filter(|_| lengths && digits)
}

fn version(text: &str) -> Option<Version> {
    let parts: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
    parts?.try_into().ok()
}
