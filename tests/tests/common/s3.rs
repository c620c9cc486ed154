//! Servers with the S3 API, behind a network with injected faults.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::Place;

pub(crate) const BUCKET: &str = "data";
const KEY: &str = "key";
const SECRET: &str = "secret";

/// An S3 server program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `s3s-fs`: checks signatures, and keeps objects as files.
    Fs,
    /// `moto`, from PyPI: keeps objects in memory.
    Moto,
}

/// A fault injected into a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The request is answered with 503.
    Busy,
    /// The response is interrupted.
    Cut,
    /// The response is late.
    Late,
    /// A byte of the object in the response is changed.
    Altered,
    /// A byte of the uploaded object is changed.
    AlteredSent,
}

/// Selects the fault of a request with this method and path.
pub(crate) type Network = Box<dyn FnMut(&str, &str) -> Option<Fault> + Send>;

/// A network without faults.
pub(crate) fn good() -> Network {
    Box::new(|_, _| None)
}

/// A network in which one in `every` requests has a fault, chosen by a seed.
pub(crate) fn bad(every: u64, seed: u64) -> Network {
    use Fault::{Altered, AlteredSent, Busy, Cut, Late};
    let mut dice = dice(seed);
    Box::new(move |_, _| match dice() % every {
        0 => Some([Busy, Cut, Late, Altered, AlteredSent][(dice() % 5) as usize]),
        _ => None,
    })
}

/// Random numbers from a seed.
pub(crate) fn dice(seed: u64) -> impl FnMut() -> u64 + Send {
    let mut state = seed;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}

/// A server behind a faulty network.
pub(crate) struct Server {
    kind: Kind,
    /// Folder with the objects of `s3s-fs`.
    root: TempDir,
    /// Address of the faulty network, which clients use, and of the server behind it.
    public: SocketAddr,
    own: SocketAddr,
    network: Arc<Mutex<Network>>,
    running: Option<Runtime>,
    process: Option<Child>,
}

impl Server {
    /// Starts a server with an empty bucket; prints a message and returns `None` if the server is
    /// not installed.
    pub(crate) fn start(kind: Kind) -> Option<Self> {
        let root = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(root.path().join(BUCKET)).expect("a bucket");
        let network = Arc::new(Mutex::new(good()));
        let (public, own) = (free(), free());
        let mut server = Self { kind, root, public, own, network, running: None, process: None };
        if kind == Kind::Moto {
            let Some(moto) = moto() else {
                println!("SKIPPED: moto is not installed in target/moto (see CONTRIBUTING.md)");
                return None;
            };
            let mut command = Command::new(moto);
            command.args(["-p", &own.port().to_string()]).stdout(Stdio::null());
            let process = command.stderr(Stdio::null()).spawn().expect("moto starts");
            server.process = Some(process);
        }
        server.revive();
        if kind == Kind::Moto {
            server.make_bucket();
        }
        Some(server)
    }

    /// Starts the server again on the same port.
    pub(crate) fn revive(&mut self) {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().expect("threads");
        if self.kind == Kind::Fs {
            runtime.spawn(serve_files(self.own, self.root.path().to_path_buf()));
        }
        runtime.spawn(forward_all(self.public, self.own, self.network.clone()));
        self.running = Some(runtime);
        let is_up = |at| std::net::TcpStream::connect(at).is_ok();
        for _ in 0..300 {
            if is_up(self.public) && is_up(self.own) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{:?} does not answer", self.kind);
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown_background();
        }
    }

    pub(crate) fn set(&self, network: Network) {
        *self.network.lock().expect("no panic before") = network;
    }

    /// The environment variables for a client.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://{}", self.public);
        let pairs = [
            ("AWS_ACCESS_KEY_ID", KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL", &endpoint),
        ];
        pairs.map(|(key, value)| (key.to_string(), value.to_string())).to_vec()
    }

    /// The command, with this server as S3.
    pub(crate) fn command(&self, place: &Place, arguments: &str) -> Command {
        let mut command = place.command(arguments);
        command.envs(self.variables());
        command
    }

    pub(crate) fn bucket(&self) -> ::s3::Bucket {
        ::s3::Bucket::with(BUCKET, self.variables()).expect("a bucket")
    }

    /// All objects below a key, by the rest of their keys.
    pub(crate) fn contents(&self, key: &str) -> Vec<(String, Vec<u8>)> {
        let bucket = self.bucket();
        let objects = bucket.list(key).expect("a listing");
        let read = |object: &::s3::Object| {
            let name = object.at.key.trim_start_matches(key).trim_start_matches('/').to_string();
            (name, bucket.read(&object.at.key).expect("an object").to_vec())
        };
        objects.iter().map(read).collect()
    }

    fn make_bucket(&self) {
        let put = format!(
            "PUT /{BUCKET} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let mut stream = std::net::TcpStream::connect(self.own).expect("moto");
        std::io::Write::write_all(&mut stream, put.as_bytes()).expect("a request");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).expect("an answer");
        assert!(text.contains("200"), "{text}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if let Some(process) = &mut self.process {
            // The process may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn free() -> SocketAddr {
    let listener = StdListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address")
}

fn moto() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let moto = root.join("target/moto/bin/moto_server");
    moto.is_file().then_some(moto)
}

/// Binds a port, and retries while the previous server of this test still uses it.
async fn bind(at: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(at).await {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn serve_files(at: SocketAddr, root: PathBuf) {
    let mut builder = S3ServiceBuilder::new(FileSystem::new(root).expect("a folder"));
    builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
    let service = builder.build();
    let listener = bind(at).await;
    while let Ok((stream, _)) = listener.accept().await {
        let service = service.clone();
        tokio::spawn(async move {
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

type Forwarded = Response<BoxBody<Bytes, std::io::Error>>;
type Upstream = Client<HttpConnector, Full<Bytes>>;

async fn forward_all(at: SocketAddr, to: SocketAddr, network: Arc<Mutex<Network>>) {
    let client: Upstream = Client::builder(TokioExecutor::new()).build_http();
    let listener = bind(at).await;
    while let Ok((stream, _)) = listener.accept().await {
        let (client, network) = (client.clone(), network.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let (client, network) = (client.clone(), network.clone());
                async move { forward(request, &client, to, &network).await }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn forward(
    request: Request<Incoming>,
    client: &Upstream,
    to: SocketAddr,
    network: &Mutex<Network>,
) -> Result<Forwarded, std::io::Error> {
    let broken = |e: &dyn std::fmt::Display| std::io::Error::other(e.to_string());
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |p| p.as_str()).to_string();
    let fault = network.lock().expect("no panic before")(parts.method.as_str(), &path);
    let mut bytes = body.collect().await.map_err(|e| broken(&e))?.to_bytes().to_vec();
    match fault {
        Some(Fault::Busy) => {
            let mut answer =
                Response::new(whole(Bytes::from_static(b"<Error><Code>SlowDown</Code></Error>")));
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return Ok(answer);
        }
        Some(Fault::Late) => tokio::time::sleep(Duration::from_millis(300)).await,
        Some(Fault::AlteredSent) if parts.method == "PUT" => alter(&mut bytes),
        _ => {}
    }
    parts.uri = format!("http://{to}{path}").parse::<Uri>().map_err(|e| broken(&e))?;
    let answer = client.request(Request::from_parts(parts.clone(), Full::new(bytes.into()))).await;
    let (head, body) = answer.map_err(|e| broken(&e))?.into_parts();
    let mut bytes = body.collect().await.map_err(|e| broken(&e))?.to_bytes().to_vec();
    let is_xml = |of: &hyper::http::HeaderValue| of.to_str().is_ok_and(|t| t.contains("xml"));
    let is_object = parts.method == "GET"
        && head.status.is_success()
        && !head.headers.get(CONTENT_TYPE).is_some_and(is_xml);
    match fault {
        Some(Fault::Altered) if is_object => alter(&mut bytes),
        Some(Fault::Cut) if is_object => {
            let half = Bytes::copy_from_slice(&bytes[..bytes.len() / 2]);
            let end = std::io::Error::other("cut");
            let frames = stream::iter([Ok(Frame::data(half)), Err(end)]);
            return Ok(Response::from_parts(head, StreamBody::new(frames).boxed()));
        }
        _ => {}
    }
    Ok(Response::from_parts(head, whole(bytes.into())))
}

fn whole(bytes: Bytes) -> BoxBody<Bytes, std::io::Error> {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

fn alter(bytes: &mut [u8]) {
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 0x10;
    }
}
