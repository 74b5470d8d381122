//! Lookup of sessions, API keys and producers by digest, and the times of their last use.

use std::collections::HashMap;
use std::mem::take;

use chrono::{DateTime, TimeDelta, Utc};
use contract::identity::Quota;
use contract::internal::{Credential, Subject};
use contract::managed::ServiceAccount;
use contract::{Role, TenantStatus, UserStatus};
use database::{Database, Error};
use hashing::TokenDigest;
use sqlx::types::Text;
use tenancy::{KeyId, SessionId, TenantId, UserId};
use uuid::Uuid;

use super::api_key::parse_scopes;
use super::required;
use super::session::parse_method;
use crate::domain::account_status::{AccountStatus, AccountVersions};
use crate::domain::api_key::KeyLifecycle;
use crate::domain::session::{Session, SessionLifecycle};

/// Maximum number of uses in a statement. Requests that revoke one of the credentials wait for it.
const USES_PER_STATEMENT: usize = 1000;

/// A stored credential, in any state.
pub(crate) struct StoredCredential {
    /// The index of its digest in the request.
    pub(crate) index: usize,
    pub(crate) subject: Subject,
    pub(crate) state: CredentialState,
}

/// The values that determine whether a credential is active.
pub(crate) enum CredentialState {
    Session { session: Session, account: AccountStatus },
    ApiKey { key_id: KeyId, lifecycle: KeyLifecycle, last_used_at: Option<DateTime<Utc>> },
    Producer { tenant_status: TenantStatus },
}

/// A row of `session.find_credentials`. Columns of other kinds of credentials are null.
struct Row {
    position: i64,
    tenant_id: TenantId,
    tenant_status: Text<TenantStatus>,
    tenant_session_version: i64,
    events_per_second: Option<i32>,
    bytes_per_second: Option<i32>,
    created_at: DateTime<Utc>,
    last_used_at: Option<DateTime<Utc>>,
    expires_at: DateTime<Utc>,
    revoked_at: Option<DateTime<Utc>>,
    session_id: Option<SessionId>,
    user_id: Option<UserId>,
    role: Option<Text<Role>>,
    user_status: Option<Text<UserStatus>>,
    user_credential_version: Option<i64>,
    kept_session_id: Option<SessionId>,
    method: Option<String>,
    credential_version: Option<i64>,
    session_version: Option<i64>,
    idle_seconds: Option<i32>,
    idle_expires_at: Option<DateTime<Utc>>,
    key_id: Option<KeyId>,
    scopes: Option<Vec<String>>,
    source_ids: Option<Vec<String>>,
    namespace: Option<String>,
    service_account: Option<String>,
}

/// Returns the credentials with these digests.
pub(crate) async fn find(
    database: &Database,
    digests: &[TokenDigest],
) -> Result<Vec<StoredCredential>, Error> {
    let digests: Vec<Vec<u8>> = digests.iter().map(|digest| digest.as_bytes().to_vec()).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"-- credential.find
        select
            "position" as "position!",
            tenant_id as "tenant_id!: TenantId",
            tenant_status as "tenant_status!: Text<TenantStatus>",
            tenant_session_version as "tenant_session_version!",
            events_per_second,
            bytes_per_second,
            created_at as "created_at!",
            last_used_at,
            expires_at as "expires_at!",
            revoked_at,
            session_id as "session_id: SessionId",
            user_id as "user_id: UserId",
            role as "role: Text<Role>",
            user_status as "user_status: Text<UserStatus>",
            user_credential_version,
            kept_session_id as "kept_session_id: SessionId",
            method,
            credential_version,
            session_version,
            idle_seconds,
            idle_expires_at,
            key_id as "key_id: KeyId",
            scopes,
            source_ids,
            namespace,
            service_account
        from session.find_credentials($1)"#,
        &digests
    )
    .fetch_all(database.lookup_pool())
    .await?;
    rows.into_iter().map(Row::decode).collect()
}

impl Row {
    fn decode(self) -> Result<StoredCredential, Error> {
        let index = usize::try_from(self.position - 1).map_err(|error| Error::corrupt("position", error))?;
        let quota = Quota {
            events_per_second: self.events_per_second.map(i32::cast_unsigned),
            bytes_per_second: self.bytes_per_second.map(i32::cast_unsigned),
        };
        let (tenant_id, expires_at) = (self.tenant_id.clone(), self.expires_at);
        let (credential, state) = match (self.key_id, self.namespace.is_some()) {
            (Some(key_id), _) => self.decode_key(key_id)?,
            (None, true) => self.decode_producer()?,
            (None, false) => self.decode_session()?,
        };
        let subject = Subject { credential, tenant_id, quota, expires_at };
        Ok(StoredCredential { index, subject, state })
    }

    fn decode_session(self) -> Result<(Credential, CredentialState), Error> {
        let session_id = required("session_id", self.session_id)?;
        let user_id = required("user_id", self.user_id)?;
        let role = required("role", self.role)?.0;
        let idle_expires_at = required("idle_expires_at", self.idle_expires_at)?;
        let versions = |credential_version: Option<i64>, session_version: Option<i64>| {
            Ok::<_, Error>(AccountVersions {
                user_id,
                credential_version: required("credential_version", credential_version)?,
                session_version: required("session_version", session_version)?,
            })
        };
        let session = Session {
            id: session_id,
            created_under: versions(self.credential_version, self.session_version)?,
            lifecycle: SessionLifecycle {
                last_seen_at: required("last_used_at", self.last_used_at)?,
                idle_timeout: TimeDelta::seconds(required("idle_seconds", self.idle_seconds)?.into()),
                idle_expires_at,
                expires_at: self.expires_at,
                revoked_at: self.revoked_at,
            },
        };
        let account = AccountStatus {
            versions: versions(self.user_credential_version, Some(self.tenant_session_version))?,
            role,
            user_status: required("user_status", self.user_status)?.0,
            tenant_status: self.tenant_status.0,
            kept_session_id: self.kept_session_id,
        };
        let credential = Credential::Session {
            session_id,
            user_id,
            role,
            method: parse_method(&required("method", self.method)?)?,
            created_at: self.created_at,
            idle_expires_at,
        };
        Ok((credential, CredentialState::Session { session, account }))
    }

    fn decode_key(self, key_id: KeyId) -> Result<(Credential, CredentialState), Error> {
        let scopes = parse_scopes(&required("scopes", self.scopes)?)?;
        let source_ids = required("source_ids", self.source_ids)?;
        let lifecycle = KeyLifecycle {
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
            tenant_status: self.tenant_status.0,
        };
        let state = CredentialState::ApiKey { key_id, lifecycle, last_used_at: self.last_used_at };
        Ok((Credential::ApiKey { key_id, scopes, source_ids }, state))
    }

    fn decode_producer(self) -> Result<(Credential, CredentialState), Error> {
        let service_account = ServiceAccount {
            namespace: required("namespace", self.namespace)?,
            name: required("service_account", self.service_account)?,
        };
        let source_ids = required("source_ids", self.source_ids)?;
        let state = CredentialState::Producer { tenant_status: self.tenant_status.0 };
        Ok((Credential::ServiceAccount { service_account, source_ids }, state))
    }
}

/// A use of a session or an API key.
#[derive(Clone, Copy)]
pub(crate) struct Use {
    pub(crate) used_at: DateTime<Utc>,
    /// The new end of the idle timeout of a session.
    pub(crate) idle_expires_at: Option<DateTime<Utc>>,
}

/// Uses by the id of the session or API key.
pub(crate) type Uses = HashMap<Uuid, Use>;

/// Saves uses. Those of rows that another transaction has locked remain in `uses`, and after an error those of the failed statements.
pub(crate) async fn save_uses(database: &Database, uses: &mut Uses) -> Result<(), Error> {
    let (all, mut result): (Vec<_>, _) = (take(uses).into_iter().collect(), Ok(()));
    for chunk in all.chunks(USES_PER_STATEMENT) {
        let locked = sqlx::query_scalar!(
            r#"-- credential.save_uses
            select session.save_uses($1, $2, $3) as "locked!""#,
            &chunk.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            &chunk.iter().map(|(_, it)| it.used_at).collect::<Vec<_>>(),
            &chunk.iter().map(|(_, it)| it.idle_expires_at).collect::<Vec<_>>() as &[Option<DateTime<Utc>>]
        );
        match locked.fetch_one(database.pool()).await {
            Ok(locked) => uses.extend(chunk.iter().filter(|(id, _)| locked.contains(id)).copied()),
            Err(error) => {
                uses.extend(chunk.iter().copied());
                result = Err(error.into());
            }
        }
    }
    result
}
