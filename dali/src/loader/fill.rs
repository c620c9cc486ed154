//! One batch from the store into a slot; images in parallel, each into its own rows.

use rayon::prelude::*;

use super::slot::{ImageRows, SEGM_POLYGONS, SEGM_RUNS, Slot};
use crate::error::DaliError;
use crate::store::{Segmentation, Store};

/// Fills `slot` with the images at `indices` of the store; crowd objects are left out.
///
/// Runs on the rayon pool of the calling thread. `epoch` goes into the image keys, from which the
/// random numbers of a step are drawn.
///
/// # Errors
/// [`DaliError::Slot`] where a capacity does not suffice or an index is past the store's end,
/// [`DaliError::StorePixels`] where an image does not decode. The slot's content is then undefined.
pub fn fill_slot(
    store: &Store,
    indices: &[usize],
    epoch: u32,
    slot: Slot<'_>,
) -> Result<(), DaliError> {
    let need = |what: &str, need: usize, have: usize| {
        let what = what.to_string();
        if need <= have { Ok(()) } else { Err(DaliError::Slot { what, need, have }) }
    };
    need("images", indices.len(), slot.gt_counts.len())?;
    need("num_images", 1, slot.num_images.len())?;
    let past_end = indices.iter().map(|&idx| idx + 1).max().unwrap_or(0);
    need("images of the store", past_end, store.len())?;
    slot.num_images[0] = indices.len() as i32;
    let images = slot.into_images()?;
    let results: Vec<Result<(), DaliError>> = images
        .into_par_iter()
        .enumerate()
        .map(|(row, mut rows)| {
            rows.clear();
            indices.get(row).map_or(Ok(()), |&idx| fill_image(store, idx, epoch, &mut rows))
        })
        .collect();
    results.into_iter().collect()
}

impl ImageRows<'_> {
    /// Zeroes all but the pixels, so that a slot's content is a function of its batch alone.
    fn clear(&mut self) {
        self.gt_boxes.fill(0.0);
        self.coords.fill(0.0);
        for row in [
            &mut self.size,
            &mut self.key,
            &mut self.gt_classes,
            &mut self.gt_count,
            &mut self.segm_index,
            &mut self.segm_parts,
            &mut self.runs,
        ] {
            row.fill(0);
        }
    }
}

fn fill_image(
    store: &Store,
    idx: usize,
    epoch: u32,
    rows: &mut ImageRows<'_>,
) -> Result<(), DaliError> {
    let image = store.image(idx);
    let room = Room { image_id: image.image_id };
    let num_bytes = image.height as usize * image.width as usize * 3;
    store.decode_rgb_into(idx, room.take("pixels", rows.pixels, 0, num_bytes)?)?;
    let size = [image.height as i32, image.width as i32];
    room.take("image_sizes", rows.size, 0, 2)?.copy_from_slice(&size);
    let (low, high) = (image.image_id as i32, (image.image_id >> 32) as i32);
    let key = [low, high, idx as i32, epoch as i32];
    room.take("image_keys", rows.key, 0, 4)?.copy_from_slice(&key);

    let objects = image.objects.map(|obj| store.object(obj)).filter(|object| !object.crowd);
    let mut used = Used::default();
    for object in objects {
        let [x, y, w, h] = object.bbox_xywh;
        let corners = [x, y, x + w, y + h];
        room.take("gt_boxes", rows.gt_boxes, 4 * used.objects, 4)?.copy_from_slice(&corners);
        room.take("gt_classes", rows.gt_classes, used.objects, 1)?[0] = object.label as i32;
        let first_part = used.parts;
        let kind = fill_segmentation(&room, &object.segmentation, &mut used, rows)?;
        let index = [kind, first_part as i32, (used.parts - first_part) as i32];
        room.take("segm_index", rows.segm_index, 3 * used.objects, 3)?.copy_from_slice(&index);
        used.objects += 1;
    }
    room.take("gt_counts", rows.gt_count, 0, 1)?[0] = used.objects as i32;
    Ok(())
}

/// Appends the parts of one mask and returns its kind.
fn fill_segmentation(
    room: &Room,
    segmentation: &Segmentation<'_>,
    used: &mut Used,
    rows: &mut ImageRows<'_>,
) -> Result<i32, DaliError> {
    let mut add_part = |offset: usize, len: usize| -> Result<(), DaliError> {
        let part = [offset as i32, len as i32];
        room.take("segm_parts", rows.segm_parts, 2 * used.parts, 2)?.copy_from_slice(&part);
        used.parts += 1;
        Ok(())
    };
    match segmentation {
        Segmentation::Polygons(rings) => {
            for ring in rings {
                room.take("coords", rows.coords, used.coords, ring.len())?.copy_from_slice(ring);
                add_part(used.coords, ring.len())?;
                used.coords += ring.len();
            }
            Ok(SEGM_POLYGONS)
        }
        Segmentation::Runs(runs) => {
            let room = room.take("runs", rows.runs, used.runs, runs.len())?;
            // A run is no longer than the image has pixels, which is far below 2^31.
            room.iter_mut().zip(*runs).for_each(|(to, &run)| *to = run as i32);
            add_part(used.runs, runs.len())?;
            used.runs += runs.len();
            Ok(SEGM_RUNS)
        }
    }
}

/// How much of an image's rows is filled.
#[derive(Default)]
struct Used {
    objects: usize,
    parts: usize,
    coords: usize,
    runs: usize,
}

/// Hands out pieces of an image's rows, or says whose capacity is too small.
struct Room {
    image_id: u64,
}

impl Room {
    fn take<'r, T>(
        &self,
        what: &str,
        row: &'r mut [T],
        at: usize,
        len: usize,
    ) -> Result<&'r mut [T], DaliError> {
        let have = row.len();
        row.get_mut(at..at + len).ok_or_else(|| DaliError::Slot {
            what: format!("{what} of image {}", self.image_id),
            need: at + len,
            have,
        })
    }
}
