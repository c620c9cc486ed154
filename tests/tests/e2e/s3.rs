//! Files and folders in S3, over a network that interrupts, delays, rejects and alters requests.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::common::s3::{BUCKET, Fault, Kind, Server, bad, dice, good};
use crate::common::{self, BAD_CONFIG, Place, Said, assert_has, micro, said, stores};

const VAL: &str = "runs/data/micro/val-8x64-seed0";

/// Runs a command that uses this server as S3 and must succeed.
fn run(server: &Server, place: &Place, arguments: &str) -> Said {
    common::good(&mut server.command(place, arguments))
}

/// Generates the data set of `micro`, and uploads its images and annotations to the bucket.
fn drawn(server: &Server) -> Place {
    let place = Place::new();
    place.good("train micro --set train.steps=1");
    let bucket = server.bucket();
    for name in place.names(&format!("{VAL}/images")) {
        let file = place.join(&format!("{VAL}/images/{name}"));
        bucket.put(&file, &format!("shapes/val/{name}")).expect("an image");
    }
    let annotations = place.join(&format!("{VAL}/annotations.json"));
    bucket.put(&annotations, "shapes/annotations.json").expect("annotations");
    place
}

const PREP: &str =
    "prep --images s3://data/shapes/val --annotations s3://data/shapes/annotations.json";

/// Trains on the data stored in S3.
fn train_there() -> String {
    micro(&stores("s3://data/store", "s3://data/store"))
}

/// True for files of a store that do not contain the modification times of its images.
fn is_of_data(name: &str) -> bool {
    !matches!(name, "header.json" | "sources.bin")
}

fn assert_same_store(server: &Server, key: &str, local: &Path) {
    let found = server.contents(key);
    assert!(found.iter().any(|(name, _)| name == "header.json"), "{found:?}");
    for (name, bytes) in found.iter().filter(|(name, _)| is_of_data(name)) {
        assert!(std::fs::read(local.join(name)).expect("a file") == *bytes, "{name} differs");
    }
}

/// Data, a run and its model are uploaded to S3 and downloaded unchanged, despite network faults.
fn there_and_back(kind: Kind) {
    let Some(server) = Server::start(kind) else { return };
    let place = drawn(&server);
    place.good(&format!(
        "prep --images {VAL}/images --annotations {VAL}/annotations.json --out local"
    ));
    let four = "--set train.steps=4 --set train.run_dir=local_runs";
    place.good(&micro(&format!("{} {four}", stores("local", "local"))));
    place.good("train --resume local_runs/micro --set train.steps=8");
    for seed in 0..3 {
        server.set(bad(4, seed));
        let here = Place::new();
        run(&server, &here, &format!("{PREP} --out s3://data/store{seed}"));
        server.set(good());
        assert_same_store(&server, &format!("store{seed}"), &place.join("local"));
    }
    let here = Place::new();
    run(&server, &here, &format!("{PREP} --out s3://data/store"));
    let here = Place::new();
    server.set(bad(6, 7));
    let train = format!("{} --set train.run_dir=s3://data/runs", train_there());
    let begun = run(&server, &here, &format!("{train} --set train.steps=4"));
    assert_has(&begun.err, &["images are read while they are downloaded"]);
    let other = Place::new();
    run(&server, &other, "train --resume s3://data/runs/micro --set train.steps=8");
    server.set(good());
    let weights = "checkpoints/step_00000008/model.safetensors";
    let there = server.contents("runs/micro");
    let (_, bytes) = there.iter().find(|(name, _)| name == weights).expect("a checkpoint");
    assert!(place.bytes(&format!("local_runs/micro/{weights}")) == *bytes, "other weights");
    for (name, bytes) in there.iter().filter(|(name, _)| !name.starts_with('.')) {
        assert!(other.bytes(&format!("runs/stage/data/runs/micro/{name}")) == *bytes, "{name}");
    }
    // A second run with the same name, detectors from both runs, and `--resume auto`.
    let second = run(&server, &here, &format!("{train} --set train.steps=4"));
    assert_has(&second.out, &["s3://data/runs/micro-2/report.json"]);
    let third = Place::new();
    run(&server, &third, "eval --run s3://data/runs/micro");
    run(&server, &third, "predict --run s3://data/runs/micro --out found s3://data/shapes/val");
    let pictures = third.names("found").iter().filter(|name| name.ends_with(".png")).count();
    assert_eq!(pictures, place.names(&format!("{VAL}/images")).len());
    let file = format!("s3://data/runs/micro/{weights}");
    run(&server, &third, &format!("eval --weights {file} --set data.val_store=s3://data/store"));
    let auto = run(&server, &third, &format!("{train} --resume auto --set train.steps=5"));
    assert_has(&auto.err, &["step_00000004"]);
}

#[test]
fn s3_round_trip_works_with_s3s_fs() {
    there_and_back(Kind::Fs);
}

#[test]
fn s3_round_trip_works_with_moto() {
    there_and_back(Kind::Moto);
}

#[test]
fn invalid_s3_uri_prints_one_line_error() {
    let server = Server::start(Kind::Fs).expect("built in");
    let place = drawn(&server);
    let bad = |arguments: &str, code: i32, words: &[&str]| {
        common::bad(&mut server.command(&place, arguments), code, words);
    };
    bad(
        "prep s3://data/nothing --out x",
        BAD_CONFIG,
        &["s3://data/nothing", "no such bucket, object or folder"],
    );
    bad("prep s3://none/a --out x", BAD_CONFIG, &["s3://none/a", "no such bucket"]);
    bad("prep --synthetic shapes --out s3://data/x", BAD_CONFIG, &["local directory"]);
    bad("eval --run s3://data/shapes", 1, &["last_checkpoint"]);
    let images = format!("{VAL}/images");
    bad(
        &format!("predict --run runs/micro --out s3://data/x {images}"),
        BAD_CONFIG,
        &["s3://data/x", "local path"],
    );
    let train = "train micro --set data.synthetic=none --set data.train_store=s3://data/shapes";
    bad(train, BAD_CONFIG, &["there is no store at s3://data/shapes", "header.json"]);
    // A run that fails before it starts releases its name, locally and in S3.
    bad(
        &format!("{train} --set train.run_dir=s3://data/runs"),
        BAD_CONFIG,
        &["there is no store at"],
    );
    assert!(!place.join("runs/stage/data/runs/micro").exists(), "a folder is left");
    let next = "train micro --set train.steps=1 --set train.run_dir=s3://data/runs";
    let next = run(&server, &place, &format!("{next} --set eval.draw_images=0"));
    assert!(next.out.contains("s3://data/runs/micro/report.json"), "name not free: {}", next.out);
    run(&server, &place, &format!("{PREP} --out s3://data/store"));
    bad(&format!("{PREP} --out s3://data/store"), BAD_CONFIG, &["exists; give --overwrite"]);
    run(&server, &place, &format!("{PREP} --out s3://data/store --overwrite"));
    let mut stranger = server.command(&place, "prep s3://data/shapes --out y");
    stranger.env("AWS_SECRET_ACCESS_KEY", "another");
    let told = said(&mut stranger);
    assert_has(&told.err, &["the server rejected the request", "AWS_SECRET_ACCESS_KEY"]);
}

/// Only one process may continue a run, and S3 does not overwrite local changes.
#[test]
fn run_continued_elsewhere_is_not_overwritten() {
    let server = Server::start(Kind::Fs).expect("built in");
    let (first, second) = (Place::new(), Place::new());
    let train = "train micro --set train.run_dir=s3://data/runs --set eval.draw_images=0";
    // The last steps are not uploaded, because every request fails.
    let lost = said(
        server
            .command(&first, &format!("{train} --set train.steps=4"))
            .env("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
    );
    assert_ne!(lost.code, 0);
    assert_has(&lost.err, &["error: s3://data/runs"]);
    run(&server, &first, &format!("{train} --set train.steps=4"));
    let own = server.bucket().read("runs/micro/.onegraph-owner").expect("an owner");
    // Simulate that the process was killed before it could upload to S3.
    let ahead = "runs/stage/data/runs/micro/.onegraph-ahead";
    first.write(ahead, &own);
    run(&server, &first, "train --resume s3://data/runs/micro --set train.steps=6");
    run(&server, &second, "train --resume s3://data/runs/micro --set train.steps=8");
    first.write(ahead, &own);
    // The local folder has steps that S3 lacks, but the run has continued in S3.
    let resume = "train --resume s3://data/runs/micro --set train.steps=10";
    common::bad(
        &mut server.command(&first, resume),
        BAD_CONFIG,
        &["has continued the run there since"],
    );
    // A different process takes over the run of this running process.
    let mut child = server.command(&second, &format!("{train} --set train.steps=1000000"));
    let child = child.stdout(Stdio::null()).stderr(Stdio::piped());
    let child = child.spawn().expect("it starts");
    let taken = "runs/micro-2/.onegraph-owner";
    while !server.bucket().has(taken).expect("an answer") {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(1));
    server.bucket().write("another process on host b\n1\n".into(), taken).expect("an object");
    std::thread::sleep(Duration::from_secs(11));
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").arg(pid).status().expect("kill runs").success());
    let ended = child.wait_with_output().expect("it ends");
    let err = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{err}");
    assert_has(
        &err,
        &[
            "warning: s3://data/runs/micro-2: another process on host b now writes",
            "only the local copy of the run, runs/stage/data/runs/micro-2, is complete",
        ],
    );
}

/// A download, in one or many requests, never mixes two versions of an object.
#[test]
fn object_replaced_during_download_is_reported() {
    let server = Server::start(Kind::Fs).expect("built in");
    let (place, bucket) = (Place::new(), server.bucket());
    for size in [1000, 20 << 20] {
        bucket.write(vec![1; size].into(), "large").expect("an object");
        let objects = bucket.list("large").expect("a listing");
        let wanted: Vec<_> = objects.into_iter().map(|o| (o, place.join("large"))).collect();
        bucket.write(vec![2; size].into(), "large").expect("an object");
        let fault = bucket.fetch(&wanted, &mut |_| ()).expect_err("another version").to_string();
        assert!(fault.contains("s3://data/large was replaced while it was read"), "{fault}");
        assert!(!place.join("large").exists(), "a mix of versions");
    }
}

/// Multipart uploads and ranged downloads, over a faulty network.
#[test]
fn large_object_round_trips_as_multipart_upload() {
    for kind in [Kind::Fs, Kind::Moto] {
        let Some(server) = Server::start(kind) else { continue };
        let (place, bucket) = (Place::new(), server.bucket());
        let bytes: Vec<u8> = (0..70 << 20).map(|i: u32| ((i / 7) ^ (i >> 9)) as u8).collect();
        let path = place.write("large", &bytes);
        server.set(bad(8, 3));
        bucket.put(&path, "large").expect("it arrives");
        let objects = bucket.list("large").expect("a listing");
        assert!(objects[0].etag.contains('-'), "written in one piece: {objects:?}");
        let wanted: Vec<_> = objects.into_iter().map(|o| (o, place.join("back"))).collect();
        let mut arrived = 0;
        bucket.fetch(&wanted, &mut |news| arrived += news.bytes).expect("it comes back");
        assert_eq!(arrived, bytes.len() as u64);
        assert!(place.bytes("back") == bytes, "{kind:?}: other bytes");
    }
}

/// A download that arrives altered is retried; an upload that arrives altered fails.
#[test]
fn altered_download_is_retried_and_altered_upload_fails() {
    let server = Server::start(Kind::Fs).expect("built in");
    let (place, bucket) = (Place::new(), server.bucket());
    bucket.write(vec![1; 100_000].into(), "small").expect("an object");
    let objects = bucket.list("small").expect("a listing");
    let wanted: Vec<_> = objects.into_iter().map(|o| (o, place.join("small"))).collect();
    // Alter each response differently: since the ETag is not a checksum, identical bytes received
    // twice would be accepted.
    let mut count = 0;
    server.set(Box::new(move |method, _| {
        count += 1;
        (method == "GET" && count != 2).then_some(Fault::Altered)
    }));
    bucket.fetch(&wanted, &mut |_| ()).expect("the second transfer is right");
    assert_eq!(place.bytes("small"), vec![1; 100_000]);
    server.set(Box::new(|method, _| (method == "PUT").then_some(Fault::AlteredSent)));
    let fault = bucket.write(vec![3; 1000].into(), "sent").expect_err("never arrives").to_string();
    assert!(fault.contains("s3://data/sent"), "{fault}");
}

/// Number of times that the server is killed; CONTRIBUTING.md describes longer manual runs.
fn kills() -> usize {
    std::env::var("ONEGRAPH_SERVER_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(4)
}

/// The server is killed while data is prepared, read for training, or saved: each command succeeds
/// or reports the reason of its failure, and after the server is back, results are as without the
/// failure.
#[test]
fn killed_s3_server_loses_nothing() {
    let mut server = Server::start(Kind::Fs).expect("built in");
    let place = drawn(&server);
    place.good(&format!(
        "prep --images {VAL}/images --annotations {VAL}/annotations.json --out local"
    ));
    run(&server, &place, &format!("{PREP} --out s3://data/store"));
    let mut dice = dice(1);
    let (mut whole, mut told) = (0, 0);
    for number in 0..kills() {
        let here = Place::new();
        let key = format!("s3://data/kill{number}");
        let command = match number % 2 {
            0 => format!("{PREP} --out {key} --overwrite"),
            _ => format!("{} --set train.steps=12 --set train.run_dir={key}", train_there()),
        };
        let mut child = server.command(&here, &command);
        let child = child.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = child.spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(dice() % 600));
        server.kill();
        let stays_down = dice().is_multiple_of(3);
        if !stays_down {
            std::thread::sleep(Duration::from_millis(dice() % 1500));
            server.revive();
        }
        let ended = child.wait_with_output().expect("it ends");
        let err = String::from_utf8_lossy(&ended.stderr).into_owned();
        if ended.status.success() {
            whole += 1;
        } else {
            told += 1;
            let line = err.lines().last().unwrap_or_default();
            assert!(line.starts_with("error: "), "onegraph {command}\n{err}");
            assert!(!err.contains("panicked"), "{err}");
        }
        if stays_down {
            server.revive();
        }
        let key = format!("kill{number}");
        if number % 2 == 0 {
            run(&server, &here, &command);
            assert_same_store(&server, &key, &place.join("local"));
        } else if here.join(&format!("runs/stage/{BUCKET}/{key}/micro/last_checkpoint")).exists() {
            run(
                &server,
                &here,
                &format!("train --resume s3://data/{key}/micro --set train.steps=16"),
            );
            let there = server.contents(&format!("{key}/micro"));
            let last = there.iter().find(|(name, _)| name == "last_checkpoint").expect("a pointer");
            assert_eq!(last.1, b"checkpoints/step_00000016\n");
        }
    }
    println!("{whole} commands succeeded, {told} reported an error");
}
