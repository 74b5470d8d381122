//! API keys. Only the digest of a key is stored.

use chrono::{DateTime, Utc};
use contract::Scope;
use contract::session::ApiKey;
use database::{Error, TenantTx};
use hashing::TokenDigest;
use tenancy::{KeyId, UserId};

use crate::domain::account_status::AccountVersions;
use crate::domain::api_key::NewApiKey;

/// Inserts a key of a creator.
pub(crate) async fn insert(
    tx: &mut TenantTx,
    key_id: KeyId,
    digest: TokenDigest,
    key: &NewApiKey,
    creator: &AccountVersions,
) -> Result<(), Error> {
    let scopes: Vec<String> = key.scopes.iter().map(ToString::to_string).collect();
    let statement = sqlx::query!(
        "-- api_key.insert
        insert into session.api_keys
            (
                key_id, tenant_id, name, digest, scopes, source_ids, created_by, credential_version, created_at,
                expires_at
            )
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        key_id.0,
        tx.tenant_id().as_str(),
        key.name,
        digest.as_bytes(),
        &scopes,
        &key.source_ids,
        creator.user_id.0,
        creator.credential_version,
        tx.now(),
        key.expires_at,
    );
    tx.execute(statement).await.map(drop)
}

/// A key as the API shows it.
struct KeyRow {
    key_id: KeyId,
    name: String,
    scopes: Vec<Scope>,
    source_ids: Vec<String>,
    created_by: UserId,
    created_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    last_used_at: Option<DateTime<Utc>>,
}

impl From<KeyRow> for ApiKey {
    fn from(row: KeyRow) -> Self {
        Self {
            id: row.key_id,
            name: row.name,
            scopes: row.scopes,
            source_ids: row.source_ids,
            created_by: row.created_by,
            created_at: row.created_at,
            expires_at: row.expires_at,
            last_used_at: row.last_used_at,
            key: None,
        }
    }
}

/// Selects keys: the span name of the statement, its end, and the parameters.
macro_rules! select_keys {
    ($name:literal, $end:literal, $($parameter:expr),+ $(,)?) => {
        sqlx::query_as!(
            KeyRow,
            "-- " + $name + r#"
            select
                key_id as "key_id: KeyId", name, scopes as "scopes: Vec<Scope>", source_ids, created_by as "created_by: UserId",
                created_at, expires_at, last_used_at
            from session.api_keys "# + $end,
            $($parameter),+
        )
    };
}

/// Returns the stored keys that a user created, in any state, oldest first.
pub(crate) async fn list_created_by(
    tx: &mut TenantTx,
    user_id: UserId,
    limit: i64,
) -> Result<Vec<ApiKey>, Error> {
    let rows = select_keys!(
        "api_key.list_created_by",
        "where created_by = $1
        order by key_id
        limit $2",
        user_id.0,
        limit
    );
    Ok(rows.fetch_all(tx.connection()).await?.into_iter().map(From::from).collect())
}

/// Returns the tenant's valid keys after a given one, oldest first.
pub(crate) async fn list(tx: &mut TenantTx, after: Option<KeyId>, limit: i64) -> Result<Vec<ApiKey>, Error> {
    let rows = select_keys!(
        "api_key.list",
        "where ($1::uuid is null or key_id > $1)
            and valid_until > $3
        order by key_id
        limit $2",
        after.map(|id| id.0),
        limit,
        tx.now()
    );
    Ok(rows.fetch_all(tx.connection()).await?.into_iter().map(From::from).collect())
}

/// Returns the number of valid keys of the tenant.
pub(crate) async fn count_valid(tx: &mut TenantTx) -> Result<i64, Error> {
    let valid = sqlx::query_scalar!(
        r#"-- api_key.count_valid
        select count(*) as "valid!"
        from session.api_keys
        where valid_until > $1"#,
        tx.now()
    )
    .fetch_one(tx.connection())
    .await?;
    Ok(valid)
}

/// The result of a revocation.
pub(crate) struct RevokedKey {
    /// Whether the key was not revoked before.
    pub(crate) newly: bool,
    /// The digest of the key.
    pub(crate) digest: TokenDigest,
}

/// Revokes a key. Returns `None` if the tenant has no such key.
pub(crate) async fn mark_revoked(tx: &mut TenantTx, key_id: KeyId) -> Result<Option<RevokedKey>, Error> {
    let key = sqlx::query!(
        r#"-- api_key.mark_revoked
        update session.api_keys
        set revoked_at = coalesce(revoked_at, $2)
        where key_id = $1
        returning revoked_at = $2 as "newly!", digest as "digest: TokenDigest""#,
        key_id.0,
        tx.now()
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(key.map(|key| RevokedKey { newly: key.newly, digest: key.digest }))
}

/// Revokes the valid keys that a user created under a lower credential version. Returns their ids and digests.
pub(crate) async fn mark_revoked_before(
    tx: &mut TenantTx,
    created_by: UserId,
    credential_version: i64,
) -> Result<Vec<(KeyId, TokenDigest)>, Error> {
    let keys = sqlx::query!(
        r#"-- api_key.mark_revoked_before
        update session.api_keys
        set revoked_at = $3
        where created_by = $1 and credential_version < $2 and valid_until > $3
        returning key_id as "key_id: KeyId", digest as "digest: TokenDigest""#,
        created_by.0,
        credential_version,
        tx.now()
    )
    .fetch_all(tx.connection())
    .await?;
    Ok(keys.into_iter().map(|key| (key.key_id, key.digest)).collect())
}

/// Revokes valid keys of the tenant that were created before a time, at most `limit`. Returns their ids.
pub(crate) async fn mark_created_before_revoked(
    tx: &mut TenantTx,
    time: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<KeyId>, Error> {
    let ids = sqlx::query_scalar!(
        r#"-- api_key.mark_created_before_revoked
        update session.api_keys
        set revoked_at = $2
        where key_id in (
            select key_id from session.api_keys
            where created_at < $1 and valid_until > $2
            limit $3
        )
        returning key_id as "key_id: KeyId""#,
        time,
        tx.now(),
        limit
    )
    .fetch_all(tx.connection())
    .await?;
    Ok(ids)
}
