//! API keys. Only the digest of a key is ever written.

use chrono::{DateTime, Utc};
use contract::Scope;
use contract::api_key::ApiKey;
use database::{Database, Error, TenantTx};
use hashing::TokenDigest;
use tenancy::{KeyId, TenantId};

use crate::domain::api_key::NewApiKey;

/// Writes a new key.
pub(crate) async fn insert(
    tx: &mut TenantTx,
    tenant_id: &TenantId,
    key_id: KeyId,
    digest: TokenDigest,
    key: &NewApiKey,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    let scopes: Vec<String> = key.scopes.iter().map(ToString::to_string).collect();
    sqlx::query!(
        "-- api_key.insert
        insert into session.api_keys
            (key_id, tenant_id, name, digest, scopes, source_ids, created_at, expires_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8)",
        key_id.0,
        tenant_id.as_str(),
        key.name,
        digest.as_bytes(),
        &scopes,
        &key.source_ids,
        now,
        key.expires_at,
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// The tenant's live keys after a given one, oldest first.
pub(crate) async fn list(
    tx: &mut TenantTx,
    after: Option<KeyId>,
    limit: i64,
    now: DateTime<Utc>,
) -> Result<Vec<ApiKey>, Error> {
    let rows = sqlx::query!(
        "-- api_key.list
        select key_id, name, scopes, source_ids, created_at, expires_at, last_used_at
        from session.api_keys
        where ($1::uuid is null or key_id > $1)
            and revoked_at is null
            and expires_at > $3
        order by key_id
        limit $2",
        after.map(|id| id.0),
        limit,
        now
    )
    .fetch_all(tx.connection())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| ApiKey {
            id: KeyId(row.key_id),
            name: row.name,
            scopes: scopes_of(&row.scopes),
            source_ids: row.source_ids,
            created_at: row.created_at,
            expires_at: row.expires_at,
            last_used_at: row.last_used_at,
            key: None,
        })
        .collect())
}

/// How many keys of the tenant live.
pub(crate) async fn count_live(tx: &mut TenantTx, now: DateTime<Utc>) -> Result<i64, Error> {
    let live = sqlx::query_scalar!(
        r#"-- api_key.count_live
        select count(*) as "count!"
        from session.api_keys
        where revoked_at is null and expires_at > $1"#,
        now
    )
    .fetch_one(tx.connection())
    .await?;
    Ok(live)
}

/// A key that is revoked.
pub(crate) struct RevokedKey {
    /// It lived until now.
    pub(crate) newly: bool,
    /// The digest of the key in hex.
    pub(crate) digest: String,
}

/// Revokes a key by its id; `None` when there is no such key.
pub(crate) async fn mark_revoked(
    tx: &mut TenantTx,
    key_id: KeyId,
    now: DateTime<Utc>,
) -> Result<Option<RevokedKey>, Error> {
    let key = sqlx::query_as!(
        RevokedKey,
        r#"-- api_key.mark_revoked
        update session.api_keys
        set revoked_at = coalesce(revoked_at, $2)
        where key_id = $1
        returning revoked_at = $2 as "newly!", encode(digest, 'hex') as "digest!""#,
        key_id.0,
        now
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(key)
}

/// Deletes keys that were over before a time; tells how many, at most `limit`.
pub(crate) async fn delete_before(
    database: &Database,
    before: DateTime<Utc>,
    limit: i32,
) -> Result<i64, Error> {
    let deleted = sqlx::query_scalar!("select session.purge_keys($1, $2)", before, limit)
        .fetch_one(database.pool())
        .await?;
    Ok(deleted.unwrap_or(0))
}

/// A constraint of the table keeps unknown scopes out; should one come all the same, it gives nothing.
pub(super) fn scopes_of(texts: &[String]) -> Vec<Scope> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}
