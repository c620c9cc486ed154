//! The ceilings with which each launch is compared: measured ones or the data sheet's peaks.

use std::path::Path;

use anyhow::Context;
use kernels::time::Peak;
use serde::Deserialize;
use serde_json::{Value, json};

/// Maximum rates of the device, and their source.
#[derive(Debug, Clone)]
pub(crate) struct Ceilings {
    pub(crate) peak: Peak,
    pub(crate) source: String,
}

/// The file of `--ceilings`; additional keys are ignored.
#[derive(Debug, Deserialize)]
struct Measured {
    /// GB/s (10^9 bytes read and written per second) of a copy within device memory.
    copy_gb_per_s: f64,
    /// TFLOP/s of a large fp16 GEMM with fp32 accumulation.
    fp16_tflops: f64,
}

impl Ceilings {
    /// The ceilings in the file `path`, or else the data sheet's peaks of the device named
    /// `device`; `None` if they are unknown.
    pub(crate) fn of(path: Option<&Path>, device: &str) -> anyhow::Result<Option<Self>> {
        let Some(path) = path else {
            let source = "the data sheet's peaks".to_string();
            return Ok(Peak::of(device).map(|peak| Self { peak, source }));
        };
        let name = path.display().to_string();
        let text = dali::file::read(path).with_context(|| name.clone())?;
        let Measured { copy_gb_per_s, fp16_tflops } =
            serde_json::from_slice(&text).with_context(|| name.clone())?;
        anyhow::ensure!(
            copy_gb_per_s > 0.0 && fp16_tflops > 0.0,
            "{name}: copy_gb_per_s and fp16_tflops must be above 0"
        );
        let peak = Peak { tflops: fp16_tflops, gb_per_s: copy_gb_per_s };
        Ok(Some(Self { peak, source: format!("measured, {name}") }))
    }

    pub(crate) fn json(&self) -> Value {
        let Peak { tflops, gb_per_s } = self.peak;
        json!({"fp16_tflops": tflops, "copy_gb_per_s": gb_per_s, "source": self.source})
    }
}

#[cfg(test)]
mod tests {
    use super::Ceilings;

    #[test]
    fn ceilings_from_file_replace_data_sheet_peaks() {
        let folder = std::env::temp_dir().join(format!("ceilings-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("c.json");
        let read = |text: &str| {
            std::fs::write(&file, text).expect("a file");
            Ceilings::of(Some(&file), "NVIDIA H100").map(|c| c.expect("a file was given").peak)
        };
        let peak = read(r#"{"copy_gb_per_s": 3000, "fp16_tflops": 650.5, "more": 1}"#);
        let peak = peak.expect("both are there");
        assert_eq!((peak.gb_per_s, peak.tflops), (3000.0, 650.5));
        assert!(read(r#"{"copy_gb_per_s": 3000}"#).is_err());
        assert!(read(r#"{"copy_gb_per_s": 0, "fp16_tflops": 1}"#).is_err());
        let sheet = Ceilings::of(None, "NVIDIA H100 80GB HBM3").expect("no file");
        assert_eq!(sheet.expect("a known GPU").source, "the data sheet's peaks");
        assert!(Ceilings::of(None, "unknown").expect("no file").is_none());
        std::fs::remove_dir_all(&folder).expect("the folder");
    }
}
