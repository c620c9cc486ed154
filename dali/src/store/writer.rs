//! Writes a store under a temporary name, flushes it to disk, then renames it, so that a partly
//! written store is never visible.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use bytemuck::NoUninit;

use super::columns::{self, Column};
use super::format::{self, Capacities, Category, FORMAT_VERSION, FileInfo, Header};
use super::format::{ImageRow, ObjectRow, PartRow, PixelEncoding, SourceRow};
use super::keypoints::{self, Keypoints};
use crate::decode::Exif;
use crate::error::DaliError;
use crate::place::{Claim, TemporaryDir};

/// One image to store.
#[derive(Debug, Clone)]
pub(crate) struct NewImage {
    /// COCO image id.
    pub image_id: u64,
    /// Name of the image file, which may be spelled differently in the annotations.
    pub file_name: String,
    /// Rows of pixels.
    pub height: u32,
    /// Columns of pixels.
    pub width: u32,
    /// The encoding of `pixels`.
    pub encoding: PixelEncoding,
    /// JPEG bytes, or RGB u8 `[H, W, 3]`.
    pub pixels: Vec<u8>,
    /// Size and modification time of the image file.
    pub source: SourceRow,
    /// How an EXIF rotation of the file was treated; `None` if the file has none.
    pub exif: Option<Exif>,
    /// Its objects.
    pub objects: Vec<NewObject>,
}

/// One object to store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NewObject {
    /// COCO annotation id.
    pub annotation_id: u64,
    /// Class, 1..K.
    pub label: u32,
    /// True for a crowd.
    pub crowd: bool,
    /// Area in pixels.
    pub area: f32,
    /// x, y, width, height in pixels.
    pub bbox_xywh: [f32; 4],
    /// Its mask.
    pub segmentation: NewSegmentation,
    /// x, y in pixels and visibility of each of the store's keypoints; empty if the store has none.
    pub keypoints: Vec<[f32; 3]>,
    /// The object's numbers in the store's columns; empty if the store has none.
    pub columns: Vec<f32>,
}

/// The mask of an object to store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NewSegmentation {
    /// Polygon rings of x, y pairs.
    Polygons(Vec<Vec<f32>>),
    /// Run lengths in column order, beginning with zeros; their sum is `H * W`.
    Runs(Vec<u32>),
}

/// Writes a store; if dropped before [`StoreWriter::finish`], its files are removed.
#[derive(Debug)]
pub(crate) struct StoreWriter {
    temporary: TemporaryDir,
    overwrite: bool,
    header: Header,
    files: BTreeMap<&'static str, DataFile>,
}

impl StoreWriter {
    /// Starts a store whose final path is in `claim`; `categories` are in the order of labels 1..K.
    ///
    /// # Errors
    /// [`DaliError::Io`] on a file system error.
    pub(crate) fn create(
        claim: Claim,
        overwrite: bool,
        categories: Vec<Category>,
        (keypoints, columns): (Option<Keypoints>, Vec<Column>),
        pixels: PixelEncoding,
        source: String,
        ids_by_path: bool,
    ) -> Result<StoreWriter, DaliError> {
        let temporary = claim.begin()?;
        let header = Header {
            version: FORMAT_VERSION,
            categories,
            num_images: 0,
            num_annotations: 0,
            num_crowd: 0,
            num_without_mask: 0,
            num_with_keypoints: 0,
            num_empty_images: 0,
            num_turned: 0,
            num_unturned: 0,
            keypoints,
            columns,
            pixels,
            capacities: Capacities::default(),
            files: Default::default(),
            source: Some(source),
            ids_by_path,
            doubts: Vec::new(),
            seal: None,
        };
        let create = |(name, _)| Ok((name, DataFile::create(temporary.path(), name)?));
        let files = header.data_files().map(create).collect::<Result<_, DaliError>>()?;
        Ok(StoreWriter { temporary, overwrite, header, files })
    }

    /// Appends one image with its objects.
    ///
    /// # Errors
    /// [`DaliError::Io`] if writing fails.
    pub(crate) fn push(&mut self, image: &NewImage) -> Result<(), DaliError> {
        let row = ImageRow {
            image_id: image.image_id,
            pixel_offset: self.append(format::PIXELS, &image.pixels)?,
            pixel_len: image.pixels.len() as u64,
            name_offset: self.append(format::NAMES, image.file_name.as_bytes())?,
            first_object: self.header.num_annotations as u64,
            num_objects: image.objects.len() as u32,
            name_len: image.file_name.len() as u32,
            height: image.height,
            width: image.width,
            encoding: match image.encoding {
                PixelEncoding::Jpeg => format::ENCODING_JPEG,
                PixelEncoding::Raw => format::ENCODING_RAW,
            },
            extent: format::extent_of(image.objects.iter().map(|object| object.bbox_xywh)),
            pixel_crc32c: crc32c::crc32c(&image.pixels),
        };
        self.append(format::IMAGES, &[row])?;
        self.append(format::SOURCES, &[image.source])?;
        let mut of_image = Capacities {
            pixels: image.height as usize * image.width as usize,
            ..Capacities::default()
        };
        for object in &image.objects {
            self.push_object(object, &mut of_image)?;
        }
        self.header.capacities = self.header.capacities.max(of_image);
        self.header.num_images += 1;
        self.header.num_turned += usize::from(image.exif == Some(Exif::Apply));
        self.header.num_unturned += usize::from(image.exif == Some(Exif::Ignore));
        self.header.num_empty_images += usize::from(image.objects.is_empty());
        Ok(())
    }

    /// Objects written so far.
    pub(crate) fn num_annotations(&self) -> usize {
        self.header.num_annotations
    }

    /// Bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.info.bytes).sum()
    }

    /// Flushes all files to disk, makes them read-only, and renames the folder to its final path.
    /// `doubts` is called with the header's counts, and returns the warnings to store in the
    /// header.
    ///
    /// # Errors
    /// [`DaliError::Io`] if writing fails; the final path is then unchanged.
    pub(crate) fn finish(
        mut self,
        doubts: impl FnOnce(&Header) -> Vec<String>,
    ) -> Result<Header, DaliError> {
        let dir = self.temporary.path().to_path_buf();
        for (name, file) in &mut self.files {
            self.header.files.insert((*name).to_string(), file.close()?);
        }
        self.header.doubts = doubts(&self.header);
        let mut header = DataFile::create(&dir, format::HEADER)?;
        let failed = |error: serde_json::Error| DaliError::io("write", &header.path)(error.into());
        self.header = self.header.sealed().map_err(failed)?;
        let text = serde_json::to_vec_pretty(&self.header).map_err(failed)?;
        header.write(&text)?;
        header.close()?;
        self.temporary.place(self.overwrite)?;
        Ok(self.header)
    }

    fn push_object(
        &mut self,
        object: &NewObject,
        of_image: &mut Capacities,
    ) -> Result<(), DaliError> {
        let first_part = self.append::<PartRow>(format::PARTS, &[])?;
        let (kind, num_parts, num_values) = match &object.segmentation {
            NewSegmentation::Polygons(rings) => {
                for ring in rings {
                    self.append_part(format::COORDS, ring)?;
                }
                (format::KIND_POLYGONS, rings.len(), rings.iter().map(Vec::len).sum())
            }
            NewSegmentation::Runs(runs) => {
                self.append_part(format::RUNS, runs)?;
                (format::KIND_RUNS, 1, runs.len())
            }
        };
        let row = ObjectRow {
            annotation_id: object.annotation_id,
            first_part,
            num_parts: num_parts as u32,
            label: object.label,
            crowd: u32::from(object.crowd),
            kind,
            area: object.area,
            bbox_xywh: object.bbox_xywh,
            reserved: 0,
        };
        self.append(format::OBJECTS, &[row])?;
        assert_eq!(object.keypoints.len(), self.header.num_keypoints(), "keypoints of an object");
        self.append(format::KEYPOINTS, &object.keypoints)?;
        assert_eq!(object.columns.len(), columns::width(&self.header.columns), "a row");
        self.append(format::COLUMNS, &object.columns)?;
        let header = &mut self.header;
        header.num_annotations += 1;
        header.num_crowd += usize::from(object.crowd);
        header.num_without_mask += usize::from(num_parts == 0);
        let counts = !object.crowd && keypoints::is_labelled(&object.keypoints);
        header.num_with_keypoints += usize::from(counts);
        of_image.add(object.crowd, kind, num_parts, num_values);
        Ok(())
    }

    /// Appends a polygon ring or a list of run lengths.
    fn append_part<T: NoUninit>(
        &mut self,
        file: &'static str,
        values: &[T],
    ) -> Result<(), DaliError> {
        let part = PartRow { offset: self.append(file, values)?, len: values.len() as u64 };
        self.append(format::PARTS, &[part]).map(drop)
    }

    /// Appends values to a file, and returns the previous number of values. If the store has no
    /// such file (keypoints or columns), nothing is written.
    fn append<T: NoUninit>(&mut self, file: &'static str, values: &[T]) -> Result<u64, DaliError> {
        let Some(file) = self.files.get_mut(file) else { return Ok(0) };
        let offset = file.info.bytes / size_of::<T>() as u64;
        file.write(bytemuck::cast_slice(values))?;
        Ok(offset)
    }
}

/// A file that is being written, with the checksum of the bytes so far.
#[derive(Debug)]
struct DataFile {
    path: PathBuf,
    writer: BufWriter<File>,
    hasher: crc32fast::Hasher,
    info: FileInfo,
}

impl DataFile {
    fn create(dir: &Path, name: &'static str) -> Result<DataFile, DaliError> {
        let path = dir.join(name);
        let file = File::create(&path).map_err(DaliError::io("create", &path))?;
        Ok(DataFile {
            path,
            writer: BufWriter::with_capacity(1 << 20, file),
            hasher: crc32fast::Hasher::new(),
            info: FileInfo { bytes: 0, crc32: 0 },
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), DaliError> {
        self.writer.write_all(bytes).map_err(DaliError::io("write", &self.path))?;
        self.hasher.update(bytes);
        self.info.bytes += bytes.len() as u64;
        Ok(())
    }

    fn close(&mut self) -> Result<FileInfo, DaliError> {
        self.info.crc32 = self.hasher.clone().finalize();
        let flush = |writer: &mut BufWriter<File>| {
            writer.flush()?;
            let file = writer.get_ref();
            // The file becomes read-only, as readers map it and assume that it does not change.
            let mut permissions = file.metadata()?.permissions();
            permissions.set_readonly(true);
            file.set_permissions(permissions)?;
            file.sync_all()
        };
        flush(&mut self.writer).map_err(DaliError::io("flush", &self.path))?;
        Ok(self.info)
    }
}
