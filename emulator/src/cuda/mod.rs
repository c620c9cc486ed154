//! The driver's functions.
//!
//! One lock guards everything that the host can see (`state`). A worker of each context executes
//! what streams hold (`worker`). `capture` has the rules of captures, `report` gets the findings.

mod api;
mod capture;
mod edit;
mod errors;
mod graph;
mod models;
mod order;
mod plant;
mod report;
mod settings;
mod state;
mod work;
mod worker;
