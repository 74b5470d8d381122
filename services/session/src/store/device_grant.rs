//! Device grants. Only the digest of a device code is ever written.

use chrono::{DateTime, Utc};
use contract::device::DeviceRequest;
use database::{Database, Error, TenantTx};
use hashing::TokenDigest;
use tenancy::{TenantId, UserId};
use uuid::Uuid;

use crate::domain::device_grant::DeviceGrant;
use crate::domain::standing::Standing;
use crate::domain::user_code::UserCode;

/// A grant that begins.
pub(crate) struct NewGrant<'a> {
    pub(crate) tenant_id: &'a TenantId,
    pub(crate) digest: TokenDigest,
    pub(crate) user_code: UserCode,
    pub(crate) asking: &'a DeviceRequest,
    pub(crate) interval_seconds: u32,
    pub(crate) expires_at: DateTime<Utc>,
}

/// Writes a new grant. Tells whether its user code was free in the tenant.
pub(crate) async fn insert(database: &Database, grant: &NewGrant<'_>) -> Result<bool, Error> {
    let free = sqlx::query_scalar!(
        "select session.start_device_grant($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        Uuid::now_v7(),
        grant.tenant_id.as_str(),
        grant.digest.as_bytes(),
        grant.user_code.letters(),
        grant.asking.client_name,
        grant.asking.ip,
        grant.interval_seconds.cast_signed(),
        grant.asking.created_at,
        grant.expires_at,
    )
    .fetch_one(database.pool())
    .await?;
    Ok(free == Some(true))
}

/// A grant whose device asks.
pub(crate) struct Polled {
    pub(crate) grant_id: Uuid,
    pub(crate) tenant_id: TenantId,
    pub(crate) grant: DeviceGrant<Standing>,
    /// Whether it should have waited longer; it has to, from now on.
    pub(crate) early: bool,
}

/// Notes that the device with this code asks now.
pub(crate) async fn poll(
    database: &Database,
    digest: TokenDigest,
    now: DateTime<Utc>,
) -> Result<Option<Polled>, Error> {
    let row = sqlx::query!(
        r#"-- device_grant.poll
        select
            grant_id as "grant_id!",
            tenant_id as "tenant_id!: TenantId",
            status as "status!",
            expires_at as "expires_at!",
            early as "early!",
            user_id as "user_id: UserId",
            credential_version,
            session_version
        from session.poll_device_grant($1, $2)"#,
        digest.as_bytes(),
        now
    )
    .fetch_optional(database.pool())
    .await?;
    Ok(row.map(|row| {
        let approval = row.user_id.zip(row.credential_version).zip(row.session_version);
        let standing = approval.map(|((user_id, credential_version), session_version)| Standing {
            user_id,
            credential_version,
            session_version,
        });
        Polled {
            grant_id: row.grant_id,
            tenant_id: row.tenant_id,
            grant: of_row(&row.status, standing).at(now, row.expires_at),
            early: row.early,
        }
    }))
}

/// A grant that a person looks at, locked until they are done.
pub(crate) struct Found {
    pub(crate) grant_id: Uuid,
    /// The first hex digits of the device code's digest, as an audit event names a credential.
    pub(crate) credential: String,
    pub(crate) grant: DeviceGrant<Standing>,
    pub(crate) asking: DeviceRequest,
}

/// The grant under a user code.
pub(crate) async fn find(
    tx: &mut TenantTx,
    user_code: UserCode,
    now: DateTime<Utc>,
) -> Result<Option<Found>, Error> {
    let row = sqlx::query!(
        r#"-- device_grant.find
        select
            grant_id, left(encode(digest, 'hex'), 8) as "credential!", client_name, ip, created_at, expires_at, status
        from session.device_grants
        where user_code = $1
        for update"#,
        user_code.letters()
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(row.map(|row| Found {
        grant_id: row.grant_id,
        credential: row.credential,
        // Whoever types a code learns no more of a grant than whether it waits for them.
        grant: of_row(&row.status, None).at(now, row.expires_at),
        asking: DeviceRequest { client_name: row.client_name, ip: row.ip, created_at: row.created_at },
    }))
}

/// Moves a grant on, from the only state that leads there. Tells whether it was in that state.
pub(crate) async fn save(
    tx: &mut TenantTx,
    grant_id: Uuid,
    grant: DeviceGrant<Standing>,
) -> Result<bool, Error> {
    let (from, to, standing) = match grant {
        DeviceGrant::Approved(standing) => ("pending", "approved", Some(standing)),
        DeviceGrant::Denied => ("pending", "denied", None),
        DeviceGrant::Redeemed => ("approved", "redeemed", None),
        // Where a grant begins, and what time makes of it: neither is a move.
        DeviceGrant::Pending | DeviceGrant::Expired => return Ok(false),
    };
    let moved = sqlx::query_scalar!(
        "-- device_grant.save
        update session.device_grants
        set status = $3,
            user_id = coalesce($4, user_id),
            credential_version = coalesce($5, credential_version),
            session_version = coalesce($6, session_version)
        where grant_id = $1 and status = $2
        returning grant_id",
        grant_id,
        from,
        to,
        standing.map(|standing| standing.user_id.0),
        standing.map(|standing| standing.credential_version),
        standing.map(|standing| standing.session_version),
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(moved.is_some())
}

/// Denies the grants that a user has approved and no device has redeemed.
pub(crate) async fn deny_approved(tx: &mut TenantTx, user_id: UserId) -> Result<(), Error> {
    sqlx::query!(
        "-- device_grant.deny_approved
        update session.device_grants
        set status = 'denied', user_id = null, credential_version = null, session_version = null
        where user_id = $1 and status = 'approved'",
        user_id.0
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Deletes grants and wrong codes that were over before a time; tells how many of the more numerous kind, at most `limit`.
pub(crate) async fn delete_before(
    database: &Database,
    before: DateTime<Utc>,
    limit: i32,
) -> Result<i64, Error> {
    let deleted = sqlx::query_scalar!("select session.purge_device_grants($1, $2)", before, limit)
        .fetch_one(database.pool())
        .await?;
    Ok(deleted.unwrap_or(0))
}

/// A constraint of the table keeps other words out, and sees to it that an approved grant names its standing.
fn of_row(status: &str, standing: Option<Standing>) -> DeviceGrant<Standing> {
    match (status, standing) {
        ("pending", _) => DeviceGrant::Pending,
        ("approved", Some(standing)) => DeviceGrant::Approved(standing),
        ("denied", _) => DeviceGrant::Denied,
        _ => DeviceGrant::Redeemed,
    }
}
