//! Which room may import which.

use std::path::Path;

use cargo_metadata::{DependencyKind, MetadataCommand};

use super::files::File;

/// Each room with the rooms that it may import, in its code, its tests and its build.
pub(crate) const ROOMS: &[(&str, &[&str])] = &[
    ("choices", &[]),
    ("configs", &["choices"]),
    ("device", &["choices"]),
    ("compile", &["device"]),
    ("driver", &[]),
    ("driver_nccl", &[]),
    ("kernels", &["choices", "device"]),
    ("test_gpu", &["device", "driver", "driver_nccl", "kernels"]),
    ("dali", &["choices"]),
    ("score", &["dali"]),
    ("graph", &["device", "kernels", "test_gpu"]),
    ("onnx", &["choices", "kernels", "graph"]),
    ("ranks", &[]),
    ("serve", &[]),
    ("s3", &[]),
    (
        "engine",
        &["configs", "device", "kernels", "graph", "dali", "score", "onnx", "ranks", "serve", "s3"],
    ),
    ("python", &["dali", "score", "engine"]),
    ("bench", &["configs", "device", "kernels", "graph", "dali", "ranks", "engine"]),
    ("gpu_kit", &["configs", "device", "kernels", "graph", "engine", "bench"]),
    (
        "tests",
        &[
            "configs",
            "device",
            "compile",
            "driver",
            "driver_nccl",
            "kernels",
            "test_gpu",
            "graph",
            "dali",
            "score",
            "ranks",
            "s3",
            "engine",
            "bench",
            "gpu_kit",
        ],
    ),
];

/// Rooms that only tests may import, and tools of developers: no program for users holds them.
const FOR_TESTS: &[&str] = &["compile", "driver", "driver_nccl", "test_gpu"];

/// Rooms that are no program for users, whatever their tables say.
const FOR_DEVELOPERS: &[&str] = &["tests", "test_gpu"];

/// Rooms inside another's folder; all others are in the folder of their name.
const INNER: &[(&str, &str)] = &[
    ("choices", "configs/choices"),
    ("device", "kernels/device"),
    ("compile", "tools/compile"),
    ("gpu_kit", "tools/gpu-kit"),
    ("driver_nccl", "driver/nccl"),
    ("test_gpu", "driver/test_gpu"),
];

/// The folder of a package, from the checkout's root.
fn folder(package: &str) -> &str {
    INNER.iter().find(|(room, _)| *room == package).map_or(package, |(_, folder)| folder)
}

/// One dependency of a package of the workspace on a folder of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Edge {
    pub(crate) from: String,
    pub(crate) to: String,
    /// The table of the manifest that names it.
    pub(crate) table: &'static str,
}

/// The workspace as cargo knows it.
pub(crate) struct Workspace {
    pub(crate) packages: Vec<String>,
    pub(crate) edges: Vec<Edge>,
}

/// Asks cargo, without resolving (or fetching) anything from a registry.
pub(crate) fn read(root: &Path) -> Workspace {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata reads the workspace");
    let mut workspace = Workspace { packages: Vec::new(), edges: Vec::new() };
    for package in &metadata.packages {
        workspace.packages.push(package.name.to_string());
        let ours = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
        workspace.edges.extend(ours.map(|dependency| Edge {
            from: package.name.to_string(),
            to: dependency.name.clone(),
            table: table_of(dependency.kind),
        }));
    }
    workspace
}

fn table_of(kind: DependencyKind) -> &'static str {
    match kind {
        DependencyKind::Development => "dev-dependencies",
        DependencyKind::Build => "build-dependencies",
        _ => "dependencies",
    }
}

/// Packages that are no room, rooms without a package, and imports that the table does not allow.
pub(crate) fn import_faults(packages: &[String], edges: &[Edge]) -> Vec<String> {
    let mut faults = Vec::new();
    for package in packages {
        if !ROOMS.iter().any(|(room, _)| room == package) {
            let folder = folder(package);
            faults.push(format!(
                "{folder}/Cargo.toml: `{package}` is no room; move its code into a room, or give \
                 it a row in ARCHITECTURE.md and in tests/tests/tidy/rooms.rs"
            ));
        }
    }
    for (room, _) in ROOMS {
        if !packages.iter().any(|package| package == room) {
            faults.push(format!(
                "Cargo.toml: the room `{room}` is no member of the workspace; add it, or take its \
                 row out of ARCHITECTURE.md and tests/tests/tidy/rooms.rs"
            ));
        }
    }
    for Edge { from, to, table } in edges {
        // A package without a row has had its sentence above.
        let Some((_, allowed)) = ROOMS.iter().find(|(room, _)| room == from) else { continue };
        let for_tests = FOR_TESTS.contains(&to.as_str()) && *table != "dev-dependencies";
        let for_developers = FOR_DEVELOPERS.contains(&from.as_str());
        if !for_developers && for_tests && allowed.contains(&to.as_str()) {
            faults.push(format!(
                "{}/Cargo.toml: `{from}` imports `{to}` ([{table}]), which is for tests; move it \
                 to [dev-dependencies]",
                folder(from)
            ));
        }
        if !allowed.contains(&to.as_str()) {
            let allowed = if allowed.is_empty() { "no room".into() } else { allowed.join(", ") };
            let folder = folder(from);
            faults.push(format!(
                "{folder}/Cargo.toml: `{from}` may not import `{to}` ([{table}]), it may import \
                 {allowed}; move the code that needs both up to a room that may"
            ));
        }
    }
    faults
}

/// Members that would escape the lints of the workspace, and a workspace that allows `unsafe`.
pub(crate) fn lint_faults(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.name() == "Cargo.toml") {
        if file.path == "Cargo.toml" {
            if !file.text.contains("\nunsafe_code = \"deny\"\n") {
                faults.push(
                    "Cargo.toml: [workspace.lints.rust] does not deny unsafe code; write \
                     `unsafe_code = \"deny\"` there"
                        .into(),
                );
            }
        } else if !file.text.contains("\n[lints]\nworkspace = true\n") {
            let path = &file.path;
            faults.push(format!(
                "{path}: the package escapes the workspace's lints; write `[lints]` and, on the \
                 next line, `workspace = true`"
            ));
        }
    }
    faults
}
