//! Fills a slot with one batch from the stores: images are decoded in parallel, each into its own
//! rows.

use rayon::prelude::*;

use super::layout::Item;
use super::slot::{ImageRows, SEGM_POLYGONS, SEGM_RUNS, Slot};
use crate::error::DaliError;
use crate::store::{Segmentation, Stores};

/// Fills the rows of the arrays that [`fill_slot`] does not fill, for the image at this index in
/// the stores.
pub type Filler = dyn Fn(&Stores, usize, &mut ImageRows<'_>) -> Result<(), DaliError> + Send + Sync;

/// The images to load into one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Indices into the stores.
    pub indices: Vec<usize>,
    /// Epoch of the batch.
    pub epoch: u32,
    /// Index of each image's copy within the epoch, from 0; empty if all are 0.
    pub copies: Vec<u32>,
}

/// One word of `image_keys` contains the epoch in the low bits, and the copy index from this bit
/// on.
const COPY_BIT: u32 = 20;

/// Fills `slot` with the images at `indices` of the stores; crowd objects are dropped. Unused
/// elements are cleared according to the layout. `filler` runs after the arrays of [`Slot`] are
/// filled.
///
/// Runs on the rayon pool of the calling thread. `epoch` is written to `image_keys`, which seed the
/// random numbers of a step.
///
/// # Errors
/// [`DaliError::Slot`] if a capacity is too small or an index is past the end of the stores,
/// [`DaliError::Layout`] if an array is missing or has wrong extents, [`DaliError::StorePixels`] if
/// an image cannot be decoded. The contents of the slot are then undefined.
pub fn fill_slot<M: AsRef<[u8]> + AsMut<[u8]>>(
    store: &Stores,
    indices: &[usize],
    epoch: u32,
    slot: &mut Slot<M>,
    filler: &Filler,
) -> Result<(), DaliError> {
    let batch = Batch { indices: indices.to_vec(), epoch, copies: vec![] };
    fill_batch(store, &batch, slot, filler)
}

/// [`fill_slot`] for a [`Batch`]. Each copy of an image has its own entry in `image_keys`, so that
/// its augmentation and RoI sampling are independent of the other copies.
pub(super) fn fill_batch<M: AsRef<[u8]> + AsMut<[u8]>>(
    store: &Stores,
    batch: &Batch,
    slot: &mut Slot<M>,
    filler: &Filler,
) -> Result<(), DaliError> {
    let indices = &batch.indices;
    slot.layout().check_filled()?;
    let need = |what: &str, need: usize, have: usize| {
        let what = what.to_string();
        if need <= have { Ok(()) } else { Err(DaliError::Slot { what, need, have }) }
    };
    need("images", indices.len(), slot.layout().images())?;
    let past_end = indices.iter().map(|&idx| idx + 1).max().unwrap_or(0);
    need("images of the store", past_end, store.len())?;
    slot.clear();
    slot.view_mut("num_images")?[0] = indices.len() as i32;
    let results: Vec<Result<(), DaliError>> = slot
        .images_mut()
        .into_par_iter()
        .enumerate()
        .map(|(row, mut rows)| {
            let Some(&idx) = indices.get(row) else { return Ok(()) };
            let copy = batch.copies.get(row).copied().unwrap_or(0);
            fill_image(store, idx, batch.epoch | copy << COPY_BIT, &mut rows)?;
            filler(store, idx, &mut rows)
        })
        .collect();
    results.into_iter().collect()
}

fn fill_image(
    store: &Stores,
    idx: usize,
    moment: u32,
    rows: &mut ImageRows<'_>,
) -> Result<(), DaliError> {
    let image = store.image(idx);
    let mut room = Room { image_id: image.image_id, rows };
    let num_bytes = image.height as usize * image.width as usize * 3;
    store.decode_rgb_into(idx, room.take("pixels", 0, num_bytes)?)?;
    let (low, high) = (image.image_id as i32, (image.image_id >> 32) as i32);
    room.put("image_keys", 0, &[low, high, idx as i32, moment as i32])?;

    let objects = image.objects.map(|obj| store.object(obj)).filter(|object| !object.crowd);
    let (mut num_objects, mut num_parts, mut num_coords, mut num_runs) = (0, 0, 0, 0);
    for object in objects {
        let [x, y, w, h] = object.bbox_xywh;
        room.put("gt_boxes", 4 * num_objects, &[x, y, x + w, y + h])?;
        room.put("gt_classes", num_objects, &[object.label as i32])?;
        let first_part = num_parts;
        let kind = match object.segmentation {
            Segmentation::Polygons(rings) => {
                for ring in rings {
                    room.put("coords", num_coords, ring)?;
                    let part = [num_coords as i32, ring.len() as i32];
                    room.put("segm_parts", 2 * num_parts, &part)?;
                    num_coords += ring.len();
                    num_parts += 1;
                }
                SEGM_POLYGONS
            }
            Segmentation::Runs(runs) => {
                // A run is no longer than the number of pixels of the image, which is far below
                // 2^31, so it fits i32.
                room.put::<i32>("runs", num_runs, bytemuck::cast_slice(runs))?;
                let part = [num_runs as i32, runs.len() as i32];
                room.put("segm_parts", 2 * num_parts, &part)?;
                num_runs += runs.len();
                num_parts += 1;
                SEGM_RUNS
            }
        };
        let index = [kind, first_part as i32, (num_parts - first_part) as i32];
        room.put("segm_index", 3 * num_objects, &index)?;
        num_objects += 1;
    }
    room.put("gt_counts", 0, &[num_objects as i32])
}

/// Writes to one image's rows of a slot; an error names the capacity that is too small.
struct Room<'a, 'b> {
    image_id: u64,
    rows: &'a mut ImageRows<'b>,
}

impl Room<'_, '_> {
    fn take<T: Item>(&mut self, name: &str, at: usize, len: usize) -> Result<&mut [T], DaliError> {
        let row = self.rows.row_mut(name)?;
        let have = row.len();
        row.get_mut(at..at + len).ok_or_else(|| DaliError::Slot {
            what: format!("{name} of image {}", self.image_id),
            need: at + len,
            have,
        })
    }

    fn put<T: Item>(&mut self, name: &str, at: usize, values: &[T]) -> Result<(), DaliError> {
        self.take(name, at, values.len())?.copy_from_slice(values);
        Ok(())
    }
}
