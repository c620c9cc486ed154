//! The metrics of a COCO evaluation (twelve; ten for keypoints), and their printout.

use std::fmt;

use super::IouType;

/// COCO's names of the twelve box and mask metrics, in the order of [`Summary::stats`].
pub const STAT_NAMES: [&str; 12] =
    ["AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl"];

/// COCO's names of the ten keypoint metrics, in the order of [`Summary::stats`]: by OKS, with
/// [`Summary::max_dets`] detections per image.
pub const KEYPOINT_STAT_NAMES: [&str; 10] =
    ["AP", "AP50", "AP75", "APm", "APl", "AR", "AR50", "AR75", "ARm", "ARl"];

/// IoU and area of a metric, from its name in [`STAT_NAMES`], [`KEYPOINT_STAT_NAMES`] or LVIS's
/// list.
fn slice(name: &str) -> (&'static str, &'static str) {
    match &name[2..] {
        "50" => ("0.50", "all"),
        "75" => ("0.75", "all"),
        "s" => ("0.50:0.95", "small"),
        "m" => ("0.50:0.95", "medium"),
        "l" => ("0.50:0.95", "large"),
        _ => ("0.50:0.95", "all"),
    }
}

/// The line of a metric, as printed by pycocotools or lvis-api. For LVIS, areas have one letter,
/// and the category frequency is added.
pub(super) fn line(name: &str, max_dets: usize, frequency: Option<&str>, value: f64) -> String {
    let (title, short) = match name.starts_with("AP") {
        true => ("Average Precision", "(AP)"),
        false => ("Average Recall", "(AR)"),
    };
    let (iou, area) = slice(name);
    let (area, categories) = match frequency {
        Some(of) if area != "all" => (&area[..1], format!("catIds={of:>3}")),
        Some(of) => (area, format!("catIds={of:>3}")),
        None => (area, String::new()),
    };
    format!(
        " {title:<18} {short} @[ IoU={iou:<9} | area={area:>6} | maxDets={max_dets:>3} {categories}] \
         = {value:.3}"
    )
}

/// The result of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The compared shapes.
    pub iou_type: IouType,
    /// Maximum number of detections per image and category, for keypoints.
    pub max_dets: usize,
    /// The metrics, 0 to 1, in the order of [`IouType::stat_names`]; -1 if undefined.
    pub stats: Vec<f64>,
    /// The reason for each metric that is -1.
    pub undefined: Vec<Undefined>,
    /// Name and AP of each category, in the order of category ids; -1 for a category without
    /// objects.
    pub per_category: Vec<(String, f64)>,
    /// Notes for the reader: which detections were dropped, and why.
    pub notes: Vec<String>,
}

/// A metric that is undefined for the annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undefined {
    /// The metric's name, from [`IouType::stat_names`].
    pub name: &'static str,
    /// The reason, as a clause.
    pub why: String,
}

impl Summary {
    /// AP at IoU 0.50:0.95 over all sizes: the main metric. -1 if undefined.
    #[must_use]
    pub fn ap(&self) -> f64 {
        self.stats[0]
    }

    /// The metrics with their names.
    #[must_use]
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        self.iou_type.stat_names().iter().copied().zip(self.stats.iter().copied()).collect()
    }

    /// Adds a reason for each -1 in `stats`. `num_objects` must not include crowds and, for
    /// keypoints, objects without a labelled keypoint.
    pub(super) fn reasons(
        iou_type: IouType,
        stats: &[f64],
        num_images: usize,
        num_objects: usize,
    ) -> Vec<Undefined> {
        let why = |area: &str| match area {
            _ if num_images == 0 => "the annotations list no images".to_owned(),
            _ if num_objects == 0 && iou_type == IouType::Keypoints => {
                "no object except crowds has a labelled keypoint".to_owned()
            }
            _ if num_objects == 0 => "the annotations have no objects except crowds".to_owned(),
            "small" => "no annotated object is small (up to 32 x 32 pixels)".to_owned(),
            "medium" => "no annotated object is medium (32 x 32 to 96 x 96 pixels)".to_owned(),
            "large" => "no annotated object is large (96 x 96 pixels or more)".to_owned(),
            _ => "nothing annotated can be matched".to_owned(),
        };
        let named = iou_type.stat_names().iter().zip(stats);
        let undefined = named.filter(|(_, stat)| **stat < 0.0);
        undefined.map(|(name, _)| Undefined { name, why: why(slice(name).1) }).collect()
    }
}

impl fmt::Display for Summary {
    /// `bbox`, `segm` or `keypoints`; the lines of the metrics, as printed by pycocotools; then the
    /// undefined metrics with reasons, and the notes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.iou_type)?;
        for (name, value) in self.named() {
            let max_dets = match name {
                _ if self.iou_type == IouType::Keypoints => self.max_dets,
                "AR1" => 1,
                "AR10" => 10,
                _ => 100,
            };
            write!(f, "\n{}", line(name, max_dets, None, value))?;
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
