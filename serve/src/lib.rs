//! Serves a detector over HTTP: requests contain images, answers are COCO results.
//!
//! `/ping` and `/invocations` follow SageMaker's container interface, `/metrics` is Prometheus
//! text, and `/` is a web page for trying out a picture. [`serve`] runs until it is stopped, and
//! then answers the in-flight requests within a time limit.

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

/// Time limit for receiving the headers of a request, and for the next request on an open
/// connection.
const HEADERS: Duration = Duration::from_secs(20);
/// Interval at which the stop flag is polled.
const LOOK: Duration = Duration::from_millis(50);
/// Time limit for a model run that is in progress when the server has stopped.
const LAST_RUN: Duration = Duration::from_secs(3);

/// Decodes an image of a request. Arguments: the bytes of the file, the position in the request,
/// and the file name. The error is a message for the client.
pub type Decode<I> = Arc<dyn Fn(&[u8], u64, Option<&str>) -> Result<I, String> + Send + Sync>;

/// A detector.
pub trait Model: Send + 'static {
    /// An image in memory.
    type Image: Send + 'static;

    /// The function that decodes images; it runs on several threads concurrently with
    /// [`Self::detect`].
    fn decoder(&self) -> Decode<Self::Image>;

    /// COCO id and name of each category.
    fn categories(&self) -> Vec<(u64, String)>;

    /// Detects objects in images, which may be from several requests. The result for each image is
    /// a list of its objects, each as JSON for a COCO results file, or a message if the model
    /// failed.
    fn detect(&mut self, images: Vec<Self::Image>) -> Vec<Result<Vec<String>, String>>;
}

/// Limits of a server.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum bytes of a request's body.
    pub body: usize,
    /// Maximum number of files in a form.
    pub files: usize,
    /// Maximum number of in-flight requests (being received, waiting, or processed); additional
    /// requests get 503.
    pub requests: usize,
    /// Maximum number of open connections; additional connections wait to be accepted.
    pub connections: usize,
    /// Maximum images per run of the model.
    pub batch: usize,
    /// Maximum time that a batch waits for more images.
    pub gather: Duration,
    /// Time limit for a request's body to arrive.
    pub upload: Duration,
    /// Time limit from the last byte of a request to its answer; later the answer is 503.
    pub wait: Duration,
    /// Time limit for the client to read an answer, after which the connection is closed.
    pub send: Duration,
    /// Time limit from the stop signal to the end of the server; requests that are then still in
    /// flight get no answer.
    pub stop: Duration,
}

/// Answers requests on `listener` until `stop` is set; then accepts no new connections, and returns
/// when the in-flight requests are answered.
///
/// # Errors
/// If the system cannot provide the listener or a thread.
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
    // The model's thread ends, as its last sender was dropped with the routes. A run that exceeds
    // the time limit ends with the process.
    let end = Instant::now() + LAST_RUN;
    while !worker.is_finished() && Instant::now() < end {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Accepts connections until `stop` is set, then waits for open connections to end.
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
            // There are too many open files, or the client has disconnected: the next accept may
            // succeed.
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
            // A client that disconnects is not a server error.
            let _ = connection.await;
            drop(permit);
        });
    }
    // From here on, the system rejects new connections.
    drop((listener, app));
    let _ = tokio::time::timeout(drain, graceful.shutdown()).await;
}
