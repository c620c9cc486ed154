//! Properties of a tensor that follow from its torchvision name.

/// Prefix of the backbone's parameters.
pub(super) const BODY: &str = "backbone.body.";

/// The part of the model that a name belongs to, such as `backbone.fpn`. The heads of all cascade
/// stages are one part.
pub(super) fn part(name: &str) -> &str {
    let mut dots = name.match_indices('.').map(|(at, _)| at);
    let part = dots.nth(1).map_or(name, |end| &name[..end]);
    part.split_once(STAGE).map_or(part, |(first, _)| first)
}

/// For a tensor of an additional cascade stage, the name of the same tensor in the first stage.
pub(super) fn without_stage(name: &str) -> Option<String> {
    let (module, rest) = name.split_once(STAGE)?;
    let (_, rest) = rest.split_once('.')?;
    Some(format!("{module}.{rest}"))
}

/// Suffix of module names of additional cascade stages, followed by a number.
const STAGE: &str = "_stage";
