//! The driver's functions.
//!
//! One lock guards all state visible to the host (`state`). Each context has a worker thread that
//! executes the work in its streams (`worker`). `capture` implements the rules of captures;
//! `report` writes findings.

mod api;
mod capture;
mod edit;
mod errors;
mod graph;
mod injection;
mod models;
mod order;
mod report;
mod settings;
mod state;
mod work;
mod worker;
