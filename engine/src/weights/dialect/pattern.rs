//! Name patterns: a table that is read in both directions.

/// Modules under our name and theirs. `{n}` is a number that counts from n, `{n,2}` one that counts
/// in twos, a `*` any suffix; `{fc}` is a fully connected layer of the box head.
pub(super) type Module = (&'static str, &'static str);

/// Prefixes of modules, under our name and theirs, and a prefix of our names: a model with such a
/// name has no module there.
type Place = (&'static str, &'static str, &'static str);

/// Modules, each at all of the prefixes.
pub(super) type Group = (&'static [Place], &'static [Module]);

/// Modules with full names.
pub(super) const HERE: &[Place] = &[("", "", "")];

/// A convolution of the box head under our names.
const BOX_CONV: &str = "roi_heads.box_head.{0}.0.weight";

/// The names of one file or model: a module's name may depend on the others.
pub(super) struct Names {
    pairs: Vec<(String, String)>,
    ends: &'static [(&'static str, &'static str)],
}

impl Names {
    /// The names of a file.
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

    /// The names of one of our models.
    pub(super) fn of_ours<'a>(
        groups: &'static [Group],
        names: impl Iterator<Item = &'a String> + Clone,
    ) -> Self {
        let has = |unless: &str| names.clone().any(|name| name.starts_with(unless));
        let convs = box_convs(names.clone().cloned());
        let pairs = pairs(groups, convs, |unless| unless.is_empty() || !has(unless));
        Self { pairs, ends: &[] }
    }

    /// Our name of a tensor, if a pattern matches.
    pub(super) fn ours(&self, name: &str) -> Option<String> {
        // TensorFlow's name of a variable's value.
        let name = name.strip_suffix(":0").unwrap_or(name);
        let (module, end) = match self.ends {
            [] => name.split_at(name.rfind('.')?),
            ends => ends.iter().find_map(|(our, their)| Some((name.strip_suffix(their)?, *our)))?,
        };
        let found = self.pairs.iter().find_map(|(our, their)| matched(module, their, our));
        found.map(|module| module + end)
    }

    /// Their name of a tensor; ours if no pattern matches.
    pub(super) fn theirs(&self, name: &str) -> String {
        let (module, end) = name.split_at(name.rfind('.').unwrap_or(name.len()));
        let found = self.pairs.iter().find_map(|(our, their)| matched(module, our, their));
        found.unwrap_or_else(|| module.to_string()) + end
    }
}

/// Convolutions of the box head.
fn box_convs(ours: impl Iterator<Item = String>) -> usize {
    ours.filter(|name| matched(name, BOX_CONV, "").is_some()).count()
}

/// Patterns of full names, ours first, at the prefixes that are `used`.
fn pairs(groups: &[Group], box_convs: usize, used: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    // After convolutions torchvision counts modules: the convolutions, the flatten, then each fully
    // connected layer with its ReLU.
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

/// The first number of a placeholder in a pattern, and the step to the next.
fn counting(piece: &str) -> Option<(usize, usize)> {
    let (first, step) = piece.split_once(',').unwrap_or((piece, "1"));
    Some((first.parse().ok()?, step.parse().ok()?))
}
