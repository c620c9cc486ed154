//! The host machine: processor and memory, for reports.

/// Processor and memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Threads available to this process.
    pub threads: usize,
    /// Total and available memory in bytes; `None` if the system does not report it.
    pub memory: Option<(u64, u64)>,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: cpu_name(&read("/proc/cpuinfo")).unwrap_or("unknown processor").to_string(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory(&read("/proc/meminfo")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read() {
        let info = "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nmodel name\t: other\n";
        assert_eq!(cpu_name(info), Some("A CPU @ 2 GHz"));
        let info = "MemTotal:        8000 kB\nMemFree: 1 kB\nMemAvailable:    5000 kB\n";
        assert_eq!(memory(info), Some((8000 << 10, 5000 << 10)));
        assert_eq!((cpu_name(""), memory("MemTotal: 8000 kB")), (None, None));
    }
}
