//! The Kubernetes operator: tenants, producers and consumers of events as Kubernetes resources.
//!
//! It watches the resources, reads the stored tenants from identity, the producers from session and the consumers from ingest, and writes
//! what differs. They list only what this operator manages, so that the resources of other clusters remain. [`plan`] decides what to write,
//! without input or output. [`controller`] executes the plan of the replica that holds the lease, and [`memory`] has what it knows between
//! two plans.

mod command;
mod controller;
mod failure;
mod guard;
mod kubernetes;
mod lease;
mod login_secret;
mod memory;
mod metrics;
mod plan;
pub mod resources;
mod services;
mod status;
mod wiring;

pub use wiring::Operator;

#[cfg(test)]
mod tests;
