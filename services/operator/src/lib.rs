//! The Kubernetes operator: tenants and producers of events as Kubernetes resources.
//!
//! It watches the resources, reads the stored tenants from identity and the stored producers from session, and writes what differs.
//! [`plan`] decides what to write, without input or output. [`controller`] executes the plan of the replica that holds the lease.

mod command;
mod controller;
mod kubernetes;
mod lease;
mod metrics;
mod plan;
pub mod resources;
mod services;
mod status;
mod wiring;

pub use wiring::Operator;

#[cfg(test)]
mod tests;
