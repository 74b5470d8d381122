//! Look-up of credentials by their digests, whatever their kind, and the note that they were used.

use chrono::{DateTime, Utc};
use contract::Role;
use contract::identity::Quota;
use contract::internal::{Credential, Subject};
use database::{Database, Error};
use hashing::TokenDigest;
use tenancy::{KeyId, SessionId, TenantId, UserId};
use uuid::Uuid;

use super::api_key::scopes_of;
use super::session::method_from_str;

/// A credential that is live.
pub(crate) struct Live {
    /// Which of the digests that were asked it answers, from 1.
    pub(crate) place: i64,
    /// The last noted use.
    pub(crate) last_seen_at: Option<DateTime<Utc>>,
    pub(crate) subject: Subject,
}

/// The row of either kind; what only the other kind has is absent.
struct Row {
    place: i64,
    tenant_id: TenantId,
    created_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    last_seen_at: Option<DateTime<Utc>>,
    events_per_second: Option<i32>,
    bytes_per_second: Option<i32>,
    session_id: Option<SessionId>,
    user_id: Option<UserId>,
    role: Option<String>,
    method: Option<String>,
    idle_expires_at: Option<DateTime<Utc>>,
    key_id: Option<KeyId>,
    scopes: Option<Vec<String>>,
    source_ids: Option<Vec<String>>,
}

/// The live credentials behind these digests.
pub(crate) async fn introspect(
    database: &Database,
    digests: &[TokenDigest],
    now: DateTime<Utc>,
) -> Result<Vec<Live>, Error> {
    let digests: Vec<Vec<u8>> = digests.iter().map(|digest| digest.as_bytes().to_vec()).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"-- credential.introspect
        select
            place as "place!",
            tenant_id as "tenant_id!: TenantId",
            created_at as "created_at!",
            expires_at as "expires_at!",
            last_seen_at,
            events_per_second,
            bytes_per_second,
            session_id as "session_id: SessionId",
            user_id as "user_id: UserId",
            role,
            method,
            idle_expires_at,
            key_id as "key_id: KeyId",
            scopes,
            source_ids
        from session.introspect($1, $2)"#,
        &digests,
        now
    )
    .fetch_all(database.pool())
    .await?;
    Ok(rows.into_iter().filter_map(live).collect())
}

/// Notes that these credentials were used now; writes nothing when there are none.
pub(crate) async fn touch(
    database: &Database,
    used: &[&Credential],
    now: DateTime<Utc>,
) -> Result<(), Error> {
    let (mut sessions, mut keys) = (Vec::<Uuid>::new(), Vec::<Uuid>::new());
    for credential in used {
        match credential {
            Credential::Session { session_id, .. } => sessions.push(session_id.0),
            Credential::ApiKey { key_id, .. } => keys.push(key_id.0),
        }
    }
    if !sessions.is_empty() {
        sqlx::query!("select session.touch($1, $2)", &sessions, now).execute(database.pool()).await?;
    }
    if !keys.is_empty() {
        sqlx::query!("select session.touch_keys($1, $2)", &keys, now).execute(database.pool()).await?;
    }
    Ok(())
}

fn live(row: Row) -> Option<Live> {
    let (place, last_seen_at) = (row.place, row.last_seen_at);
    let quota = Quota {
        events_per_second: row.events_per_second.map(i32::cast_unsigned),
        bytes_per_second: row.bytes_per_second.map(i32::cast_unsigned),
    };
    let credential = match row.key_id {
        Some(key_id) => {
            Credential::ApiKey { key_id, scopes: scopes_of(&row.scopes?), source_ids: row.source_ids? }
        }
        None => Credential::Session {
            session_id: row.session_id?,
            user_id: row.user_id?,
            // A constraint of the table keeps unknown roles out; should one come all the same, it may do least.
            role: row.role?.parse().unwrap_or(Role::Member),
            method: method_from_str(&row.method?),
            created_at: row.created_at,
            idle_expires_at: row.idle_expires_at?,
        },
    };
    let subject = Subject { credential, tenant_id: row.tenant_id, quota, expires_at: row.expires_at };
    Some(Live { place, last_seen_at, subject })
}
