//! `onegraph serve`: serves a trained model over HTTP.

use std::net::{IpAddr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedI64ValueParser;
use dali::plain;
use serve::{Decode, Limits, Model};

use super::device::DeviceArgs;
use super::model::ModelArgs;
use super::signals::Stop;
use crate::EngineError;
use crate::classes::{NO_CATEGORY, describe_classes};
use crate::evaluate::Image;
use crate::predictor::Predictor;
use crate::progress::Progress;
use crate::train::Outcome;

/// Time limit for receiving a request's body.
const UPLOAD: Duration = Duration::from_secs(30);
const CONNECTIONS: usize = 2048;
/// Time limit for sending a response.
const SEND: Duration = Duration::from_secs(20);
/// Time limit for in-flight requests at shutdown; Kubernetes allows a pod 30 s.
const STOP: Duration = Duration::from_secs(25);

/// Parses an integer in this range.
fn within(range: RangeInclusive<i64>) -> RangedI64ValueParser<u16> {
    RangedI64ValueParser::new().range(range)
}

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Address to listen on. The default is reachable only from this machine. There is no
    /// authentication: do not expose the port without a proxy that authenticates clients.
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen on; 0 selects a free port, which is printed.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Maximum size of a request's body, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = within(1..=1024))]
    max_body: u16,
    /// Maximum number of files in one form (multipart request).
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = within(1..=10_000))]
    max_files: u16,
    /// Maximum size of an image, in megapixels. The model's data.max_image_pixels applies too.
    #[arg(long, value_name = "MP", default_value_t = 50, value_parser = within(1..=1000))]
    max_pixels: u16,
    /// Maximum number of in-flight requests; additional requests are answered with 503.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = within(1..=4096))]
    max_requests: u16,
    /// Maximum number of images, from several requests, in one batch on a GPU.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = within(1..=8))]
    max_batch: u16,
    /// Maximum time that a batch waits for more images, in ms.
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = within(0..=10_000))]
    gather: u16,
    /// Time limit for a response in seconds, from the last byte of the request; after that, the
    /// response is 503.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = within(1..=3600))]
    max_wait: u16,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(super) fn run(args: &ServeArgs, stop: &Stop) -> Result<Outcome, EngineError> {
    super::rank::refuse_ranks("onegraph serve")?;
    let progress = Progress::loud();
    // The port is opened before the model is loaded, so that a port in use is reported at once.
    let address = (args.host, args.port);
    let fault = |source| EngineError::Io {
        path: format!("the address {}:{}", args.host, args.port).into(),
        source,
    };
    let listener = TcpListener::bind(address).map_err(fault)?;
    let bound = listener.local_addr().map_err(fault)?;
    let backend = args.device.open()?;
    let model = args.model.open(&backend, &progress)?;
    progress.say(&describe_classes(&model.classes()));
    model.remarks().iter().for_each(|remark| progress.say(remark));
    let model = Served::new(Predictor::new(model, &backend), args.max_pixels);
    let limits = Limits {
        body: usize::from(args.max_body) << 20,
        files: args.max_files.into(),
        requests: args.max_requests.into(),
        connections: CONNECTIONS,
        batch: args.max_batch.into(),
        gather: Duration::from_millis(args.gather.into()),
        upload: UPLOAD,
        wait: Duration::from_secs(args.max_wait.into()),
        send: SEND,
        stop: STOP,
    };
    progress.say(&format!(
        "listening on http://{bound}: POST images to /invocations, or open / in a browser"
    ));
    stop.finish_first();
    serve::serve(model, listener, limits, &stop.flag()).map_err(fault)?;
    progress.say("stopped: all in-flight requests were answered");
    Ok(Outcome::Done)
}

/// Implements [`Model`], which the server requires, with a predictor.
struct Served {
    predictor: Predictor,
    ids: Vec<u64>,
    max_pixels: usize,
}

/// An image, and the name of its file.
struct Named {
    image: Image,
    file: Option<String>,
}

impl Served {
    fn new(predictor: Predictor, megapixels: u16) -> Self {
        let ids = predictor.classes().iter().map(|(_, id)| *id).collect();
        let max_pixels = (usize::from(megapixels) * 1_000_000).min(predictor.max_image_pixels());
        Self { predictor, ids, max_pixels }
    }
}

impl Model for Served {
    type Image = Named;

    fn decoder(&self) -> Decode<Named> {
        let (max_pixels, exif) = (self.max_pixels, self.predictor.exif());
        Arc::new(move |bytes, id, file| {
            let (image, doubt) = Image::decode(bytes, id, max_pixels, exif)
                .map_err(|fault| plain(&format!("the image {fault}")))?;
            if let Some(doubt) = doubt {
                let file = file.unwrap_or("an image");
                Progress::loud().say(&format!("warning: {file} {doubt}"));
            }
            Ok(Named { image, file: file.map(str::to_string) })
        })
    }

    fn categories(&self) -> Vec<(u64, String)> {
        let named = self.predictor.classes().iter().filter(|(name, _)| name != NO_CATEGORY);
        named.map(|(name, id)| (*id, name.clone())).collect()
    }

    fn detect(&mut self, images: Vec<Named>) -> Vec<Result<Vec<String>, String>> {
        let (images, files): (Vec<_>, Vec<_>) =
            images.into_iter().map(|named| (named.image, named.file)).unzip();
        let found = self.predictor.detect_all(images);
        let lines = found.into_iter().zip(&files).map(|(found, file)| {
            let found = found?;
            let lines = found.to_coco(&self.ids);
            lines.map(|line| score::result_json(&line, file.as_deref())).collect()
        });
        lines.collect()
    }
}
