//! Valid inputs from which mutations start.

use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;

use base64::Engine;
use image::{DynamicImage, GrayImage, ImageFormat, Luma};
use jpeg_encoder::{ColorType, Encoder};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;

/// JPEGs of 20x10: baseline, progressive, and grey.
pub(crate) fn jpegs() -> Vec<Vec<u8>> {
    let encode = |progressive: bool, colour: ColorType, values: usize| {
        let pixels: Vec<u8> = (0..values).map(|i| (i * 7 % 251) as u8).collect();
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 80);
        encoder.set_progressive(progressive);
        encoder.set_restart_interval(2);
        encoder.encode(&pixels, 20, 10, colour).expect("a sound picture");
        bytes
    };
    vec![
        encode(false, ColorType::Rgb, 600),
        encode(true, ColorType::Rgb, 600),
        encode(false, ColorType::Luma, 200),
    ]
}

/// PNGs of 6x5: colour, alpha, 16 bits, grey.
pub(crate) fn pngs() -> Vec<Vec<u8>> {
    let pictures = [
        DynamicImage::new_rgb8(6, 5),
        DynamicImage::new_rgba8(6, 5),
        DynamicImage::new_rgb16(6, 5),
        DynamicImage::new_luma8(6, 5),
    ];
    let encode = |picture: DynamicImage| {
        let mut bytes = Cursor::new(Vec::new());
        picture.write_to(&mut bytes, ImageFormat::Png).expect("a sound picture");
        bytes.into_inner()
    };
    pictures.map(encode).into()
}

/// Images of 6x5 in BMP, TIFF and WebP: colour and alpha.
pub(crate) fn other_images() -> Vec<Vec<u8>> {
    let encode = |format| {
        [DynamicImage::new_rgb8(6, 5), DynamicImage::new_rgba8(6, 5)].map(|picture| {
            let mut bytes = Cursor::new(Vec::new());
            picture.write_to(&mut bytes, format).expect("a sound picture");
            bytes.into_inner()
        })
    };
    [ImageFormat::Bmp, ImageFormat::Tiff, ImageFormat::WebP].into_iter().flat_map(encode).collect()
}

/// Updates the checksum of every chunk, so that the decoder reads its contents.
pub(crate) fn fix_png(bytes: &mut [u8]) {
    let mut at = 8;
    while let Some(length) = bytes.get(at..at + 4) {
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let Some(body) = bytes.get(at + 4..(at + 8).saturating_add(length)) else { return };
        let crc = crc32fast::hash(body).to_be_bytes();
        let end = at + 8 + length;
        let Some(own) = bytes.get_mut(end..end + 4) else { return };
        own.copy_from_slice(&crc);
        at = end + 4;
    }
}

/// A folder with an image of 20x10 and its annotations in a format, by file.
pub(crate) fn folder(format: &str) -> Vec<(&'static str, Vec<u8>)> {
    let text = |text: &str| text.as_bytes().to_vec();
    let mask = |name: &'static str| {
        let pixels = GrayImage::from_fn(20, 10, |x, _| Luma([(x / 5) as u8 % 3]));
        let mut bytes = Cursor::new(Vec::new());
        let picture = DynamicImage::ImageLuma8(pixels);
        picture.write_to(&mut bytes, ImageFormat::Png).expect("a sound picture");
        (name, bytes.into_inner())
    };
    let image = |name: &'static str| (name, jpegs().remove(0));
    match format {
        "yolo" => vec![
            image("images/a.jpg"),
            ("data.yaml", text("path: .\ntrain: images\nnc: 2\nnames: {0: ant, 1: 'b'}\n")),
            ("labels/a.txt", text("0 0.1 0.1 0.5 0.1 0.5 0.5\n1 0.5 0.5 0.2 0.2\n")),
        ],
        "labelme" => {
            let png = base64::engine::general_purpose::STANDARD.encode(mask("").1);
            let shapes = json!([
                {"label": "ant", "points": [[1, 1], [5, 1], [5, 5]], "group_id": 1},
                {"label": "ant", "points": [[6, 6], [2, 2]], "shape_type": "rectangle",
                 "group_id": 1},
                {"label": "bee", "points": [[9, 4], [9, 7]], "shape_type": "circle"},
                {"label": "bee", "points": [[0, 0], [20, 10]], "shape_type": "mask", "mask": png},
            ]);
            let file = json!({"version": "6.3.1", "shapes": shapes, "imagePath": "a.jpg",
                "imageData": null, "imageHeight": 10, "imageWidth": 20});
            vec![image("a.jpg"), ("a.json", file.to_string().into_bytes())]
        }
        "cvat" => vec![
            image("images/a.jpg"),
            (
                "annotations.xml",
                text(
                    r#"<annotations><meta><label><name>ant</name></label></meta>
                    <image id="0" name="a.jpg" width="20" height="10">
                    <polygon label="ant" points="1,1;5,1;5,5" group_id="1"/>
                    <box label="ant" xtl="2" ytl="2" xbr="6" ybr="6" rotation="9"/>
                    <mask label="ant" rle="1, 2, 1" left="3" top="4" width="2" height="2"/>
                    <ellipse label="ant" cx="9" cy="5" rx="3" ry="2"/></image></annotations>"#,
                ),
            ),
        ],
        "voc" => vec![
            image("JPEGImages/a.jpg"),
            mask("SegmentationObject/a.png"),
            (
                "Annotations/a.xml",
                text(
                    "<annotation><object><name>ant</name><bndbox><xmin>1</xmin><ymin>1</ymin>\
                     <xmax>20</xmax><ymax>9</ymax></bndbox></object><object><name>b</name><bndbox>\
                     <xmin>.5</xmin><ymin>1</ymin><xmax>19</xmax><ymax>9</ymax></bndbox></object>\
                     </annotation>",
                ),
            ),
        ],
        "masks" => vec![
            image("images/a.jpg"),
            image("images/b.jpg"),
            mask("masks/a.png"),
            mask("masks/b/ant_1.png"),
            ("classes.json", text(r#"{"1": "ant", "2": "bee"}"#)),
        ],
        "lvis" => vec![image("val2017/a.jpg"), ("lvis_v1_val.json", lvis())],
        _ => vec![image("a.jpg"), ("annotations.json", annotations())],
    }
}

/// One image of 20x10 in LVIS format, which names images by URL.
fn lvis() -> Vec<u8> {
    let file = json!({
        "images": [{"id": 7, "width": 20, "height": 10, "not_exhaustive_category_ids": [],
            "neg_category_ids": [9], "coco_url": "http://a.org/val2017/a.jpg"}],
        "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "area": 16.0,
            "bbox": [2.0, 1.0, 4.0, 4.0],
            "segmentation": [[2.0, 1.0, 6.0, 1.0, 6.0, 5.0, 2.0, 5.0]]}],
        "categories": [{"id": 3, "name": "ant", "frequency": "r", "synset": "ant.n.01"}],
    });
    file.to_string().into_bytes()
}

/// One image of 20x10 with a mask in each of COCO's three formats, a crowd, and keypoints.
pub(crate) fn annotations() -> Vec<u8> {
    let object = |id: u64, crowd: u8, segmentation: serde_json::Value| {
        json!({
            "id": id, "image_id": 7, "category_id": 3, "iscrowd": crowd,
            "bbox": [2.0, 1.0, 4.0, 4.0], "area": 16.0, "segmentation": segmentation,
            "keypoints": [2.5, 1.0, 2, 0, 0, 0, 4, 3, 1], "num_keypoints": 2,
        })
    };
    let (names, skeleton) = (["nose", "left_ear", "right_ear"], [[1, 2], [1, 3]]);
    json!({
        "images": [{"id": 7, "file_name": "a.jpg", "width": 20, "height": 10}],
        "annotations": [
            object(1, 0, json!([[2.0, 1.0, 6.0, 1.0, 6.0, 5.0, 2.0, 5.0]])),
            object(2, 0, json!({"size": [10, 20], "counts": [21, 4, 6, 4, 165]})),
            object(3, 1, json!({"size": [10, 20], "counts": "e04640`4"})),
        ],
        "categories": [
            {"id": 3, "name": "ant", "keypoints": names, "skeleton": skeleton},
            {"id": 9, "name": "bee"},
        ],
    })
    .to_string()
    .into_bytes()
}

/// Result files with boxes and with masks.
pub(crate) fn detections() -> Vec<Vec<u8>> {
    let found = |more: serde_json::Value| {
        let mut object =
            json!({"image_id": 7, "category_id": 3, "score": 0.9, "bbox": [2.0, 1.0, 4.0, 4.0]});
        if !more.is_null() {
            object["segmentation"] = more;
        }
        json!([object, object]).to_string().into_bytes()
    };
    vec![
        found(serde_json::Value::Null),
        found(json!({"size": [10, 20], "counts": [21, 4, 6, 4, 165]})),
        found(json!({"size": [10, 20], "counts": "e04640`4"})),
    ]
}

/// RLE inputs: height and width, then runs as text or a polygon as numbers.
pub(crate) fn rles() -> Vec<Vec<u8>> {
    let corners = [1.0_f64, 1.0, 9.0, 2.0, 5.0, 8.0];
    let polygon = corners.iter().flat_map(|value| value.to_le_bytes());
    vec![b"\x02\x03e04640`4".to_vec(), [2_u8, 3].into_iter().chain(polygon).collect()]
}

/// The presets.
pub(crate) fn configs() -> Vec<Vec<u8>> {
    let text = |name| configs::preset(name).unwrap_or_default().as_bytes().to_vec();
    configs::preset_names().map(text).collect()
}

/// Weights files with two small tensors, one of which has a name in the model, without and with
/// classes.
pub(crate) fn weights() -> Vec<Vec<u8>> {
    let values = [0_u8; 48];
    let view = |shape: Vec<usize>| TensorView::new(Dtype::F32, shape, &values).expect("sound");
    let tensors: BTreeMap<&str, TensorView<'_>> = BTreeMap::from([
        ("rpn.head.bbox_pred.bias", view(vec![12])),
        ("another.weight", view(vec![3, 4])),
    ]);
    let classes = json!([{"id": 3, "name": "ant"}, {"id": 9, "name": "bee"}]).to_string();
    let metadata = HashMap::from([("onegraph.categories".to_string(), classes)]);
    [None, Some(metadata)]
        .map(|metadata| safetensors::serialize(&tensors, metadata).expect("sound"))
        .into()
}

/// Files written by PyTorch and NumPy, taken from the tests of the engine.
macro_rules! fixtures {
    ($($name:literal),*) => {
        vec![$(include_bytes!(concat!(
            "../../../engine/src/weights/container/fixtures/",
            $name
        ))
        .to_vec()),*]
    };
}

/// A dict of arrays in protocols 0 to 5.
pub(crate) fn pickles() -> Vec<Vec<u8>> {
    fixtures!["numpy_0.pkl", "numpy_2.pkl", "numpy_4.pkl", "numpy_5.pkl"]
}

/// State dicts, one inside a checkpoint with an optimizer, and a NumPy archive.
pub(crate) fn torch_files() -> Vec<Vec<u8>> {
    fixtures!["zip.pth", "legacy.pth", "checkpoint.pth", "stored.npz"]
}

/// Updates the checksums of those entries of an archive that its headers still locate.
pub(crate) fn fix_zip(bytes: &mut [u8]) {
    let number = |bytes: &[u8], at: usize, len: usize| -> Option<usize> {
        let field = bytes.get(at..at + len)?;
        Some(field.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    };
    for central in 0..bytes.len() {
        if bytes[central..].get(..4) != Some(b"PK\x01\x02") {
            continue;
        }
        let (Some(size), Some(local)) =
            (number(bytes, central + 24, 4), number(bytes, central + 42, 4))
        else {
            return;
        };
        let (Some(name), Some(extra)) =
            (number(bytes, local + 26, 2), number(bytes, local + 28, 2))
        else {
            continue;
        };
        let from = local + 30 + name + extra;
        let Some(data) = bytes.get(from..from + size) else { continue };
        let crc = crc32fast::hash(data).to_le_bytes();
        for at in [central + 16, local + 14] {
            if let Some(field) = bytes.get_mut(at..at + 4) {
                field.copy_from_slice(&crc);
            }
        }
    }
}
