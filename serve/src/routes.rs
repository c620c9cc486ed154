//! The routes and their answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::{BodyExt, Limited};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::queue::Queue;
use crate::{Decode, Limits};

/// Time limit for discarding the body of a request that is rejected before its body is read.
const DISCARD: Duration = Duration::from_secs(5);

/// The web page for trying out a picture.
const PAGE: &str = include_str!("page.html");

/// The shared state of the routes.
struct RouteState<I> {
    decode: Decode<I>,
    queue: Queue<I>,
    limits: Limits,
    categories: String,
    requests: Arc<Semaphore>,
}

/// A rejected request.
struct Refusal {
    status: StatusCode,
    why: String,
}

fn refuse(status: StatusCode, why: impl Into<String>) -> Refusal {
    Refusal { status, why: why.into() }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = serde_json::json!({ "error": self.why }).to_string();
        let mut response = json(self.status, body);
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

fn json(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// An uploaded image file.
struct Upload {
    name: Option<String>,
    bytes: Bytes,
}

/// All routes.
pub(crate) fn router<I: Send + 'static>(
    decode: Decode<I>,
    categories: &[(u64, String)],
    queue: Queue<I>,
    limits: Limits,
) -> Router {
    let named = categories.iter().map(|(id, name)| serde_json::json!({ "id": id, "name": name }));
    let categories = serde_json::Value::Array(named.collect()).to_string();
    let body = limits.body;
    let requests = Arc::new(Semaphore::new(limits.requests.max(1)));
    let door = Arc::new(RouteState { decode, queue, limits, categories, requests });
    Router::new()
        .route("/", get(|| async { Html(PAGE) }))
        .route("/ping", get(ping::<I>))
        .route("/metrics", get(metrics::<I>))
        .route("/categories", get(categories_of::<I>))
        .route("/invocations", post(invocations::<I>))
        .fallback(|| async {
            refuse(
                StatusCode::NOT_FOUND,
                "not found; use /invocations, /ping, /metrics, /categories or /",
            )
        })
        .method_not_allowed_fallback(|| async {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "use POST for /invocations, GET for all others")
        })
        .layer(DefaultBodyLimit::max(body))
        .with_state(door)
}

async fn ping<I: Send + 'static>(State(door): State<Arc<RouteState<I>>>) -> Response {
    if door.queue.metrics().is_well() {
        return json(StatusCode::OK, "{}".into());
    }
    refuse(StatusCode::SERVICE_UNAVAILABLE, "the last run of the model failed").into_response()
}

async fn metrics<I: Send + 'static>(State(door): State<Arc<RouteState<I>>>) -> Response {
    let text = door.queue.metrics().text();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn categories_of<I: Send + 'static>(State(door): State<Arc<RouteState<I>>>) -> Response {
    json(StatusCode::OK, door.categories.clone())
}

async fn invocations<I: Send + 'static>(
    State(door): State<Arc<RouteState<I>>>,
    request: Request,
) -> Response {
    let started = Instant::now();
    let response = match door.answer(request).await {
        Ok(results) => json(StatusCode::OK, results),
        Err(refusal) => refusal.into_response(),
    };
    door.queue.metrics().answered(response.status().as_u16(), started.elapsed());
    response
}

/// Decrements the number of in-flight requests when dropped.
struct InFlight<'a>(&'a std::sync::atomic::AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<I: Send + 'static> RouteState<I> {
    async fn answer(&self, request: Request) -> Result<String, Refusal> {
        let Ok(_permit) = self.requests.try_acquire() else {
            self.discard(request.into_body()).await;
            return Err(refuse(StatusCode::SERVICE_UNAVAILABLE, "too many requests are waiting"));
        };
        let in_hand = &self.queue.metrics().in_hand;
        in_hand.fetch_add(1, Ordering::Relaxed);
        let _in_hand = InFlight(in_hand);
        let uploads =
            timeout(self.limits.upload, self.receive(request)).await.map_err(|_| {
                let seconds = self.limits.upload.as_secs_f64();
                refuse(
                    StatusCode::REQUEST_TIMEOUT,
                    format!("the body did not arrive within {seconds} s"),
                )
            })??;
        let wait = self.limits.wait;
        timeout(wait, self.detect(uploads)).await.map_err(|_| late(wait))?
    }

    /// Reads and discards a body; otherwise a client that is still sending would get a closed
    /// connection instead of the answer.
    async fn discard(&self, body: Body) {
        let mut body = Limited::new(body, self.limits.body);
        let read = async { while let Some(Ok(_)) = body.frame().await {} };
        // If the body does not arrive in time, the client gets no answer.
        let _ = timeout(DISCARD, read).await;
    }

    /// Receives the images of a request: the whole body is one image, or each file of a form.
    async fn receive(&self, request: Request) -> Result<Vec<Upload>, Refusal> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let kind = kind.unwrap_or("application/octet-stream").to_ascii_lowercase();
        if kind.starts_with("multipart/form-data") {
            return self.receive_form(request).await;
        }
        let is_image = kind.starts_with("image/")
            || ["application/octet-stream", "application/x-image"]
                .iter()
                .any(|k| kind.starts_with(k));
        if !is_image {
            self.discard(request.into_body()).await;
            return Err(refuse(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!(
                    "{kind} holds no image: send a file as image/jpeg, image/png or \
                     application/octet-stream, or several as multipart/form-data"
                ),
            ));
        }
        let mut body = request.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let broken = |fault| refuse(StatusCode::BAD_REQUEST, format!("the body: {fault}"));
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            if bytes.len() + data.len() > self.limits.body {
                self.discard(body).await;
                return Err(self.too_large());
            }
            bytes.extend_from_slice(&data);
        }
        Ok(vec![Upload { name: None, bytes: bytes.into() }])
    }

    async fn receive_form(&self, request: Request) -> Result<Vec<Upload>, Refusal> {
        let broken = |why: String| refuse(StatusCode::BAD_REQUEST, why);
        let mut form = Multipart::from_request(request, &())
            .await
            .map_err(|rejection| broken(rejection.body_text()))?;
        let mut uploads = Vec::new();
        let fault = |fault: axum::extract::multipart::MultipartError| match fault.status() {
            StatusCode::PAYLOAD_TOO_LARGE => self.too_large(),
            _ => broken(fault.body_text()),
        };
        let (mut count, most) = (0, self.limits.files);
        while let Some(field) = form.next_field().await.map_err(fault)? {
            count += 1;
            let name = field.file_name().map(str::to_string);
            let bytes = field.bytes().await.map_err(fault)?;
            if count <= most {
                uploads.push(Upload { name, bytes });
            }
        }
        if count > most {
            let why = format!("the form has {count} files, more than {most}; send several forms");
            return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        if uploads.is_empty() {
            return Err(broken("the form holds no file".into()));
        }
        Ok(uploads)
    }

    /// The results of all images as a COCO results file, in which an image's id is its position,
    /// from 0.
    async fn detect(&self, uploads: Vec<Upload>) -> Result<String, Refusal> {
        let count = uploads.len();
        // At most one batch of a request's images is queued at a time, so that images of other
        // requests are interleaved.
        let turns = Arc::new(Semaphore::new(self.limits.batch.max(1)));
        // If the client disconnects or a time limit is reached, all tasks end.
        let mut tasks = JoinSet::new();
        for (position, Upload { name, bytes }) in uploads.into_iter().enumerate() {
            let (queue, decode) = (self.queue.clone(), self.decode.clone());
            let turns = turns.clone();
            tasks.spawn(async move {
                let _turn = turns.acquire().await;
                let id = position as u64;
                let found = queue.detect(move || decode(&bytes, id, name.as_deref())).await;
                (position, found)
            });
        }
        let mut lines = vec![Vec::new(); count];
        while let Some(done) = tasks.join_next().await {
            let failed = |why: String| refuse(StatusCode::INTERNAL_SERVER_ERROR, why);
            let (position, found) = done.map_err(|fault| failed(fault.to_string()))?;
            let place = if count > 1 { format!("image {position}: ") } else { String::new() };
            let unread = |why| refuse(StatusCode::UNPROCESSABLE_ENTITY, format!("{place}{why}"));
            lines[position] = found.map_err(unread)?.map_err(failed)?;
        }
        let lines = lines.concat();
        Ok(format!("[{}]\n", lines.join(",\n")))
    }

    fn too_large(&self) -> Refusal {
        let bytes = self.limits.body;
        refuse(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {bytes} bytes"))
    }
}

fn late(wait: Duration) -> Refusal {
    let seconds = wait.as_secs_f64();
    refuse(StatusCode::SERVICE_UNAVAILABLE, format!("no answer in {seconds} s: too many requests"))
}
