//! Views of training images: crop, size, flips and rotation, sampled on the host as a pure function
//! of seed, image, epoch and copy.

mod colours;
mod extent;

use crate::config::{Augment, BoxesAfterCrop, Config, Input};
use dali::DaliError;
use dali::loader::ImageRows;
use dali::order::resized_size;
use dali::store::{ObjectView, Segmentation};
use kernels::philox::{Purpose, keyed};
use kernels::view::{Axis, View};

use crate::rows::keep_objects;

pub use colours::ColourMap;
pub use extent::extent;

/// Samples views according to a config.
#[derive(Debug, Clone)]
pub struct Views {
    seed: u64,
    input: Input,
}

/// Heights and widths of a view: cropped window of the source, resized window, and the part of the
/// resized window that is in the network input.
struct Lengths {
    window: [u32; 2],
    resized: [u32; 2],
    network: [u32; 2],
}

impl Views {
    /// Samples the views of a run with this config.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { seed: config.train.seed, input: config.input.clone() }
    }

    /// A copy that never flips images.
    pub(crate) fn unflipped(mut self) -> Self {
        self.input.flip_probability = 0.0;
        self.input.augment.vertical_flip = 0.0;
        self
    }

    /// True if the network input size of an image can differ between epochs.
    pub(crate) fn vary(&self) -> bool {
        !self.augment().min_sizes.is_empty() || self.is_square() || self.cuts()
    }

    /// True if landscape and portrait images share padded shapes; the largest is a square.
    pub(crate) fn is_square(&self) -> bool {
        self.augment().jitter_size > 0 || self.augment().quarter_turns > 0.0
    }

    fn augment(&self) -> &Augment {
        &self.input.augment
    }

    /// True if random crops or aspect ratio jitter can change an image's aspect ratio in each
    /// epoch.
    fn cuts(&self) -> bool {
        self.augment().crop < 1.0 || self.augment().aspect > 0.0
    }

    /// A number in [0, 1).
    fn unit(&self, key: &[i32], purpose: Purpose, index: u32) -> f64 {
        f64::from(keyed(self.seed, key, purpose, index)) / 2f64.powi(32)
    }

    /// Height and width of an image in the network input; `key` is its row of `image_keys`.
    pub(crate) fn size(&self, key: &[i32], source: [u32; 2]) -> (u32, u32) {
        let [height, width] = self.lengths(key, source).network;
        if self.quarters(key) % 2 == 1 { (width, height) } else { (height, width) }
    }

    /// Upper bounds on the height and width of all views of an image.
    pub(crate) fn bound(&self, source: [u32; 2]) -> (u32, u32) {
        let (height, width) = self.bound_unturned(source);
        let side = height.max(width);
        if self.is_square() { (side, side) } else { (height, width) }
    }

    fn bound_unturned(&self, source: [u32; 2]) -> (u32, u32) {
        let augment = self.augment();
        if augment.jitter_size > 0 {
            let side = augment.jitter_size as u32;
            return (side, side);
        }
        let sizes = self.min_sizes();
        if !self.cuts() {
            let of = |size: &usize| self.resized(source, *size);
            let larger = |a: [u32; 2], b: [u32; 2]| [a[0].max(b[0]), a[1].max(b[1])];
            let [height, width] = sizes.iter().map(of).fold([1, 1], larger);
            return (height, width);
        }
        let (size, max_size) = (sizes.iter().max().copied().unwrap_or(1), self.input.max_size);
        let stretch = (1.0 + f64::from(augment.aspect)).sqrt();
        // A side is at most the size of the short side times the maximum ratio of this side to the
        // other.
        let bound = |i: usize| {
            let least = shared(source[1 - i], f64::from(augment.crop));
            let other = stretched(least, 1.0 / stretch);
            let ratio = f64::from(stretched(source[i], stretch)) / f64::from(other);
            let long = (size as f64 * ratio).ceil() + 1.0;
            let most = max_size as f64 + (ratio / 2.0).ceil();
            if ratio > 1.0 { long.min(most) as u32 } else { size.min(max_size) as u32 }
        };
        (bound(0), bound(1))
    }

    fn min_sizes(&self) -> &[usize] {
        match self.augment().min_sizes.as_slice() {
            [] => std::slice::from_ref(&self.input.min_size),
            sizes => sizes,
        }
    }

    fn resized(&self, [height, width]: [u32; 2], min_size: usize) -> [u32; 2] {
        let Input { max_size, resize_rounding, .. } = self.input;
        let (height, width) = resized_size(height, width, min_size, max_size, resize_rounding);
        [height, width]
    }

    fn lengths(&self, key: &[i32], source: [u32; 2]) -> Lengths {
        let augment = self.augment();
        let within = |least: f64, most: f64, unit: f64| least + (most - least) * unit;
        let mut window = source;
        if augment.crop < 1.0 {
            let share = |i| within(f64::from(augment.crop), 1.0, self.unit(key, Purpose::Crop, i));
            window = [shared(source[0], share(0)), shared(source[1], share(1))];
        }
        // The window after aspect ratio jitter.
        let mut shown = window;
        if augment.aspect > 0.0 {
            let change = 1.0 + f64::from(augment.aspect) * self.unit(key, Purpose::Aspect, 0);
            let wider = self.unit(key, Purpose::Aspect, 1) < 0.5;
            let stretch = if wider { change.sqrt() } else { 1.0 / change.sqrt() };
            shown = [stretched(window[0], 1.0 / stretch), stretched(window[1], stretch)];
        }
        let scale = self.unit(key, Purpose::Scale, 0);
        if augment.jitter_size > 0 {
            // Like detectron2's ResizeScale and FixedSizeCrop.
            let [least, most] = augment.jitter_scale.map(f64::from);
            let side = augment.jitter_size as f64 * within(least, most, scale);
            let factor = (side / f64::from(shown[0])).min(side / f64::from(shown[1]));
            let resize = |length| ((f64::from(length) * factor).round_ties_even() as u32).max(1);
            let resized = shown.map(resize);
            let network = resized.map(|length| length.min(augment.jitter_size as u32));
            return Lengths { window, resized, network };
        }
        let sizes = self.min_sizes();
        let size = sizes[(scale * sizes.len() as f64) as usize];
        let resized = self.resized(shown, size);
        let bound = self.bound(source);
        let network = [resized[0].min(bound.0), resized[1].min(bound.1)];
        Lengths { window, resized, network }
    }

    /// Samples the view of an image. `key` is its row of `image_keys`; `boxes` are corners in the
    /// source.
    fn draw(&self, key: &[i32], source: [u32; 2], boxes: &[[f32; 4]]) -> View {
        let Lengths { window, resized, network } = self.lengths(key, source);
        let held = self.held(key, boxes);
        let axis = |i: usize| {
            let whole = |lengths: [u32; 2]| lengths[i] as i32;
            let [source, window, resized, network] = [source, window, resized, network].map(whole);
            let index = 2 + i as u32;
            let start = self.start(source, window, held[i], self.unit(key, Purpose::Crop, index));
            let spare = f64::from(resized - network);
            let offset = (spare * self.unit(key, Purpose::Scale, 1)).round_ties_even() as i32;
            Axis { source, start, window, resized, offset, network, mirrored: 0 }
        };
        let mut view = View { y: axis(0), x: axis(1), transposed: 0 };
        self.flip(key, &mut view);
        view.turn(self.quarters(key));
        view
    }

    /// Samples the number of 90 degree rotations of an image.
    fn quarters(&self, key: &[i32]) -> u32 {
        let unit = |index| self.unit(key, Purpose::QuarterTurn, index);
        let is_turned = unit(0) < f64::from(self.augment().quarter_turns);
        if is_turned { 1 + (3.0 * unit(1)) as u32 } else { 0 }
    }

    fn flip(&self, key: &[i32], view: &mut View) {
        // The comparison is exact in f64, and always true if the probability is 1.
        let is_drawn = |purpose, probability: f32| {
            f64::from(keyed(self.seed, key, purpose, 0)) < f64::from(probability) * 2f64.powi(32)
        };
        view.x.mirrored = i32::from(is_drawn(Purpose::Flip, self.input.flip_probability));
        let upside_down = self.augment().vertical_flip;
        view.y.mirrored = i32::from(is_drawn(Purpose::VerticalFlip, upside_down));
    }

    /// The pixel (y, x) that a crop must contain, if any.
    fn held(&self, key: &[i32], boxes: &[[f32; 4]]) -> [Option<i32>; 2] {
        if boxes.is_empty() || !self.augment().crop_keeps_object {
            return [None; 2];
        }
        let drawn = (self.unit(key, Purpose::Crop, 4) * boxes.len() as f64) as usize;
        let [x1, y1, x2, y2] = boxes[drawn];
        [Some(f32::midpoint(y1, y2) as i32), Some(f32::midpoint(x1, x2) as i32)]
    }

    /// Samples the first pixel of a window along one axis. The window contains the pixel `held`, if
    /// given.
    fn start(&self, source: i32, window: i32, held: Option<i32>, unit: f64) -> i32 {
        let last = source - window;
        let (least, most) = match held {
            Some(at) => ((at - window + 1).clamp(0, last), at.clamp(0, last)),
            None => (0, last),
        };
        least + (f64::from(most - least + 1) * unit) as i32
    }

    /// True if boxes of cropped objects are computed from the visible part of the masks.
    pub(crate) fn cuts_masks(&self) -> bool {
        self.vary() && self.augment().boxes_after_crop == BoxesAfterCrop::Mask
    }

    /// Samples the view of an image, writes it to the image's rows, and removes the objects that
    /// are not visible. If any were removed, returns the indices of the remaining objects. The rows
    /// must contain the key and the objects. `network` is the network input size if it is the same
    /// in all epochs. `objects` are the objects of the rows, needed only if `cuts_masks`.
    ///
    /// # Errors
    /// If the rows lack an array.
    pub fn fill(
        &self,
        source: [u32; 2],
        network: [i32; 2],
        inclusive: bool,
        objects: &[ObjectView<'_>],
        rows: &mut ImageRows<'_>,
    ) -> Result<Option<Vec<usize>>, DaliError> {
        let key: &mut [i32] = rows.row_mut("image_keys")?;
        let key = key.to_vec();
        let counts: &mut [i32] = rows.row_mut("gt_counts")?;
        let count = counts[0] as usize;
        let (view, left) = if self.vary() {
            let boxes: &mut [f32] = rows.row_mut("gt_boxes")?;
            let boxes = &mut kernels::boxes::as_boxes_mut(boxes)[..count];
            let view = self.draw(&key, source, boxes);
            let mut clip = |i: usize| {
                let mask = objects.get(i).filter(|_| self.cuts_masks()).map(|o| &o.segmentation);
                self.clip(&view, inclusive, mask, &mut boxes[i])
            };
            let left: Vec<usize> = (0..count).filter(|i| clip(*i)).collect();
            (view, left)
        } else {
            let mut view = View::whole(source.map(|side| side as i32), network);
            self.flip(&key, &mut view);
            (view, (0..count).collect())
        };
        rows.row_mut("views")?.copy_from_slice(view.row());
        rows.row_mut("network_sizes")?.copy_from_slice(&view.network());
        if self.augment().changes_colours() {
            let pixels: &mut [u8] = rows.row_mut("pixels")?;
            let pixels = &pixels[..3 * source[0] as usize * source[1] as usize];
            let unit = |index| self.unit(&key, Purpose::Colour, index);
            let map = ColourMap::draw(self.augment(), pixels, unit);
            rows.row_mut("colours")?.copy_from_slice(&map.row());
        }
        if left.len() == count {
            return Ok(None);
        }
        keep_objects(rows, &left)?;
        Ok(Some(left))
    }

    /// Clips a box to the view, or replaces it by the bounding box of the visible part of `mask`,
    /// if given. Returns false if too little is visible.
    fn clip(
        &self,
        view: &View,
        inclusive: bool,
        mask: Option<&Segmentation<'_>>,
        bbox: &mut [f32; 4],
    ) -> bool {
        let one = f32::from(u8::from(inclusive));
        let area = |b: &[f32; 4]| (b[2] - b[0] + one) * (b[3] - b[1] + one);
        let (before, mut window) = (*bbox, [0.0; 4]);
        for (i, axis) in [view.x, view.y].into_iter().enumerate() {
            let shown = |at: i32| axis.start as f32 + at as f32 / axis.ratio();
            let (low, high) = (shown(axis.offset), shown(axis.offset + axis.network));
            (window[i], window[i + 2]) = (low, high);
            let last = (high - one).max(low);
            bbox[i] = bbox[i].clamp(low, last);
            bbox[i + 2] = bbox[i + 2].clamp(low, last);
        }
        let no_mask = Segmentation::Polygons(vec![]);
        if let Some(mask) = mask.filter(|mask| **mask != no_mask && *bbox != before) {
            let Some([x1, y1, x2, y2]) = extent(mask, window, view.y.source as usize) else {
                return false;
            };
            *bbox = [x1, y1, (x2 - one).max(x1), (y2 - one).max(y1)];
        }
        let seen = |i: usize, axis: Axis| (bbox[i + 2] - bbox[i] + one) * axis.ratio() >= 1.0;
        seen(0, view.x)
            && seen(1, view.y)
            && area(bbox) >= self.augment().min_visible * area(&before)
    }
}

/// Fraction of a length, at least 1.
fn shared(length: u32, share: f64) -> u32 {
    stretched(length, share).min(length)
}

fn stretched(length: u32, factor: f64) -> u32 {
    ((f64::from(length) * factor).round() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn views(set: &[&str]) -> Views {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        Views::new(&Config::load("torchvision_r50", &set).expect("a config"))
    }

    fn key(id: i32) -> [i32; 4] {
        [100 + id, 0, id, 3]
    }

    fn flipped(seed: u64, probability: f64, n: i32) -> Vec<bool> {
        let set = [format!("train.seed={seed}"), format!("input.flip_probability={probability}")];
        let views = views(&set.each_ref().map(String::as_str));
        (0..n)
            .map(|id| {
                let mut view = View::whole([4, 6], [8, 12]);
                views.flip(&key(id), &mut view);
                view.x.mirrored == 1
            })
            .collect()
    }

    #[test]
    fn flip_share_matches_probability() {
        let share = |probability| {
            flipped(1, probability, 10_000).into_iter().filter(|mirrored| *mirrored).count()
        };
        assert_eq!((share(0.0), share(1.0)), (0, 10_000));
        // Four standard deviations for 10,000 samples with probability 0.25 are 173.
        assert!((2327..=2673).contains(&share(0.25)), "{}", share(0.25));
    }

    #[test]
    fn view_depends_on_seed_and_image() {
        let all = flipped(7, 0.5, 64);
        assert_eq!(flipped(7, 0.5, 13), all[..13], "the batch around an image does not matter");
        assert_ne!(flipped(8, 0.5, 64), all);
    }

    #[test]
    fn higher_flip_probability_flips_more() {
        let pairs = flipped(3, 0.3, 500).into_iter().zip(flipped(3, 0.6, 500));
        assert!(pairs.into_iter().all(|(low, high)| low <= high));
    }

    const RULES: [&[&str]; 8] = [
        &["input.augment.min_sizes=[640, 672, 800]"],
        &["input.augment.min_sizes=[640, 900]", "input.resize_rounding=half_even"],
        &["input.augment.crop=0.3"],
        &["input.augment.aspect=0.5", "input.resize_rounding=half_even", "input.max_size=900"],
        &["input.augment.jitter_size=512"],
        &["input.augment.jitter_size=512", "input.augment.crop=0.5", "input.augment.aspect=0.4"],
        &["input.augment.quarter_turns=0.5"],
        &["input.augment.quarter_turns=1", "input.augment.crop=0.5", "input.augment.aspect=0.4"],
    ];

    /// All kinds of augmentation, for sources from one pixel to a panorama.
    #[test]
    fn view_is_inside_source_and_bound() {
        for rule in RULES {
            let views = views(rule);
            for source in [[480, 640], [640, 427], [1, 1], [17, 2000], [1200, 3], [33, 33]] {
                let bound = views.bound(source);
                for id in 0..500 {
                    let view = views.draw(&key(id), source, &[[1.0, 2.0, 9.0, 30.0]]);
                    assert!(
                        view.y.is_sound() && view.x.is_sound(),
                        "{rule:?}, {source:?}: {view:?}"
                    );
                    let [height, width] = view.network().map(|side| side as u32);
                    let size = (height, width);
                    assert_eq!(size, views.size(&key(id), source));
                    assert!(
                        size.0 <= bound.0 && size.1 <= bound.1,
                        "{rule:?}, {source:?}: {size:?}"
                    );
                }
            }
        }
    }

    /// The samples for 500 images cover the whole range.
    #[test]
    fn sizes_and_crops_are_uniform() {
        let of = |set: &[&str]| {
            let views = views(set);
            (0..500).map(|id| views.draw(&key(id), [480, 640], &[])).collect::<Vec<_>>()
        };
        let sizes = of(RULES[0]);
        for size in [640, 672, 800] {
            let count = sizes.iter().filter(|view| view.y.network == size).count();
            assert!((120..220).contains(&count), "{size}: {count}");
        }
        let crops = of(RULES[2]);
        let windows = || crops.iter().map(|view| view.y.window);
        assert!(windows().min() < Some(160) && windows().max() > Some(464));
        assert!(crops.iter().any(|view| view.x.start == 0));
        assert!(crops.iter().any(|view| view.x.start > 300));
        let jitters = of(RULES[4]);
        assert!(jitters.iter().any(|view| view.x.resized < 80));
        assert!(jitters.iter().any(|view| view.x.resized > 960 && view.x.offset > 300));
        assert!(jitters.iter().all(|view| view.x.network <= 512));
    }

    /// A quarter of the images are rotated, equally often by 90, 180 and 270 degrees: 333 each of
    /// 4,000.
    #[test]
    fn rotations_are_equally_likely() {
        let views = views(&["input.augment.quarter_turns=0.25"]);
        let mut counts = [0; 4];
        (0..4000).for_each(|id| counts[views.quarters(&key(id)) as usize] += 1);
        // Four standard deviations are 70.
        assert!(counts[1..].iter().all(|count| (263..=403).contains(count)), "{counts:?}");
    }

    #[test]
    fn crop_contains_an_object_centre() {
        let views = views(&["input.augment.crop=0.1"]);
        let boxes = [[0.0, 0.0, 20.0, 10.0], [600.0, 400.0, 640.0, 480.0]];
        for id in 0..300 {
            let View { y, x, .. } = views.draw(&key(id), [480, 640], &boxes);
            let holds = |axis: Axis, at: i32| (axis.start..axis.start + axis.window).contains(&at);
            assert!((holds(y, 5) && holds(x, 10)) || (holds(y, 440) && holds(x, 620)), "{id}");
        }
    }

    /// Computed by hand. The window is columns 10 to 30 of the source, resized to 40 columns; the
    /// first eight are cropped.
    #[test]
    fn boxes_are_clipped_to_view() {
        let views = views(&["input.augment.min_visible=0.25", "input.augment.crop=0.5"]);
        let mut view = View::whole([20, 40], [20, 40]);
        view.x = Axis { start: 10, window: 20, resized: 40, offset: 8, network: 32, ..view.x };
        let cut = |mut bbox: [f32; 4], inclusive| {
            views.clip(&view, inclusive, None, &mut bbox).then_some(bbox)
        };
        // Columns 14 to 30 are visible.
        assert_eq!(cut([10.0, 2.0, 22.0, 9.0], false), Some([14.0, 2.0, 22.0, 9.0]));
        assert_eq!(cut([20.0, 2.0, 39.0, 9.0], true), Some([20.0, 2.0, 29.0, 9.0]));
        assert_eq!(cut([2.0, 2.0, 16.0, 9.0], false), None, "a seventh is in view");
        assert_eq!(cut([0.0, 2.0, 14.0, 9.0], false), None, "nothing is in view");
        assert_eq!(cut([29.8, 2.0, 30.0, 9.0], false), None, "less than a pixel");
        // A triangle with only its tip visible, and one that is entirely visible.
        let ring = [10.0, 2.0, 18.0, 6.0, 10.0, 10.0];
        let mask = Segmentation::Polygons(vec![&ring]);
        let of_mask =
            |mut bbox: [f32; 4]| views.clip(&view, false, Some(&mask), &mut bbox).then_some(bbox);
        assert_eq!(of_mask([10.0, 2.0, 18.0, 10.0]), Some([14.0, 4.0, 18.0, 8.0]), "16 of 64");
        assert_eq!(of_mask([10.0, 1.0, 18.0, 11.0]), None, "16 of 80");
        assert_eq!(of_mask([15.0, 2.0, 18.0, 10.0]), Some([15.0, 2.0, 18.0, 10.0]), "not cut");
    }
}
