//! Properties of a tensor that follow from its torchvision name.

/// Prefix of the backbone's parameters.
pub(super) const BODY: &str = "backbone.body.";

/// The part of the model that a name belongs to, such as `backbone.fpn`; the heads of a cascade's
/// stages are one part.
pub(super) fn part(name: &str) -> &str {
    let mut dots = name.match_indices('.').map(|(at, _)| at);
    let part = dots.nth(1).map_or(name, |end| &name[..end]);
    part.split_once(STAGE).map_or(part, |(first, _)| first)
}

/// The name of a tensor in a plain model, if it is of a further stage of a cascade.
pub(super) fn without_stage(name: &str) -> Option<String> {
    let (module, rest) = name.split_once(STAGE)?;
    let (_, rest) = rest.split_once('.')?;
    Some(format!("{module}.{rest}"))
}

/// The suffix of a further stage of a cascade in the name of a module.
const STAGE: &str = "_stage";
