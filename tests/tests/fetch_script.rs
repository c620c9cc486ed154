//! `configs/launch/fetch-coco.sh` with a local server: small files under COCO's names are
//! downloaded, resumed, rejected, unpacked and prepared.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use common::{Place, assert_has, good, said};

/// The server's files, the number of times that it disconnects after 200 bytes of the training
/// images, and the name and first byte of each request.
struct Served {
    folder: PathBuf,
    hang_ups: usize,
    asked: Vec<(String, usize)>,
}

/// Serves until the process ends; returns the address.
fn serve(served: Arc<Mutex<Served>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client may disconnect.
            let _ = answer(stream, &mut served.lock().unwrap_or_else(PoisonError::into_inner));
        }
    });
    format!("http://{address}")
}

/// Answers one request with the file, starting at the first byte of the requested range.
fn answer(mut stream: TcpStream, served: &mut Served) -> Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let name = request.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_string();
    let mut first = 0;
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        let range = line.strip_prefix("Range: bytes=").and_then(|range| range.strip_suffix('-'));
        first = range.map_or(first, |range| range.parse().expect("a number"));
    }
    served.asked.push((name.clone(), first));
    let Ok(file) = fs::read(served.folder.join(&name)) else {
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
    let hangs_up = name == "train2017.zip" && served.hang_ups > 0;
    served.hang_ups -= usize::from(hangs_up);
    stream.write_all(if hangs_up { &rest[..200] } else { rest })
}

/// Script that creates COCO's four files with three synthetic images per set in the folder
/// `served`, and the checksums: one file for the zips, and one for the weights, as their host
/// publishes it.
const SMALL_COCO: &str = "mkdir served annotations
for set in train2017 val2017; do
    mv drawn/$set/annotations.json annotations/instances_$set.json
    mv drawn/$set/images $set
    python3 -m zipfile -c served/$set.zip $set
done
python3 -m zipfile -c served/annotations_trainval2017.zip annotations
cd served
head -c 5000 /dev/zero >R-50.pkl
md5sum R-50.pkl >R-50.pkl.md5sum
md5sum *.zip >../sums";

fn small_coco() -> (Place, Arc<Mutex<Served>>, String) {
    let place = Place::new();
    for set in ["train2017", "val2017"] {
        place.shapes(3, &format!("drawn/{set}"));
    }
    good(Command::new("sh").args(["-ec", SMALL_COCO]).current_dir(place.path()));
    let served = Served { folder: place.join("served"), hang_ups: 6, asked: vec![] };
    let served = Arc::new(Mutex::new(served));
    let mirror = serve(served.clone());
    (place, served, mirror)
}

/// A file with wrong contents is removed and reported. If each attempt is interrupted in the middle
/// of the training images, the next run of the script continues there; a run after a complete
/// download downloads nothing.
#[test]
fn interrupted_download_resumes_and_wrong_file_is_removed() {
    let (place, served, mirror) = small_coco();
    let asked = || std::mem::take(&mut served.lock().expect("unpoisoned").asked);
    let fetch = |code: i32, words: &str| {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut command = Command::new(checkout.join("configs/launch/fetch-coco.sh"));
        command.args(["coco", "--mirror", &mirror, "--sums", "sums"]).current_dir(place.path());
        command.env("ONEGRAPH_BIN", env!("CARGO_BIN_EXE_onegraph-under-test"));
        let said = said(command.env("no_proxy", "127.0.0.1").stdin(Stdio::null()));
        assert_eq!(said.code, code, "{}", said.err);
        assert_has(&(said.out + &said.err), &[words]);
    };
    let [val, weights] = ["val2017.zip", "R-50.pkl"].map(|name| format!("served/{name}"));
    let sound = [&val, &weights].map(|name| place.bytes(name));
    place.write(&val, [1; 4000]);
    fetch(1, "val2017.zip: its MD5 is not the published one");
    assert_eq!(place.names("coco"), ["annotations_trainval2017.zip"]);
    place.write(&val, &sound[0]);
    fetch(1, "train2017.zip: not fetched whole in 5");
    let part = fs::metadata(place.join("coco/train2017.zip.part")).expect("a part");
    assert_eq!((part.len(), place.join("coco/train2017.zip").exists()), (5 * 200, false));
    asked();
    place.write(&weights, [8; 5000]);
    fetch(1, "R-50.pkl: its MD5 is not the published one");
    let rest = [("train2017.zip", 1000), ("train2017.zip", 1200), ("R-50.pkl.md5sum", 0)];
    let rest = rest.into_iter().chain([("R-50.pkl", 0)]);
    assert!(asked().iter().map(|(name, at)| (name.as_str(), *at)).eq(rest));
    assert!(!place.join("coco/R-50.pkl").exists());
    place.write(&weights, &sound[1]);
    fetch(0, "ready: --init");
    for store in ["train.store", "val.store"] {
        place.shows(&format!("inspect coco/{store}"), &["images"]);
    }
    assert!(place.names("coco").iter().all(|name| !name.ends_with(".part")));
    asked();
    fetch(0, "");
    assert_eq!(asked(), []);
}
