//! Users.

use chrono::{DateTime, Utc};
use contract::identity::User;
use contract::internal::{SubjectRecord, TenantRecord};
use contract::{Role, UserStatus};
use database::{Database, Error, TenantTx};
use hashing::PasswordDigest;
use tenancy::{SessionId, TenantId, UserId};

use super::tenant;
use crate::domain::account::Account;
use crate::domain::email::{Email, EmailKey};

/// The name of the constraint that refuses a second user with the same address.
pub(crate) const EMAIL_KEY: &str = "users_email_key";

/// A constraint of the table keeps other words out; should one come all the same, it may do least.
pub(crate) fn role(text: &str) -> Role {
    text.parse().unwrap_or(Role::Member)
}

fn status(text: &str) -> UserStatus {
    text.parse().unwrap_or(UserStatus::Disabled)
}

/// What the two look-ups of an account return.
struct AccountRow {
    user_id: UserId,
    role: String,
    status: String,
    password_digest: Option<PasswordDigest>,
    credential_version: i64,
    kept_session_id: Option<SessionId>,
    user_version: i64,
    tenant_status: String,
    session_version: i64,
    events_per_second: Option<i32>,
    bytes_per_second: Option<i32>,
    tenant_version: i64,
    email_key: String,
}

impl AccountRow {
    fn account(self, tenant_id: &TenantId) -> Account {
        Account {
            subject: SubjectRecord {
                user_id: self.user_id,
                tenant_id: tenant_id.clone(),
                role: role(&self.role),
                status: status(&self.status),
                credential_version: self.credential_version,
                kept_session_id: self.kept_session_id,
                version: self.user_version,
            },
            tenant: TenantRecord {
                tenant_id: tenant_id.clone(),
                status: tenant::status(&self.tenant_status),
                session_version: self.session_version,
                quota: tenant::quota(self.events_per_second, self.bytes_per_second),
                producers: Vec::new(),
                version: self.tenant_version,
            },
            email: EmailKey::from_stored(self.email_key),
            password_digest: self.password_digest,
        }
    }
}

/// The account behind an address, for a login, whose tenant nothing has proven yet.
pub(crate) async fn find_account(
    database: &Database,
    tenant_id: &TenantId,
    email: &EmailKey,
) -> Result<Option<Account>, Error> {
    let row = sqlx::query_as!(
        AccountRow,
        r#"-- user.find_account
        select
            user_id as "user_id!: UserId", role as "role!", status as "status!",
            password_digest as "password_digest: PasswordDigest", credential_version as "credential_version!",
            kept_session_id as "kept_session_id: SessionId", user_version as "user_version!",
            tenant_status as "tenant_status!", session_version as "session_version!",
            events_per_second, bytes_per_second, tenant_version as "tenant_version!", email_key as "email_key!"
        from identity.find_account($1, $2)"#,
        tenant_id.as_str(),
        email.as_str()
    )
    .fetch_optional(database.pool())
    .await?;
    Ok(row.map(|row| row.account(tenant_id)))
}

/// The account of a user id, for a password change, whose tenant nothing has proven yet.
pub(crate) async fn find_account_by_id(
    database: &Database,
    tenant_id: &TenantId,
    user_id: UserId,
) -> Result<Option<Account>, Error> {
    let row = sqlx::query_as!(
        AccountRow,
        r#"-- user.find_account_by_id
        select
            user_id as "user_id!: UserId", role as "role!", status as "status!",
            password_digest as "password_digest: PasswordDigest", credential_version as "credential_version!",
            kept_session_id as "kept_session_id: SessionId", user_version as "user_version!",
            tenant_status as "tenant_status!", session_version as "session_version!",
            events_per_second, bytes_per_second, tenant_version as "tenant_version!", email_key as "email_key!"
        from identity.find_account_by_id($1, $2)"#,
        tenant_id.as_str(),
        user_id.0
    )
    .fetch_optional(database.pool())
    .await?;
    Ok(row.map(|row| row.account(tenant_id)))
}

/// The user with an address: id and standing.
pub(crate) async fn find_by_email(
    tx: &mut TenantTx,
    email: &EmailKey,
) -> Result<Option<(UserId, UserStatus)>, Error> {
    let row = sqlx::query!(
        "-- user.find_by_email
        select user_id, status from identity.users where email_key = $1 for update",
        email.as_str()
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(row.map(|row| (UserId(row.user_id), status(&row.status))))
}

/// Writes a user who is about to be invited.
pub(crate) async fn insert_invited(
    tx: &mut TenantTx,
    user_id: UserId,
    tenant_id: &TenantId,
    email: &Email,
    role: Role,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "-- user.insert_invited
        insert into identity.users
            (user_id, tenant_id, email, email_key, role, status, created_at, updated_at)
        values ($1, $2, $3, $4, $5, 'invited', $6, $6)",
        user_id.0,
        tenant_id.as_str(),
        email.typed(),
        email.key().as_str(),
        role.as_str(),
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// An invited person is invited anew: role and address as they stand in the newer invite.
pub(crate) async fn mark_reinvited(
    tx: &mut TenantTx,
    user_id: UserId,
    email: &Email,
    role: Role,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "-- user.mark_reinvited
        update identity.users
        set email = $2, role = $3, version = version + 1, updated_at = $4
        where user_id = $1 and status = 'invited'",
        user_id.0,
        email.typed(),
        role.as_str(),
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// An invited user becomes active, with a password. Tells whether they were invited.
pub(crate) async fn mark_active(
    tx: &mut TenantTx,
    user_id: UserId,
    role: Role,
    password: &PasswordDigest,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "-- user.mark_active
        update identity.users
        set status = 'active', role = $2, password_digest = $3, credential_version = credential_version + 1,
            version = version + 1, updated_at = $4
        where user_id = $1 and status = 'invited'",
        user_id.0,
        role.as_str(),
        password.as_str(),
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Replaces a digest by one of the same password with today's settings, unless the password has changed meanwhile.
pub(crate) async fn replace_digest(
    tx: &mut TenantTx,
    user_id: UserId,
    old: &PasswordDigest,
    new: &PasswordDigest,
) -> Result<(), Error> {
    sqlx::query!(
        "-- user.replace_digest
        update identity.users set password_digest = $3 where user_id = $1 and password_digest = $2",
        user_id.0,
        old.as_str(),
        new.as_str()
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// A user of the tenant.
pub(crate) async fn find(tx: &mut TenantTx, user_id: UserId) -> Result<Option<User>, Error> {
    let row = sqlx::query!(
        "-- user.find
        select user_id, email, role, status, created_at, updated_at from identity.users where user_id = $1",
        user_id.0
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(row.map(|row| User {
        user_id: UserId(row.user_id),
        email: row.email,
        role: role(&row.role),
        status: status(&row.status),
        created_at: row.created_at,
        updated_at: row.updated_at,
    }))
}

/// An active user of an active tenant, by address: id, and the address as typed.
pub(crate) async fn find_active(
    tx: &mut TenantTx,
    email: &EmailKey,
) -> Result<Option<(UserId, String)>, Error> {
    let row = sqlx::query!(
        "-- user.find_active
        select users.user_id, users.email
        from identity.users
        join identity.tenants using (tenant_id)
        where users.email_key = $1 and users.status = 'active' and tenants.status = 'active'",
        email.as_str()
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(row.map(|row| (UserId(row.user_id), row.email)))
}

/// Writes a new password, if the one that was checked is still the user's; ends all sessions but the kept one.
pub(crate) async fn mark_password_changed(
    tx: &mut TenantTx,
    user_id: UserId,
    seen_credential_version: i64,
    password: &PasswordDigest,
    kept_session_id: Option<SessionId>,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "-- user.mark_password_changed
        update identity.users
        set password_digest = $3, credential_version = credential_version + 1, kept_session_id = $4,
            version = version + 1, updated_at = $5
        where user_id = $1 and credential_version = $2 and status = 'active'",
        user_id.0,
        seen_credential_version,
        password.as_str(),
        kept_session_id.map(|id| id.0),
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Writes a new password after a reset; ends all sessions.
pub(crate) async fn mark_password_reset(
    tx: &mut TenantTx,
    user_id: UserId,
    password: &PasswordDigest,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "-- user.mark_password_reset
        update identity.users
        set password_digest = $2, credential_version = credential_version + 1, kept_session_id = null,
            version = version + 1, updated_at = $3
        where user_id = $1 and status = 'active'",
        user_id.0,
        password.as_str(),
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Locks the tenant's active administrators until the transaction ends, in the order of their ids.
pub(crate) async fn lock_active_admins(tx: &mut TenantTx) -> Result<Vec<UserId>, Error> {
    let admins = sqlx::query_scalar!(
        "-- user.lock_active_admins
        select user_id from identity.users where role = 'admin' and status = 'active' order by user_id for update"
    )
    .fetch_all(tx.connection())
    .await?;
    Ok(admins.into_iter().map(UserId).collect())
}

/// A user of the tenant, locked until the transaction ends.
pub(crate) async fn find_locked(tx: &mut TenantTx, user_id: UserId) -> Result<Option<User>, Error> {
    let found = sqlx::query_scalar!(
        "-- user.find_locked
        select user_id from identity.users where user_id = $1 for update",
        user_id.0
    )
    .fetch_optional(tx.connection())
    .await?;
    match found {
        Some(_) => find(tx, user_id).await,
        None => Ok(None),
    }
}

/// Writes role and status; with `ends_sessions`, every session made before is dead.
pub(crate) async fn mark_standing(
    tx: &mut TenantTx,
    user_id: UserId,
    role: Role,
    status: UserStatus,
    ends_sessions: bool,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "-- user.mark_standing
        update identity.users
        set role = $2, status = $3, credential_version = credential_version + $4,
            kept_session_id = case when $4 = 0 then kept_session_id end, version = version + 1, updated_at = $5
        where user_id = $1",
        user_id.0,
        role.as_str(),
        status.as_str(),
        i64::from(ends_sessions),
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// The tenant's users after a given one, oldest first; with an address or a status, only those that have it.
pub(crate) async fn list(
    tx: &mut TenantTx,
    email: Option<&EmailKey>,
    with_status: Option<UserStatus>,
    after: Option<UserId>,
    limit: i64,
) -> Result<Vec<User>, Error> {
    let rows = sqlx::query!(
        "-- user.list
        select user_id, email, role, status, created_at, updated_at
        from identity.users
        where ($1::text is null or email_key = $1)
            and ($2::text is null or status = $2)
            and ($3::uuid is null or user_id > $3)
        order by user_id
        limit $4",
        email.map(EmailKey::as_str),
        with_status.map(UserStatus::as_str),
        after.map(|id| id.0),
        limit
    )
    .fetch_all(tx.connection())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| User {
            user_id: UserId(row.user_id),
            email: row.email,
            role: role(&row.role),
            status: status(&row.status),
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
        .collect())
}

/// A user's standing, for session.
pub(crate) async fn record(tx: &mut TenantTx, user_id: UserId) -> Result<Option<SubjectRecord>, Error> {
    let row = sqlx::query!(
        r#"-- user.record
        select tenant_id as "tenant_id: TenantId", role, status, credential_version, kept_session_id, version
        from identity.users
        where user_id = $1"#,
        user_id.0
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(row.map(|row| SubjectRecord {
        user_id,
        tenant_id: row.tenant_id,
        role: role(&row.role),
        status: status(&row.status),
        credential_version: row.credential_version,
        kept_session_id: row.kept_session_id.map(SessionId),
        version: row.version,
    }))
}
