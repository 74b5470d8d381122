//! Lookup of sessions, API keys and producers by digest, and the times of their last use.

use std::collections::HashMap;
use std::mem::take;

use chrono::{DateTime, TimeDelta, Utc};
use contract::identity::Quota;
use contract::internal::{Credential, Subject};
use contract::managed::ServiceAccount;
use contract::session::{AuthMethod, SessionMethod};
use contract::{Role, Scope, TenantStatus, UserStatus};
use database::{Database, Error};
use hashing::TokenDigest;
use tenancy::{KeyId, SessionId, TenantId, UserId};
use uuid::Uuid;

use crate::domain::account_status::{AccountStatus, AccountVersions};
use crate::domain::api_key::KeyLifecycle;
use crate::domain::producer;
use crate::domain::session::{Session, SessionLifecycle, TOUCH_INTERVAL};

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
    Session {
        session: Session,
        account: AccountStatus,
    },
    ApiKey {
        key_id: KeyId,
        lifecycle: KeyLifecycle,
        tenant_status: TenantStatus,
        last_used_at: Option<DateTime<Utc>>,
    },
    Producer {
        tenant_status: TenantStatus,
    },
}

/// A session with the account of its user.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "session.found_session")]
struct FoundSession {
    session_id: SessionId,
    method: SessionMethod,
    amr: Vec<AuthMethod>,
    created_at: DateTime<Utc>,
    credential_version: i64,
    session_version: i64,
    last_seen_at: DateTime<Utc>,
    idle_seconds: i32,
    idle_expires_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    inactive_since: Option<DateTime<Utc>>,
    user_id: UserId,
    role: Role,
    user_status: UserStatus,
    user_credential_version: i64,
    kept_session_id: Option<SessionId>,
    has_factor: bool,
}

/// An API key.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "session.found_api_key")]
struct FoundApiKey {
    key_id: KeyId,
    scopes: Vec<Scope>,
    source_ids: Vec<String>,
    last_used_at: Option<DateTime<Utc>>,
    expires_at: DateTime<Utc>,
    revoked_at: Option<DateTime<Utc>>,
}

/// A producer.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "session.found_producer")]
struct FoundProducer {
    namespace: String,
    service_account: String,
    source_ids: Vec<String>,
}

/// Returns the credentials with these digests.
pub(crate) async fn find(
    database: &Database,
    digests: &[TokenDigest],
) -> Result<Vec<StoredCredential>, Error> {
    let digests: Vec<Vec<u8>> = digests.iter().map(|digest| digest.as_bytes().to_vec()).collect();
    let rows = sqlx::query!(
        r#"-- credential.find
        select
            "position" as "position!",
            tenant_id as "tenant_id!: TenantId",
            tenant_status as "tenant_status!: TenantStatus",
            tenant_session_version as "tenant_session_version!",
            events_per_second,
            bytes_per_second,
            session as "session: FoundSession",
            api_key as "api_key: FoundApiKey",
            producer as "producer: FoundProducer"
        from session.find_credentials($1)"#,
        &digests
    )
    .fetch_all(database.lookup_pool())
    .await?;
    rows.into_iter()
        .map(|row| {
            let status = row.tenant_status;
            let (credential, state, expires_at) = match (row.session, row.api_key, row.producer) {
                (Some(session), _, _) => session.decode(status, row.tenant_session_version),
                (_, Some(key), _) => key.decode(status),
                (_, _, Some(producer)) => producer.decode(status),
                _ => return Err(Error::corrupt("find_credentials", "a row without a credential")),
            };
            let quota = Quota {
                events_per_second: row.events_per_second.map(i32::cast_unsigned),
                bytes_per_second: row.bytes_per_second.map(i32::cast_unsigned),
            };
            let index = usize::try_from(row.position - 1);
            Ok(StoredCredential {
                index: index.map_err(|error| Error::corrupt("position", error))?,
                subject: Subject { credential, tenant_id: row.tenant_id, quota, expires_at },
                state,
            })
        })
        .collect()
}

/// A credential, the values that determine whether it is active, and the end of its lifetime.
type Decoded = (Credential, CredentialState, DateTime<Utc>);

impl FoundSession {
    fn decode(self, tenant_status: TenantStatus, tenant_session_version: i64) -> Decoded {
        let (session_id, user_id, role) = (self.session_id, self.user_id, self.role);
        let versions = |credential_version, session_version| AccountVersions {
            user_id,
            credential_version,
            session_version,
        };
        let session = Session {
            id: session_id,
            created_under: versions(self.credential_version, self.session_version),
            lifecycle: SessionLifecycle {
                last_seen_at: self.last_seen_at,
                idle_timeout: TimeDelta::seconds(self.idle_seconds.into()),
                idle_expires_at: self.idle_expires_at,
                expires_at: self.expires_at,
                inactive_since: self.inactive_since,
            },
        };
        let account = AccountStatus {
            versions: versions(self.user_credential_version, tenant_session_version),
            role,
            user_status: self.user_status,
            tenant_status,
            kept_session_id: self.kept_session_id,
            // Without the rule of the tenant: an introspection creates no session.
            needs_factor: self.has_factor,
        };
        let credential = Credential::Session {
            session_id,
            user_id,
            role,
            method: self.method,
            amr: self.amr,
            has_factor: self.has_factor,
            created_at: self.created_at,
            idle_expires_at: self.idle_expires_at,
        };
        (credential, CredentialState::Session { session, account }, self.expires_at)
    }
}

impl FoundApiKey {
    fn decode(self, tenant_status: TenantStatus) -> Decoded {
        let Self { key_id, scopes, source_ids, last_used_at, expires_at, revoked_at } = self;
        let lifecycle = KeyLifecycle { expires_at, revoked_at };
        let credential = Credential::ApiKey { key_id, scopes, source_ids };
        let state = CredentialState::ApiKey { key_id, lifecycle, tenant_status, last_used_at };
        (credential, state, expires_at)
    }
}

impl FoundProducer {
    fn decode(self, tenant_status: TenantStatus) -> Decoded {
        let service_account = ServiceAccount { namespace: self.namespace, name: self.service_account };
        let credential = Credential::ServiceAccount { service_account, source_ids: self.source_ids };
        (credential, CredentialState::Producer { tenant_status }, producer::EXPIRES_AT)
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
            select session.save_uses($1, $2, $3, $4) as "locked!""#,
            &chunk.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            &chunk.iter().map(|(_, it)| it.used_at).collect::<Vec<_>>(),
            &chunk.iter().map(|(_, it)| it.idle_expires_at).collect::<Vec<_>>() as &[Option<DateTime<Utc>>],
            TOUCH_INTERVAL as _
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
