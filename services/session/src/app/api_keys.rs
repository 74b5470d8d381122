//! API keys: create, list, revoke. The caller is an administrator of the tenant. The platform administrator can list and revoke keys. The
//! handlers check this.

use std::num::NonZeroU32;
use std::time::Duration;

use audit::{Actor, AuditEvent, EventName};
use authn::Caller;
use bus::Invalidation;
use contract::internal::{ApiKeyNotice, SubjectRecord};
use contract::session::{ApiKey, CreateApiKey};
use contract::{Page, ProblemKind, Secret};
use database::TenantTx;
use hashing::{RawToken, TokenKind};
use ratelimit::{Limit, Rate, Source};
use service::Problem;
use service::http::Paging;
use tenancy::{KeyId, TenantId};

use super::App;
use super::sessions::{lock_session, require_session};
use crate::domain::api_key::{InvalidApiKey, NewApiKey};
use crate::message::Message;
use crate::store::{account_status, api_key};

/// The maximum number of active keys of a tenant. It is far above the number of programs of a tenant.
const MAX_KEYS: i64 = 1000;
/// Keys that a tenant can create, also if it revokes them: a revoked key keeps its row for a day. Identity also stores a report of each.
const KEYS_OF_TENANT: Limit = Limit {
    name: "api_keys_of_tenant",
    rate: Some(Rate::new(NonZeroU32::new(1000).unwrap(), Duration::from_mins(1))),
};

impl From<InvalidApiKey> for Problem {
    fn from(error: InvalidApiKey) -> Self {
        Self::new(ProblemKind::ValidationFailed).field(error.pointer, "invalid", error.message)
    }
}

impl App {
    /// Creates a key. The returned key is the only one that contains the secret.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn create_api_key(
        &self,
        admin: &Caller,
        request: CreateApiKey,
    ) -> Result<ApiKey, Problem> {
        let (user_id, session_id) = require_session(admin)?;
        let mut tx = self.begin(admin.tenant_id(), admin.into()).await?;
        let key = NewApiKey::validate(request, tx.now())?;
        let (id, token) = (KeyId::generate(), RawToken::generate(TokenKind::ApiKey, &*self.entropy));
        // Locks the tenant, so that concurrent requests cannot exceed the maximum. Before the user's row, in the order of a
        // login.
        account_status::lock_tenant(&mut tx).await?;
        // A reset that revokes the user's keys at the same time either finds this key or has revoked the session.
        let creator = lock_session(&mut tx, user_id, session_id).await?;
        if api_key::count_valid(&mut tx).await? >= MAX_KEYS {
            return Err(Problem::new(ProblemKind::TooManyApiKeys).detail(format!(
                "The tenant has {MAX_KEYS} active API keys. Revoke a key, or wait until one expires."
            )));
        }
        let tenant = Source::from(tx.tenant_id().as_str());
        self.limiter.count_in(tx.connection(), &KEYS_OF_TENANT, &tenant).await?;
        api_key::insert(&mut tx, id, token.digest(), &key, &creator.versions).await?;
        let event = AuditEvent::new(EventName::AuthnTokenCreated).about("api_key").key(id);
        tx.audit(event.credential(&token.digest()));
        let created_at = tx.now();
        let notice = ApiKeyNotice {
            key_id: id,
            tenant_id: tx.tenant_id().clone(),
            name: key.name.clone(),
            scopes: key.scopes.clone(),
            created_by: user_id,
            created_at,
            expires_at: key.expires_at,
        };
        tx.send(&Message::ReportApiKey { notice });
        tx.commit().await?;
        Ok(ApiKey {
            id,
            name: key.name,
            scopes: key.scopes,
            source_ids: key.source_ids,
            created_by: user_id,
            created_at,
            expires_at: key.expires_at,
            last_used_at: None,
            key: Some(Secret::new(token.expose())),
        })
    }

    /// Returns a page of the active keys.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn list_api_keys(
        &self,
        tenant_id: &TenantId,
        paging: &Paging<KeyId>,
    ) -> Result<Page<ApiKey>, Problem> {
        let mut tx = self.begin(tenant_id, Actor::Anonymous).await?;
        let keys = api_key::list(&mut tx, paging.after, paging.rows()).await?;
        // The platform administrator can name a tenant that does not exist. A tenant without any login has no keys either.
        if keys.is_empty() && !account_status::has_tenant(&mut tx).await? {
            return Err(ProblemKind::NotFound.into());
        }
        Ok(paging.page(keys, |key| key.id))
    }

    /// Revokes a key. Repeating it has no effect.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn revoke_api_key(
        &self,
        tenant_id: &TenantId,
        actor: Actor,
        key_id: KeyId,
    ) -> Result<(), Problem> {
        let mut tx = self.begin(tenant_id, actor).await?;
        let key = api_key::mark_revoked(&mut tx, key_id).await?.ok_or(ProblemKind::NotFound)?;
        if key.newly {
            tx.audit(revoked(key_id));
        }
        self.invalidate(&mut tx, Invalidation::Credential(key.digest));
        Ok(tx.commit().await?)
    }

    /// Revokes the keys that a user created before the change of the account that revokes them: a password reset, or a change by
    /// an administrator. identity records who made the change.
    pub(super) async fn revoke_api_keys_of(
        &self,
        tx: &mut TenantTx,
        record: &SubjectRecord,
    ) -> Result<(), database::Error> {
        let user_id = record.user_id;
        for (key_id, digest) in api_key::mark_revoked_before(tx, user_id, record.api_key_version).await? {
            tx.audit(revoked(key_id).by(Actor::System));
            self.invalidate(tx, Invalidation::Credential(digest));
        }
        Ok(())
    }
}

/// The audit event of a revoked key.
pub(crate) fn revoked(key_id: KeyId) -> AuditEvent {
    AuditEvent::new(EventName::AuthnTokenRevoked).about("api_key").key(key_id).always_recorded()
}
