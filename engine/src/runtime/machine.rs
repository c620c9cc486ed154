//! The host machine: processor and memory, for reports.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

/// Processor and memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Number of threads of this process's parallel loops.
    pub threads: usize,
    /// Total and available memory in bytes, within the limits of this process's control groups and
    /// `ulimit -v`; `None` if the system does not report it.
    pub memory: Option<(u64, u64)>,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: cpu_name(&read("/proc/cpuinfo")).unwrap_or("unknown processor").to_string(),
            threads: rayon::current_num_threads(),
            memory: memory(&read("/proc/meminfo")).map(within_cgroups).map(within_ulimit),
        }
    }
}

fn cpu_name(info: &str) -> Option<&str> {
    info.lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(": ")?.1.trim()))
}

fn memory(info: &str) -> Option<(u64, u64)> {
    let bytes = |key: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
    };
    Some((bytes("MemTotal")?, bytes("MemAvailable")?))
}

/// Limits memory to this process's address space limit (`ulimit -v`), which batch systems set.
fn within_ulimit((total, available): (u64, u64)) -> (u64, u64) {
    let Some(limit) = getrlimit(Resource::As).current else { return (total, available) };
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let taken = pages.saturating_mul(rustix::param::page_size() as u64);
    (total.min(limit), available.min(limit.saturating_sub(taken)))
}

/// Limits memory to the limits of this process's control group and its ancestors.
fn within_cgroups((mut total, mut available): (u64, u64)) -> (u64, u64) {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let version2 = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let version1 = groups.lines().find_map(|line| line.split_once(":memory:").map(|(_, at)| at));
    let places = [
        ("/sys/fs/cgroup", version2, "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", version1, "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ];
    for (root, group, max, used) in places {
        let root = Path::new(root);
        let folder = root.join(group.unwrap_or_default().trim_start_matches('/'));
        for folder in folder.ancestors().take_while(|folder| folder.starts_with(root)) {
            let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
            if let Some((max, free)) = limit(&read(max), &read(used), &read("memory.stat")) {
                (total, available) = (total.min(max), available.min(free));
            }
        }
    }
    (total, available)
}

/// Limit of a control group and the free part of it, in bytes; `None` if it has no limit. Cached
/// files count as free.
fn limit(max: &str, used: &str, stat: &str) -> Option<(u64, u64)> {
    let (max, used): (u64, u64) = (max.trim().parse().ok()?, used.trim().parse().ok()?);
    let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file "));
    let cached: u64 = cached.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
    Some((max, max.saturating_sub(used.saturating_sub(cached))))
}

/// Converts bytes to GiB.
pub(crate) fn gib(bytes: usize) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_name_and_memory_are_parsed_from_proc_files() {
        let info = "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nmodel name\t: other\n";
        assert_eq!(cpu_name(info), Some("A CPU @ 2 GHz"));
        let info = "MemTotal:        8000 kB\nMemFree: 1 kB\nMemAvailable:    5000 kB\n";
        assert_eq!(memory(info), Some((8000 << 10, 5000 << 10)));
        assert_eq!((cpu_name(""), memory("MemTotal: 8000 kB")), (None, None));
    }

    #[test]
    fn cgroup_limit_applies_and_its_page_cache_counts_as_free() {
        assert_eq!(limit("max\n", "5\n", ""), None, "no limit");
        assert_eq!(limit("100\n", "70\n", "anon 1\ninactive_file 20\n"), Some((100, 50)));
        assert_eq!(limit("100\n", "170\n", ""), Some((100, 0)));
        let (total, available) = within_cgroups((1 << 60, 1 << 59));
        assert!(total <= 1 << 60 && available <= 1 << 59);
    }
}
