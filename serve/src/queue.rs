//! The queue of images for the model, and the thread that runs it.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::Model;
use crate::metrics::Metrics;

/// The objects of an image, each as JSON; or a message if the model failed.
pub(crate) type Answer = Result<Vec<String>, String>;

/// An image that waits for the model.
struct Job<I> {
    image: I,
    answer: oneshot::Sender<Answer>,
    /// The image's slot, which limits the number of images in memory.
    _slot: OwnedSemaphorePermit,
}

/// The queue's sender, with which the routes request detections.
pub(crate) struct Queue<I> {
    jobs: Sender<Job<I>>,
    slots: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

impl<I> Clone for Queue<I> {
    fn clone(&self) -> Self {
        Self { jobs: self.jobs.clone(), slots: self.slots.clone(), metrics: self.metrics.clone() }
    }
}

/// Starts the model's thread. At most `slots` images are in memory at a time. A run processes at
/// most `batch` images; after the first image it waits at most `gather` for more.
///
/// # Errors
/// If the system cannot start a thread.
pub(crate) fn start<M: Model>(
    mut model: M,
    slots: usize,
    batch: usize,
    gather: Duration,
) -> io::Result<(Queue<M::Image>, JoinHandle<()>)> {
    let (jobs, waiting) = channel();
    let metrics = Arc::new(Metrics::default());
    let counted = metrics.clone();
    let run = move || {
        // Dropped when the thread ends, even by a panic; afterwards there are no results.
        let _ended = Ended(&counted);
        while let Some(jobs) = next_batch(&waiting, batch, gather) {
            answer(&mut model, jobs, &counted);
        }
    };
    let worker = std::thread::Builder::new().name("model".into()).spawn(run)?;
    Ok((Queue { jobs, slots: Arc::new(Semaphore::new(slots)), metrics }, worker))
}

/// Reports a failure to the metrics when dropped.
struct Ended<'a>(&'a Metrics);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fail();
    }
}

/// Runs the model on the images whose clients are still connected.
fn answer<M: Model>(model: &mut M, jobs: Vec<Job<M::Image>>, metrics: &Metrics) {
    let (mut images, mut answers) = (Vec::new(), Vec::new());
    for job in jobs.into_iter().filter(|job| !job.answer.is_closed()) {
        images.push(job.image);
        answers.push((job.answer, job._slot));
    }
    if images.is_empty() {
        return;
    }
    let started = Instant::now();
    let found = model.detect(images);
    metrics.ran(answers.len(), started.elapsed(), found.iter().any(Result::is_ok));
    for ((answer, _slot), found) in answers.into_iter().zip(found) {
        // The client may have disconnected.
        let _ = answer.send(found);
    }
}

/// Waits for the images of the next batch, at most `most`; `None` if all senders are dropped.
fn next_batch<I>(waiting: &Receiver<Job<I>>, most: usize, gather: Duration) -> Option<Vec<Job<I>>> {
    let mut jobs = vec![waiting.recv().ok()?];
    let end = Instant::now() + gather;
    while jobs.len() < most {
        match waiting.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(job) => jobs.push(job),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    Some(jobs)
}

impl<I: Send + 'static> Queue<I> {
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Waits for a free slot, decodes an image, and waits for its objects.
    ///
    /// # Errors
    /// The outer error is from `decode`, the inner error from the model.
    pub(crate) async fn detect(
        &self,
        decode: impl FnOnce() -> Result<I, String> + Send + 'static,
    ) -> Result<Answer, String> {
        let Ok(slot) = self.slots.clone().acquire_owned().await else {
            return Ok(Err("the server is stopping".into()));
        };
        let (answer, objects) = oneshot::channel();
        let jobs = self.jobs.clone();
        // The slot is moved into the closure: if the client disconnects, this task ends, but the
        // decoding thread continues and uses memory.
        let decoded = tokio::task::spawn_blocking(move || {
            if answer.is_closed() {
                return Ok::<(), String>(());
            }
            let image = decode()?;
            // If the model's thread has ended, this drops the answer's sender too, and the wait
            // below ends.
            let _ = jobs.send(Job { image, answer, _slot: slot });
            Ok(())
        });
        match decoded.await {
            Ok(decoded) => decoded?,
            Err(_) => return Err("the image could not be decoded".into()),
        }
        Ok(objects.await.unwrap_or_else(|_| Err("the model's thread has ended".into())))
    }
}
