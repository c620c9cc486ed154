//! Tables of name patterns, which translate names in both directions.

/// A module's name in onegraph and in the other project. `{n}` is a number that starts at n,
/// `{n,2}` one that starts at n and counts in steps of 2, and `*` any suffix. `{fc}` is a fully
/// connected layer of the box head.
pub(super) type Module = (&'static str, &'static str);

/// Prefix of modules in onegraph and in the other project. The third element is a prefix of our
/// names: if any of a model's names begins with it, this entry does not apply to the model.
type Place = (&'static str, &'static str, &'static str);

/// Prefixes, and modules that occur below each of them.
pub(super) type Group = (&'static [Place], &'static [Module]);

/// The empty prefix, for modules with full names.
pub(super) const HERE: &[Place] = &[("", "", "")];

/// Our name for a convolution of the box head.
const BOX_CONV: &str = "roi_heads.box_head.{0}.0.weight";

/// Translates the names of one file or model. A module's name may depend on the other modules.
pub(super) struct Names {
    pairs: Vec<(String, String)>,
    ends: &'static [(&'static str, &'static str)],
}

impl Names {
    /// Translates the names of a file of the other project.
    pub(super) fn of_theirs<'a>(
        groups: &'static [Group],
        ends: &'static [(&'static str, &'static str)],
        names: impl Iterator<Item = &'a String>,
    ) -> Self {
        let mut known = Self { pairs: pairs(groups, 0, |_| true), ends };
        let convs = box_convs(names.filter_map(|name| known.ours(name)));
        known.pairs = pairs(groups, convs, |_| true);
        known
    }

    /// Translates the names of one of onegraph's models.
    pub(super) fn of_ours<'a>(
        groups: &'static [Group],
        names: impl Iterator<Item = &'a String> + Clone,
    ) -> Self {
        let has = |unless: &str| names.clone().any(|name| name.starts_with(unless));
        let convs = box_convs(names.clone().cloned());
        let pairs = pairs(groups, convs, |unless| unless.is_empty() || !has(unless));
        Self { pairs, ends: &[] }
    }

    /// Our name for a tensor, if a pattern matches.
    pub(super) fn ours(&self, name: &str) -> Option<String> {
        // TensorFlow appends `:0` to the name of a variable.
        let name = name.strip_suffix(":0").unwrap_or(name);
        let (module, end) = match self.ends {
            [] => name.split_at(name.rfind('.')?),
            ends => ends.iter().find_map(|(our, their)| Some((name.strip_suffix(their)?, *our)))?,
        };
        let found = self.pairs.iter().find_map(|(our, their)| matched(module, their, our));
        found.map(|module| module + end)
    }

    /// The other project's name for a tensor; ours if no pattern matches.
    pub(super) fn theirs(&self, name: &str) -> String {
        let (module, end) = name.split_at(name.rfind('.').unwrap_or(name.len()));
        let found = self.pairs.iter().find_map(|(our, their)| matched(module, our, their));
        found.unwrap_or_else(|| module.to_string()) + end
    }
}

/// Number of convolutions of the box head.
fn box_convs(ours: impl Iterator<Item = String>) -> usize {
    ours.filter(|name| matched(name, BOX_CONV, "").is_some()).count()
}

/// Pairs of full name patterns, ours first, for the prefixes for which `used` returns true.
fn pairs(groups: &[Group], box_convs: usize, used: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    // If the box head has convolutions, torchvision numbers all its modules: convolutions, flatten,
    // then fully connected layers and their ReLUs.
    let fc = match box_convs {
        0 => "fc{6}".to_string(),
        convs => format!("{{{},2}}", convs + 1),
    };
    let mut pairs = Vec::new();
    for (places, modules) in groups {
        for (our_place, their_place, _) in places.iter().filter(|(.., unless)| used(unless)) {
            pairs.extend(modules.iter().map(|(our, their)| {
                (format!("{our_place}{our}").replace("{fc}", &fc), format!("{their_place}{their}"))
            }));
        }
    }
    pairs
}

/// Rewrites `name` from the pattern `from` to the pattern `to`; `None` if `from` does not match.
fn matched(name: &str, from: &str, to: &str) -> Option<String> {
    let (mut rest, mut end, mut indices) = (name, "", Vec::new());
    for (at, piece) in from.split(['{', '}']).enumerate() {
        if at % 2 == 1 {
            let behind = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            let number: usize = rest[..rest.len() - behind.len()].parse().ok()?;
            let (first, step) = counting(piece)?;
            let index = number.checked_sub(first).filter(|index| index % step == 0)?;
            indices.push(index / step);
            rest = behind;
        } else if let Some(piece) = piece.strip_suffix('*') {
            end = rest.strip_prefix(piece)?;
            rest = "";
        } else {
            rest = rest.strip_prefix(piece)?;
        }
    }
    let mut indices = indices.into_iter();
    let mut text = String::new();
    for (at, piece) in to.split(['{', '}']).enumerate() {
        if at % 2 == 1 {
            let (first, step) = counting(piece)?;
            let index = indices.next().unwrap_or(0);
            text += &index.checked_mul(step)?.checked_add(first)?.to_string();
        } else {
            text += &piece.replace('*', end);
        }
    }
    rest.is_empty().then_some(text)
}

/// The first number of a placeholder, and the step between numbers.
fn counting(piece: &str) -> Option<(usize, usize)> {
    let (first, step) = piece.split_once(',').unwrap_or((piece, "1"));
    Some((first.parse().ok()?, step.parse().ok()?))
}
