//! Audit events: what happened to tenants, people and credentials.
//!
//! An event is an outbox row in the transaction that it tells of: what did not happen is never told, and what happened is
//! told at least once. A relay publishes the rows to the stream `AUDIT` (`audit.v1.<tenant>.<context>.<event>`), which
//! drops what it holds already. The names are those of OWASP's Logging Vocabulary.

mod event;
mod personal;
mod publish;
mod record;

pub use event::{Actor, AuditEvent, EventName};
pub use personal::{AUDIT_PERSONAL, PiiPolicy};
pub use publish::publish;
pub use record::{AUDIT, AuditLog};
