//! Audit events: changes of tenants, users and credentials.
//!
//! An event is an outbox message in the transaction of the change: a change that is rolled back leaves no event, and the
//! event of a committed change is published at least once. A relay publishes the messages to the stream `AUDIT`
//! (`audit.v1.<tenant>.<context>.<event>`), which drops duplicates. Event names follow the OWASP Logging Vocabulary.

mod event;
mod log;

pub use event::{AuditEvent, EventName};
pub use log::{AUDIT_PERSONAL, AuditLog, InvalidPiiPolicy, PiiPolicy, publish};
pub use tenancy::Actor;
