//! The findings and actions of `prep`, and their text in its final report.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::padding::PaddingPlan;
use crate::error::DaliError;
use crate::store::{Capacities, Header};

/// Number of ids kept per kind of finding.
const FIRST_IDS: usize = 5;

/// Why an annotation was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum DropReason {
    /// The image id is not among the images.
    #[error("image id not in the file")]
    UnknownImage,
    /// The category id is not among the categories.
    #[error("category id not in the file")]
    UnknownCategory,
    /// The annotation's id appears earlier in the file.
    #[error("annotation id used before")]
    RepeatedId,
    /// The segmentation is absent or empty.
    #[error("no segmentation")]
    NoSegmentation,
    /// No polygon ring has three or more vertices with both coordinates.
    #[error("no polygon of three vertices")]
    BadPolygon,
    /// The run lengths cannot be decoded, or exceed the image.
    #[error("RLE cannot be decoded")]
    BadRuns,
    /// The run lengths are for an image of a different size.
    #[error("RLE of a different size than the image")]
    RunsSize,
    /// The box is not four finite numbers.
    #[error("box is not four finite numbers")]
    BadBox,
    /// The box has no area inside the image.
    #[error("box without area inside the image")]
    DegenerateBox,
    /// The mask covers no pixel.
    #[error("mask covers no pixel")]
    EmptyMask,
    /// The image was skipped.
    #[error("its image was skipped")]
    BadImage,
}

/// A change to a stored annotation, or a likely mistake in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Finding {
    /// The box was clipped to the image.
    ClippedBox,
    /// Polygon rings with fewer than three vertices were removed.
    RemovedRings,
    /// The outline covers no pixel or is invalid; only the box is stored.
    NoOutline,
    /// The annotation has `attributes.rotation` but no outline: its box was replaced by the
    /// axis-aligned bounding box of the rotated box.
    TurnedBox,
    /// The file has no box for the annotation; the bounding box of the mask is stored.
    MadeBox,
    /// The runs do not cover the whole image; the remaining pixels are background.
    ShortRuns,
    /// The box does not match the mask.
    UnfitBox,
    /// The annotated area differs much from the area of the mask.
    FarArea,
    /// An earlier annotation of the image has the same category, box and mask.
    Copy,
    /// The list of keypoints is invalid; the annotation is stored without keypoints. A valid list
    /// has x, y and a visibility of 0, 1 or 2 for each keypoint of the categories.
    BadKeypoints,
}

impl Finding {
    /// True if the finding is likely a mistake in the file.
    fn is_doubt(self) -> bool {
        use Finding::{BadKeypoints, Copy, FarArea, TurnedBox, UnfitBox};
        matches!(self, UnfitBox | FarArea | Copy | BadKeypoints | TurnedBox)
    }

    /// Text of the report: the action, and the data to which the action applies.
    fn words(self) -> [&'static str; 2] {
        match self {
            Finding::ClippedBox => ["clipped", "boxes that extend past their image"],
            Finding::RemovedRings => ["removed", "rings of under 3 vertices"],
            Finding::NoOutline => ["left out", "outlines that are empty or broken"],
            Finding::TurnedBox => ["check", "boxes with attributes.rotation"],
            Finding::MadeBox => ["made", "boxes from masks, as the file has no boxes for them"],
            Finding::ShortRuns => ["completed", "RLE shorter than its image"],
            Finding::UnfitBox => ["check", "boxes that do not fit their mask"],
            Finding::FarArea => ["check", "areas that differ much from their mask's area"],
            Finding::Copy => ["check", "objects that equal an earlier one, with a different id"],
            Finding::BadKeypoints => ["left out", "lists of keypoints that are broken"],
        }
    }
}

/// The number of images or annotations with a finding, and their first ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Noted {
    /// The number.
    pub count: usize,
    /// The first five ids.
    pub first_ids: Vec<u64>,
}

impl Noted {
    pub(super) fn note(&mut self, id: u64) {
        self.count += 1;
        if self.first_ids.len() < FIRST_IDS {
            self.first_ids.push(id);
        }
    }
}

impl Noted {
    /// Text with the count, `of {all}` unless `all` is 0, and the first ids.
    fn of(&self, all: usize) -> String {
        let ids: Vec<String> = self.first_ids.iter().map(u64::to_string).collect();
        let more = if self.count > ids.len() { ", ..." } else { "" };
        let of = if all > 0 { format!(" of {all}") } else { String::new() };
        format!("{}{of} (id {}{more})", self.count, ids.join(", "))
    }
}

impl fmt::Display for Noted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.of(0))
    }
}

/// The range of image sizes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShapeSpan {
    /// Images at least as wide as high.
    pub num_landscape: usize,
    /// Images higher than wide.
    pub num_portrait: usize,
    /// Smallest and largest height, in pixels.
    pub heights: (u32, u32),
    /// Smallest and largest width, in pixels.
    pub widths: (u32, u32),
}

impl ShapeSpan {
    /// The range of several (height, width).
    pub fn of(sizes: &[(u32, u32)]) -> ShapeSpan {
        let span = |side: fn(&(u32, u32)) -> u32| {
            let least = sizes.iter().map(side).min().unwrap_or(0);
            (least, sizes.iter().map(side).max().unwrap_or(0))
        };
        let num_landscape = sizes.iter().filter(|(height, width)| width >= height).count();
        ShapeSpan {
            num_landscape,
            num_portrait: sizes.len() - num_landscape,
            heights: span(|size| size.0),
            widths: span(|size| size.1),
        }
    }
}

/// Outcome of [`super::run`]; its `Display` is the final report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PrepReport {
    /// The store.
    pub out: PathBuf,
    /// Images stored.
    pub num_images: usize,
    /// Objects stored, including crowds.
    pub num_annotations: usize,
    /// Crowd objects stored.
    pub num_crowd: usize,
    /// Objects stored with their box only.
    pub num_without_mask: usize,
    /// Keypoints of each object; 0 if the store has none.
    pub num_keypoints: usize,
    /// Objects stored, except crowds, that have a keypoint of visibility 1 or 2.
    pub num_with_keypoints: usize,
    /// Why keypoints were omitted, as a message.
    pub keypoints_doubt: Option<String>,
    /// Images stored without objects.
    pub num_empty_images: usize,
    /// Images omitted because they have no objects.
    pub num_dropped_empty_images: usize,
    /// Categories.
    pub num_categories: usize,
    /// Annotations dropped, by reason.
    pub dropped: BTreeMap<DropReason, Noted>,
    /// Annotations that were changed or are likely mistakes.
    pub findings: BTreeMap<Finding, Noted>,
    /// Images with an EXIF rotation that was not applied.
    pub exif_rotated: Noted,
    /// Images whose file name is spelled differently in the annotations.
    pub renamed: Noted,
    /// A message for each image that loses levels in the conversion to 8 bits, with its file name.
    pub lossy: Vec<String>,
    /// The omitted root category, which has no objects and groups all other categories.
    pub root: Option<String>,
    /// Messages of the annotation reader.
    pub notes: Vec<String>,
    /// Images with the same file as an image with a lower id.
    pub shared_files: Noted,
    /// The id of each skipped image, and the reason.
    pub bad_images: Vec<(u64, String)>,
    /// The range of image sizes.
    pub shapes: ShapeSpan,
    /// The best padded shapes for 1, 2 and 3 long sides.
    pub padding: Vec<PaddingPlan>,
    /// The maxima over images.
    pub capacities: Capacities,
    /// Size of the store's data files.
    pub bytes: u64,
    /// Wall-clock time.
    pub seconds: f64,
}

impl PrepReport {
    /// Copies the counts of the store.
    pub(super) fn count(&mut self, header: &Header) {
        self.num_images = header.num_images;
        self.num_annotations = header.num_annotations;
        self.num_crowd = header.num_crowd;
        self.num_without_mask = header.num_without_mask;
        self.num_with_keypoints = header.num_with_keypoints;
        self.num_empty_images = header.num_empty_images;
        self.num_categories = header.categories.len();
        self.capacities = header.capacities;
    }

    /// Annotations dropped, for any reason.
    pub fn num_dropped(&self) -> usize {
        self.dropped.values().map(|noted| noted.count).sum()
    }

    /// The dropped annotations by reason, as the end of a message: ` (no segmentation: 2 (id 7,
    /// 9))`.
    pub(super) fn dropped_by_reason(&self) -> String {
        let reasons = self.dropped.iter().map(|(reason, noted)| format!("{reason}: {noted}"));
        let reasons: Vec<String> = reasons.collect();
        if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) }
    }

    /// Warnings that are printed by every training run on the data: dropped annotations, and likely
    /// mistakes.
    pub(super) fn doubts(&self) -> Vec<String> {
        let mut doubts = self.notes.clone();
        if let Some((_, first)) = self.bad_images.first() {
            let count = images(self.bad_images.len());
            doubts.push(format!("{count} were skipped, the first because: {first}"));
        }
        if self.num_dropped() > 0 {
            let (count, reasons) = (self.num_dropped(), self.dropped_by_reason());
            doubts.push(format!("{count} annotations were dropped{reasons}"));
        }
        let findings = self.findings.iter().filter(|(finding, _)| finding.is_doubt());
        doubts.extend(findings.map(|(finding, noted)| self.line(*finding, noted)));
        doubts.extend(self.keypoints_doubt.clone());
        doubts.extend(self.doubts_of_images());
        doubts
    }

    /// Warnings about images, and about the set of objects as a whole.
    fn doubts_of_images(&self) -> impl Iterator<Item = String> {
        let (count, objects) = (self.lossy.len(), self.num_annotations);
        let named = self.lossy[..count.min(FIRST_IDS)].join("; ");
        let lossy = (count > 0).then(|| format!("{count} 16-bit images lose levels: {named}"));
        let is_crowd = objects > 0 && self.num_crowd == objects;
        let crowd = is_crowd.then(|| {
            format!("all {objects} objects are crowds, which training leaves out; set iscrowd to 0")
        });
        lossy.into_iter().chain(crowd)
    }

    fn line(&self, finding: Finding, noted: &Noted) -> String {
        let [_, what] = finding.words();
        let of = if finding.is_doubt() { self.num_annotations } else { 0 };
        let more = match finding {
            Finding::UnfitBox => "; a box is [x, y, width, height] in pixels of the image",
            Finding::TurnedBox => {
                "; COCO has no rotated boxes, so an upright box around each is stored"
            }
            Finding::BadKeypoints => {
                "; a list holds x, y in pixels and a visibility of 0, 1 or 2 for each keypoint that \
                 the categories name"
            }
            _ => "",
        };
        format!("{what}: {}{more}", noted.of(of))
    }

    /// Drops an image that cannot be read, along with its annotations.
    pub(super) fn skip_image(
        &mut self,
        image: u64,
        annotations: impl Iterator<Item = u64>,
        error: &DaliError,
    ) {
        self.bad_images.push((image, error.to_string()));
        for annotation in annotations {
            self.dropped.entry(DropReason::BadImage).or_default().note(annotation);
        }
    }

    fn write_findings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  dropped      {} annotations", self.num_dropped())?;
        for (reason, noted) in &self.dropped {
            writeln!(f, "    {reason}: {noted}")?;
        }
        if self.num_dropped_empty_images > 0 {
            writeln!(
                f,
                "  left out     {} without objects",
                images(self.num_dropped_empty_images)
            )?;
        }
        if !self.bad_images.is_empty() {
            writeln!(f, "  skipped      {}", images(self.bad_images.len()))?;
            for (_, reason) in self.bad_images.iter().take(FIRST_IDS) {
                writeln!(f, "    {reason}")?;
            }
        }
        for (finding, noted) in &self.findings {
            let [done, _] = finding.words();
            writeln!(f, "  {done:<12} {}", self.line(*finding, noted))?;
        }
        for doubt in self.keypoints_doubt.clone().into_iter().chain(self.doubts_of_images()) {
            writeln!(f, "  check        {doubt}")?;
        }
        if let Some(root) = &self.root {
            writeln!(f, "  left out     the category {root}, the supercategory of all others")?;
        }
        for (word, of, noted) in [
            ("found", "images whose file name is spelled differently", &self.renamed),
            ("shared", "the file of an earlier image", &self.shared_files),
            ("not rotated", "images with an EXIF rotation", &self.exif_rotated),
        ] {
            if noted.count > 0 {
                writeln!(f, "  {word:<12} {of}: {noted}")?;
            }
        }
        Ok(())
    }
}

fn images(count: usize) -> String {
    format!("{count} image{}", if count == 1 { "" } else { "s" })
}

impl fmt::Display for PrepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "store {}", self.out.display())?;
        writeln!(
            f,
            "  images       {} ({} without objects)",
            self.num_images, self.num_empty_images
        )?;
        let boxes = match self.num_without_mask {
            0 => String::new(),
            count => format!(", {count} without a mask"),
        };
        let (all, crowd) = (self.num_annotations, self.num_crowd);
        writeln!(f, "  annotations  {all} ({crowd} crowd{boxes})")?;
        if self.num_keypoints > 0 {
            let (some, each) = (self.num_with_keypoints, self.num_keypoints);
            writeln!(f, "  keypoints    {each} per object; labelled in {some} objects")?;
        }
        writeln!(f, "  categories   {}", self.num_categories)?;
        self.write_findings(f)?;
        let ShapeSpan { num_landscape, num_portrait, heights, widths } = self.shapes;
        writeln!(
            f,
            "  sizes        {num_landscape} landscape, {num_portrait} portrait; height {} to {}, \
             width {} to {}",
            heights.0, heights.1, widths.0, widths.1
        )?;
        for plan in &self.padding {
            writeln!(
                f,
                "  padding      {:.1} % wasted with {} shape(s) per orientation: {} x {:?}",
                100.0 * plan.wasted,
                plan.long_sides.len(),
                plan.short_side,
                plan.long_sides
            )?;
        }
        let Capacities { objects, parts, coords, runs, pixels } = self.capacities;
        writeln!(
            f,
            "  capacities   {objects} objects, {parts} parts, {coords} coordinates, {runs} runs, \
             {pixels} pixels per image"
        )?;
        write!(f, "  {:.1} MB in {:.1} s", self.bytes as f64 / 1e6, self.seconds)
    }
}
