//! Create an API key.

use audit::{Actor, AuditEvent, EventName};
use authn::Caller;
use contract::api_key::{ApiKey, CreateApiKey};
use contract::{ProblemKind, Secret};
use hashing::{RawToken, TokenKind};
use service::Problem;
use tenancy::KeyId;

use super::App;
use crate::domain::api_key::{InvalidApiKey, NewApiKey};
use crate::store::{api_key, standing};

/// So many keys a tenant may have that live: far more than programs, and a bound to what one tenant makes everybody store.
const MOST_KEYS: i64 = 1000;

/// Why no key was created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateApiKeyError {
    #[error(transparent)]
    Invalid(#[from] InvalidApiKey),
    #[error("the tenant has {MOST_KEYS} API keys that live")]
    TooMany,
    #[error(transparent)]
    Database(#[from] database::Error),
}

impl From<CreateApiKeyError> for Problem {
    fn from(error: CreateApiKeyError) -> Self {
        match error {
            CreateApiKeyError::Invalid(fault) => {
                let pointer = match fault {
                    InvalidApiKey::Name => "/name",
                    InvalidApiKey::Scopes => "/scopes",
                    InvalidApiKey::SourceIds => "/source_ids",
                    InvalidApiKey::ExpiresAt => "/expires_at",
                };
                Self::new(ProblemKind::ValidationFailed).field(pointer, "invalid", fault.to_string())
            }
            CreateApiKeyError::TooMany => Self::new(ProblemKind::TooManyApiKeys)
                .detail(format!("{error}; revoke one, or let it run out.")),
            CreateApiKeyError::Database(error) => error.into(),
        }
    }
}

impl App {
    /// For the administrator's tenant. The answer holds the key itself, and nothing ever will again.
    pub(crate) async fn create_api_key(
        &self,
        admin: &Caller,
        request: CreateApiKey,
    ) -> Result<ApiKey, CreateApiKeyError> {
        let now = self.clock.now();
        let key = NewApiKey::check(request, now)?;
        let (id, token) = (KeyId::generate(), RawToken::generate(TokenKind::ApiKey, &*self.entropy));
        let mut tx = self.database.tenant(&admin.scope()).await?;
        // The tenant's row first, so that keys made at once are counted one after the other.
        standing::lock_tenant(&mut tx, admin.tenant_id()).await?;
        if api_key::count_live(&mut tx, now).await? >= MOST_KEYS {
            return Err(CreateApiKeyError::TooMany);
        }
        api_key::insert(&mut tx, admin.tenant_id(), id, token.digest(), &key, now).await?;
        let created = AuditEvent {
            about: Some("api_key"),
            key_id: Some(id),
            ..AuditEvent::new(EventName::AuthnTokenCreated, Actor::from(admin)).credential(&token.digest())
        };
        self.audit.record_at(&mut tx, admin.tenant_id(), created, now).await?;
        tx.commit().await?;
        Ok(ApiKey {
            id,
            name: key.name,
            scopes: key.scopes,
            source_ids: key.source_ids,
            created_at: now,
            expires_at: key.expires_at,
            last_used_at: None,
            key: Some(Secret::new(token.expose())),
        })
    }
}
