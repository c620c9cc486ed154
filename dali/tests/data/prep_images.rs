//! Prep with each kind of valid and invalid image file.

use dali::prep::{EmptyImages, Exif};
use dali::{PixelEncoding, Store};
use image::{DynamicImage, GrayImage, ImageBuffer, ImageFormat, Luma, RgbImage};
use jpeg_encoder::{ColorType, Encoder};

use crate::fixture::{Fixture, annotation, assert_fails, assert_says, gradient, jpeg, png};

fn rgb(store: &Store, idx: usize) -> Vec<u8> {
    let mut out = Vec::new();
    store.decode_rgb(idx, &mut out).unwrap();
    out
}

/// A data set with one image file of 20x10 pixels.
fn with_file(bytes: &[u8]) -> Fixture {
    let fixture = Fixture::new();
    fixture.write("a.jpg", bytes);
    fixture
}

/// The stored pixels of a file.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let fixture = with_file(bytes);
    rgb(&fixture.made().1, 0)
}

/// EXIF data with a rotation by 90 degrees, in either byte order.
const QUARTER_TURNS: [&[u8]; 2] = [
    b"II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0",
    b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0",
];

fn jpeg_with_exif(exif: &[u8]) -> Vec<u8> {
    jpeg_by(|encoder| encoder.add_app_segment(1, [b"Exif\0\0", exif].concat()).unwrap())
}

/// A JPEG of the gradient, from an encoder configured by `set_up`.
fn jpeg_by(set_up: impl Fn(&mut Encoder<&mut Vec<u8>>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 95);
    set_up(&mut encoder);
    encoder.encode(&gradient(20, 10), 20, 10, ColorType::Rgb).unwrap();
    bytes
}

fn coloured() -> DynamicImage {
    DynamicImage::ImageRgb8(RgbImage::from_raw(20, 10, gradient(20, 10)).unwrap())
}

/// Asserts that the pixels are close to the gradient; JPEG is lossy.
fn assert_is_near_the_gradient(pixels: &[u8]) {
    for (got, expected) in pixels.iter().zip(gradient(20, 10)) {
        assert!(got.abs_diff(expected) <= 8, "{got} {expected}");
    }
}

/// A PNG with a chunk `eXIf` before its pixels or after them.
fn png_with_exif(exif: &[u8], is_before: bool) -> Vec<u8> {
    let mut bytes = png(coloured());
    let data = [b"eXIf", exif].concat();
    let length = (exif.len() as u32).to_be_bytes();
    let chunk = [&length, data.as_slice(), &crc32fast::hash(&data).to_be_bytes()].concat();
    // The position after the signature and header, or before the last chunk.
    let at = if is_before { 33 } else { bytes.len() - 12 };
    bytes.splice(at..at, chunk);
    bytes
}

#[test]
fn stored_jpeg_keeps_its_bytes_and_decodes_closely() {
    let fixture = Fixture::new();
    let (_, store) = fixture.made();
    assert_eq!(store.image(0).encoding, PixelEncoding::Jpeg);
    let file = std::fs::metadata(fixture.images().join("a.jpg")).unwrap().len();
    assert_eq!(store.header().files["pixels.bin"].bytes, file);
    assert_is_near_the_gradient(&rgb(&store, 0));
}

#[test]
fn grey_and_progressive_jpeg_decode_to_rgb() {
    let grey: Vec<u8> = (0..200).map(|at| 30 + at as u8).collect();
    let grey_jpeg = jpeg(&grey, 20, 10, ColorType::Luma);
    for (pixel, &expected) in stored(&grey_jpeg).chunks(3).zip(&grey) {
        assert!(pixel[0] == pixel[1] && pixel[1] == pixel[2], "{pixel:?}");
        assert!(pixel[0].abs_diff(expected) <= 6, "{pixel:?} {expected}");
    }
    assert_is_near_the_gradient(&stored(&jpeg_by(|encoder| encoder.set_progressive(true))));
}

#[test]
fn rgb_rgba_16_bit_and_grey_png_are_stored_losslessly() {
    let values = gradient(20, 10);
    let grey = GrayImage::from_fn(20, 10, |x, y| Luma([(x * 7 + y) as u8]));
    let grey_rgb: Vec<u8> = grey.as_raw().iter().flat_map(|&value| [value; 3]).collect();
    for (picture, expected) in [
        (coloured(), &values),
        (coloured().into_rgba8().into(), &values),
        (coloured().into_rgb16().into(), &values),
        (DynamicImage::ImageLuma8(grey), &grey_rgb),
    ] {
        // The extension is jpg, but the content decides.
        let fixture = with_file(&png(picture));
        let (_, store) = fixture.made();
        assert_eq!(store.image(0).encoding, PixelEncoding::Raw);
        assert_eq!(&rgb(&store, 0), expected);
    }
}

#[test]
fn bmp_tiff_and_webp_are_stored_and_odd_colour_types_reported() {
    let encoded = |picture: DynamicImage, format| {
        let mut bytes = std::io::Cursor::new(Vec::new());
        picture.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    };
    let values = gradient(20, 10);
    for format in [ImageFormat::Bmp, ImageFormat::Tiff, ImageFormat::WebP] {
        for picture in [coloured(), coloured().into_rgba8().into()] {
            let whole = encoded(picture, format);
            assert_eq!(stored(&whole), values, "{format:?}");
            with_file(&whole[..whole.len() / 2]).assert_refused(&[
                "image 7",
                "a.jpg",
                "does not decode",
            ]);
        }
    }
    let grey = encoded(coloured().into_luma8().into(), ImageFormat::Tiff);
    with_file(&grey).prep().unwrap();
    let deep = encoded(coloured().into_rgb16().into(), ImageFormat::Tiff);
    with_file(&deep).assert_refused(&["has 16 or more bits per channel", "convert it"]);
    // The photometric interpretation tag, one short value: grey here, 3 is a palette, 5 CMYK.
    let tag = grey.windows(8).position(|entry| entry == [6, 1, 3, 0, 1, 0, 0, 0]).unwrap();
    for (colours, says) in [(3, "a.jpg): has an unsupported"), (5, "a.jpg): has")] {
        let mut other = grey.clone();
        other[tag + 8] = colours;
        with_file(&other).assert_refused(&[says, "convert it"]);
    }
}

#[test]
fn cmyk_jpeg_decodes_to_rgb() {
    let inks: Vec<u8> =
        gradient(20, 10).chunks(3).flat_map(|rgb| [rgb[0], 40, rgb[2], 90]).collect();
    let light = |ink: u8, black: u8| (255 - u32::from(ink)) * (255 - u32::from(black)) / 255;
    for colours in [ColorType::Cmyk, ColorType::CmykAsYcck] {
        for (rgb, inks) in stored(&jpeg(&inks, 20, 10, colours)).chunks(3).zip(inks.chunks(4)) {
            for (&got, &ink) in rgb.iter().zip(inks) {
                let expected = light(ink, inks[3]);
                assert!(u32::from(got).abs_diff(expected) <= 8, "{colours:?}: {got} {expected}");
            }
        }
    }
}

#[test]
fn truncated_jpeg_is_rejected() {
    let whole = jpeg(&gradient(20, 10), 20, 10, ColorType::Rgb);
    for len in [3, 20, whole.len() / 2, whole.len() - 30, whole.len() - 2, whole.len() - 1] {
        with_file(&whole[..len]).assert_refused(&[
            "image 7",
            "a.jpg",
            "truncated",
            &format!("{len} bytes"),
        ]);
    }
}

#[test]
fn corrupt_image_is_reported_without_panic() {
    with_file(b"GIF89a and so on").assert_refused(&[
        "image 7",
        "is GIF; onegraph reads JPEG, PNG, BMP, TIFF and WebP: convert it",
    ]);
    with_file(b"").assert_refused(&["neither JPEG nor PNG"]);
    let whole = png(coloured());
    with_file(&whole[..whole.len() / 2]).assert_refused(&["does not decode"]);
    // A frame header whose chroma is sampled more finely than its luma.
    let mut finer = jpeg(&gradient(20, 10), 20, 10, ColorType::Rgb);
    let frame = finer.windows(2).position(|marker| marker == [0xFF, 0xC0]).unwrap();
    finer[frame + 14] = 0x44;
    with_file(&finer).assert_refused(&["unsupported sampling", "[4, 4]"]);
    // A damaged byte at any position must give an error or a picture, but no panic.
    let whole = jpeg(&gradient(20, 10), 20, 10, ColorType::Rgb);
    let mut out = vec![0; 600];
    for at in 2..whole.len() {
        for value in [0x00, 0x7F, 0xFF] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            if dali::decode::probe(&bytes).is_ok() {
                let _ = dali::decode::decode_rgb_into(&bytes, &mut out);
            }
        }
    }
}

#[test]
fn missing_file_and_wrong_size_report_image_and_file() {
    let fixture = Fixture::new();
    std::fs::remove_file(fixture.images().join("a.jpg")).unwrap();
    // The message names `prep`, since `train` builds stores too, but without this option.
    fixture.assert_refused(&["image 7", "a.jpg", "folder of images", "prep --skip-bad-images"]);

    std::os::unix::fs::symlink("nowhere.jpg", fixture.images().join("a.jpg")).unwrap();
    fixture.assert_refused(&["image 7", "it is a link to \"nowhere.jpg\""]);

    let fixture = Fixture::new();
    fixture.write_jpeg("a.jpg", 24, 12);
    fixture.assert_refused(&["image 7", "20x10", "24x12", "a.jpg"]);
}

/// Two entries for one file are usually a mistake, but some data sets annotate a picture twice.
#[test]
fn images_sharing_a_file_are_reported() {
    let mut fixture = Fixture::new();
    fixture.add_image(3, "./a.jpg", 20, 10);
    fixture.add_picture(5, "b.jpg", 16, 16);
    fixture.add_image(9, "a.jpg", 20, 10);
    let report = fixture.prep().unwrap();
    assert_eq!(report.num_images, 4);
    assert_eq!(report.shared_files.first_ids, [7, 9], "by id, those after the first");
    assert_says(&report.to_string(), &["the file of an earlier image: 2 (id 7, 9)"]);
}

#[test]
fn exif_rotation_is_reported_and_applied_only_if_asked() {
    let [little, big] = QUARTER_TURNS;
    let files = [
        jpeg_with_exif(little),
        jpeg_with_exif(big),
        png_with_exif(little, true),
        png_with_exif(big, false),
    ];
    for file in files {
        let mut fixture = with_file(&file);
        let (report, store) = fixture.made();
        assert_eq!(report.exif_rotated.first_ids, [7]);
        assert_eq!((store.image(0).height, store.image(0).width), (10, 20));
        assert_eq!((store.header().num_turned, store.header().num_unturned), (0, 1));
        assert!(store.source_faults(&fixture.images()).is_empty());
        std::fs::remove_dir_all(fixture.store_path()).unwrap();
        fixture.json["images"][0]["width"] = 10.into();
        fixture.json["images"][0]["height"] = 20.into();
        fixture.assert_refused(&["10x20", "20x10", "EXIF orientation 6", "--exif apply"]);
        let mut stored = vec![0; 600];
        dali::decode::decode_rgb_into(&file, &mut stored).unwrap();
        let report = fixture.prep_with(|options| options.exif = Exif::Apply).unwrap();
        assert_eq!(report.exif_rotated.count, 0);
        let store = fixture.store();
        assert_eq!((store.header().num_turned, store.header().num_unturned), (1, 0));
        // Tests a current store, and one of an older version, which does not record the rotation.
        for has_counts in [true, false] {
            crate::store::reseal(&fixture, |header| {
                header["num_turned"] = u8::from(has_counts).into();
            });
            assert!(fixture.store().source_faults(&fixture.images()).is_empty());
        }
        fixture.write_jpeg("a.jpg", 20, 10);
        assert_eq!(store.source_faults(&fixture.images()).len(), 1);
        let turned = rgb(&store, 0);
        // Orientation 6: the first displayed row is the first stored column, from the bottom up.
        let shown = |x: usize, y: usize| stored[3 * ((9 - x) * 20 + y)..][..3].to_vec();
        let mut expected = Vec::new();
        (0..200).for_each(|at| expected.extend(shown(at % 10, at / 10)));
        assert_eq!(turned, expected);
    }
}

#[test]
fn bad_images_can_be_skipped() {
    let mut fixture = Fixture::new();
    fixture.add_image(3, "gone.jpg", 20, 10);
    fixture.add_annotation(annotation(200, 3, 3));
    let report = fixture.prep_with(|options| options.skip_bad_images = true).unwrap();
    assert_eq!((report.num_images, report.bad_images.len()), (1, 1));
    assert_eq!(report.bad_images[0].0, 3);
    assert_eq!(report.num_dropped(), 1);
    assert_says(&report.to_string(), &["skipped      1", "gone.jpg", "its image was skipped"]);

    std::fs::remove_file(fixture.images().join("a.jpg")).unwrap();
    let replacing = fixture.prep_with(|options| {
        options.skip_bad_images = true;
        options.overwrite = true;
    });
    assert_fails(replacing, &["nothing left", "2 were unreadable"]);
    // The previous store is unchanged.
    assert_eq!(fixture.store().len(), 1);
}

#[test]
fn empty_images_are_kept_or_dropped_and_order_is_by_id() {
    let mut fixture = Fixture::new();
    fixture.add_picture(3, "b.jpg", 16, 16);
    let (report, store) = fixture.made();
    assert_eq!((report.num_images, report.num_empty_images), (2, 1));
    assert_eq!((store.image(0).image_id, store.file_name(0)), (3, "b.jpg"));
    assert_eq!((store.image(1).image_id, store.file_name(1)), (7, "a.jpg"));
    let report = fixture
        .prep_with(|options| {
            options.empty = EmptyImages::Drop;
            options.overwrite = true;
        })
        .unwrap();
    assert_eq!((report.num_images, report.num_dropped_empty_images), (1, 1));
    assert_eq!(fixture.store().image(0).image_id, 7);
}

/// A name with Windows separators, different case or a different Unicode form matches a file if
/// there is only one candidate; the store has the file's name.
#[test]
fn file_is_found_by_equivalent_name() {
    let (one, two) = ("caf\u{e9}.jpg", "cafe\u{301}.jpg");
    for (files, name, want) in [
        (&["a.jpg"][..], "a.JPG", Ok("a.jpg")),
        (&["sub/a.jpg"], "Sub\\A.jpg", Ok("sub/a.jpg")),
        (&["sub\\a.jpg"], "sub\\a.jpg", Ok("sub\\a.jpg")),
        (&[two], one, Ok(two)),
        (&[one], two, Ok(one)),
        (&["A.jpg", "a.jpg"], "a.jpg", Ok("a.jpg")),
        (&["A.jpg", "a.jpg"], "a.JPG", Err("A.jpg, a.jpg; correct file_name")),
        (&["b.jpg"], "a\\c.jpg", Err("Unicode form or separators there is nothing")),
        (&["b.jpg"], "c.jpg", Err("No such file")),
        (&["a.jpg"], "..\\a.jpg", Err("must be a path inside")),
    ] {
        let mut fixture = Fixture::new();
        std::fs::remove_file(fixture.images().join("a.jpg")).unwrap();
        std::fs::create_dir(fixture.images().join("sub")).unwrap();
        files.iter().for_each(|file| fixture.write_jpeg(file, 20, 10));
        fixture.json["images"][0]["file_name"] = name.into();
        match want {
            Ok(file) => {
                let (report, store) = fixture.made();
                assert_eq!(store.file_name(0), file);
                assert_eq!(report.renamed.count, usize::from(file != name));
                assert!(store.changed_source(&fixture.images()).is_none());
            }
            Err(words) => fixture.assert_refused(&[words]),
        }
    }
    // Two names match the same file, because the second file is missing.
    let mut fixture = Fixture::new();
    fixture.add_image(3, "A.jpg", 20, 10);
    fixture.assert_refused(&["image 3", "a file that matches several file_name"]);
}

/// 16-bit values that use only the low bits lose levels; 8-bit values lose none.
#[test]
fn loss_of_levels_in_16_bit_image_is_reported() {
    for (scale, first, want) in [
        (1000, 1, "1 16-bit images lose levels: a.jpg uses 10 of its 16 bits, so 4 levels"),
        (4095, 1, "1 16-bit images lose levels: a.jpg uses 12 of its 16 bits, so 16 levels"),
        (65_535, 1, ""),
        (257 * 10, 257, ""),
        (0, 1, ""),
    ] {
        let value = |x, y| Luma([(scale * (x + 20 * y) / 199 / first * first) as u16]);
        let grey = DynamicImage::ImageLuma16(ImageBuffer::from_fn(20, 10, value));
        for picture in [grey.to_rgba16().into(), grey] {
            let fixture = with_file(&png(picture));
            let doubts = fixture.made().1.header().doubts.join("");
            assert!(doubts.starts_with(want) && doubts.is_empty() == want.is_empty(), "{doubts}");
        }
    }
}
