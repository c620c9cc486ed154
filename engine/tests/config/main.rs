//! Tests of the config: files, overrides, mistakes, limits, presets and documentation.

mod documents;
mod limits;
mod loading;
mod mistakes;
mod presets;
