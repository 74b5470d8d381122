//! Invites. Only the digest of a token is ever written.

use chrono::{DateTime, Utc};
use contract::Role;
use contract::identity::{Invite, InviteStatus};
use database::{Database, Error, TenantTx};
use hashing::TokenDigest;
use tenancy::{InviteId, TenantId, UserId};

use super::user::role;
use crate::domain::invite::status;

/// The name of the index that refuses a second pending invite of one person.
pub(crate) const PENDING_KEY: &str = "invites_pending_key";

/// A new invite.
pub(crate) struct NewInvite<'a> {
    pub(crate) invite_id: InviteId,
    pub(crate) tenant_id: &'a TenantId,
    pub(crate) user_id: UserId,
    pub(crate) role: Role,
    pub(crate) digest: Option<TokenDigest>,
    pub(crate) expires_at: DateTime<Utc>,
    pub(crate) created_at: DateTime<Utc>,
}

/// An invite that can be accepted now, with whom it is for.
pub(crate) struct PendingInvite {
    pub(crate) user_id: UserId,
    pub(crate) email: String,
    pub(crate) email_key: String,
    pub(crate) role: Role,
    pub(crate) expires_at: DateTime<Utc>,
    pub(crate) tenant_name: String,
}

pub(crate) async fn insert(tx: &mut TenantTx, invite: &NewInvite<'_>) -> Result<(), Error> {
    sqlx::query!(
        "-- invite.insert
        insert into identity.invites (invite_id, tenant_id, user_id, role, status, digest, expires_at, created_at)
        values ($1, $2, $3, $4, 'pending', $5, $6, $7)",
        invite.invite_id.0,
        invite.tenant_id.as_str(),
        invite.user_id.0,
        invite.role.as_str(),
        invite.digest.as_ref().map(TokenDigest::as_bytes),
        invite.expires_at,
        invite.created_at
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Writes down that a user's pending invite is past its time, so that another can take its place.
pub(crate) async fn mark_expired(
    tx: &mut TenantTx,
    user_id: UserId,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "-- invite.mark_expired
        update identity.invites
        set status = 'expired', settled_at = expires_at
        where user_id = $1 and status = 'pending' and expires_at <= $2",
        user_id.0,
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// The invite that a token belongs to: the token itself says which tenant that is.
pub(crate) async fn find_by_digest(
    database: &Database,
    digest: TokenDigest,
) -> Result<Option<(InviteId, TenantId)>, Error> {
    let row = sqlx::query!(
        r#"-- invite.find_by_digest
        select invite_id as "invite_id!", tenant_id as "tenant_id!: TenantId" from identity.find_invite($1)"#,
        digest.as_bytes()
    )
    .fetch_optional(database.pool())
    .await?;
    Ok(row.map(|row| (InviteId(row.invite_id), row.tenant_id)))
}

/// An invite, when it can be accepted now: pending, in its time, in an active tenant.
pub(crate) async fn find_pending(
    tx: &mut TenantTx,
    invite_id: InviteId,
    now: DateTime<Utc>,
) -> Result<Option<PendingInvite>, Error> {
    let row = sqlx::query!(
        "-- invite.find_pending
        select users.user_id, users.email, users.email_key, invites.role, invites.expires_at, tenants.display_name
        from identity.invites
        join identity.users using (user_id)
        join identity.tenants on tenants.tenant_id = invites.tenant_id
        where invites.invite_id = $1
            and invites.status = 'pending'
            and invites.expires_at > $2
            and tenants.status = 'active'",
        invite_id.0,
        now
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(row.map(|row| PendingInvite {
        user_id: UserId(row.user_id),
        email: row.email,
        email_key: row.email_key,
        role: role(&row.role),
        expires_at: row.expires_at,
        tenant_name: row.display_name,
    }))
}

/// Spends the token, if nobody else has: of several at once, exactly one wins.
pub(crate) async fn mark_accepted(
    tx: &mut TenantTx,
    invite_id: InviteId,
    digest: TokenDigest,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "-- invite.mark_accepted
        update identity.invites
        set status = 'accepted', settled_at = $3
        where invite_id = $1
            and digest = $2
            and status = 'pending'
            and expires_at > $3
            and exists (
                select from identity.tenants
                where tenants.tenant_id = invites.tenant_id and tenants.status = 'active'
            )",
        invite_id.0,
        digest.as_bytes(),
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The tenant's invites after a given one, oldest first; with a status, only those that have it now.
pub(crate) async fn list(
    tx: &mut TenantTx,
    status: Option<InviteStatus>,
    after: Option<InviteId>,
    limit: i64,
    now: DateTime<Utc>,
) -> Result<Vec<Invite>, Error> {
    let rows = sqlx::query!(
        r#"-- invite.list
        with seen as (
            select
                invite_id, user_id, role, expires_at, created_at,
                case when status = 'pending' and expires_at <= $4 then 'expired' else status end as status
            from identity.invites
        )
        select
            seen.invite_id, users.email, seen.role, seen.status as "status!", seen.expires_at, seen.created_at
        from seen
        join identity.users using (user_id)
        where ($1::text is null or seen.status = $1)
            and ($2::uuid is null or seen.invite_id > $2)
        order by seen.invite_id
        limit $3"#,
        status.map(InviteStatus::as_str),
        after.map(|id| id.0),
        limit,
        now
    )
    .fetch_all(tx.connection())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Invite {
            invite_id: InviteId(row.invite_id),
            email: row.email,
            role: role(&row.role),
            // A constraint of the table keeps other words out.
            status: row.status.parse().unwrap_or(InviteStatus::Expired),
            expires_at: row.expires_at,
            created_at: row.created_at,
            token: None,
        })
        .collect())
}

/// An invite of the tenant, locked until the transaction ends.
pub(crate) async fn find(
    tx: &mut TenantTx,
    invite_id: InviteId,
    now: DateTime<Utc>,
) -> Result<Option<Invite>, Error> {
    let row = sqlx::query!(
        "-- invite.find
        select users.email, invites.role, invites.status, invites.expires_at, invites.created_at
        from identity.invites
        join identity.users using (user_id)
        where invites.invite_id = $1
        for update of invites",
        invite_id.0
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(row.map(|row| Invite {
        invite_id,
        email: row.email,
        role: role(&row.role),
        status: status(&row.status, row.expires_at, now),
        expires_at: row.expires_at,
        created_at: row.created_at,
        token: None,
    }))
}

/// A pending invite gets a new term, and a token now or none until it is mailed; the token before is dead either way.
pub(crate) async fn mark_resent(
    tx: &mut TenantTx,
    invite_id: InviteId,
    digest: Option<TokenDigest>,
    expires_at: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "-- invite.mark_resent
        update identity.invites set digest = $2, expires_at = $3 where invite_id = $1 and status = 'pending'",
        invite_id.0,
        digest.as_ref().map(TokenDigest::as_bytes),
        expires_at
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Takes a pending invite back.
pub(crate) async fn mark_revoked(
    tx: &mut TenantTx,
    invite_id: InviteId,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "-- invite.mark_revoked
        update identity.invites set status = 'revoked', settled_at = $2 where invite_id = $1 and status = 'pending'",
        invite_id.0,
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Gives a pending invite a token; the one before is dead.
pub(crate) async fn set_digest(
    tx: &mut TenantTx,
    invite_id: InviteId,
    digest: TokenDigest,
) -> Result<(), Error> {
    sqlx::query!(
        "-- invite.set_digest
        update identity.invites set digest = $2 where invite_id = $1 and status = 'pending'",
        invite_id.0,
        digest.as_bytes()
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}
