//! `onegraph inspect data`: a self-contained page with training images, statistics and anomalies of
//! the data.

mod counts;
mod duplicates;
mod samples;

use crate::config::Config;

use crate::dataset::{DataSet, Split};
use crate::error::EngineError;
use crate::page::document;
use crate::picture::escape;
use crate::progress::Progress;

use counts::Counts;

/// Maximum number of files in a list.
const NAMED: usize = 8;

/// The page for the training data of a config, as HTML.
///
/// # Errors
/// A config without data, or any error in the files.
pub(crate) fn html(config: &Config) -> Result<String, EngineError> {
    let progress = Progress::loud();
    let data = DataSet::open(config, Split::Train, &progress)?;
    let mut sets = vec![("training", data)];
    // With `eval.train_set` there is no separate validation set.
    if config.has_validation() && !config.eval.train_set {
        sets.push(("validation", DataSet::open(config, Split::Val, &progress)?));
    }
    let data = &sets[0].1;
    let counts = Counts::of(data);
    let notes = (config.model.kind.family().notes)(config, counts.objects());
    let duplicates = duplicates::find(&sets)?;
    let mut body = tiles(&counts, data.images.len(), duplicates.len(), notes.hard);
    body += &samples::section(config, data)?;
    body += &counts.sections();
    body += &notes.section;
    body += &empty(config, data);
    body += &duplicates::section(&duplicates, &sets);
    Ok(document("Training data", None, &body))
}

/// The tiles with the main counts. The count of objects that are hard to learn (`hard`) comes first
/// if it exceeds a tenth of all objects.
fn tiles(
    counts: &Counts,
    images: usize,
    duplicates: usize,
    hard: Option<(usize, &'static str)>,
) -> String {
    let objects = counts.objects().len();
    let known = [
        (images, "images"),
        (objects, "objects"),
        (counts.classes_in_use(), "classes with objects"),
    ];
    let mut tiles: Vec<_> = known.into_iter().chain(hard).collect();
    tiles.push((duplicates, "duplicate images"));
    let tile =
        |(value, name)| format!("<div class=\"tile\"><b>{value}</b><span>{name}</span></div>");
    let mut html = String::new();
    if hard.is_some_and(|(hard, _)| 10 * hard > objects) {
        html = tile(tiles.remove(3)).replace("\"tile\"", "\"tile most\"");
    }
    html += &tiles.into_iter().map(tile).collect::<String>();
    format!("<div class=\"tiles\">{html}</div>\n")
}

/// The section about images without objects.
fn empty(config: &Config, data: &DataSet) -> String {
    let store = &data.store;
    let empty: Vec<usize> =
        (0..store.len()).filter(|image| store.image(*image).objects.is_empty()).collect();
    let what = match config.data.empty {
        crate::config::EmptyImages::Keep => "training keeps them, as background",
        crate::config::EmptyImages::Drop => "training leaves them out",
    };
    format!(
        "<h2>Images without objects</h2>\n<p>{} of {} in the data; {what} (<code>data.empty</code>)\
         .</p>\n{}",
        empty.len(),
        store.len(),
        names(data, &empty)
    )
}

/// The file names of the first images in a list.
fn names(data: &DataSet, images: &[usize]) -> String {
    let shown = images.iter().take(NAMED).map(|image| escape(data.store.file_name(*image)));
    let mut shown: Vec<String> = shown.collect();
    if images.len() > NAMED {
        shown.push("..".into());
    }
    if shown.is_empty() { String::new() } else { format!("<pre>{}</pre>\n", shown.join("\n")) }
}

/// A table of counts with bars; `of` and `counted` are the titles of the first two columns.
fn bars(of: &str, counted: &str, rows: &[(String, usize)]) -> String {
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1) as f64;
    let row = |(name, count): &(String, usize)| {
        format!(
            "<tr><th>{}</th><td>{count}</td><td class=\"bar\"><i style=\"width:{:.1}%\"></i></td>\
             </tr>",
            escape(name),
            100.0 * *count as f64 / most
        )
    };
    let rows: String = rows.iter().map(row).collect();
    format!(
        "<table><thead><tr><th>{of}</th><th>{counted}</th><th></th></tr></thead><tbody>{rows}\
         </tbody></table>\n"
    )
}
