//! Invites.

use chrono::{DateTime, Utc};
use contract::Role;
use contract::identity::InviteStatus;
use database::{Database, Error, TenantTx};
use hashing::TokenDigest;
use tenancy::{Actor, InviteId, TenantId, UserId};

use crate::domain::email::EmailKey;
use crate::domain::invite::{Invite, InviteState};

/// The index that rejects a second pending invite of a user.
pub(crate) const PENDING_KEY: &str = "invites_pending_key";

struct InviteRow {
    invite_id: InviteId,
    user_id: UserId,
    email: String,
    email_key: String,
    role: Role,
    status: InviteStatus,
    digests: Vec<TokenDigest>,
    mailed_at: Option<DateTime<Utc>>,
    expires_at: DateTime<Utc>,
    created_at: DateTime<Utc>,
    settled_at: Option<DateTime<Utc>>,
}

impl InviteRow {
    fn invite(self, now: DateTime<Utc>) -> Result<Invite, Error> {
        let settled_at = || {
            self.settled_at.ok_or_else(|| Error::corrupt("invites.settled_at", "a settled invite has a time"))
        };
        let state = match self.status {
            InviteStatus::Pending => InviteState::Pending(self.digests),
            InviteStatus::Accepted => InviteState::Accepted { at: settled_at()? },
            InviteStatus::Expired => InviteState::Expired { at: settled_at()? },
            InviteStatus::Revoked => InviteState::Revoked { at: settled_at()? },
        };
        let invite = Invite {
            id: self.invite_id,
            user_id: self.user_id,
            email: self.email,
            email_key: EmailKey::from_stored(self.email_key),
            role: self.role,
            created_at: self.created_at,
            expires_at: self.expires_at,
            mailed_at: self.mailed_at,
            state,
        };
        Ok(invite.at(now))
    }
}

/// Inserts a pending invite of the transaction's actor.
pub(crate) async fn insert(tx: &mut TenantTx, invite: &Invite) -> Result<(), Error> {
    let invited_by = match tx.actor() {
        Actor::User { user_id } => Some(user_id),
        _ => None,
    };
    let statement = sqlx::query!(
        "-- invite.insert
        insert into identity.invites
            (invite_id, tenant_id, user_id, email, email_key, role, status, digests, expires_at, created_at, invited_by)
        values ($1, $2, $3, $9, $10, $4, 'pending', $5, $6, $7, $8)",
        invite.id.0,
        tx.tenant_id().as_str(),
        invite.user_id.0,
        invite.role.as_str(),
        &digests(invite),
        invite.expires_at,
        invite.created_at,
        invited_by.map(|id| id.0),
        invite.email,
        invite.email_key.as_str()
    );
    tx.execute(statement).await.map(drop)
}

/// Saves a change of a pending invite. Returns whether the invite was still pending: of several requests at once, one wins.
pub(crate) async fn save(tx: &mut TenantTx, invite: &Invite) -> Result<bool, Error> {
    let statement = sqlx::query!(
        "-- invite.save
        update identity.invites
        set status = $2, digests = $3, expires_at = $4, settled_at = $5, mailed_at = $6
        where invite_id = $1 and status = 'pending'",
        invite.id.0,
        invite.state.status().as_str(),
        &digests(invite),
        invite.expires_at,
        invite.state.settled_at(),
        invite.mailed_at
    );
    Ok(tx.execute(statement).await? == 1)
}

/// Finds the invite of a token. The token determines the tenant.
pub(crate) async fn find_by_digest(
    database: &Database,
    digest: TokenDigest,
) -> Result<Option<(InviteId, TenantId)>, Error> {
    let row = sqlx::query!(
        r#"-- invite.find_by_digest
        select invite_id as "invite_id!: InviteId", tenant_id as "tenant_id!: TenantId" from identity.find_invite($1)"#,
        digest.as_bytes()
    )
    .fetch_optional(database.pool())
    .await?;
    Ok(row.map(|row| (row.invite_id, row.tenant_id)))
}

/// Selects invites: the span name of the statement, its end, and the parameters.
macro_rules! select_invites {
    ($name:literal, $end:literal, $($parameter:expr),+ $(,)?) => {
        sqlx::query_as!(
            InviteRow,
            "-- " + $name + r#"
            select
                invite_id as "invite_id: InviteId", user_id as "user_id: UserId", email, email_key, role as "role: Role",
                status as "status: InviteStatus", digests as "digests: Vec<TokenDigest>", mailed_at, expires_at, created_at, settled_at
            from identity.invites "# + $end,
            $($parameter),+
        )
    };
}

/// Finds an invite and locks it until the transaction ends.
pub(crate) async fn find_for_update(tx: &mut TenantTx, invite_id: InviteId) -> Result<Option<Invite>, Error> {
    let row = select_invites!(
        "invite.find_for_update",
        "where invite_id = $1
        for update",
        invite_id.0
    );
    row.fetch_optional(tx.connection()).await?.map(|row| row.invite(tx.now())).transpose()
}

/// Finds the e-mail address of the user who created an invite.
pub(crate) async fn find_inviter(tx: &mut TenantTx, invite_id: InviteId) -> Result<Option<String>, Error> {
    let email = sqlx::query_scalar!(
        "-- invite.find_inviter
        select users.email
        from identity.invites
        join identity.users on users.user_id = invites.invited_by
        where invites.invite_id = $1",
        invite_id.0
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(email)
}

/// Counts the pending invites of the tenant.
pub(crate) async fn count_pending(tx: &mut TenantTx) -> Result<i64, Error> {
    let count = sqlx::query_scalar!(
        r#"-- invite.count_pending
        select count(*) as "count!" from identity.invites where status = 'pending' and expires_at > $1"#,
        tx.now()
    );
    Ok(count.fetch_one(tx.connection()).await?)
}

/// Marks the pending invite of an address as expired after its term, so that a new invite can replace it.
pub(crate) async fn mark_expired(tx: &mut TenantTx, email: &EmailKey) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- invite.mark_expired
        update identity.invites
        set status = 'expired', settled_at = expires_at
        where email_key = $1 and status = 'pending' and expires_at <= $2",
        email.as_str(),
        tx.now()
    );
    tx.execute(statement).await.map(drop)
}

/// Lists the invites of the tenant after a given one, oldest first, optionally with one status only.
pub(crate) async fn list(
    tx: &mut TenantTx,
    status: Option<InviteStatus>,
    after: Option<InviteId>,
    limit: i64,
) -> Result<Vec<Invite>, Error> {
    let rows = select_invites!(
        "invite.list",
        "where ($1::text is null
                or $1 = case when status = 'pending' and expires_at <= $4 then 'expired' else status end)
            and ($2::uuid is null or invite_id > $2)
        order by invite_id
        limit $3",
        status.map(InviteStatus::as_str),
        after.map(|id| id.0),
        limit,
        tx.now()
    );
    rows.fetch_all(tx.connection()).await?.into_iter().map(|row| row.invite(tx.now())).collect()
}

/// Lists the invites of a user, oldest first. There are few: only one is pending, and settled ones are deleted.
pub(crate) async fn list_of_user(tx: &mut TenantTx, user_id: UserId) -> Result<Vec<Invite>, Error> {
    let rows = select_invites!(
        "invite.list_of_user",
        "where user_id = $1
        order by invite_id",
        user_id.0
    );
    rows.fetch_all(tx.connection()).await?.into_iter().map(|row| row.invite(tx.now())).collect()
}

/// Deletes the users of invites that expired before a time, and invites that were settled before a time, of all tenants. Returns
/// the larger number of rows, at most `limit`.
pub(crate) async fn delete_before(
    database: &Database,
    expired_before: DateTime<Utc>,
    settled_before: DateTime<Utc>,
    limit: i64,
) -> Result<i64, Error> {
    let deleted = sqlx::query_scalar!(
        r#"-- invite.delete_before
        select identity.purge_invites($1, $2, $3) as "deleted!""#,
        expired_before,
        settled_before,
        limit
    );
    Ok(deleted.fetch_one(database.pool()).await?)
}

/// A settled invite has no token.
fn digests(invite: &Invite) -> Vec<Vec<u8>> {
    match &invite.state {
        InviteState::Pending(tokens) => tokens.iter().map(|token| token.as_bytes().to_vec()).collect(),
        _ => Vec::new(),
    }
}
