//! `onegraph serve` returns the results of `predict` over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{BAD_CONFIG, Place, assert_has, with_default_signals};

const IMAGES: &str = "runs/data/micro/val-8x64-seed0/images";

/// A server for the last run, and the address that it prints.
struct Server {
    child: Child,
    errors: BufReader<std::process::ChildStderr>,
    address: String,
}

impl Server {
    fn start(place: &Place, more: &str) -> Self {
        let command = place.command(&format!("serve --run runs/micro --port 0 {more}"));
        let mut command = with_default_signals(&command);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("listening on http://") {
            line.clear();
            assert_ne!(errors.read_line(&mut line).expect("text"), 0, "it ended");
        }
        let address = line.split("http://").nth(1).expect("an address");
        let address = address.split(": ").next().expect("an address").to_string();
        Self { child, errors, address }
    }

    fn post(&self, kind: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        let length = body.len();
        let head = format!(
            "POST /invocations HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {kind}\
             \r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), body].concat()).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let status = text.split(' ').nth(1).expect("a status").parse().expect("a number");
        (status, text.split_once("\r\n\r\n").expect("a body").1.to_string())
    }

    /// Ends the server with SIGTERM; returns its exit code and its output.
    fn end(mut self) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().expect("kill runs").success());
        let mut said = String::new();
        self.errors.read_to_string(&mut said).expect("text");
        (self.child.wait().expect("it ends").code(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended already.
        let _ = self.child.kill();
    }
}

#[test]
fn server_response_equals_predict_output() {
    let place = Place::trained("--set train.steps=40 --set model.detections.score_threshold=0.01");
    let (first, second) = (format!("{IMAGES}/{:012}.jpg", 1), format!("{IMAGES}/{:012}.jpg", 2));
    place.write("in/0.jpg", place.bytes(&first));
    place.write("in/1.jpg", place.bytes(&second));
    place.good("predict --run runs/micro --out p --min-score 1 in");
    let predicted = place.text("p/predictions.json");
    assert!(predicted.lines().count() > 1, "{predicted}");

    let server = Server::start(&place, "--device cpu --max-body 1 --max-pixels 1");
    let mut form = Vec::new();
    for name in ["in/0.jpg", "in/1.jpg"] {
        let head = format!("Content-Disposition: form-data; name=\"f\"; filename=\"{name}\"");
        let head = format!("--line\r\n{head}\r\n\r\n");
        form.extend([head.as_bytes(), &place.bytes(name), b"\r\n"].concat());
    }
    form.extend(b"--line--\r\n");
    let (status, body) = server.post("multipart/form-data; boundary=line", &form);
    assert_eq!((status, body), (200, predicted));

    let (status, body) = server.post("image/jpeg", &place.bytes("in/1.jpg"));
    assert_eq!(status, 200, "{body}");
    assert!(!body.contains("file_name") && body.contains("\"image_id\":0"), "{body}");
    // A decompression bomb: 65,535 x 65,535 empty pixels, rejected by its header.
    let mut bomb = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\xff\xff\0\0\xff\xff\x08\x02\0\0\0".to_vec();
    bomb.extend(crc32fast::hash(&bomb[12..]).to_be_bytes());
    for (kind, body, status, why) in [
        ("image/png", bomb.as_slice(), 422, "65535"),
        ("image/jpeg", b"no picture", 422, "the image is neither JPEG nor PNG"),
    ] {
        let (found, said) = server.post(kind, body);
        assert_eq!((found, said.contains(why)), (status, true), "{said}");
    }
    let port = server.address.rsplit(':').next().expect("a port");
    let taken = format!("serve --run runs/micro --device cpu --port {port}");
    place.bad(&taken, 1, &["the address 127.0.0.1", "in use"]);

    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    assert_has(&said, &["all in-flight requests were answered"]);
    place.bad("serve", BAD_CONFIG, &["give --run or --weights"]);
}
