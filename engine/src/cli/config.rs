//! `onegraph config`: explains config keys, and shows which file sets each value.

use std::fmt::Write;

use crate::mlperf::Recipe;
use clap::Args;
use configs::preset_names;

use crate::config::{Config, HALF_THE_RUN, Key, OF_THE_BATCH, Origins, Synonym, schema};

use crate::EngineError;
use crate::progress::columns;

#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// The key to explain, such as train.batch_size, or the table to list, such as train; without
    /// one, all keys are listed.
    key: Option<String>,
    /// Show the values in this config file or preset, and which file sets each.
    #[arg(long = "in", value_name = "CONFIG")]
    config: Option<String>,
    /// Override a value of the config given with --in.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "config")]
    set: Vec<String>,
    /// Print the hyperparameters that MLPerf's rules prescribe for this global batch size, and why.
    #[arg(long, value_name = "GLOBAL_BATCH", conflicts_with_all = ["key", "config"])]
    mlperf: Option<usize>,
    /// With --mlperf: images per group (per GPU in MLPerf's runs). Default: as in submitted MLPerf
    /// runs.
    #[arg(long, value_name = "IMAGES", requires = "mlperf")]
    images_per_group: Option<usize>,
}

/// Help on `extends`, the only key of a config file that is not part of the schema.
const EXTENDS: &str = "\
extends

The config file or preset that this file extends. It must be at the top of the file, before the
first [table]. A file in the same directory comes first, then a preset of that name; either may
extend another. Values of this file, and then of --set, override those; a list is replaced as a
whole.

values   the quoted name of one config file or preset, such as extends = \"torchvision_r50\"
default  none: every key begins with its default
";
/// Origin of a value that was set on the command line.
const SET: &str = "--set";

/// A config with the origin of each value.
struct Loaded {
    config: Config,
    origins: Origins,
}

impl Loaded {
    /// The value of a key, and its origin. For a key of a table inside a list, the value and origin
    /// of the whole list.
    fn value(&self, of: &Key) -> Result<String, EngineError> {
        let list = of.name.rsplit_once('.').filter(|_| of.in_list).map(|(list, _)| list);
        let name = list.unwrap_or(&of.name);
        let value = self.config.value(name)?;
        let inside = format!("{name}.");
        let origins = self.origins.iter().filter(|(k, _)| *k == name || k.starts_with(&inside));
        let origin = origins.map(|(_, origin)| origin).max_by_key(|origin| origin.layer);
        Ok(match origin.map(|origin| origin.file.as_str()) {
            Some(SET) => format!("{value}, set by {SET}"),
            Some(why @ (HALF_THE_RUN | OF_THE_BATCH)) => format!("{value}, {why}"),
            Some(file) => format!("{value}, set in {file}"),
            None => format!("{value}, the default"),
        })
    }
}

pub(super) fn run(args: &ConfigArgs) -> Result<(), EngineError> {
    if let Some(global_batch) = args.mlperf {
        let recipe = Recipe::new(global_batch, args.images_per_group);
        return super::print(&derivation(&recipe.map_err(EngineError::Usage)?));
    }
    let loaded = match &args.config {
        None => None,
        Some(name) => {
            let (config, origins) = Config::load_with_origins(name, &args.set)?;
            Some(Loaded { config, origins })
        }
    };
    let text = match &args.key {
        None => list(schema().keys(), loaded.as_ref())?,
        Some(name) if name == "extends" => EXTENDS.to_string(),
        Some(name) => match find(name)?.as_slice() {
            [key] => explain(key, loaded.as_ref())?,
            keys => list(keys.iter().copied(), loaded.as_ref())?,
        },
    };
    super::print(&text)
}

/// The derivation of the values that MLPerf's rules prescribe, then the config keys to set.
fn derivation(recipe: &Recipe) -> String {
    let Recipe { global_batch, images_per_group, learning_rate, warmup_steps, .. } = recipe;
    let start = (1.0 - *warmup_steps as f64 * recipe.warmup_factor / learning_rate).max(0.0);
    let scope = if recipe.per_image { "image" } else { "batch" };
    let steps = recipe.steps_per_epoch();
    format!(
        "{}\n\ntrain.batch_size = {global_batch} ({steps} steps an epoch)\n\
         train.images_per_group = {images_per_group}\nmodel.rpn.post_nms_top_n_train = {}\n\
         model.rpn.post_nms_scope = \"{scope}\"\nsolver.learning_rate = {learning_rate}\n\
         solver.milestones = {:?}\nsolver.warmup_steps = {warmup_steps}\n\
         solver.warmup_factor = {start:.6}\n",
        recipe.derivation.join("\n"),
        recipe.candidates,
        recipe.decay_steps,
    )
}

/// The key with this name, or the keys of the table with this name. Also accepts the last part of
/// either name, or another project's name for a key.
fn find(name: &str) -> Result<Vec<&'static Key>, EngineError> {
    let last = format!(".{name}");
    let inner = format!(".{name}.");
    let found = [
        schema().key(name).into_iter().collect::<Vec<&Key>>(),
        schema().keys_of_table(name).collect(),
        schema().keys().iter().filter(|key| key.name.ends_with(&last)).collect(),
        schema().keys().iter().filter(|key| key.name.contains(&inner)).collect(),
    ];
    if let Some(found) = found.into_iter().find(|found| !found.is_empty() && !name.is_empty()) {
        return Ok(found);
    }
    match schema().synonym(name) {
        Some(Synonym::Key(name)) => return Ok(schema().key(name).into_iter().collect()),
        Some(Synonym::NoKey(why)) => return Err(EngineError::Usage(why.into())),
        None => {}
    }
    if preset_names().any(|preset| preset == name) {
        return Err(EngineError::Usage(format!(
            "{name} is a preset, not a key: `onegraph config --in {name}` shows its values"
        )));
    }
    let alike = schema().similar(name);
    let advice = match alike.is_empty() {
        true => "`onegraph config` lists them all".to_string(),
        false => format!("did you mean {}?", alike.join(", ")),
    };
    Err(EngineError::Usage(format!("no key is called `{name}`; {advice}")))
}

/// One line per key: its name, its value in the config, or its default and meaning. Lines are
/// truncated to the width of the terminal.
fn list<'a>(
    keys: impl IntoIterator<Item = &'a Key>,
    loaded: Option<&Loaded>,
) -> Result<String, EngineError> {
    let keys: Vec<&Key> = keys.into_iter().collect();
    let width = keys.iter().map(|key| key.name.len()).max().unwrap_or(0);
    let columns = columns(&console::Term::stdout());
    let mut text = String::new();
    for key in keys {
        let value = match loaded {
            Some(loaded) => loaded.value(key)?,
            None => key.default.clone(),
        };
        let mut line = format!("{:width$}  {value:<20}", key.name);
        if loaded.is_none() {
            line += &format!("  {}", key.meaning);
        }
        let line = line.trim_end();
        // Writing to a string cannot fail.
        let _ = match columns {
            Some(columns) => writeln!(text, "{}", console::truncate_str(line, columns, "..")),
            None => writeln!(text, "{line}"),
        };
    }
    Ok(text)
}

fn explain(key: &Key, loaded: Option<&Loaded>) -> Result<String, EngineError> {
    let mut text = format!("{}\n\n{}\n\n", key.name, key.meaning);
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(text, "{label:<8} {value}");
    };
    line("values", &key.values());
    for (word, meaning) in &key.words {
        line("", &format!("\"{word}\": {meaning}"));
    }
    if let Some(unit) = &key.unit {
        line("unit", unit);
    }
    line("default", &key.default);
    if let Some(loaded) = loaded {
        line("value", &loaded.value(key)?);
    }
    let presets = preset_names().map(|name| (name, Config::load_with_origins(name, &[])));
    let mut label = "presets";
    for (name, preset) in presets {
        let (config, origins) = preset?;
        if origins.contains_key(&key.name) {
            line(label, &format!("{name}: {}", config.value(&key.name)?));
            label = "";
        }
    }
    Ok(text)
}
