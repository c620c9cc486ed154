//! Virtual architectures: the target of a PTX file, and the GPUs that run it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Compute capability of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    /// 8 for Ampere, 9 for Hopper.
    pub major: u32,
    /// 0 for A100, H100 and H200.
    pub minor: u32,
}

impl Capability {
    /// The supported GPUs, for messages.
    pub const SUPPORTED: &str = "compute capability 8.0 (A100) and 9.0 (H100, H200)";

    /// True for the GPUs of [`Self::SUPPORTED`]. Later GPUs may run the kernels, but this was never
    /// verified.
    pub fn is_supported(self) -> bool {
        [8, 9].contains(&self.major) && self.minor == 0
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A virtual architecture, `compute_80` or `compute_90a`.
///
/// Ordered by capability; at equal capability, `compute_90a` is greater than `compute_90`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Architecture {
    /// The minimum capability of a GPU that runs it.
    pub capability: Capability,
    /// Runs only on exactly this capability: the `a` of `compute_90a`, which unlocks wgmma and TMA.
    pub specific: bool,
}

impl Architecture {
    /// The default target of every kernel: A100 and all later GPUs.
    pub const COMPUTE_80: Self = Self::new(8, false);
    /// H100 and H200 only.
    pub const COMPUTE_90A: Self = Self::new(9, true);

    const fn new(major: u32, specific: bool) -> Self {
        Self { capability: Capability { major, minor: 0 }, specific }
    }

    /// True if a GPU of this capability runs the PTX.
    pub fn runs_on(self, gpu: Capability) -> bool {
        if self.specific { gpu == self.capability } else { gpu >= self.capability }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Capability { major, minor } = self.capability;
        write!(f, "compute_{major}{minor}{}", if self.specific { "a" } else { "" })
    }
}

/// The error for a name that is not an architecture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an architecture such as compute_80 or compute_90a")]
pub struct NoArchitecture(String);

impl FromStr for Architecture {
    type Err = NoArchitecture;

    fn from_str(name: &str) -> Result<Self, NoArchitecture> {
        let fault = || NoArchitecture(name.to_string());
        let digits = name.strip_prefix("compute_").ok_or_else(fault)?;
        let (digits, specific) = match digits.strip_suffix('a') {
            Some(digits) => (digits, true),
            None => (digits, false),
        };
        let number: u32 = digits.parse().map_err(|_| fault())?;
        if !(10..1000).contains(&number) || digits.starts_with('+') {
            return Err(fault());
        }
        Ok(Self { capability: Capability { major: number / 10, minor: number % 10 }, specific })
    }
}

impl Serialize for Architecture {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Architecture {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architecture_names_round_trip() {
        for architecture in [Architecture::COMPUTE_80, Architecture::COMPUTE_90A] {
            assert_eq!(architecture.to_string().parse(), Ok(architecture));
        }
        assert_eq!(Architecture::COMPUTE_90A.to_string(), "compute_90a");
        for wrong in ["sm_80", "compute_", "compute_a", "compute_8", "compute_+80", "compute_80b"] {
            let fault = wrong.parse::<Architecture>().unwrap_err().to_string();
            assert!(fault.starts_with(&format!("`{wrong}` is not")), "{fault}");
        }
    }

    #[test]
    fn arch_specific_code_runs_only_on_its_capability() {
        let gpu = |major, minor| Capability { major, minor };
        let runs = |a: Architecture| {
            [gpu(7, 5), gpu(8, 0), gpu(8, 6), gpu(9, 0), gpu(10, 0)].map(|c| a.runs_on(c))
        };
        assert_eq!(runs(Architecture::COMPUTE_80), [false, true, true, true, true]);
        assert_eq!(runs(Architecture::COMPUTE_90A), [false, false, false, true, false]);
        assert!(Architecture::COMPUTE_80 < Architecture::COMPUTE_90A);
    }
}
