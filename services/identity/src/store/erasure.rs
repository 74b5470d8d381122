//! Erasure of personal data. The id of a deleted user or tenant remains, with the versions of the account status.

use chrono::{DateTime, Utc};
use database::{Database, Error, TenantTx};
use tenancy::{TenantId, UserId};

use crate::domain::account::AccountKey;
use crate::domain::email::EmailKey;

/// Records a user as deleted and deletes the row. Revokes the sessions of the user, and the API keys that the user created.
pub(crate) async fn delete_user(tx: &mut TenantTx, user_id: UserId, deleted_by: UserId) -> Result<(), Error> {
    let record = sqlx::query!(
        "-- erasure.insert_deleted_user
        insert into identity.deleted_users
            (user_id, tenant_id, credential_version, version, deleted_at, deleted_by)
        select user_id, tenant_id, credential_version + 1, version + 1, $2, $3
        from identity.users
        where user_id = $1",
        user_id.0,
        tx.now(),
        deleted_by.0
    );
    tx.execute(record).await?;
    let statement = sqlx::query!(
        "-- erasure.delete_user
        delete from identity.users where user_id = $1",
        user_id.0
    );
    tx.execute(statement).await.map(drop)
}

/// Returns whether the user was deleted.
pub(crate) async fn is_deleted(tx: &mut TenantTx, user_id: UserId) -> Result<bool, Error> {
    let is_deleted = sqlx::query_scalar!(
        r#"-- erasure.is_deleted
        select exists (select from identity.deleted_users where user_id = $1) as "is_deleted!""#,
        user_id.0
    );
    Ok(is_deleted.fetch_one(tx.connection()).await?)
}

/// Deletes the invites of a user or an address, and the undelivered mails to or about the user: the error of a mail server can
/// contain the address.
pub(crate) async fn delete_invites_and_mails(
    tx: &mut TenantTx,
    user_id: UserId,
    email: &EmailKey,
) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- erasure.delete_invites_and_mails
        with deleted as (
            delete from identity.invites where user_id = $1 or email_key = $2 returning user_id
        )
        delete from identity.outbox
        where erased_with_email = $2 or erased_with_users && ($1 || array(select user_id from deleted))",
        user_id.0,
        email.as_str()
    );
    tx.execute(statement).await.map(drop)
}

/// Deletes the counted logins of accounts, with the source addresses.
pub(crate) async fn delete_login_attempts(tx: &mut TenantTx, accounts: &[AccountKey]) -> Result<(), Error> {
    let deleted = sqlx::query!(
        "-- erasure.delete_login_attempts
        select identity.delete_counted_logins($1, null)",
        &stored_keys(accounts)
    );
    deleted.fetch_one(tx.connection()).await?;
    Ok(())
}

/// Marks the tenant of the transaction as deleted and erases its name. Revokes all sessions.
pub(crate) async fn mark_tenant_deleted(tx: &mut TenantTx) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- erasure.mark_tenant_deleted
        update identity.tenants
        set status = 'deleted', display_name = '', session_version = session_version + 1, version = version + 1,
            updated_at = $2, deleted_at = $2
        where tenant_id = $1",
        tx.tenant_id().as_str(),
        tx.now()
    );
    tx.execute(statement).await.map(drop)
}

/// Returns whether the tenant of the transaction was deleted.
pub(crate) async fn is_tenant_deleted(tx: &mut TenantTx) -> Result<bool, Error> {
    let is_deleted = sqlx::query_scalar!(
        r#"-- erasure.is_tenant_deleted
        select exists (
            select from identity.tenants where tenant_id = $1 and status = 'deleted'
        ) as "is_deleted!""#,
        tx.tenant_id().as_str()
    );
    Ok(is_deleted.fetch_one(tx.connection()).await?)
}

/// Returns the deleted tenant with the next id after `after` that is not marked as erased.
pub(crate) async fn find_deleted_tenant(
    database: &Database,
    after: &str,
    now: DateTime<Utc>,
) -> Result<Option<TenantId>, Error> {
    let tenant_id = sqlx::query_scalar!(
        r#"-- erasure.find_deleted_tenant
        select identity.find_deleted_tenant($1, $2) as "tenant_id: TenantId""#,
        after,
        now
    );
    Ok(tenant_id.fetch_one(database.pool()).await?)
}

/// Locks the deleted tenant of the transaction. Returns `false` if another transaction has locked it.
pub(crate) async fn lock_deleted_tenant(tx: &mut TenantTx) -> Result<bool, Error> {
    let locked = sqlx::query_scalar!(
        "-- erasure.lock_deleted_tenant
        select tenant_id from identity.tenants where tenant_id = $1 and status = 'deleted'
        for no key update skip locked",
        tx.tenant_id().as_str()
    );
    Ok(locked.fetch_optional(tx.connection()).await?.is_some())
}

/// Returns at most `limit` users of the tenant of the transaction, with their addresses.
pub(crate) async fn list_users(tx: &mut TenantTx, limit: i64) -> Result<Vec<(UserId, EmailKey)>, Error> {
    let rows = sqlx::query!(
        r#"-- erasure.list_users
        select user_id as "user_id: UserId", email_key from identity.users limit $1"#,
        limit
    );
    let rows = rows.fetch_all(tx.connection()).await?;
    Ok(rows.into_iter().map(|row| (row.user_id, EmailKey::from_stored(row.email_key))).collect())
}

/// Deletes the counted logins of these accounts of the deleted tenant of the transaction, at most `limit` sources. If fewer are
/// deleted, also deletes the users and at most `limit` invites and mails each. If there was nothing to delete, marks the tenant
/// as erased and returns `true`.
pub(crate) async fn erase_tenant(
    tx: &mut TenantTx,
    users: &[UserId],
    accounts: &[AccountKey],
    limit: i64,
) -> Result<bool, Error> {
    let users: Vec<_> = users.iter().map(|user_id| user_id.0).collect();
    let is_erased = sqlx::query_scalar!(
        r#"-- erasure.erase_tenant
        select identity.erase_tenant($1, $2, $3, $4, $5) as "is_erased!""#,
        tx.tenant_id().as_str(),
        tx.now(),
        &users,
        &stored_keys(accounts),
        limit
    );
    Ok(is_erased.fetch_one(tx.connection()).await?)
}

fn stored_keys(accounts: &[AccountKey]) -> Vec<Vec<u8>> {
    accounts.iter().flat_map(AccountKey::stored).collect()
}
