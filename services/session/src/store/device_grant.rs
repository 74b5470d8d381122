//! Device grants. Only the digest of a device code is stored.

use chrono::{DateTime, Utc};
use contract::device::DeviceRequest;
use contract::session::AuthMethod;
use database::{Database, Error, TenantTx};
use hashing::TokenDigest;
use tenancy::{DeviceGrantId, TenantId, UserId};

use crate::domain::account_status::AccountVersions;
use crate::domain::device_grant::{DeviceGrant, SLOW_DOWN_SECONDS};
use crate::domain::user_code::UserCode;

/// A grant to be inserted.
pub(crate) struct NewGrant<'a> {
    pub(crate) tenant_id: &'a TenantId,
    pub(crate) digest: TokenDigest,
    pub(crate) user_code: UserCode,
    pub(crate) request: &'a DeviceRequest,
    pub(crate) interval_seconds: u32,
    pub(crate) expires_at: DateTime<Utc>,
}

/// Inserts a grant. Returns false if its user code is taken in the tenant.
pub(crate) async fn insert(database: &Database, grant: &NewGrant<'_>) -> Result<bool, Error> {
    let inserted = sqlx::query_scalar!(
        r#"-- device_grant.insert
        select session.start_device_grant($1, $2, $3, $4, $5, $6, $7, $8, $9) as "inserted!""#,
        DeviceGrantId::generate().0,
        grant.tenant_id.as_str(),
        grant.digest.as_bytes(),
        grant.user_code.letters(),
        grant.request.client_name,
        grant.request.ip,
        grant.interval_seconds.cast_signed(),
        grant.request.created_at,
        grant.expires_at,
    )
    .fetch_one(database.pool())
    .await?;
    Ok(inserted)
}

/// A grant that a device polls.
pub(crate) struct PolledGrant {
    pub(crate) grant_id: DeviceGrantId,
    pub(crate) tenant_id: TenantId,
    pub(crate) grant: DeviceGrant<AccountVersions>,
    /// Whether the device polled before its interval passed. The statement has then increased the stored interval.
    pub(crate) early: bool,
    pub(crate) client_name: Option<String>,
    /// How the user of the approving session authenticated.
    pub(crate) amr: Vec<AuthMethod>,
}

/// Records a poll and returns the grant with this device code.
pub(crate) async fn poll(
    database: &Database,
    digest: TokenDigest,
    now: DateTime<Utc>,
) -> Result<Option<PolledGrant>, Error> {
    let row = sqlx::query!(
        r#"-- device_grant.poll
        select
            grant_id as "grant_id!: DeviceGrantId",
            tenant_id as "tenant_id!: TenantId",
            status as "status!",
            expires_at as "expires_at!",
            early as "early!",
            client_name,
            user_id as "user_id: UserId",
            credential_version,
            session_version,
            amr as "amr: Vec<AuthMethod>"
        from session.poll_device_grant($1, $2, $3)"#,
        digest.as_bytes(),
        now,
        SLOW_DOWN_SECONDS.cast_signed()
    )
    .fetch_optional(database.pool())
    .await?;
    let Some(row) = row else { return Ok(None) };
    let approval = approval(row.user_id, row.credential_version, row.session_version);
    Ok(Some(PolledGrant {
        grant_id: row.grant_id,
        tenant_id: row.tenant_id,
        grant: parse_grant(&row.status, approval)?.at(now, row.expires_at),
        early: row.early,
        client_name: row.client_name,
        amr: row.amr.unwrap_or_default(),
    }))
}

/// A grant that a user inspects or decides.
pub(crate) struct StoredGrant {
    pub(crate) grant_id: DeviceGrantId,
    /// The digest of the device code.
    pub(crate) digest: TokenDigest,
    pub(crate) grant: DeviceGrant<AccountVersions>,
    pub(crate) request: DeviceRequest,
}

/// Returns the grant with this user code, and locks its row.
pub(crate) async fn find_for_update(
    tx: &mut TenantTx,
    user_code: UserCode,
) -> Result<Option<StoredGrant>, Error> {
    let row = sqlx::query!(
        r#"-- device_grant.find_for_update
        select
            grant_id as "grant_id: DeviceGrantId",
            digest as "digest: TokenDigest",
            client_name,
            ip,
            created_at,
            expires_at,
            status,
            user_id as "user_id: UserId",
            credential_version,
            session_version
        from session.device_grants
        where user_code = $1
        for update"#,
        user_code.letters()
    )
    .fetch_optional(tx.connection())
    .await?;
    let Some(row) = row else { return Ok(None) };
    let approval = approval(row.user_id, row.credential_version, row.session_version);
    Ok(Some(StoredGrant {
        grant_id: row.grant_id,
        digest: row.digest,
        grant: parse_grant(&row.status, approval)?.at(tx.now(), row.expires_at),
        request: DeviceRequest { client_name: row.client_name, ip: row.ip, created_at: row.created_at },
    }))
}

/// Saves a grant if the stored grant is in the state from which it was derived. `amr` is how the approving user authenticated. Returns
/// whether the grant was saved.
pub(crate) async fn save(
    tx: &mut TenantTx,
    grant_id: DeviceGrantId,
    grant: DeviceGrant<AccountVersions>,
    amr: &[AuthMethod],
) -> Result<bool, Error> {
    let amr: Vec<String> = amr.iter().map(ToString::to_string).collect();
    let (from, to, approval) = match grant {
        DeviceGrant::Approved(versions) => ("pending", "approved", Some(versions)),
        DeviceGrant::Denied => ("pending", "denied", None),
        DeviceGrant::Redeemed => ("approved", "redeemed", None),
        // The initial state, and a state that is not stored.
        DeviceGrant::Pending | DeviceGrant::Expired => return Ok(false),
    };
    let saved = sqlx::query_scalar!(
        "-- device_grant.save
        update session.device_grants
        set status = $3,
            user_id = coalesce($4, user_id),
            credential_version = coalesce($5, credential_version),
            session_version = coalesce($6, session_version),
            amr = coalesce($7, amr)
        where grant_id = $1 and status = $2
        returning grant_id",
        grant_id.0,
        from,
        to,
        approval.map(|versions| versions.user_id.0),
        approval.map(|versions| versions.credential_version),
        approval.map(|versions| versions.session_version),
        approval.map(|_| amr) as Option<Vec<String>>,
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(saved.is_some())
}

/// Denies the grants that a user approved and no device has redeemed.
pub(crate) async fn deny_approved(tx: &mut TenantTx, user_id: UserId) -> Result<u64, Error> {
    let statement = sqlx::query!(
        "-- device_grant.deny_approved
        update session.device_grants
        set status = 'denied', user_id = null, credential_version = null, session_version = null
        where user_id = $1 and status = 'approved'",
        user_id.0
    );
    tx.execute(statement).await
}

/// Erases the personal data of the grants that a user approved.
pub(crate) async fn erase_user(tx: &mut TenantTx, user_id: UserId) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- device_grant.erase_user
        update session.device_grants
        set client_name = null, ip = null
        where user_id = $1",
        user_id.0
    );
    tx.execute(statement).await.map(drop)
}

/// Denies the approved grants of the tenant that were created before a time.
pub(crate) async fn deny_created_before(tx: &mut TenantTx, time: DateTime<Utc>) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- device_grant.deny_created_before
        update session.device_grants
        set status = 'denied', user_id = null, credential_version = null, session_version = null
        where created_at < $1 and status = 'approved'",
        time
    );
    tx.execute(statement).await.map(drop)
}

fn approval(
    user_id: Option<UserId>,
    credential_version: Option<i64>,
    session_version: Option<i64>,
) -> Option<AccountVersions> {
    Some(AccountVersions {
        user_id: user_id?,
        credential_version: credential_version?,
        session_version: session_version?,
    })
}

fn parse_grant(
    status: &str,
    approval: Option<AccountVersions>,
) -> Result<DeviceGrant<AccountVersions>, Error> {
    match status {
        "pending" => Ok(DeviceGrant::Pending),
        "approved" => approval
            .map(DeviceGrant::Approved)
            .ok_or_else(|| Error::corrupt("device_grants.user_id", "unexpected null")),
        "denied" => Ok(DeviceGrant::Denied),
        "redeemed" => Ok(DeviceGrant::Redeemed),
        _ => Err(Error::corrupt("device_grants.status", format!("unknown status {status:?}"))),
    }
}
