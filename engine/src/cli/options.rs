//! Advice for unknown options: options of other tools that are config keys in onegraph.

use crate::config::{Synonym, schema};
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Cli;

/// Adds advice to the error about a command line, if an unknown option corresponds to a config key.
pub(super) fn advised(mut fault: clap::Error, words: &[String]) -> clap::Error {
    let unknown = match fault.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if fault.kind() == ErrorKind::UnknownArgument => option,
        _ => return fault,
    };
    if let Some(advice) = advice(unknown, words) {
        fault.remove(ContextKind::SuggestedArg);
        fault.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
    }
    fault
}

fn advice(option: &str, words: &[String]) -> Option<String> {
    let root = Cli::command();
    let command = words.iter().fold(&root, |of, word| of.find_subcommand(word).unwrap_or(of));
    command.get_arguments().find(|known| known.get_long() == Some("set"))?;
    let name = option.trim_start_matches('-').replace('-', "_");
    let last = format!(".{name}");
    let named =
        schema().keys().iter().map(|key| key.name.as_str()).filter(|key| key.ends_with(&last));
    // Excludes keys of nested tables (model.backbone.output), whose last part has a different
    // meaning in other tools.
    let named = named.filter(|key| key.matches('.').count() == 1);
    // Prefers training keys over evaluation keys, and short keys over long ones.
    let key = match named.min_by_key(|key| (key.starts_with("eval."), key.len())) {
        Some(key) => key,
        None => match schema().synonym(&name)? {
            Synonym::Key(key) => key,
            Synonym::NoKey(why) => return Some(why.into()),
        },
    };
    Some(format!("it is a config key: --set {key}=VALUE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_of_another_tool_names_the_key_to_set() {
        let tip = |line: &str| {
            let words: Vec<String> = line.split(' ').map(String::from).collect();
            let fault = <Cli as clap::Parser>::try_parse_from(&words).expect_err(line);
            advised(fault, &words).to_string()
        };
        for (options, told) in [
            ("--lr 0.1", "--set solver.learning_rate=VALUE"),
            ("--epochs=3", "--set train.epochs=VALUE"),
            ("--batch-size 4", "--set train.batch_size=VALUE"),
            ("--workers 2", "RAYON_NUM_THREADS"),
        ] {
            let text = tip(&format!("onegraph train micro {options}"));
            assert!(text.contains(told) && !text.contains("as a value"), "{text}");
        }
        assert!(!tip("onegraph doctor --lr 1").contains("learning_rate"), "it takes no keys");
    }
}
