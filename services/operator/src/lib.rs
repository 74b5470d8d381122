//! The Kubernetes operator: tenants and producers of events as Kubernetes resources.
//!
//! It watches the resources, reads the stored tenants from identity and the stored producers from session, and writes what differs. Both
//! list only what this operator manages, so that the resources of other clusters remain. [`plan`] decides what to write, without input or
//! output. [`controller`] executes the plan of the replica that holds the lease, and [`memory`] has what it knows between two plans.

mod command;
mod controller;
mod failure;
mod guard;
mod kubernetes;
mod lease;
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
