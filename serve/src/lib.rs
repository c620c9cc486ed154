//! A detector behind HTTP: images in, COCO results out.
//!
//! `/ping` and `/invocations` are those of a SageMaker container, `/metrics` is Prometheus' text,
//! and `/` is a page to drop a picture on. [`serve`] answers until it is told to stop, and then
//! answers the requests in hand, for a limited time.

mod metrics;
mod queue;
mod routes;
mod timed;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use timed::Timed;
use tokio::sync::Semaphore;

/// Time for the headers of a request, and of an open connection for its next request.
const HEADERS: Duration = Duration::from_secs(20);
/// Time between two looks at the flag that stops the server.
const LOOK: Duration = Duration::from_millis(50);
/// Time for the model's run in hand once nobody waits for it.
const LAST_RUN: Duration = Duration::from_secs(3);

/// Reads an image of a request from the bytes of its file, its position in the request and its
/// file's name; the error is a sentence for the client.
pub type Decode<I> = Arc<dyn Fn(&[u8], u64, Option<&str>) -> Result<I, String> + Send + Sync>;

/// A detector.
pub trait Model: Send + 'static {
    /// An image in memory.
    type Image: Send + 'static;

    /// Reads images; it runs on several threads beside [`Self::detect`].
    fn decoder(&self) -> Decode<Self::Image>;

    /// COCO id and name of each category.
    fn categories(&self) -> Vec<(u64, String)>;

    /// Detects on some images, which may be of several requests. Each gets its objects as JSON
    /// objects of a COCO results file, or a sentence about why the model failed on it.
    fn detect(&mut self, images: Vec<Self::Image>) -> Vec<Result<Vec<String>, String>>;
}

/// Limits of a server.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body: usize,
    /// Files of a form.
    pub files: usize,
    /// Requests whose images are read, wait or are detected on at a time; further ones are
    /// answered with 503.
    pub requests: usize,
    /// Open connections; further ones wait to be accepted.
    pub connections: usize,
    /// Images that one run of the model takes.
    pub batch: usize,
    /// Longest wait of a batch for further images.
    pub gather: Duration,
    /// Time for a request's body to arrive.
    pub upload: Duration,
    /// Time from a request's last byte to its answer, then 503.
    pub wait: Duration,
    /// Time that an answer may wait for its client to read; after it the connection is closed.
    pub send: Duration,
    /// Time from the stop to the end of the server; requests that are in hand by then get no
    /// answer.
    pub stop: Duration,
}

/// Answers requests on `listener` until `stop` is set; then it accepts no more, and returns once
/// the requests in hand are answered.
///
/// # Errors
/// A listener or thread that the system refuses.
pub fn serve<M: Model>(
    model: M,
    listener: TcpListener,
    limits: Limits,
    stop: &AtomicBool,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(limits.batch.clamp(1, 16))
        .enable_all()
        .build()?;
    let slots = 2 * limits.batch.max(1);
    let decode = model.decoder();
    let categories = model.categories();
    let (queue, worker) = queue::start(model, slots, limits.batch.max(1), limits.gather)?;
    let (send, drain) = (limits.send, limits.stop);
    let connections = Arc::new(Semaphore::new(limits.connections.max(1)));
    let app = routes::router(decode, &categories, queue, limits);
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        accept(listener, app, connections, stop, (send, drain)).await;
        Ok::<(), io::Error>(())
    })?;
    runtime.shutdown_timeout(LOOK);
    // Its last sender went with the routes; a run of the model that is too long ends with the
    // process.
    let end = Instant::now() + LAST_RUN;
    while !worker.is_finished() && Instant::now() < end {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Accepts connections until `stop` is set, and waits for those that are busy.
async fn accept(
    listener: tokio::net::TcpListener,
    app: axum::Router,
    connections: Arc<Semaphore>,
    stop: &AtomicBool,
    (send, drain): (Duration, Duration),
) {
    let graceful = GracefulShutdown::new();
    while !stop.load(Ordering::Relaxed) {
        let Ok(Ok(permit)) = tokio::time::timeout(LOOK, connections.clone().acquire_owned()).await
        else {
            continue;
        };
        let stream = match tokio::time::timeout(LOOK, listener.accept()).await {
            Ok(Ok((stream, _))) => stream,
            // Too many open files, or a client that is gone: the next may do.
            Ok(Err(_)) => {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            Err(_) => continue,
        };
        let service = TowerToHyperService::new(app.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS)
            .serve_connection(TokioIo::new(Timed::new(stream, send)), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // A client that breaks off is no fault of the server.
            let _ = connection.await;
            drop(permit);
        });
    }
    // From here on the system refuses connections.
    drop((listener, app));
    let _ = tokio::time::timeout(drain, graceful.shutdown()).await;
}
