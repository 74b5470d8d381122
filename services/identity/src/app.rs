//! The use cases, one file each.

pub(crate) mod accept_invite;
pub(crate) mod accept_password;
pub(crate) mod attempt;
pub(crate) mod change_password;
pub(crate) mod create_tenant;
pub(crate) mod invite_user;
pub(crate) mod log_in;
pub(crate) mod mail_invite;
pub(crate) mod mail_notice;
pub(crate) mod manage_invites;
pub(crate) mod manage_users;
pub(crate) mod patch_tenant;
pub(crate) mod read;
pub(crate) mod reset_password;
pub(crate) mod standing;

use std::sync::Arc;

use audit::AuditLog;
use authn::{CredentialVerifier, PlatformSecret, SessionClient};
use axum::extract::FromRef;
use chrono::TimeDelta;
use database::Database;
use hashing::{Entropy, HashPool};
use prometheus_client::metrics::counter::Counter;
use ratelimit::Limiter;
use service::{Clock, Tasks};

use crate::breach_set::BreachSet;
use crate::config::Limits;
use crate::domain::attempt::LimiterKeys;
use crate::domain::password::PasswordPolicy;

/// What every use case works with. Clones share everything.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) database: Database,
    pub(crate) sessions: SessionClient,
    pub(crate) hashes: Arc<HashPool>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) tasks: Tasks,
    pub(crate) policy: PasswordPolicy,
    pub(crate) breach_set: Option<Arc<BreachSet>>,
    pub(crate) invite_ttl: TimeDelta,
    pub(crate) reset_ttl: TimeDelta,
    pub(crate) can_mail: bool,
    pub(crate) platform_secret: PlatformSecret,
    pub(crate) audit: AuditLog,
    pub(crate) limiter: Limiter,
    pub(crate) limiter_keys: LimiterKeys,
    pub(crate) limits: Limits,
    /// Requests of a reset that came to nothing. One number: a label would tell what the answers do not.
    pub(crate) resets_dropped: Counter,
}

impl FromRef<App> for Arc<dyn CredentialVerifier> {
    fn from_ref(app: &App) -> Self {
        Arc::new(app.sessions.clone())
    }
}

impl FromRef<App> for PlatformSecret {
    fn from_ref(app: &App) -> Self {
        app.platform_secret.clone()
    }
}
