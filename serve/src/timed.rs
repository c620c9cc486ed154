//! A connection with a time limit for the client to read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// Minimum rate, in bytes per second, at which a client must read to keep its connection.
const MIN_RATE: f64 = 4096.0;

/// A stream that fails if its writes have waited too long for the client to read.
pub(crate) struct Timed {
    stream: TcpStream,
    limit: Duration,
    /// Remaining time for which writes may wait.
    left: Duration,
    waits_since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl Timed {
    /// Wraps a stream whose writes may wait for at most `limit` in total; the remaining time grows
    /// again, up to `limit`, as the client reads.
    pub(crate) fn new(stream: TcpStream, limit: Duration) -> Self {
        let timer = Box::pin(sleep(limit));
        Self { stream, limit, left: limit, waits_since: None, timer }
    }

    /// The outcome of a write, or an error if writes have waited too long.
    fn limited(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            let waited = self.waits_since.take().map_or(Duration::ZERO, |since| since.elapsed());
            let earned = Duration::from_secs_f64(bytes as f64 / MIN_RATE);
            self.left = (self.left + earned).saturating_sub(waited).min(self.limit);
        }
        if written.is_ready() {
            return written;
        }
        if self.waits_since.is_none() {
            let now = Instant::now();
            self.waits_since = Some(now);
            self.timer.as_mut().reset(now + self.left);
        }
        let late = || Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read"));
        self.timer.as_mut().poll(context).map(|()| late())
    }
}

impl AsyncRead for Timed {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Timed {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.limited(context, written)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
