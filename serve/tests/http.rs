//! Tests the server over real connections, with a model that returns the length of each image.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serve::{Decode, Limits, Model};

/// A model whose result for an image is the number of its bytes; if `held`, each run waits for a
/// signal from the test.
struct Counting {
    held: Option<Receiver<()>>,
    batches: Arc<Mutex<Vec<usize>>>,
    fails: Arc<AtomicBool>,
}

impl Model for Counting {
    type Image = (u64, usize, String);

    fn decoder(&self) -> Decode<Self::Image> {
        Arc::new(|bytes, id, name| match bytes.starts_with(b"img") {
            true => Ok((id, bytes.len(), name.unwrap_or_default().to_string())),
            false => Err("the image is none".into()),
        })
    }

    fn categories(&self) -> Vec<(u64, String)> {
        vec![(7, "\"cat\"".into())]
    }

    fn detect(&mut self, images: Vec<Self::Image>) -> Vec<Result<Vec<String>, String>> {
        self.batches.lock().expect("no test panicked").push(images.len());
        if let Some(held) = &self.held {
            held.recv().expect("a word");
        }
        let fails = self.fails.load(Ordering::SeqCst);
        let object = |(id, length, name)| match fails {
            true => Err("the device is gone".into()),
            false => Ok(vec![format!("[{id},{length},\"{name}\"]")]),
        };
        images.into_iter().map(object).collect()
    }
}

/// A running server; with a held model, the test sends a signal for each run.
struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    go: Sender<()>,
    batches: Arc<Mutex<Vec<usize>>>,
    fails: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn limits() -> Limits {
    Limits {
        body: 4096,
        files: 5,
        requests: 4,
        connections: 100,
        batch: 3,
        gather: Duration::ZERO,
        upload: Duration::from_millis(400),
        wait: Duration::from_secs(20),
        send: Duration::from_millis(300),
        stop: Duration::from_secs(20),
    }
}

impl Server {
    fn start(limits: Limits, is_held: bool) -> Self {
        let (go, held) = channel();
        let (batches, fails, stop) = (Arc::default(), Arc::default(), Arc::default());
        let model = Counting {
            held: is_held.then_some(held),
            batches: Arc::clone(&batches),
            fails: Arc::clone(&fails),
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let flag = Arc::clone(&stop);
        let run = move || serve::serve(model, listener, limits, &flag).expect("it ends well");
        let thread = Some(std::thread::spawn(run));
        Self { address, stop, go, batches, fails, thread }
    }

    /// Sends a request, without waiting for the answer.
    fn send(&self, request: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
        stream.write_all(request).expect("it reads");
        stream
    }

    fn ask(&self, request: &[u8]) -> (u16, String) {
        answer(self.send(request))
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
    }

    fn wait_for(&self, batches: usize) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.batches.lock().expect("no test panicked").len() < batches {
            assert!(Instant::now() < end, "the model did not run");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn in_flight(&self, count: usize) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.get("/metrics").1.contains(&format!("requests_in_hand {count}\n")) {
            assert!(Instant::now() < end, "never {count} requests in hand");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for _ in 0..50 {
            let _ = self.go.send(());
        }
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends well");
        }
    }
}

/// Status and body.
fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let status = text.split(' ').nth(1).expect("a status").parse().expect("a number");
    let body = text.split_once("\r\n\r\n").expect("a body").1.to_string();
    (status, body)
}

fn post(kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST /invocations HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {kind}\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

fn form(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, bytes) in files {
        let head = format!(
            "--line\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\n\r\n"
        );
        body.extend([head.as_bytes(), bytes, b"\r\n"].concat());
    }
    body.extend(b"--line--\r\n");
    post("multipart/form-data; boundary=line", &body)
}

#[test]
fn response_order_matches_request_order() {
    let server = Server::start(limits(), false);
    assert_eq!(server.ask(&post("image/png", b"img1")), (200, "[[0,4,\"\"]]\n".into()));
    let files: Vec<(&str, &[u8])> = vec![("a", b"img"), ("b", b"img22"), ("c", b"img4444")];
    let (status, body) = server.ask(&form(&files));
    assert_eq!(status, 200);
    assert_eq!(body, "[[0,3,\"a\"],\n[1,5,\"b\"],\n[2,7,\"c\"]]\n");
    assert_eq!(server.get("/ping").0, 200);
    assert_eq!(server.get("/categories").1, r#"[{"id":7,"name":"\"cat\""}]"#);
    assert!(server.get("/").1.contains("Drop a picture"));
    let metrics = server.get("/metrics").1;
    assert!(metrics.contains("onegraph_requests_total{status=\"200\"} 2"), "{metrics}");
    assert!(metrics.contains("onegraph_images_total 4"), "{metrics}");
}

#[test]
fn bad_request_gets_one_line_error() {
    let server = Server::start(limits(), false);
    let large = [b"img".as_slice(), &[0; 5000]].concat();
    for (request, status, why) in [
        (post("image/png", b"no"), 422, "the image is none"),
        (form(&[("a", b"img"), ("b", b"no")]), 422, "image 1: the image is none"),
        (post("image/png", &large), 413, "larger than 4096 bytes"),
        (form(&[("a", large.as_slice())]), 413, "larger than 4096 bytes"),
        (form(&[("a", b"img".as_slice()); 6]), 413, "has 6 files, more than 5"),
        (post("text/plain", b"img"), 415, "text/plain holds no image"),
        (post("multipart/form-data", b"img"), 400, "boundary"),
        (form(&[]), 400, "the form holds no file"),
        (b"GET /invocations HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".into(), 405, "POST"),
        (b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".into(), 404, "/ping"),
        (b"nonsense\r\n\r\n".into(), 400, ""),
    ] {
        let (found, body) = server.ask(&request);
        let shown = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
        assert_eq!(found, status, "{shown}: {body}");
        assert!(body.contains(why), "{shown}: {body}");
    }
    assert_eq!(server.ask(&form(&[("a", b"img".as_slice()); 5])).0, 200);
}

#[test]
fn slow_or_silent_reader_is_disconnected() {
    let server = Server::start(limits(), false);
    for reads in [false, true] {
        let mut stream = server.send(b"");
        stream.set_write_timeout(Some(Duration::from_millis(20))).expect("a limit");
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let sent = stream.write(&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(500));
            let gone = |fault: std::io::Error| {
                use std::io::ErrorKind::{TimedOut, WouldBlock};
                ![TimedOut, WouldBlock].contains(&fault.kind())
            };
            if sent.err().is_some_and(gone) {
                break;
            }
            assert!(Instant::now() < end, "it is still connected");
            let _ = reads.then(|| stream.read(&mut [0; 1]));
        }
    }
    assert_eq!(server.get("/ping").0, 200);
}

#[test]
fn server_stops_in_time_while_model_runs() {
    let mut server = Server::start(Limits { stop: Duration::from_millis(200), ..limits() }, true);
    let _held = server.send(&post("image/png", b"img1"));
    server.wait_for(1);
    let since = Instant::now();
    server.stop.store(true, Ordering::SeqCst);
    server.thread.take().expect("a thread").join().expect("it ends well");
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}

#[test]
fn incomplete_request_body_times_out() {
    let server = Server::start(limits(), false);
    let whole = post("image/png", b"img1");
    let (status, body) = server.ask(&whole[..whole.len() - 1]);
    assert_eq!(status, 408, "{body}");
}

#[test]
fn disconnected_client_leaves_no_request_in_flight() {
    let server = Server::start(Limits { upload: Duration::from_secs(60), ..limits() }, false);
    let whole = post("image/png", b"img1");
    let stream = server.send(&whole[..whole.len() - 1]);
    server.in_flight(1);
    drop(stream);
    server.in_flight(0);
}

#[test]
fn excess_requests_get_503_and_accepted_ones_are_answered() {
    let server = Server::start(limits(), true);
    let held: Vec<TcpStream> = (0..4).map(|_| server.send(&post("image/png", b"img1"))).collect();
    server.in_flight(4);
    let (status, body) = server.ask(&post("image/png", b"img1"));
    assert_eq!((status, body.contains("too many requests")), (503, true), "{body}");
    for _ in 0..4 {
        server.go.send(()).expect("a server");
    }
    for stream in held {
        assert_eq!(answer(stream).0, 200);
    }
}

#[test]
fn images_of_several_requests_share_a_batch() {
    // A run with three images starts before the gather time has passed, a run with fewer images
    // after it.
    let server = Server::start(Limits { gather: Duration::from_secs(10), ..limits() }, true);
    let held: Vec<TcpStream> = (0..3).map(|_| server.send(&post("image/png", b"img1"))).collect();
    let since = Instant::now();
    server.wait_for(1);
    assert!(since.elapsed() < Duration::from_secs(10), "it waits for a fourth");
    server.go.send(()).expect("a server");
    for stream in held {
        assert_eq!(answer(stream).0, 200);
    }
    assert_eq!(*server.batches.lock().expect("no test panicked"), [3]);
}

#[test]
fn late_response_becomes_503_and_image_is_dropped() {
    let server = Server::start(Limits { wait: Duration::from_secs(3), ..limits() }, true);
    let first = server.send(&post("image/png", b"img1"));
    server.wait_for(1);
    let second = server.send(&post("image/png", b"img1"));
    for stream in [first, second] {
        let (status, body) = answer(stream);
        assert_eq!((status, body.contains("no answer in 3 s")), (503, true), "{body}");
    }
    // Both requests have ended, so the second image has no client.
    server.in_flight(0);
    server.go.send(()).expect("a server");
    server.go.send(()).expect("a server");
    assert_eq!(server.ask(&post("image/png", b"img1")).0, 200);
    assert_eq!(
        *server.batches.lock().expect("no test panicked"),
        [1, 1],
        "the second image has no client"
    );
}

#[test]
fn ping_reports_model_failure_until_next_success() {
    let server = Server::start(limits(), false);
    server.fails.store(true, Ordering::SeqCst);
    let (status, body) = server.ask(&post("image/png", b"img1"));
    assert_eq!((status, body.contains("the device is gone")), (500, true), "{body}");
    assert_eq!(server.get("/ping").0, 503);
    server.fails.store(false, Ordering::SeqCst);
    assert_eq!(server.ask(&post("image/png", b"img1")).0, 200);
    assert_eq!(server.get("/ping").0, 200);
}

#[test]
fn requests_in_flight_are_answered_before_shutdown() {
    let mut server = Server::start(limits(), true);
    let held: Vec<TcpStream> = (0..4).map(|_| server.send(&post("image/png", b"img1"))).collect();
    server.in_flight(4);
    let idle = TcpStream::connect(server.address).expect("it listens");
    server.stop.store(true, Ordering::SeqCst);
    let end = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(server.address).is_ok() {
        assert!(Instant::now() < end, "it still listens");
        std::thread::sleep(Duration::from_millis(10));
    }
    for _ in 0..4 {
        // A run processes up to three requests, so the server may have ended before the last
        // signal.
        let _ = server.go.send(());
    }
    for stream in held {
        assert_eq!(answer(stream).0, 200);
    }
    server.thread.take().expect("a thread").join().expect("it ends well");
    drop(idle);
}
