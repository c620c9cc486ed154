//! Mistakes in folders of each format: each mistake gives one message with the file and the error.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dali::DaliError;
use dali::formats::{self, Request, Source};
use dali::prep::{self, Masks, PrepOptions, PrepReport};
use image::{DynamicImage, GrayImage, ImageBuffer, Luma};
use jpeg_encoder::ColorType;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::fixture::{gradient, jpeg, png};

/// A file, a text in the file and its replacement (if the text is empty, the whole file is
/// replaced), and parts of the resulting message.
type Mistake<'a, Text = &'a str> = (&'a str, &'a str, Text, &'a [&'a str]);

/// As the replacement: removes the file.
pub(crate) const GONE: &str = "\0gone";

/// A second LabelMe file for the image `a.jpg`.
const AGAIN: &str = r#"{"shapes": [], "imagePath": "a.jpg"}"#;

#[derive(Clone, Copy)]
pub(crate) struct Sound {
    pub(crate) format: &'static str,
    pub(crate) split: Option<&'static str>,
    pub(crate) write: fn(&Path),
}

pub(crate) fn put(root: &Path, file: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

pub(crate) fn picture(root: &Path, file: &str) {
    put(root, file, jpeg(&gradient(20, 10), 20, 10, ColorType::Rgb));
}

/// A request to read a folder, or one of its splits.
pub(crate) fn request(folder: &Path, split: Option<&str>) -> Request {
    Request { split: split.map(str::to_string), ..Request::new(folder) }
}

/// Runs `prep` on a folder that `formats::read` has read.
pub(crate) fn store(source: Source, out: &Path) -> Result<PrepReport, DaliError> {
    let Source { images, annotations, dataset, .. } = source;
    let options = PrepOptions::new(images, annotations, out);
    match dataset {
        Some(dataset) => prep::run_dataset(&options, dataset, &mut |_| ()),
        None => prep::run(&options, &mut |_| ()),
    }
}

/// Changes a valid folder, then reads and stores it. Returns the error message, or `None` without
/// an error.
fn refusal(sound: &Sound, change: impl FnOnce(&Path)) -> Option<String> {
    let place = tempfile::tempdir().unwrap();
    let set = place.path().join("set");
    (sound.write)(&set);
    change(&set);
    let format = Some(sound.format.to_string());
    let made = formats::read(&Request { format, ..request(&set, sound.split) })
        .and_then(|source| store(source, &place.path().join("store")));
    made.err().map(|error| error.to_string())
}

/// Asserts that the unchanged folder is recognised and stored, and that each mistake is reported.
pub(crate) fn check<T: AsRef<[u8]>>(sound: &Sound, mistakes: &[Mistake<'_, T>]) {
    assert_eq!(refusal(sound, |_| ()), None, "{}", sound.format);
    let set = tempfile::tempdir().unwrap();
    (sound.write)(set.path());
    let taken = formats::read(&request(set.path(), sound.split)).unwrap().notes[0].clone();
    assert!(taken.contains(&format!(" as {}: ", sound.format)), "{taken}");
    let sound_files = mistakes.iter().map(|(file, ..)| *file);
    let sound_files = sound_files.filter(|file| set.path().join(file).exists());
    check_unreadable(sound, &sound_files.collect::<Vec<_>>());
    for (file, from, to, says) in mistakes {
        let (to, text) = (to.as_ref(), String::from_utf8_lossy(to.as_ref()));
        let mistake = format!("{}: {file}: {from:?} -> {text:?}", sound.format);
        let sentence = refusal(sound, |set| {
            let path = set.join(file);
            if text == GONE {
                fs::remove_file(&path).unwrap();
            } else if from.is_empty() {
                put(set, file, to);
            } else {
                let before = fs::read_to_string(&path).unwrap();
                assert!(before.contains(from), "{file} does not hold {from}");
                fs::write(&path, before.replace(from, &text)).unwrap();
            }
        });
        let sentence = sentence.unwrap_or_else(|| panic!("{mistake}: stored"));
        assert!(!sentence.contains('\n'), "{mistake}: {sentence}");
        for part in *says {
            assert!(sentence.contains(part), "{mistake}: `{part}` is not in: {sentence}");
        }
    }
}

/// Asserts that files which exist but cannot be read are reported with the file name.
fn check_unreadable(sound: &Sound, files: &[&str]) {
    let replaced: [fn(&Path); 5] = [
        |path| symlink("gone", path).unwrap(),
        |path| symlink(path, path).unwrap(),
        |path| symlink("/dev/zero", path).unwrap(),
        |path| fs::create_dir(path).unwrap(),
        |path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap(),
    ];
    for (file, replace) in files.iter().flat_map(|file| replaced.map(|replace| (file, replace))) {
        let sentence = refusal(sound, |set| {
            fs::remove_file(set.join(file)).unwrap();
            replace(&set.join(file));
        });
        let sentence = sentence.unwrap_or_default();
        assert!(sentence.contains(file), "{}: {file}: {sentence}", sound.format);
    }
}

#[test]
fn invalid_yolo_gives_one_line_error() {
    let write = |set: &Path| {
        put(set, "data.yaml", "path: .\ntrain: images/train\nval: images/val\nnames: [ant, bee]\n");
        picture(set, "images/train/a.jpg");
        picture(set, "images/val/b.jpg");
        put(set, "labels/train/a.txt", "0 0.1 0.1 0.5 0.1 0.5 0.5\n1 .2 .2 .8 .2 .8 .9 .2 .9\n");
        put(set, "labels/val/b.txt", "1 0.1 0.1 0.5 0.1 0.5 0.5\n");
    };
    let a = "labels/train/a.txt";
    let deep = format!("a: {}\nnames:", "[{a: ".repeat(200));
    let again = format!("a: &a {}\nnames: [{}]", "x".repeat(1 << 20), ["*a"; 65].join(", "));
    let sound = Sound { format: "yolo", split: Some("train"), write };
    check(
        &sound,
        &[
            ("data.yaml", "", GONE, &["has no data.yaml"]),
            ("data.yaml", "", "", &["data.yaml: is not a data.yaml of YOLO"]),
            ("data.yaml", "[ant, bee]", "[]", &["`names` is empty"]),
            (
                "data.yaml",
                "[ant, bee]",
                "7",
                &["names: invalid type: integer `7`, expected a string"],
            ),
            ("data.yaml", "[ant, bee]", "[[ant], bee]", &["names[0]: invalid type: sequence"]),
            ("data.yaml", "[ant, bee]", "{0: ant, 0: bee}", &["names: has the key 0 twice"]),
            ("data.yaml", "names:", &deep, &["more than 256 brackets are open"]),
            ("data.yaml", "names: [ant, bee]", &again, &["names: has more than 64 MiB of text"]),
            ("data.yaml", "names:", "kpt_shape: [2, 3]\nnames:", &["line 1: has 2 numbers after"]),
            (a, "", "0 .5 .5 .2 .2 .93 1", &["object 1 looks like a box and a confidence"]),
            (
                a,
                "",
                "0 .4 .5 .5 .5 .2 .3 .3 .6 .5 .4",
                &["object 1 looks like a box and key points"],
            ),
            (a, "", "0 .4 .4 .4 .4 .2 .3 1 .5 .5 0", &["object 1 looks like a box and key points"]),
            ("data.yaml", "[ant, bee]", "{0: ant, 2: bee}", &["`names` has 2 where 1 is next"]),
            ("data.yaml", "[ant, bee]", "[ant, ant]", &["names the class \"ant\" twice"]),
            ("data.yaml", "names:", "nc: 3\nnames:", &["`nc` is 3 but `names` has 2"]),
            ("data.yaml", "train: images/train\n", "", &["has no split train; --split takes val"]),
            ("data.yaml", "images/train", "elsewhere", &["`train` leads to no image: elsewhere"]),
            ("data.yaml", "images/train", "{a: b}", &["train: invalid type: string \"a\""]),
            (a, "", GONE, &["no image has a label file", "labels/train/a.txt"]),
            (a, "", "0 0.1 0.1 0.5 0.1\n0.5", &["a.txt: line 2: the class is"]),
            (a, "0 0.1", "2 0.1", &["a.txt: line 1: class 2 has no name, as the last is 1"]),
            (a, "0 0.1", "ant 0.1", &["line 1: the class is \"ant\""]),
            (a, "1 .2", "1 x", &["line 2: \"x\" is not a number"]),
            (a, ".8 .9", ".8 180", &["line 2: 180 is not a fraction"]),
            (a, " 0.5 0.5\n", " 0.5\n", &["line 1: has 5 numbers after the class"]),
            (a, "0 0.1 0.1", "0,0.1,0.1", &["line 1: ", "separate the numbers by spaces"]),
            ("images/train/a.png", "", "x", &["a.png: has the annotations of", "a.jpg too"]),
            ("images/train/a.jpg", "", "x", &["a.jpg): is neither JPEG nor PNG"]),
        ],
    );
}

/// Folders of Label Studio's YOLO and VOC and of CVAT's YOLO 1.1, in the form written by those
/// tools.
#[test]
fn yolo_folder_without_yaml_is_read() {
    let place = tempfile::tempdir().unwrap();
    let read = |set: &Path, split: Option<&str>| {
        let request = Request { masks: Masks::Optional, ..request(set, split) };
        let Source { dataset, notes, .. } = formats::read(&request).unwrap();
        let dataset = dataset.unwrap();
        let of = |id| dataset.categories.iter().find(|c| c.id == id).unwrap().name.clone();
        let names: Vec<_> = dataset.annotations.iter().map(|a| of(a.category_id)).collect();
        (notes[0].rsplit(": ").next().unwrap().to_string(), names)
    };
    let studio = place.path().join("studio");
    picture(&studio, "images/a.jpg");
    put(&studio, "classes.txt", "ant\nbee\n");
    put(&studio, "labels/a.txt", "1 0.1 0.1 0.5 0.1 0.5 0.5\n");
    put(&studio, "notes.json", r#"{"categories": [{"id": 0, "name": "ant"}], "info": {}}"#);
    assert_eq!(read(&studio, None), ("classes.txt names classes".into(), vec!["bee".into()]));

    let darknet = place.path().join("darknet");
    for (part, label) in [("train", "0 .5 .5 .2 .2"), ("val", "1 .5 .5 .2 .2")] {
        picture(&darknet, &format!("obj_{part}_data/{part}.jpg"));
        put(&darknet, &format!("obj_{part}_data/{part}.txt"), label);
        let list = format!("data/obj_{part}_data/{part}.jpg\n");
        put(&darknet, &format!("{part}.txt"), list);
    }
    put(&darknet, "obj.data", "classes = 2\ntrain = data/train.txt\nnames = data/obj.names\n");
    put(&darknet, "obj.names", "ant\nbee\n");
    let taken = || "obj.names names classes".into();
    assert_eq!(read(&darknet, Some("val")), (taken(), vec!["bee".into()]));
    assert_eq!(read(&darknet, Some("all")).1, ["ant", "bee"]);

    let voc = place.path().join("voc");
    picture(&voc, "images/a.jpg");
    let corners = "<xmin>2</xmin><ymin>2</ymin><xmax>5</xmax><ymax>6</ymax>";
    let object = format!("<object><name>ant</name><bndbox>{corners}</bndbox></object>");
    put(&voc, "Annotations/a.xml", format!("<annotation>{object}</annotation>"));
    assert_eq!(read(&voc, None).1, ["ant"]);
}

/// A grey PNG of 20x10 pixels with the value `first` in the upper left 4x4 pixels, and `second` to
/// their right.
fn values(first: u8, second: u8) -> Vec<u8> {
    png(DynamicImage::ImageLuma8(GrayImage::from_fn(20, 10, |x, y| {
        Luma([if y > 3 || x > 7 {
            0
        } else if x < 4 {
            first
        } else {
            second
        }])
    })))
}

#[test]
fn invalid_labelme_gives_one_line_error() {
    let write = |set: &Path| {
        picture(set, "a.jpg");
        let mask = STANDARD.encode(values(1, 1));
        let text = format!(
            r#"{{"version": "6.3.1", "shapes": [
            {{"label": "ant", "points": [[1, 1], [5, 1], [5, 5]], "group_id": 1}},
            {{"label": "bee", "points": [[6, 6], [2, 2]], "shape_type": "rectangle"}},
            {{"label": "cat", "points": [[9, 4], [9, 7]], "shape_type": "circle"}},
            {{"label": "dog", "points": [[0, 0], [20, 10]], "shape_type": "mask", "mask": "{mask}"}}
            ], "imagePath": "a.jpg", "imageData": null, "imageHeight": 10, "imageWidth": 20}}"#
        );
        put(set, "a.json", text);
    };
    let a = "a.json";
    let sound = Sound { format: "labelme", split: None, write };
    check(
        &sound,
        &[
            (a, "\"ant\"", "\"\"", &["has an object without a label"]),
            (a, "", GONE, &["holds no JSON file"]),
            (a, "", "", &["a.json: is not a LabelMe file", "line 1"]),
            (a, "\"shapes\"", "\"shape\"", &["missing field `shapes`"]),
            (a, "\"label\": \"ant\"", "\"name\": \"ant\"", &["missing field `label`", "line 2"]),
            (a, "\"label\": \"ant\"", "\"label\": 7", &["invalid type: integer", "line 2"]),
            (a, "[1, 1], ", "", &["shapes[0] (\"ant\") has 2 points; a polygon has 3 or more"]),
            (a, "[1, 1], ", "[1, 1e9], ", &["shapes[0] (\"ant\") has the coordinate 1000000000"]),
            (a, "[6, 6], ", "", &["shapes[1] (\"bee\") has 1 points; a rectangle has 2"]),
            (a, "\"circle\"", "\"blob\"", &["shapes[2] (\"cat\") is a \"blob\""]),
            (
                a,
                ", \"mask\": \"iVBOR",
                ", \"m\": \"iVBOR",
                &["shapes[3] (\"dog\") is a mask without"],
            ),
            (a, "\"iVBOR", "\"?VBOR", &["shapes[3] (\"dog\") has a broken `mask`"]),
            (a, "\"iVBOR", "\"AAAAiVBOR", &["shapes[3] (\"dog\") has a broken mask"]),
            (a, "[0, 0], ", "[30, 0], ", &["shapes[3] (\"dog\") has a mask outside the image"]),
            ("b.json", "", AGAIN, &["a.jpg: is annotated in two places"]),
            (a, "\"imageHeight\": 10", "\"imageHeight\": 1000000000", &["declares an image of"]),
            (a, "\"imageHeight\": 10", "\"imageHeight\": 11", &["say 20x11 but", "is 20x10"]),
            ("a.jpg", "", GONE, &["a.json: the image \"a.jpg\" is missing"]),
            (a, "[20, 10]", "[17, 9]", &["(\"dog\") has a mask of 20x10 in a box of 18x10"]),
        ],
    );
    let place = tempfile::tempdir().unwrap();
    write(place.path());
    let objects =
        || formats::read(&Request::new(place.path())).unwrap().dataset.unwrap().annotations;
    let (before, text) = (objects(), fs::read_to_string(place.path().join(a)).unwrap());
    put(place.path(), a, text.replace("[0, 0], [20, 10]", "[0, 9], [19, 0]"));
    assert_eq!(objects(), before, "corners of a mask are in any order");
}

#[test]
fn invalid_cvat_gives_one_line_error() {
    let write = |set: &Path| {
        picture(set, "images/a.jpg");
        let text = r#"<annotations><meta><task><labels>
            <label><name>ant</name></label><label><name>bee</name></label></labels></task></meta>
            <image id="0" name="a.jpg" width="20" height="10">
            <polygon label="ant" points="1,1;5,1;5,5"/>
            <box label="bee" xtl="2" ytl="2" xbr="6" ybr="6"/>
            <mask label="bee" rle="1, 2, 1" left="3" top="4" width="2" height="2"/>
            <ellipse label="ant" cx="9" cy="5" rx="3" ry="2" rotation="30"/>
            <points label="ant" points="1,1"/>
            </image></annotations>"#;
        put(set, "annotations.xml", text);
    };
    let a = "annotations.xml";
    let attributes =
        format!("<box {}", (0..5000).map(|i| format!("a{i}=\"\" ")).collect::<String>());
    let sound = Sound { format: "cvat", split: None, write };
    check(
        &sound,
        &[
            (a, "", GONE, &["holds no XML file with <annotations>"]),
            (a, "</image>", "", &["annotations.xml: is not XML", "export it again"]),
            (a, "<image id", "<track id=\"0\"/><image id", &["line 3: <track> is of a video"]),
            (a, "<annotations>", "<!DOCTYPE x [<!ENTITY e \"e\">]><annotations>", &["is not XML"]),
            (a, " name=\"a.jpg\"", "", &["line 3: <image> has no `name`"]),
            (a, "a.jpg", "b.jpg", &["line 3: <image> the image \"b.jpg\" is missing"]),
            (a, " width=\"20\" h", " h", &["line 3: <image> has no `width`"]),
            (a, "width=\"20\"", "width=\"wide\"", &["<image> has width=\"wide\"; write a number"]),
            (a, "width=\"20\"", "width=\"0\"", &["<image> has the width 0; write pixels"]),
            (a, "width=\"20\"", "width=\"1e9\"", &["<image> is larger than --max-image-pixels"]),
            (a, "width=\"20\"", "width=\"21\"", &["say 21x10 but", "is 20x10"]),
            (a, "<polygon label=\"ant\"", "<polygon", &["line 4: <polygon> has no `label`"]),
            (a, "\"ant\" points=\"1,1;5", "\"cat\" points=\"1,1;5", &["\"cat\", which is not"]),
            (a, "1,1;5,1;5,5", "1,1;5,1", &["line 4: <polygon> has 2 points"]),
            (a, "1,1;5,1;5,5", "1,1;5 1;5,5", &["line 4: <polygon> has the point \"5 1\""]),
            (a, " xbr=\"6\"", "", &["line 5: <box> has no `xbr`"]),
            (a, "\"1, 2, 1\"", "\"1, x, 1\"", &["line 6: <mask> has the run \" x\""]),
            (a, "\"1, 2, 1\"", "\"1, 2\"", &["line 6: <mask> has runs of fewer than 2x2 pixels"]),
            (a, "\"1, 2, 1\"", "\"1, 9, 1\"", &["line 6: <mask> has runs of more than 2x2 pixels"]),
            (a, "left=\"3\"", "left=\"19\"", &["line 6: <mask> has a mask that extends past"]),
            (a, "rx=\"3\"", "rx=\"1e9\"", &["line 7: <ellipse> has the coordinate 1000000000"]),
            (a, "<name>bee", "<name>ant", &["which is not in the class list"]),
            (a, "<name>bee", "<name>bee</name><name>cat", &["annotations.xml: has <name> twice"]),
            (a, "<box ", &attributes, &["has an element of more than 4096 attributes"]),
        ],
    );
}

fn write_voc(set: &Path) {
    picture(set, "JPEGImages/a.jpg");
    let object = |name: &str| {
        format!(
            "<object><name>{name}</name><difficult>0</difficult>\n<bndbox><xmin>1</xmin>\
             <ymin>1</ymin><xmax>4</xmax><ymax>4</ymax></bndbox></object>\n"
        )
    };
    let text = format!("<annotation>\n{}{}</annotation>", object("ant"), object("bee"));
    put(set, "Annotations/a.xml", text);
    put(set, "SegmentationObject/a.png", values(1, 2));
    put(set, "ImageSets/Main/train.txt", "a\n");
}

#[test]
fn invalid_voc_gives_one_line_error() {
    let a = "Annotations/a.xml";
    let mask = "SegmentationObject/a.png";
    let sound = Sound { format: "voc", split: Some("train"), write: write_voc };
    check(
        &sound,
        &[
            (a, "", "", &["a.xml: is not XML"]),
            (a, "<annotation>", "<!DOCTYPE x []><annotation>", &["a.xml: is not XML"]),
            (
                a,
                "annotation>",
                "annotations>",
                &["line 1: <annotations> is not a VOC <annotation>"],
            ),
            (
                a,
                "<annotation>\n",
                "<annotation><size><width>10</width><height>20</height></size>\n",
                &["line 1: <size> says 10x20 but the image is 20x10"],
            ),
            ("ImageSets/Main/train.txt", "", "a\nz\n", &["has no image \"z\"", "train"]),
            (a, "<name>ant</name>", "", &["line 2: <object> has no <name>"]),
            (a, "bndbox>", "box>", &["line 2: <object> has no <bndbox>"]),
            (a, "<xmin>1</xmin>", "", &["line 3: <bndbox> has xmin \"\"; write a number"]),
            (a, "<ymin>1<", "<ymin>one<", &["line 3: <bndbox> has ymin \"one\""]),
            (a, "<ymax>4<", "<ymax>NaN<", &["line 3: <bndbox> has ymax \"NaN\""]),
            (a, "<xmin>1<", "<xmin>9<", &["line 3: <bndbox> has the corners", "before the first"]),
            (a, "<name>ant", "<name>ant</name><name>bee", &["line 2: <object> has <name> twice"]),
            (a, "<xmin>1", "<xmin>0</xmin><xmin>1", &["line 3: <bndbox> has <xmin> twice"]),
            (
                a,
                "<xmin>1</xmin><ymin>1</ymin><xmax>4<",
                "<xmin>9</xmin><ymin>1</ymin><xmax>9<",
                &["object 1 has no pixel"],
            ),
            ("Annotations/b.xml", "", "<annotation/>", &["b.xml: has no image of its name"]),
            (mask, "", "not a mask", &["a.png: is neither JPEG nor PNG"]),
            (mask, "", GONE, &["nothing left to store"]),
            ("JPEGImages/a.jpg", "", GONE, &["has no image in JPEGImages"]),
            ("JPEGImages/a.jpg", "", "x", &["a.jpg): is neither JPEG nor PNG"]),
            ("ImageSets/Main/train.txt", "", GONE, &["has no splits; leave --split train out"]),
        ],
    );
    let all = Sound { split: Some("all"), ..sound };
    let without_lists = |set: &Path| fs::remove_file(set.join("ImageSets/Main/train.txt")).unwrap();
    assert_eq!(refusal(&all, without_lists), None);
    let sentence = refusal(&sound, |set| put(set, mask, values(1, 3))).unwrap();
    assert!(sentence.contains("has an object 3 but its XML file lists 2"), "{sentence}");
}

#[test]
fn invalid_mask_folder_gives_one_line_error() {
    let write = |set: &Path| {
        picture(set, "images/a.jpg");
        picture(set, "images/b.jpg");
        put(set, "masks/a/ant_0.png", values(255, 0));
        put(set, "masks/a/big bee_01.png", values(0, 255));
        put(set, "masks/b.png", values(1, 2));
    };
    let ids = |class: u16| {
        let pixels =
            ImageBuffer::<Luma<u16>, _>::from_fn(20, 10, |x, _| Luma([(x / 10) as u16 * class]));
        png(DynamicImage::ImageLuma16(pixels))
    };
    let sound = Sound { format: "masks", split: None, write };
    let narrow = png(DynamicImage::new_luma8(19, 10));
    let whole = values(1, 2);
    let broken = &whole[..whole.len() / 2];
    let soft = png(DynamicImage::ImageLuma8(GrayImage::from_fn(20, 10, |x, _| {
        Luma([[0, 0, 60, 190, 255][(x as usize).min(4)]])
    })));
    let mistakes: &[Mistake<'_, &[u8]>] = &[
        ("masks/b.png", "", &soft, &["b.png: has 20 pixels at edges with values between"]),
        (
            "classes.json",
            "",
            br#"{"1": "ant", "1": "bee"}"#,
            &["classes.json: ", "has the key 1 twice"],
        ),
        ("masks/a/ant.png", "", &values(9, 0), &["ant.png: has no category in its name"]),
        ("masks/a/ant_x.png", "", &values(9, 0), &["ant_x.png: has no category in its name"]),
        ("masks/a/ant_1.png", "", &values(0, 0), &["ant_1.png: is all black; remove it"]),
        ("masks/a/ant_1.png", "", &narrow, &["ant_1.png: is 19x10 but its image 20x10"]),
        ("masks/a/ant_1.png", "", b"", &["ant_1.png: is neither JPEG nor PNG"]),
        ("masks/a/ant_1.png", "", broken, &["ant_1.png: ", "write the mask as a PNG again"]),
        ("masks/a/b/ant_1.png", "", &values(9, 0), &["ant_1.png: belongs to no image"]),
        ("masks/b.png", "", &values(255, 255), &["b.png: is a binary mask"]),
        ("masks/b.png", "", &narrow, &["b.png: is 19x10 but its image 20x10"]),
        ("masks/b.png", "", b"GIF89a", &["b.png: is GIF"]),
        ("masks/b.png", "", &jpeg(&gradient(20, 10), 20, 10, ColorType::Rgb), &["b.png: "]),
        (
            "masks/b.jpg",
            "",
            &jpeg(&gradient(20, 10), 20, 10, ColorType::Rgb),
            &["b.jpg: is not a PNG"],
        ),
        ("masks/b/ant_1.png", "", &values(9, 0), &["b.png: holds all objects of", "remove one"]),
        ("classes.json", "", b"", &["classes.json: is not a map from class numbers"]),
        ("classes.json", "", b"{}", &["classes.json: has no class names"]),
        ("classes.json", "", br#"{"0": "ant"}"#, &["classes.json: names the class 0"]),
        ("classes.json", "", br#"{"ant": 1}"#, &["classes.json: is not a map from class numbers"]),
        ("classes.json", "", br#"{"7": "ant"}"#, &["b.png: has the value 1, of class 1"]),
        ("masks/a/ant_0.png", "", &values(255, 0)[..9], &["ant_0.png: "]),
        ("images/a.jpg", "", b"x", &["a.jpg): is neither JPEG nor PNG"]),
    ];
    check(&sound, mistakes);
    let sentence = refusal(&sound, |set| {
        put(set, "classes.json", r#"{"1": "ant", "2": "bee"}"#);
        put(set, "masks/b.png", ids(3001));
    });
    let sentence = sentence.unwrap();
    assert!(sentence.contains("has the value 3001, of class 3"), "{sentence}");
}

#[test]
fn invalid_coco_folder_gives_one_line_error() {
    let write = |set: &Path| {
        picture(set, "images/a.jpg");
        let text = r#"{"images": [{"id": 7, "file_name": "a.jpg", "width": 20, "height": 10}],
            "annotations": [{"id": 1, "image_id": 7, "category_id": 3,
            "segmentation": [[2, 1, 6, 1, 6, 5, 2, 5]]}],
            "categories": [{"id": 3, "name": "ant"}]}"#;
        put(set, "annotations/instances_train.json", text);
    };
    let a = "annotations/instances_train.json";
    let b = "annotations/instances_val.json";
    let sound = Sound { format: "coco", split: None, write };
    check(
        &sound,
        &[
            (a, "", GONE, &["holds no JSON file with `images`"]),
            (a, "a.jpg", "b.jpg", &["its first image, \"b.jpg\", is not in a folder next to it"]),
            (
                a,
                "a.jpg",
                "../a.jpg",
                &["its first image, \"../a.jpg\", is not in a folder next to it"],
            ),
            (a, "\"file_name\"", "\"name\"", &["has no image names"]),
            (a, "[{\"id\": 7,", "[{", &["images[0]", "id is missing"]),
            (a, "\"id\": 7", "\"id\": \"7\"", &["images[0] (id \"7\")", "must be an integer"]),
            (a, "\"categories\"", "\"classes\"", &["has no `categories`"]),
            (a, "\"annotations\"", "\"objects\"", &["has no `annotations`"]),
            (a, "{\"id\": 3, \"name\": \"ant\"}", "", &["has no category"]),
            (a, "\"category_id\": 3", "\"category_id\": 4", &["category id not in the file"]),
            (a, "\"image_id\": 7", "\"image_id\": 8", &["image id not in the file"]),
            (a, "[[2, 1, 6, 1, 6, 5, 2, 5]]", "7", &["annotations[0] (id 1)", "segmentation"]),
            (a, "[[2, 1, 6, 1, 6, 5, 2, 5]]", "[]", &["has a segmentation", "prep --boxes"]),
            (a, "\"width\": 20", "\"width\": 0", &["both sides must be at least 1"]),
            (a, "]}", "]", &["is not COCO JSON"]),
            (b, "", "{\"images\": []}", &["has the splits train, val; choose one with --split"]),
            ("images/a.jpg", "", "x", &["is neither JPEG nor PNG"]),
        ],
    );
}

#[test]
fn lvis_file_names_come_from_urls() {
    let place = tempfile::tempdir().unwrap();
    let set = place.path().join("set");
    picture(&set, "train2017/a.jpg");
    let text = r#"{"images": [{"id": 7, "coco_url": "http://images.cocodataset.org/train2017/a.jpg",
        "width": 20, "height": 10, "neg_category_ids": [4], "not_exhaustive_category_ids": []}],
        "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "area": 8.0,
        "bbox": [2, 1, 4, 4], "segmentation": [[2, 1, 6, 1, 6, 5, 2, 5]]}],
        "categories": [{"id": 3, "name": "ant", "synset": "ant.n.01", "frequency": "r"}]}"#;
    put(&set, "lvis_v1_train.json", text);
    let source = formats::read(&Request::new(&set)).unwrap();
    assert!(source.notes[0].contains(" as lvis: lvis_v1_train.json"), "{:?}", source.notes);
    let out = place.path().join("store");
    store(source, &out).unwrap();
    let store = dali::Store::open(&out).unwrap();
    assert_eq!((store.file_name(0), store.header().categories[0].coco_id), ("train2017/a.jpg", 3));
}

#[test]
fn folder_with_unknown_or_ambiguous_format_is_rejected() {
    let place = tempfile::tempdir().unwrap();
    let set = place.path().join("set");
    let read = || formats::read(&Request::new(&set)).unwrap_err().to_string();
    assert!(read().contains("set: is not a folder"), "{}", read());
    picture(&set, "images/a.jpg");
    assert!(read().contains("set: holds no annotations in a known format: coco ("), "{}", read());
    symlink("gone", set.join("a.xml")).unwrap();
    assert!(read().contains("a.xml"), "{}", read());
    put(&set, "masks/a/ant_1.png", values(9, 0));
    put(&set, "data.yaml", "names: [ant]");
    assert!(read().contains("may be yolo (data.yaml names classes) or masks ("), "{}", read());
    let request = Request { format: Some("png".into()), ..Request::new(&set) };
    let sentence = formats::read(&request).unwrap_err().to_string();
    assert!(sentence.contains("--from = png"), "{sentence}");
}
