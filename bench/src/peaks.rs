//! What GPUs can do at most, as their data sheets say: the roofline.

/// Limits of a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Peak {
    /// fp16 products with fp32 sums on tensor cores, without sparsity.
    pub(crate) tflops: f64,
    /// Memory bandwidth.
    pub(crate) gb_per_s: f64,
}

/// By parts of the name that the driver gives; the first row whose parts are all in it counts.
const PEAKS: &[(&[&str], Peak)] = &[
    (&["H200"], Peak { tflops: 989.4, gb_per_s: 4800.0 }),
    (&["H100", "PCIe"], Peak { tflops: 756.0, gb_per_s: 2039.0 }),
    (&["H100", "NVL"], Peak { tflops: 835.0, gb_per_s: 3938.0 }),
    (&["H100"], Peak { tflops: 989.4, gb_per_s: 3352.0 }),
    (&["A100", "PCIE-40GB"], Peak { tflops: 312.0, gb_per_s: 1555.0 }),
    (&["A100", "SXM4-40GB"], Peak { tflops: 312.0, gb_per_s: 1555.0 }),
    (&["A100", "PCIe"], Peak { tflops: 312.0, gb_per_s: 1935.0 }),
    (&["A100"], Peak { tflops: 312.0, gb_per_s: 2039.0 }),
];

impl Peak {
    /// The limits of a GPU of this name, if they are known.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let holds = |parts: &[&str]| parts.iter().all(|part| name.contains(part));
        PEAKS.iter().find(|(parts, _)| holds(parts)).map(|(_, peak)| *peak)
    }

    /// Least milliseconds that so much work takes.
    pub(crate) fn least_ms(&self, flops: f64, bytes: f64) -> f64 {
        1e3 * (flops / (1e12 * self.tflops)).max(bytes / (1e9 * self.gb_per_s))
    }
}

#[cfg(test)]
mod tests {
    use super::Peak;

    #[test]
    fn names_as_drivers_give_them_are_known() {
        let bandwidth = |name| Peak::of(name).map(|peak| peak.gb_per_s);
        assert_eq!(bandwidth("NVIDIA H200, driver for CUDA 13.0"), Some(4800.0));
        assert_eq!(bandwidth("NVIDIA H100 PCIe"), Some(2039.0));
        assert_eq!(bandwidth("NVIDIA H100 80GB HBM3"), Some(3352.0));
        assert_eq!(bandwidth("NVIDIA A100-SXM4-80GB"), Some(2039.0));
        assert_eq!(bandwidth("NVIDIA A100-SXM4-40GB"), Some(1555.0));
        assert_eq!(bandwidth("NVIDIA A100 80GB PCIe"), Some(1935.0));
        assert_eq!(bandwidth("NVIDIA L4"), None);
    }

    #[test]
    fn the_slower_of_products_and_memory_is_the_limit() {
        let peak = Peak { tflops: 100.0, gb_per_s: 1000.0 };
        assert_eq!(peak.least_ms(1e11, 1e6), 1.0);
        assert_eq!(peak.least_ms(1e9, 2e9), 2.0);
    }
}
