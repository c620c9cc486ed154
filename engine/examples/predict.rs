//! Detects objects in an image with the model of a training run, from Rust:
//! `cargo run --release -p engine --example predict -- runs/quickstart street.jpg 0.5`.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use engine::predictor::Predictor;
use engine::runtime::Backend;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [run, image, min_score] = arguments.as_slice() else {
        return Err("usage: predict RUN IMAGE MIN_SCORE".into());
    };
    predict(run.as_ref(), image.as_ref(), min_score.parse()?, &mut std::io::stdout())
}

/// Prints the objects that the run's last checkpoint detects in the image with at least this score
/// (0 to 1), one per line, highest score first.
pub(crate) fn predict(
    run: &Path,
    image: &Path,
    min_score: f32,
    out: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    let mut predictor = Predictor::from_run(run, &[], &Backend::Cpu)?;
    let mut objects = predictor.predict_file(image)?;
    objects.retain(|object| object.score >= min_score);
    writeln!(out, "{} objects of {} classes", objects.len(), predictor.classes().len())?;
    for object in &objects {
        let [x1, y1, x2, y2] = object.bbox;
        write!(out, "{} {:.2} at {x1:.0},{y1:.0} {x2:.0},{y2:.0}", object.name, object.score)?;
        if let Some(mask) = &object.mask {
            // One byte per pixel of the image, row by row: 1 inside the object.
            let bitmap = mask.decode();
            let rows = bitmap.chunks(mask.width as usize).filter(|row| row.contains(&1));
            let pixels = bitmap.iter().filter(|pixel| **pixel == 1).count();
            write!(out, ", {pixels} pixels on {} rows", rows.count())?;
        }
        writeln!(out)?;
    }
    Ok(())
}
