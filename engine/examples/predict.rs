//! Detects objects on an image with a trained run, from Rust:
//! `cargo run --release -p engine --example predict -- runs/quickstart street.jpg`.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use engine::predictor::Predictor;
use engine::runtime::Backend;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [run, image] = arguments.as_slice() else {
        return Err("usage: predict RUN IMAGE".into());
    };
    predict(run.as_ref(), image.as_ref(), &mut std::io::stdout())
}

/// Prints what the run's last checkpoint finds on the image, one line per object, best first.
pub(crate) fn predict(run: &Path, image: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let mut predictor = Predictor::from_run(run, &[], &Backend::Cpu)?;
    let objects = predictor.predict_file(image)?;
    writeln!(out, "{} objects of {} classes", objects.len(), predictor.classes().len())?;
    for object in &objects {
        let [x1, y1, x2, y2] = object.bbox;
        write!(out, "{} {:.2} at {x1:.0},{y1:.0} {x2:.0},{y2:.0}", object.name, object.score)?;
        // Runs alternate, beginning with the background.
        let mask = object.mask.iter().flat_map(|mask| mask.counts.iter().skip(1).step_by(2));
        writeln!(out, ", {} pixels", mask.sum::<u32>())?;
    }
    Ok(())
}
