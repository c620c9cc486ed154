//! `configs/launch/fetch-coco.sh` against a server on this machine: small files under COCO's names,
//! fetched, resumed, refused, unpacked and prepared.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Cursor, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use common::{Place, Said, said};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// The server's answers: files by name, and how many bytes of a file it sends before it hangs up,
/// how often.
#[derive(Default)]
struct Served {
    files: BTreeMap<String, Vec<u8>>,
    hang_up: Option<(String, usize, usize)>,
    /// Name and first byte of each request.
    asked: Vec<(String, usize)>,
}

/// Serves until the process ends; returns the address.
fn serve(served: Arc<Mutex<Served>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client may leave.
            let _ = answer(stream, &served);
        }
    });
    format!("http://{address}")
}

/// One request: the file from the first byte of its range on.
fn answer(mut stream: TcpStream, served: &Mutex<Served>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let name = request.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_string();
    let mut first = 0;
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        let range = line.strip_prefix("Range: bytes=").and_then(|range| range.strip_suffix('-'));
        first = range.map_or(first, |range| range.parse().expect("a number"));
    }
    let mut served = served.lock().expect("no test panics with it");
    served.asked.push((name.clone(), first));
    let Some(file) = served.files.get(&name).cloned() else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    };
    let (rest, total) = (&file[first.min(file.len())..], file.len());
    let status = if first > 0 { "206 Partial Content" } else { "200 OK" };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Range: bytes {first}-{}/{total}\r\n\
         Connection: close\r\n\r\n",
        rest.len(),
        total - 1
    )?;
    let sent = match &mut served.hang_up {
        Some((of, bytes, times)) if *of == name && *times > 0 => {
            *times -= 1;
            &rest[..*bytes]
        }
        _ => rest,
    };
    stream.write_all(sent)
}

/// A zip of files.
fn zip(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        let options =
            SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        writer.start_file(name.as_str(), options).expect("a new name");
        writer.write_all(bytes).expect("memory");
    }
    writer.finish().expect("memory").into_inner()
}

/// COCO's four files with three drawn images in each set.
fn small_coco(place: &Place) -> BTreeMap<String, Vec<u8>> {
    let mut annotations = Vec::new();
    let mut files = BTreeMap::new();
    for (seed, set) in ["train2017", "val2017"].iter().enumerate() {
        let size = "--count 3 --size 64";
        place.good(&format!("prep --synthetic shapes {size} --seed {seed} --out drawn/{set}"));
        let images = place.names(&format!("drawn/{set}/images"));
        let image = |name: &String| {
            (format!("{set}/{name}"), place.bytes(&format!("drawn/{set}/images/{name}")))
        };
        files.insert(format!("{set}.zip"), zip(&images.iter().map(image).collect::<Vec<_>>()));
        let json = place.bytes(&format!("drawn/{set}/annotations.json"));
        annotations.push((format!("annotations/instances_{set}.json"), json));
    }
    files.insert("annotations_trainval2017.zip".into(), zip(&annotations));
    files.insert("R-50.pkl".into(), vec![7; 5000]);
    files
}

/// The file's line as `md5sum` prints it.
fn sum(place: &Place, name: &str, bytes: &[u8]) -> String {
    let file = place.write("summed", bytes);
    let sum = said(Command::new("md5sum").arg(file)).out;
    format!("{}  {name}\n", &sum[..32])
}

/// The sums of the zips in a file; the sum of the weights next to them, as their host publishes it.
fn sums(place: &Place, files: &mut BTreeMap<String, Vec<u8>>) {
    let zips = files.iter().filter(|(name, _)| name.ends_with(".zip"));
    let lines: String = zips.map(|(name, bytes)| sum(place, name, bytes)).collect();
    place.write("sums", lines);
    let published = sum(place, "R-50.pkl", &files["R-50.pkl"]).into_bytes();
    files.insert("R-50.pkl.md5sum".into(), published);
}

fn fetch(place: &Place, mirror: &str) -> Said {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = tests.parent().expect("the checkout").join("configs/launch/fetch-coco.sh");
    let mut command = Command::new(script);
    command.args(["coco", "--mirror", mirror, "--sums", "sums"]).current_dir(place.path());
    command.env("ONEGRAPH_BIN", env!("CARGO_BIN_EXE_onegraph-under-test")).stdin(Stdio::null());
    command.env("no_proxy", "127.0.0.1");
    said(&mut command)
}

/// Cut off in the middle of the training images as often as it tries, it goes on in a second run
/// where it was, cut off once more, and a third one fetches nothing.
#[test]
fn what_was_cut_off_goes_on_and_ends_with_both_stores() {
    let place = Place::new();
    let mut files = small_coco(&place);
    sums(&place, &mut files);
    let hang_up = Some(("train2017.zip".to_string(), 200, 6));
    let served = Arc::new(Mutex::new(Served { files, hang_up, asked: vec![] }));
    let mirror = serve(served.clone());

    let first = fetch(&place, &mirror);
    assert_eq!(first.code, 1, "{}", first.err);
    assert!(first.err.contains("train2017.zip: not fetched whole in 5"), "{}", first.err);
    let part = fs::metadata(place.join("coco/train2017.zip.part")).expect("a part");
    assert_eq!(part.len(), 5 * 200);
    assert!(!place.join("coco/train2017.zip").exists());

    served.lock().expect("unpoisoned").asked.clear();
    let second = fetch(&place, &mirror);
    assert_eq!(second.code, 0, "{}", second.err);
    let asked = std::mem::take(&mut served.lock().expect("unpoisoned").asked);
    let asked: Vec<(&str, usize)> = asked.iter().map(|(name, at)| (name.as_str(), *at)).collect();
    let weights = [("R-50.pkl.md5sum", 0), ("R-50.pkl", 0)];
    assert_eq!(asked, [&[("train2017.zip", 1000), ("train2017.zip", 1200)][..], &weights].concat());
    for store in ["train.store", "val.store"] {
        let described = place.good(&format!("inspect coco/{store}"));
        assert!(described.contains("images"), "{described}");
    }
    assert!(second.out.contains("ready: --init"), "{}", second.out);
    let parts = place.names("coco").into_iter().filter(|name| name.ends_with(".part"));
    assert_eq!(parts.count(), 0);

    let third = fetch(&place, &mirror);
    assert_eq!(third.code, 0, "{}", third.err);
    assert!(served.lock().expect("unpoisoned").asked.is_empty());
}

/// A file of another content is removed and named; one that the server lacks is named.
#[test]
fn a_wrong_file_is_removed_and_named() {
    let place = Place::new();
    let mut files = small_coco(&place);
    sums(&place, &mut files);
    let sound = files.insert("val2017.zip".into(), vec![1; 4000]).expect("a zip");
    let served = Arc::new(Mutex::new(Served { files, ..Served::default() }));
    let mirror = serve(served.clone());
    let wrong = fetch(&place, &mirror);
    assert_eq!(wrong.code, 1);
    assert!(wrong.err.contains("val2017.zip: its MD5 is not the published one"), "{}", wrong.err);
    assert_eq!(place.names("coco"), ["annotations_trainval2017.zip"]);

    served.lock().expect("unpoisoned").files.remove("val2017.zip");
    let absent = fetch(&place, &mirror);
    assert_eq!(absent.code, 1);
    assert!(absent.err.contains("val2017.zip: not fetched whole"), "{}", absent.err);

    // Weights that were damaged in transit, and a page in place of their sum.
    let refused = |name: &str, bytes: &[u8]| {
        served.lock().expect("unpoisoned").files.insert(name.into(), bytes.to_vec());
        let said = fetch(&place, &mirror);
        assert_eq!((said.code, place.join("coco/R-50.pkl").exists()), (1, false), "{}", said.err);
        said.err
    };
    served.lock().expect("unpoisoned").files.insert("val2017.zip".into(), sound);
    let damaged = refused("R-50.pkl", &[8; 5000]);
    assert!(damaged.contains("R-50.pkl: its MD5 is not the published one"), "{damaged}");
    let page = refused("R-50.pkl.md5sum", b"<html> not found </html>");
    assert!(page.contains("is no MD5 of R-50.pkl; give it with --sums"), "{page}");
}
