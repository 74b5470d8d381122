//! Audit events: changes of tenants, users and credentials.
//!
//! An event is an outbox message in the transaction of the change: a change that is rolled back leaves no event, and the
//! event of a committed change is published at least once. A relay publishes the messages to the stream `AUDIT`
//! (`audit.v1.<tenant>.<context>.<event>`), which drops duplicates. Events of tenants that do not exist are published to the
//! stream `AUDIT_ANONYMOUS`. Event names follow the OWASP Logging Vocabulary.
//!
//! No tenant can harm the audit of another: repeated failures are one record per minute, one tenant can fill at most a quarter
//! of `AUDIT`, and its further events wait in the outbox without delaying those of other tenants. Failures of unauthenticated clients
//! fill at most half of the share of their tenant.

mod publication;
mod streams;

pub use database::audit::{
    AUDIT_PERSONAL, AuditEvent, EventName, FailedAttempt, InvalidPiiPolicy, PiiPolicy,
};
pub use publication::{AuditStream, Publication};
pub use streams::AuditStreamSettings;
pub use tenancy::Actor;
