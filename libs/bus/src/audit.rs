//! Reads stored audit events, one at a time. They are in another account than the user that reads them, which imports this request only
//! (`deploy/nats/accounts.conf`).

use async_nats::jetstream::{self, Context};
use bytes::Bytes;
use tenancy::TenantId;

use crate::reader::ReadError;
use crate::stored::{Place, ReadFrom, first_message};
use crate::subject::{AuditSubject, InvalidSubject};
use crate::{AUDIT_STREAM, Connection};

/// Prefix of the imported request, in place of `$JS.API`.
const AUDIT_API_PREFIX: &str = "AUDIT.API";

/// Reads audit events. Clones share the connection.
#[derive(Clone)]
pub struct AuditReader(Connection);

/// The audit events to read.
#[derive(Clone, Debug)]
pub struct AuditFilter {
    tenant: Option<TenantId>,
    subjects: String,
}

/// A stored audit event. Its subject matches the filter of the read.
#[derive(Clone, Debug)]
pub struct StoredAudit {
    /// Its place in the stream.
    pub place: Place,
    /// The event as JSON.
    pub payload: Bytes,
}

impl AuditFilter {
    /// Selects the events of one tenant or of all tenants, with one name or any.
    ///
    /// # Errors
    /// The name does not have the form of one.
    pub fn new(tenant: Option<TenantId>, event: Option<&str>) -> Result<Self, InvalidSubject> {
        let subjects = AuditSubject::filter(tenant.as_ref(), event)?;
        Ok(Self { tenant, subjects })
    }

    fn selects(&self, subject: &str) -> bool {
        // The broker applied the filter. This check does not depend on it.
        subject.parse::<AuditSubject>().is_ok_and(|subject| {
            subject.tenant().is_some() && (self.tenant.is_none() || self.tenant.as_ref() == subject.tenant())
        })
    }
}

impl AuditReader {
    /// Uses the connection.
    pub fn new(connection: Connection) -> Self {
        Self(connection)
    }

    fn context(&self) -> Result<Context, ReadError> {
        let client = self.0.connected().map_err(ReadError::because)?.clone();
        Ok(jetstream::with_prefix(client, AUDIT_API_PREFIX))
    }

    /// Returns whether the stream was restored to a time before this place.
    ///
    /// # Errors
    /// The broker is not available, or the stream does not exist.
    pub async fn is_replaced(&self, place: Place) -> Result<bool, ReadError> {
        place.is_replaced(&self.context()?, AUDIT_STREAM).await.map_err(ReadError::because)
    }

    /// Returns the first audit event of the filter.
    ///
    /// # Errors
    /// The broker is not available, or the stream does not exist.
    pub async fn first(
        &self,
        filter: &AuditFilter,
        mut from: ReadFrom,
    ) -> Result<Option<StoredAudit>, ReadError> {
        let context = self.context()?;
        loop {
            let found = first_message(&context, AUDIT_STREAM, &filter.subjects, from).await;
            let Some(message) = found.map_err(ReadError::because)? else { return Ok(None) };
            from = ReadFrom::Sequence(message.sequence + 1);
            if filter.selects(&message.subject) {
                let place = Place::new(message.sequence, message.time);
                return Ok(Some(StoredAudit { place, payload: message.payload }));
            }
        }
    }
}
