//! The config as users write it: files, overrides, mistakes, presets and its documentation.

mod documents;
mod limits;
mod loading;
mod mistakes;
mod presets;
