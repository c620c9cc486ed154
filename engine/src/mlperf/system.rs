//! The system description, `systems/NAME.json`, with the properties that the machine reports. The
//! submitter fills in the remaining fields; they are preserved when the file is written again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device::cuda::Installed;
use serde_json::{Map, Value, json};

use super::timer::Submission;
use crate::error::EngineError;
use crate::provenance;
use crate::run_dir::{io, write_whole};
use crate::runtime::Machine;

/// Fields that `system_desc_checker` requires and the machine does not report.
const BY_HAND: [&str; 14] = [
    "accelerator_frequency",
    "accelerator_host_interconnect",
    "accelerator_interconnect",
    "accelerator_interconnect_topology",
    "accelerator_memory_configuration",
    "accelerator_on-chip_memories",
    "cooling",
    "host_memory_configuration",
    "host_networking",
    "host_networking_topology",
    "host_processor_interconnect",
    "host_storage_capacity",
    "host_storage_type",
    "hw_notes",
];

/// Fields that depend on the run; values in an existing file are from an earlier run, so they are
/// replaced.
const OF_THE_RUN: [&str; 7] = [
    "accelerators_per_node",
    "division",
    "framework",
    "number_of_nodes",
    "status",
    "submitter",
    "system_name",
];

/// A system's description.
#[derive(Debug, Clone, PartialEq)]
pub struct System(Map<String, Value>);

impl System {
    /// Describes a system of `nodes` machines identical to this one, each with `accelerators`
    /// devices in use; 0 for a run on CPUs.
    pub fn here(submission: &Submission, nodes: usize, accelerators: usize) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let installed = Installed::find().ok().filter(|_| accelerators > 0);
        let cpus = read("/proc/cpuinfo");
        let mut fields = json!({
            "submitter": submission.org,
            "division": submission.division(),
            "status": submission.status,
            "system_name": submission.system,
            "number_of_nodes": nodes.to_string(),
            "accelerators_per_node": accelerators.to_string(),
            "host_processors_per_node": count(&cpus, "physical id", &["physical id"]),
            "host_processor_model_name": Machine::here().cpu,
            "host_processor_core_count": count(&cpus, "core id", &["physical id", "core id"]),
            "host_processor_vcpu_count": count(&cpus, "processor", &["processor"]),
            "host_processor_frequency": megahertz(
                &read("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"),
            ),
            "host_processor_caches": caches(Path::new("/sys/devices/system/cpu/cpu0/cache")),
            "host_memory_capacity": memory(),
            "accelerator_model_name": "",
            "accelerator_memory_capacity": "",
            "framework": format!(
                "onegraph {} ({})",
                env!("CARGO_PKG_VERSION"),
                provenance::commit().unwrap_or("unknown commit")
            ),
            "operating_system": pretty_name(&read("/etc/os-release")),
            "other_software_stack": {"kernel": read("/proc/sys/kernel/osrelease").trim()},
            "sw_notes": "",
        });
        if let Some(installed) = &installed {
            fields["other_software_stack"]["cuda_driver"] = installed.cuda.as_str().into();
        }
        if let Some(gpu) = installed.as_ref().and_then(|installed| installed.gpus.first()) {
            fields["accelerator_model_name"] = gpu.name.as_str().into();
            let gib = gpu.memory_bytes as f64 / (1u64 << 30) as f64;
            fields["accelerator_memory_capacity"] = format!("{gib:.0} GiB").into();
        }
        for name in BY_HAND {
            fields[name] = "".into();
        }
        let Value::Object(fields) = fields else { unreachable!("made above") };
        Self(fields)
    }

    /// Writes the description into the folder `out`. Fields filled in an existing description are
    /// kept, except those that depend on the run. Returns the file's path and the fields that are
    /// still empty.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if the existing file is not a description; [`EngineError::Io`].
    pub fn write(mut self, out: &Path) -> Result<(PathBuf, Vec<String>), EngineError> {
        let name = self.0["system_name"].as_str().unwrap_or_default();
        let path = out.join("systems").join(format!("{name}.json"));
        if path.exists() {
            let text = dali::file::read(&path).map_err(io(&path))?;
            let before: Map<String, Value> = serde_json::from_slice(&text).map_err(|fault| {
                EngineError::Usage(format!(
                    "{} does not describe a system ({fault}): correct it, or remove it to have it \
                     written again",
                    path.display()
                ))
            })?;
            let stays = |name: &str| !OF_THE_RUN.contains(&name);
            self.0.extend(before.into_iter().filter(|(name, v)| stays(name) && !is_empty(v)));
        }
        let text = serde_json::to_vec_pretty(&self.0).map_err(std::io::Error::other);
        write_whole(&path, &text.map_err(io(&path))?)?;
        let empty = self.0.iter().filter(|(_, value)| is_empty(value));
        Ok((path, empty.map(|(name, _)| name.clone()).collect()))
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_str() == Some("")
}

/// Number of distinct combinations of the values of `keys` in `/proc/cpuinfo`, as text; empty if
/// the key `needed` is missing.
fn count(cpus: &str, needed: &str, keys: &[&str]) -> String {
    let of = |block: &str, key: &str| {
        let line = block.lines().find(|line| line.split(':').next().map(str::trim) == Some(key));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_string())
    };
    let blocks = cpus.split("\n\n").filter(|block| of(block, needed).is_some());
    let different: BTreeSet<Vec<Option<String>>> =
        blocks.map(|block| keys.iter().map(|key| of(block, key)).collect()).collect();
    if different.is_empty() { String::new() } else { different.len().to_string() }
}

/// Converts a frequency in kilohertz to one in megahertz, both as text.
fn megahertz(text: &str) -> String {
    text.trim().parse::<u64>().map_or(String::new(), |khz| format!("{} MHz", khz / 1000))
}

/// Describes the cache levels of a processor.
fn caches(folder: &Path) -> String {
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let levels =
        (0..8).map(|i| folder.join(format!("index{i}"))).take_while(|level| level.is_dir());
    let described = levels.map(|level| {
        let kind = match read(level.join("type")).as_str() {
            "Data" => "d".to_string(),
            "Instruction" => "i".to_string(),
            _ => String::new(),
        };
        format!("L{}{kind} {}", read(level.join("level")), read(level.join("size")))
    });
    described.collect::<Vec<_>>().join(", ")
}

fn memory() -> String {
    let gib = |bytes: u64| format!("{:.0} GiB", bytes as f64 / (1u64 << 30) as f64);
    Machine::here().memory.map_or(String::new(), |(total, _)| gib(total))
}

/// The name of the operating system in `/etc/os-release`.
fn pretty_name(release: &str) -> String {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or_default().trim_matches('"').to_string()
}

#[cfg(test)]
mod tests {
    use super::{Submission, System, count, megahertz, pretty_name};

    #[test]
    fn system_description_counts_processors() {
        let cpu = |processor: u32, socket: u32, core: u32| {
            format!("processor\t: {processor}\nphysical id\t: {socket}\ncore id\t\t: {core}\n\n")
        };
        let cpus: String =
            [cpu(0, 0, 0), cpu(1, 0, 1), cpu(2, 1, 0), cpu(3, 1, 1), cpu(4, 0, 0)].concat();
        assert_eq!(count(&cpus, "physical id", &["physical id"]), "2");
        assert_eq!(count(&cpus, "core id", &["physical id", "core id"]), "4");
        assert_eq!(count(&cpus, "processor", &["processor"]), "5");
        assert_eq!(count("", "processor", &["processor"]), "");
        assert_eq!((megahertz("3500000\n"), megahertz("")), ("3500 MHz".into(), String::new()));
        assert_eq!(pretty_name("ID=debian\nPRETTY_NAME=\"Debian 12\"\n"), "Debian 12");
    }

    #[test]
    fn manually_filled_fields_of_system_description_are_kept() {
        let out = tempfile::tempdir().expect("a folder");
        let submission = Submission {
            org: "ours".into(),
            system: "box".into(),
            status: "onprem".into(),
            is_closed: true,
        };
        let here = || System::here(&submission, 2, 8);
        let (path, empty) = here().write(out.path()).expect("written");
        assert!(path.ends_with("systems/box.json") && empty.contains(&"cooling".to_string()));
        let text = std::fs::read_to_string(&path).expect("a file");
        std::fs::write(&path, text.replace("\"cooling\": \"\"", "\"cooling\": \"air\""))
            .expect("room");
        let (_, empty) = here().write(out.path()).expect("written");
        assert!(!empty.contains(&"cooling".to_string()));
        assert!(std::fs::read_to_string(&path).expect("a file").contains("\"air\""));
        let other = Submission { org: "theirs".into(), is_closed: false, ..submission.clone() };
        System::here(&other, 2, 8).write(out.path()).expect("written");
        let text = std::fs::read_to_string(&path).expect("a file");
        let kept = ["\"theirs\"", "\"open\"", "\"air\""].iter().all(|word| text.contains(word));
        assert!(kept && !text.contains("\"ours\""), "{text}");
        std::fs::write(&path, "[]").expect("room");
        let fault = here().write(out.path()).expect_err("no description").to_string();
        assert!(fault.contains("box.json") && fault.contains("remove it"), "{fault}");
    }
}
