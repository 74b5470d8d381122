//! The use cases, one file each.

pub(crate) mod create_api_key;
pub(crate) mod decide_device_grant;
pub(crate) mod introspect;
pub(crate) mod issue_session;
pub(crate) mod list_api_keys;
pub(crate) mod list_sessions;
mod make_session;
pub(crate) mod redeem_device_grant;
pub(crate) mod revoke_api_key;
pub(crate) mod revoke_session;
pub(crate) mod start_device_grant;
pub(crate) mod take_standing;

use std::sync::Arc;

use audit::AuditLog;
use authn::{CredentialVerifier, IntrospectionBatcher, ServiceSecret};
use axum::extract::FromRef;
use bus::InvalidationPublisher;
use database::Database;
use hashing::Entropy;
use ratelimit::Limiter;
use service::Clock;

use crate::config::Limits;
use crate::domain::session::Lifetimes;

/// What every use case works with.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) database: Database,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) service_secret: ServiceSecret,
    pub(crate) audit: AuditLog,
    pub(crate) limiter: Limiter,
    pub(crate) limits: Limits,
    pub(crate) introspection: IntrospectionBatcher,
    pub(crate) invalidations: InvalidationPublisher,
    /// The origin that people see, without a slash at its end.
    pub(crate) public_url: Arc<str>,
}

impl FromRef<App> for Arc<dyn CredentialVerifier> {
    fn from_ref(app: &App) -> Self {
        Arc::new(app.introspection.clone())
    }
}

impl FromRef<App> for ServiceSecret {
    fn from_ref(app: &App) -> Self {
        app.service_secret.clone()
    }
}
