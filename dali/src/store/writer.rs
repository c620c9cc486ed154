//! Writing a store: under a temporary name, flushed to disk, then moved; never half-written.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::columns::{self, Column};
use super::format::{self, Capacities, Category, FORMAT_VERSION, FileInfo, Header};
use super::format::{ImageRow, ObjectRow, PartRow, PixelEncoding, SourceRow};
use super::keypoints::{self, Keypoints};
use crate::decode::Exif;
use crate::error::DaliError;
use crate::place::{Claim, TemporaryDir};

/// One image to store.
#[derive(Debug, Clone)]
pub(crate) struct NewImage<'a> {
    /// COCO image id.
    pub image_id: u64,
    /// File name, as in the annotation file.
    pub file_name: &'a str,
    /// Rows of pixels.
    pub height: u32,
    /// Columns of pixels.
    pub width: u32,
    /// The encoding of `pixels`.
    pub encoding: PixelEncoding,
    /// JPEG bytes, or RGB u8 `[H, W, 3]`.
    pub pixels: &'a [u8],
    /// The file that it comes from.
    pub source: SourceRow,
    /// How an EXIF rotation of its file was treated; `None` without one.
    pub exif: Option<Exif>,
    /// Its objects.
    pub objects: &'a [NewObject],
}

/// One object to store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NewObject {
    /// COCO annotation id.
    pub annotation_id: u64,
    /// Class, 1..K.
    pub label: u32,
    /// True if it is a crowd.
    pub crowd: bool,
    /// Area in pixels.
    pub area: f32,
    /// x, y, width, height in pixels.
    pub bbox_xywh: [f32; 4],
    /// Its mask.
    pub segmentation: NewSegmentation,
    /// x, y in pixels and visibility of each of the store's keypoints; none if it has none.
    pub keypoints: Vec<[f32; 3]>,
    /// The numbers of the store's columns; none if it has none.
    pub columns: Vec<f32>,
}

/// The mask of an object to store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NewSegmentation {
    /// Rings of x, y pairs.
    Polygons(Vec<Vec<f32>>),
    /// Run lengths down the columns, beginning with zeros, summing to `H * W`.
    Runs(Vec<u32>),
}

/// Writes a store; dropped before [`StoreWriter::finish`], it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct StoreWriter {
    temporary: TemporaryDir,
    overwrite: bool,
    header: Header,
    num_parts: u64,
    images: DataFile,
    objects: DataFile,
    parts: DataFile,
    coords: DataFile,
    runs: DataFile,
    names: DataFile,
    pixels: DataFile,
    sources: DataFile,
    keypoints: Option<DataFile>,
    columns: Option<DataFile>,
}

impl StoreWriter {
    /// Starts a store that will end up where `claim` says; `categories` by label, 1..K.
    ///
    /// # Errors
    /// [`DaliError::Io`] if the file system refuses.
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
        let create = |name| DataFile::create(temporary.path(), name);
        Ok(StoreWriter {
            images: create(format::IMAGES)?,
            objects: create(format::OBJECTS)?,
            parts: create(format::PARTS)?,
            coords: create(format::COORDS)?,
            runs: create(format::RUNS)?,
            names: create(format::NAMES)?,
            pixels: create(format::PIXELS)?,
            sources: create(format::SOURCES)?,
            keypoints: keypoints.as_ref().map(|_| create(format::KEYPOINTS)).transpose()?,
            columns: (!columns.is_empty()).then(|| create(format::COLUMNS)).transpose()?,
            temporary,
            overwrite,
            num_parts: 0,
            header: Header {
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
            },
        })
    }

    /// Appends one image with its objects.
    ///
    /// # Errors
    /// [`DaliError::Io`] if writing fails.
    pub(crate) fn push(&mut self, image: &NewImage<'_>) -> Result<(), DaliError> {
        let row = ImageRow {
            image_id: image.image_id,
            pixel_offset: self.pixels.info.bytes,
            pixel_len: image.pixels.len() as u64,
            name_offset: self.names.info.bytes,
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
            pixel_crc32c: crc32c::crc32c(image.pixels),
        };
        self.sources.write(bytemuck::bytes_of(&image.source))?;
        self.images.write(bytemuck::bytes_of(&row))?;
        self.names.write(image.file_name.as_bytes())?;
        self.pixels.write(image.pixels)?;
        let mut of_image = Capacities {
            pixels: image.height as usize * image.width as usize,
            ..Capacities::default()
        };
        for object in image.objects {
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
        self.data_files().map(|file| file.info.bytes).sum()
    }

    /// Flushes everything to disk, makes it read-only and renames it into place; the header records
    /// the doubts about its sources, which `doubts` gives for its counts.
    ///
    /// # Errors
    /// [`DaliError::Io`] if writing fails; nothing new is then at `out`.
    pub(crate) fn finish(
        mut self,
        doubts: impl FnOnce(&Header) -> Vec<String>,
    ) -> Result<Header, DaliError> {
        let dir = self.temporary.path().to_path_buf();
        for file in self.data_files_mut() {
            file.close()?;
        }
        let files = self.data_files().map(|file| (file.name.to_string(), file.info)).collect();
        self.header.files = files;
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
        let first_part = self.num_parts;
        let (kind, num_parts, num_values) = match &object.segmentation {
            NewSegmentation::Polygons(rings) => {
                for ring in rings {
                    let offset = self.coords.info.bytes / size_of::<f32>() as u64;
                    let part = PartRow { offset, len: ring.len() as u64 };
                    self.coords.write(bytemuck::cast_slice(ring))?;
                    self.parts.write(bytemuck::bytes_of(&part))?;
                }
                let num_coords = rings.iter().map(Vec::len).sum();
                (format::KIND_POLYGONS, rings.len(), num_coords)
            }
            NewSegmentation::Runs(runs) => {
                let offset = self.runs.info.bytes / size_of::<u32>() as u64;
                let part = PartRow { offset, len: runs.len() as u64 };
                self.runs.write(bytemuck::cast_slice(runs))?;
                self.parts.write(bytemuck::bytes_of(&part))?;
                (format::KIND_RUNS, 1, runs.len())
            }
        };
        self.objects.write(bytemuck::bytes_of(&ObjectRow {
            annotation_id: object.annotation_id,
            first_part,
            num_parts: num_parts as u32,
            label: object.label,
            crowd: u32::from(object.crowd),
            kind,
            area: object.area,
            bbox_xywh: object.bbox_xywh,
            reserved: 0,
        }))?;
        if let (Some(file), Some(named)) = (&mut self.keypoints, &self.header.keypoints) {
            assert_eq!(object.keypoints.len(), named.names.len(), "keypoints of an object");
            file.write(bytemuck::cast_slice(&object.keypoints))?;
            let counts = !object.crowd && keypoints::is_labelled(&object.keypoints);
            self.header.num_with_keypoints += usize::from(counts);
        }
        if let Some(file) = &mut self.columns {
            assert_eq!(object.columns.len(), columns::width(&self.header.columns), "a row");
            file.write(bytemuck::cast_slice(&object.columns))?;
        }
        self.num_parts += num_parts as u64;
        self.header.num_annotations += 1;
        self.header.num_crowd += usize::from(object.crowd);
        let has_mask =
            !matches!(&object.segmentation, NewSegmentation::Polygons(p) if p.is_empty());
        self.header.num_without_mask += usize::from(!has_mask);
        // Training leaves crowd objects out, so the slots need no room for them.
        if !object.crowd {
            of_image.objects += 1;
            of_image.parts += num_parts;
            if kind == format::KIND_RUNS {
                of_image.runs += num_values;
            } else {
                of_image.coords += num_values;
            }
        }
        Ok(())
    }

    fn data_files(&self) -> impl Iterator<Item = &DataFile> {
        let always = [
            &self.images,
            &self.objects,
            &self.parts,
            &self.coords,
            &self.runs,
            &self.names,
            &self.pixels,
            &self.sources,
        ];
        always.into_iter().chain(&self.keypoints).chain(&self.columns)
    }

    fn data_files_mut(&mut self) -> impl Iterator<Item = &mut DataFile> {
        let always = [
            &mut self.images,
            &mut self.objects,
            &mut self.parts,
            &mut self.coords,
            &mut self.runs,
            &mut self.names,
            &mut self.pixels,
            &mut self.sources,
        ];
        always.into_iter().chain(&mut self.keypoints).chain(&mut self.columns)
    }
}

/// A file being written, with the checksum so far.
#[derive(Debug)]
struct DataFile {
    name: &'static str,
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
            name,
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

    fn close(&mut self) -> Result<(), DaliError> {
        self.info.crc32 = self.hasher.clone().finalize();
        let flush = |writer: &mut BufWriter<File>| {
            writer.flush()?;
            let file = writer.get_ref();
            // Read-only, because readers map these bytes and rely on them not changing.
            let mut permissions = file.metadata()?.permissions();
            permissions.set_readonly(true);
            file.set_permissions(permissions)?;
            file.sync_all()
        };
        flush(&mut self.writer).map_err(DaliError::io("flush", &self.path))
    }
}
