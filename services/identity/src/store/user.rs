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

/// The account behind an address, for a login, whose tenant nothing has proven yet.
pub(crate) async fn find_account(
    database: &Database,
    tenant_id: &TenantId,
    email: &EmailKey,
) -> Result<Option<Account>, Error> {
    let row = sqlx::query!(
        r#"-- user.find_account
        select
            user_id as "user_id!", role as "role!", status as "status!", password_digest,
            credential_version as "credential_version!", kept_session_id, user_version as "user_version!",
            tenant_status as "tenant_status!", session_version as "session_version!",
            events_per_second, bytes_per_second, tenant_version as "tenant_version!"
        from identity.find_account($1, $2)"#,
        tenant_id.as_str(),
        email.as_str()
    )
    .fetch_optional(database.pool())
    .await?;
    Ok(row.map(|row| Account {
        subject: SubjectRecord {
            user_id: UserId(row.user_id),
            tenant_id: tenant_id.clone(),
            role: role(&row.role),
            status: status(&row.status),
            credential_version: row.credential_version,
            kept_session_id: row.kept_session_id.map(SessionId),
            version: row.user_version,
        },
        tenant: TenantRecord {
            tenant_id: tenant_id.clone(),
            status: tenant::status(&row.tenant_status),
            session_version: row.session_version,
            quota: tenant::quota(row.events_per_second, row.bytes_per_second),
            producers: Vec::new(),
            version: row.tenant_version,
        },
        password_digest: row.password_digest.map(PasswordDigest::from_stored),
    }))
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
