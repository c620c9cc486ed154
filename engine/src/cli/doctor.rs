//! `onegraph doctor`: shows this machine's hardware for training.

use std::fmt::Write;

use device::architecture::Capability;
use device::cuda::{Installed, InstalledGpu};
use device::manifest::Manifest;
use device::{Device, DeviceError};

use crate::EngineError;
use crate::progress::counted;
use crate::runtime::Machine;

pub(super) fn run() -> Result<(), EngineError> {
    let machine = Machine::here();
    let installed = Installed::find();
    // The GPU is opened briefly, to test which device `--device auto` would select.
    let opened = installed.as_ref().map_err(Clone::clone).and_then(|_| {
        let device = crate::gpu::open(0, super::device::notice)?;
        Ok(device.name())
    });
    super::print(&report(&machine, &installed, &opened, kernels::compiled::kernels().manifest()))
}

/// The text of the report.
fn report(
    machine: &Machine,
    installed: &Result<Installed, DeviceError>,
    opened: &Result<String, DeviceError>,
    manifest: &Manifest,
) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{label:<8} {value}");
    };
    line("onegraph", env!("CARGO_PKG_VERSION").into());
    line("cpu", format!("{}, {}", machine.cpu, counted(machine.threads, "thread")));
    line("memory", memory(machine));
    match installed {
        Ok(installed) => {
            line("driver", format!("NVIDIA, for CUDA {}", installed.cuda));
            for (i, gpu) in installed.gpus.iter().enumerate() {
                line(&format!("gpu {i}"), describe(gpu));
            }
            if installed.gpus.is_empty() {
                line("gpu", "none: the driver lists no GPU".into());
            }
        }
        Err(why) => line("gpu", format!("none: {why}")),
    }
    let count: usize = manifest.sources.iter().map(|s| s.kernels.len()).sum();
    let (files, compiler) = (manifest.sources.len(), &manifest.compiler);
    line("kernels", format!("{count} in {files} files, compiled by {compiler}"));
    let choice = match opened {
        Ok(name) => format!("--device auto trains on the GPU: {name}"),
        Err(DeviceError::Absent(_)) => "--device auto trains on the CPU".into(),
        Err(fault) => format!("--device auto fails ({fault}); use --device cpu"),
    };
    line("auto", choice);
    text
}

fn memory(machine: &Machine) -> String {
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    match machine.memory {
        Some((total, free)) => format!("{:.1} GiB, {:.1} GiB of it free", gib(total), gib(free)),
        None => "unknown: /proc/meminfo cannot be read".into(),
    }
}

fn describe(gpu: &InstalledGpu) -> String {
    let gib = gpu.memory_bytes as f64 / (1u64 << 30) as f64;
    let text = format!("{}, {gib:.1} GiB, compute capability {}", gpu.name, gpu.capability);
    match &gpu.refused {
        Some(why) => format!("{text}; not used: {why}"),
        None if gpu.capability.is_supported() => text,
        None => format!("{text}; not verified: onegraph supports {}", Capability::SUPPORTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine { cpu: "Some CPU".into(), threads: 16, memory: Some((64 << 30, 48 << 30)) }
    }

    fn said(
        installed: Result<Installed, DeviceError>,
        opened: Result<&str, DeviceError>,
    ) -> String {
        let manifest = kernels::compiled::kernels().manifest();
        let text = report(&machine(), &installed, &opened.map(str::to_string), manifest);
        assert!(text.lines().all(|line| line.len() > 9 && !line.ends_with(' ')), "{text}");
        text
    }

    fn gpu(name: &str, (major, minor): (u32, u32), refused: Option<&str>) -> InstalledGpu {
        let capability = Capability { major, minor };
        let refused = refused.map(str::to_string);
        InstalledGpu { name: name.into(), capability, memory_bytes: 80 << 30, refused }
    }

    #[test]
    fn doctor_prints_hardware_and_auto_device() {
        let none = || DeviceError::Absent("no driver is installed".into());
        let fault = DeviceError::Driver { call: "opening".into(), reason: "ECC".into() };
        let gpus = vec![
            gpu("A100", (8, 0), None),
            gpu("V100", (7, 0), Some("too old")),
            gpu("L4", (8, 9), None),
            gpu("B200", (10, 0), None),
        ];
        let installed = || Ok(Installed { cuda: "12.2".into(), gpus: gpus.clone() });
        for (text, lines) in [
            (
                said(Err(none()), Err(none())),
                &[
                    "cpu      Some CPU, 16 threads\n",
                    "memory   64.0 GiB, 48.0 GiB of it free\n",
                    "gpu      none: no driver is installed\n",
                    "auto     --device auto trains on the CPU\n",
                ][..],
            ),
            (
                said(installed(), Ok("A100, driver")),
                &[
                    "driver   NVIDIA, for CUDA 12.2\n",
                    "gpu 0    A100, 80.0 GiB, compute capability 8.0\n",
                    "gpu 1    V100, 80.0 GiB, compute capability 7.0; not used: too old\n",
                    "gpu 2    L4, 80.0 GiB, compute capability 8.9; not verified: onegraph \
                     supports compute capability 8.0 (A100) and 9.0 (H100, H200)\n",
                    "gpu 3    B200, 80.0 GiB, compute capability 10.0; not verified: ",
                    "auto     --device auto trains on the GPU: A100, driver\n",
                ],
            ),
            // A GPU that is present but fails to open is reported as an error.
            (
                said(installed(), Err(fault)),
                &["auto     --device auto fails (opening: ECC); use --device cpu\n"],
            ),
        ] {
            for line in lines {
                assert!(text.contains(line), "{line}{text}");
            }
        }
    }

    #[test]
    fn doctor_counts_kernels() {
        let text = said(Err(DeviceError::Absent("x".into())), Err(DeviceError::Absent("x".into())));
        let line = text.lines().find(|l| l.starts_with("kernels")).expect("a line");
        let count: usize = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect(line);
        assert!(count > 50 && line.contains("compiled by"), "{line}");
    }
}
