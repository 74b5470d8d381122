//! Users.

use chrono::{DateTime, Utc};
use contract::internal::SubjectRecord;
use contract::{Role, UserStatus};
use database::{Database, Error, TenantTx};
use hashing::{Argon2Settings, PasswordDigest};
use tenancy::{SessionId, TenantId, UserId};

use crate::domain::email::{Email, EmailKey};
use crate::domain::factor::Failures;
use crate::domain::password_costs::PasswordCosts;

/// The constraint that rejects a second user with the same address.
pub(crate) const EMAIL_KEY: &str = "users_email_key";
/// The constraint that rejects a second user with an address that looks the same.
pub(crate) const EMAIL_SKELETON_KEY: &str = "users_email_skeleton_key";

/// Returns the address of a user. The tenant comes from an unverified header.
pub(crate) async fn find_email(
    database: &Database,
    tenant_id: &TenantId,
    user_id: UserId,
) -> Result<Option<EmailKey>, Error> {
    let email = sqlx::query_scalar!(
        "-- user.find_email
        select email_key from identity.find_account($1, null, $2)",
        tenant_id.as_str(),
        user_id.0
    );
    Ok(email.fetch_optional(database.pool()).await?.flatten().map(EmailKey::from_stored))
}

/// A user as it is stored. Its failed logins are in other tables.
pub(crate) struct UserRow {
    pub(crate) user_id: UserId,
    pub(crate) email: String,
    pub(crate) role: Role,
    pub(crate) status: UserStatus,
    pub(crate) factor_failures: i32,
    pub(crate) factor_window_ends_at: Option<DateTime<Utc>>,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) updated_at: DateTime<Utc>,
}

impl UserRow {
    /// The wrong answers to challenges of logins.
    pub(crate) fn wrong_answers(&self, now: DateTime<Utc>) -> Failures {
        Failures::from_stored(self.factor_failures, self.factor_window_ends_at, now)
    }
}

/// Selects users: the span name of the statement, its end, and the parameters.
macro_rules! select_users {
    ($name:literal, $end:literal, $($parameter:expr),+ $(,)?) => {
        sqlx::query_as!(
            UserRow,
            "-- " + $name + r#"
            select user_id as "user_id: UserId", email, role as "role: Role", status as "status: UserStatus", factor_failures,
                factor_window_ends_at, created_at, updated_at
            from identity.users "# + $end,
            $($parameter),+
        )
    };
}

/// Finds the user with an address and locks it until the transaction ends.
pub(crate) async fn find_by_email_for_update(
    tx: &mut TenantTx,
    email: &EmailKey,
) -> Result<Option<UserRow>, Error> {
    let user =
        select_users!("user.find_by_email_for_update", "where email_key = $1 for update", email.as_str());
    Ok(user.fetch_optional(tx.connection()).await?)
}

/// Inserts an invited user.
pub(crate) async fn insert_invited(
    tx: &mut TenantTx,
    user_id: UserId,
    email: &Email,
    role: Role,
) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- user.insert_invited
        insert into identity.users
            (user_id, tenant_id, email, email_key, email_skeleton, role, status, created_at, updated_at)
        values ($1, $2, $3, $4, $7, $5, 'invited', $6, $6)",
        user_id.0,
        tx.tenant_id().as_str(),
        email.typed(),
        email.key().as_str(),
        role.as_str(),
        tx.now(),
        email.key().skeleton()
    );
    tx.execute(statement).await.map(drop)
}

/// Counts the users of the tenant, at most up to `limit`.
pub(crate) async fn count(tx: &mut TenantTx, limit: i64) -> Result<i64, Error> {
    let count = sqlx::query_scalar!(
        r#"-- user.count
        select count(*) as "count!" from (select from identity.users limit $1) as users"#,
        limit
    );
    Ok(count.fetch_one(tx.connection()).await?)
}

/// Updates an invited user to the role and the address of a newer invite.
pub(crate) async fn mark_reinvited(
    tx: &mut TenantTx,
    user_id: UserId,
    email: &Email,
    role: Role,
) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- user.mark_reinvited
        update identity.users
        set email = $2, role = $3, version = version + 1, updated_at = $4
        where user_id = $1 and status = 'invited'",
        user_id.0,
        email.typed(),
        role.as_str(),
        tx.now()
    );
    tx.execute(statement).await.map(drop)
}

/// Deletes an invited user.
pub(crate) async fn delete_invited(tx: &mut TenantTx, user_id: UserId) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- user.delete_invited
        delete from identity.users where user_id = $1 and status = 'invited'",
        user_id.0
    );
    tx.execute(statement).await.map(drop)
}

/// Activates an invited user with a password. Returns whether the user was invited.
pub(crate) async fn mark_active(
    tx: &mut TenantTx,
    user_id: UserId,
    role: Role,
    password: &PasswordDigest,
) -> Result<bool, Error> {
    let statement = sqlx::query!(
        "-- user.mark_active
        update identity.users
        set status = 'active', role = $2, password_digest = $3, credential_version = credential_version + 1,
            version = version + 1, updated_at = $4
        where user_id = $1 and status = 'invited'",
        user_id.0,
        role.as_str(),
        password.as_str(),
        tx.now()
    );
    Ok(tx.execute(statement).await? == 1)
}

/// Replaces the digest of a password by one with the current parameters, unless the password has changed.
pub(crate) async fn replace_digest(
    tx: &mut TenantTx,
    user_id: UserId,
    old: &PasswordDigest,
    new: &PasswordDigest,
) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- user.replace_digest
        update identity.users set password_digest = $3 where user_id = $1 and password_digest = $2",
        user_id.0,
        old.as_str(),
        new.as_str()
    );
    tx.execute(statement).await.map(drop)
}

/// Finds a user of the tenant.
pub(crate) async fn find(tx: &mut TenantTx, user_id: UserId) -> Result<Option<UserRow>, Error> {
    let user = select_users!("user.find", "where user_id = $1", user_id.0);
    Ok(user.fetch_optional(tx.connection()).await?)
}

/// Finds a user of the tenant and locks it until the transaction ends.
pub(crate) async fn find_for_update(tx: &mut TenantTx, user_id: UserId) -> Result<Option<UserRow>, Error> {
    let user = select_users!("user.find_for_update", "where user_id = $1 for update", user_id.0);
    Ok(user.fetch_optional(tx.connection()).await?)
}

/// Finds an active user of an active tenant by address and locks it until the transaction ends.
pub(crate) async fn find_active_for_update(
    tx: &mut TenantTx,
    email: &EmailKey,
) -> Result<Option<UserRow>, Error> {
    let user = select_users!(
        "user.find_active_for_update",
        "where email_key = $1 and status = 'active'
            and exists (select from identity.tenants where tenant_id = users.tenant_id and status = 'active')
        for no key update",
        email.as_str()
    );
    Ok(user.fetch_optional(tx.connection()).await?)
}

/// Lists the users of the tenant after a given one, oldest first, optionally with one address or one status only.
pub(crate) async fn list(
    tx: &mut TenantTx,
    email: Option<&EmailKey>,
    with_status: Option<UserStatus>,
    after: Option<UserId>,
    limit: i64,
) -> Result<Vec<UserRow>, Error> {
    let users = select_users!(
        "user.list",
        "where ($1::text is null or email_key = $1)
            and ($2::text is null or status = $2)
            and ($3::uuid is null or user_id > $3)
        order by user_id
        limit $4",
        email.map(EmailKey::as_str),
        with_status.map(UserStatus::as_str),
        after.map(|id| id.0),
        limit
    );
    Ok(users.fetch_all(tx.connection()).await?)
}

/// Changes the password of an active user, unless the credential version has changed. Revokes all sessions except the kept one.
/// Returns whether the password was changed.
pub(crate) async fn mark_password_changed(
    tx: &mut TenantTx,
    user_id: UserId,
    seen_credential_version: i64,
    password: &PasswordDigest,
    kept_session_id: Option<SessionId>,
) -> Result<bool, Error> {
    let statement = sqlx::query!(
        "-- user.mark_password_changed
        update identity.users
        set password_digest = $3, credential_version = credential_version + 1, kept_session_id = $4,
            version = version + 1, updated_at = $5
        where user_id = $1 and credential_version = $2 and status = 'active'",
        user_id.0,
        seen_credential_version,
        password.as_str(),
        kept_session_id.map(|id| id.0),
        tx.now()
    );
    Ok(tx.execute(statement).await? == 1)
}

/// Sets the password of an active user after a reset and revokes all sessions. With `revokes_api_keys`, also revokes the API
/// keys that the user created. Returns whether the user was active.
pub(crate) async fn mark_password_reset(
    tx: &mut TenantTx,
    user_id: UserId,
    password: &PasswordDigest,
    revokes_api_keys: bool,
) -> Result<bool, Error> {
    let statement = sqlx::query!(
        "-- user.mark_password_reset
        update identity.users
        set password_digest = $2, credential_version = credential_version + 1, kept_session_id = null,
            api_key_version = case when $3 then credential_version + 1 else api_key_version end,
            version = version + 1, updated_at = $4
        where user_id = $1 and status = 'active'",
        user_id.0,
        password.as_str(),
        revokes_api_keys,
        tx.now()
    );
    Ok(tx.execute(statement).await? == 1)
}

/// An active administrator.
pub(crate) struct Admin {
    pub(crate) user_id: UserId,
    pub(crate) email: EmailKey,
}

/// The most administrators that [`lock_oldest_admins`] returns.
const MAX_OLDEST_ADMINS: i64 = 20;

/// Locks the oldest active administrators of the tenant until the transaction ends, in the order of their ids. One in the result is the
/// only one of the tenant. They get the notices: a tenant can have many administrators, and new ones must not take the place of the
/// oldest.
pub(crate) async fn lock_oldest_admins(tx: &mut TenantTx) -> Result<Vec<Admin>, Error> {
    let admins = sqlx::query!(
        r#"-- user.lock_oldest_admins
        select user_id as "user_id: UserId", email_key
        from identity.users
        where role = 'admin' and status = 'active'
        order by user_id
        limit $1
        for update"#,
        MAX_OLDEST_ADMINS
    )
    .fetch_all(tx.connection())
    .await?;
    let admins = admins
        .into_iter()
        .map(|row| Admin { user_id: row.user_id, email: EmailKey::from_stored(row.email_key) });
    Ok(admins.collect())
}

/// Locks an active user until the transaction ends. Returns the credential version.
pub(crate) async fn lock_active(tx: &mut TenantTx, user_id: UserId) -> Result<Option<i64>, Error> {
    let version = sqlx::query_scalar!(
        "-- user.lock_active
        select credential_version from identity.users where user_id = $1 and status = 'active' for no key update",
        user_id.0
    );
    Ok(version.fetch_optional(tx.connection()).await?)
}

/// Records whether a user has a second factor. Ends the lock of earlier ones.
pub(crate) async fn mark_factor(tx: &mut TenantTx, user_id: UserId, has_factor: bool) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- user.mark_factor
        update identity.users
        set has_factor = $2, factor_failures = 0, factor_window_ends_at = null, version = version + 1, updated_at = $3
        where user_id = $1",
        user_id.0,
        has_factor,
        tx.now()
    );
    tx.execute(statement).await.map(drop)
}

/// The credentials of a user that a change revokes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Revocation {
    /// All sessions.
    pub(crate) sessions: bool,
    /// All sessions, and the API keys that the user created. Keys are revoked by the credential version, so sessions are too.
    pub(crate) api_keys: bool,
}

/// Sets role and status, and revokes credentials.
pub(crate) async fn mark_status(
    tx: &mut TenantTx,
    user_id: UserId,
    role: Role,
    status: UserStatus,
    revokes: Revocation,
) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- user.mark_status
        update identity.users
        set role = $2, status = $3, credential_version = credential_version + $4,
            api_key_version = case when $6 then credential_version + $4 else api_key_version end,
            kept_session_id = case when $4 = 0 then kept_session_id end, version = version + 1, updated_at = $5
        where user_id = $1",
        user_id.0,
        role.as_str(),
        status.as_str(),
        i64::from(revokes.sessions || revokes.api_keys),
        tx.now(),
        revokes.api_keys
    );
    tx.execute(statement).await.map(drop)
}

/// Finds the account status of a user or of a deleted one, for the session service.
pub(crate) async fn find_record(tx: &mut TenantTx, user_id: UserId) -> Result<Option<SubjectRecord>, Error> {
    let record = sqlx::query_as!(
        SubjectRecord,
        r#"-- user.find_record
        select
            user_id as "user_id!: UserId", tenant_id as "tenant_id!: TenantId", role as "role!: Role", status as "status!: UserStatus",
            credential_version as "credential_version!", kept_session_id as "kept_session_id: SessionId",
            api_key_version as "api_key_version!", has_factor as "has_factor!", false as "is_deleted!",
            version as "version!"
        from identity.users
        where user_id = $1
        union all
        select user_id, tenant_id, 'member', 'disabled', credential_version, null, credential_version, false, true, version
        from identity.deleted_users
        where user_id = $1"#,
        user_id.0
    );
    Ok(record.fetch_optional(tx.connection()).await?)
}

/// Counts the active users of all tenants: those with a second factor, and those without.
pub(crate) async fn count_active(database: &Database) -> Result<[i64; 2], Error> {
    let row = sqlx::query!(
        r#"-- user.count_active
        select users as "users!", with_factor as "with_factor!" from identity.count_active_users()"#
    )
    .fetch_one(database.pool())
    .await?;
    Ok([row.with_factor, row.users - row.with_factor])
}

/// Counts the Argon2 parameters of the passwords of all tenants, or of a sample of about 100,000.
pub(crate) async fn count_password_costs(database: &Database) -> Result<PasswordCosts, Error> {
    let rows = sqlx::query!(
        r#"-- user.count_password_costs
        select parameters as "parameters!", passwords as "passwords!" from identity.count_password_costs()"#
    )
    .fetch_all(database.pool())
    .await?;
    // A digest with invalid parameters is compared with those of the settings.
    let counts = rows
        .into_iter()
        .filter_map(|row| Some((Argon2Settings::from_phc(&row.parameters)?, row.passwords.unsigned_abs())));
    Ok(PasswordCosts::new(counts.collect()))
}
