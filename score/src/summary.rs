//! The twelve numbers of a COCO evaluation, and their printout.

use std::fmt;

use super::IouType;

/// COCO's names of the twelve numbers, in the order of [`Summary::stats`].
pub const STAT_NAMES: [&str; 12] =
    ["AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl"];

/// The slice of each number: IoU, area, detections per image.
const SLICES: [(&str, &str, usize); 12] = [
    ("0.50:0.95", "all", 100),
    ("0.50", "all", 100),
    ("0.75", "all", 100),
    ("0.50:0.95", "small", 100),
    ("0.50:0.95", "medium", 100),
    ("0.50:0.95", "large", 100),
    ("0.50:0.95", "all", 1),
    ("0.50:0.95", "all", 10),
    ("0.50:0.95", "all", 100),
    ("0.50:0.95", "small", 100),
    ("0.50:0.95", "medium", 100),
    ("0.50:0.95", "large", 100),
];

/// The result of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The compared shapes: boxes or masks.
    pub iou_type: IouType,
    /// The twelve numbers, 0 to 1, in the order of [`STAT_NAMES`]; -1 where undefined.
    pub stats: [f64; 12],
    /// Why numbers are -1: one reason per such number.
    pub undefined: Vec<Undefined>,
    /// AP of each category by name, in the order of the ids; -1 for one without objects.
    pub per_category: Vec<(String, f64)>,
    /// Notes for the reader: which detections were dropped, and why.
    pub notes: Vec<String>,
}

/// A number that the annotations leave undefined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undefined {
    /// Its name, of [`STAT_NAMES`].
    pub name: &'static str,
    /// Why, as a clause.
    pub why: String,
}

impl Summary {
    /// AP at IoU 0.50:0.95 over all sizes: the headline. -1 where undefined.
    #[must_use]
    pub fn ap(&self) -> f64 {
        self.stats[0]
    }

    /// The twelve numbers with their names.
    #[must_use]
    pub fn named(&self) -> [(&'static str, f64); 12] {
        std::array::from_fn(|i| (STAT_NAMES[i], self.stats[i]))
    }

    /// Gives each -1 among `stats` its reason. `num_images` and `sizes` (objects that are not
    /// crowd: all, small, medium, large) describe the annotations.
    pub(super) fn reasons(
        stats: &[f64; 12],
        num_images: usize,
        sizes: [usize; 4],
    ) -> Vec<Undefined> {
        let why = |i: usize| match SLICES[i].1 {
            _ if num_images == 0 => "the annotations list no images".to_owned(),
            _ if sizes[0] == 0 => "the annotations have no object but crowds".to_owned(),
            "small" => "no annotated object is small (up to 32 x 32 pixels)".to_owned(),
            "medium" => "no annotated object is medium (32 x 32 to 96 x 96 pixels)".to_owned(),
            "large" => "no annotated object is large (96 x 96 pixels or more)".to_owned(),
            _ => "nothing annotated can be matched".to_owned(),
        };
        (0..12)
            .filter(|&i| stats[i] < 0.0)
            .map(|i| Undefined { name: STAT_NAMES[i], why: why(i) })
            .collect()
    }
}

impl fmt::Display for Summary {
    /// `bbox` or `segm`; the familiar twelve lines, as pycocotools prints them; beneath them what
    /// is undefined and why, and the notes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.iou_type)?;
        for (i, (iou, area, max_dets)) in SLICES.into_iter().enumerate() {
            let (title, short) = match i {
                0..6 => ("Average Precision", "(AP)"),
                _ => ("Average Recall", "(AR)"),
            };
            let value = self.stats[i];
            let end = if i == 11 { "" } else { "\n" };
            write!(
                f,
                " {title:<18} {short} @[ IoU={iou:<9} | area={area:>6} | maxDets={max_dets:>3} ] \
                 = {value:.3}{end}"
            )?;
        }
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for Undefined { name, why } in &self.undefined {
            match reasons.iter_mut().find(|(known, _)| known == why) {
                Some((_, names)) => names.push(name),
                None => reasons.push((why, vec![name])),
            }
        }
        for (why, names) in reasons {
            write!(f, "\n {} undefined (-1): {why}.", names.join(", "))?;
        }
        for note in &self.notes {
            write!(f, "\n Note: {note}.")?;
        }
        Ok(())
    }
}
