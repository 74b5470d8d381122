//! Second factors, recovery codes, and logins that wait for them. A caller locks the user first, so that all changes of the factors of
//! one user run one after the other.

use chrono::{DateTime, Utc};
use contract::factors::{Factor, FactorType};
use database::{Database, Error, TenantTx};
use hashing::TokenDigest;
use tenancy::{FactorId, UserId};

use crate::domain::email::EmailKey;
use crate::domain::factor::{
    CHALLENGE_TTL, FactorKeyId, Failures, MAX_ATTEMPTS, MAX_CHALLENGES, RecoveryCode,
};

/// A deleted factor.
pub(crate) struct Deleted {
    pub(crate) kind: FactorType,
    /// Whether logins needed it.
    pub(crate) is_confirmed: bool,
}

/// What a challenge permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    LogIn,
    /// To set up a factor and log in.
    SetUp,
    /// To log in after a set-up, and to get new recovery codes.
    RepeatSetUp,
    RegisterPasskey,
}

impl Purpose {
    const fn as_str(self) -> &'static str {
        match self {
            Self::LogIn => "log_in",
            Self::SetUp => "set_up",
            Self::RepeatSetUp => "repeat_set_up",
            Self::RegisterPasskey => "register_passkey",
        }
    }
}

/// An authenticator app.
pub(crate) struct StoredTotp {
    pub(crate) factor_id: FactorId,
    /// The encrypted secret.
    pub(crate) secret: Vec<u8>,
    /// Whether a first code has confirmed the app.
    pub(crate) is_confirmed: bool,
    pub(crate) last_step: i64,
}

/// Finds the authenticator app of a user.
pub(crate) async fn find_totp(tx: &mut TenantTx, user_id: UserId) -> Result<Option<StoredTotp>, Error> {
    let totp = sqlx::query_as!(
        StoredTotp,
        r#"-- factor.find_totp
        select factor_id as "factor_id: FactorId", secret, confirmed_at is not null as "is_confirmed!", last_step
        from identity.totp_factors
        where user_id = $1"#,
        user_id.0
    );
    Ok(totp.fetch_optional(tx.connection()).await?)
}

/// Inserts an authenticator app, or replaces one that is not confirmed.
pub(crate) async fn insert_totp(
    tx: &mut TenantTx,
    user_id: UserId,
    factor_id: FactorId,
    secret: &[u8],
) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- factor.insert_totp
        insert into identity.totp_factors as stored
            (factor_id, tenant_id, user_id, secret, created_at)
        values ($1, $2, $3, $4, $5)
        on conflict (user_id) do update set
            factor_id = excluded.factor_id, secret = excluded.secret, created_at = excluded.created_at
        where stored.confirmed_at is null",
        factor_id.0,
        tx.tenant_id().as_str(),
        user_id.0,
        secret,
        tx.now()
    );
    tx.execute(statement).await.map(drop)
}

/// Confirms an authenticator app with the code of a time step.
pub(crate) async fn confirm_totp(tx: &mut TenantTx, factor_id: FactorId, step: i64) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- factor.confirm_totp
        update identity.totp_factors set confirmed_at = $3, last_step = $2 where factor_id = $1",
        factor_id.0,
        step,
        tx.now()
    );
    tx.execute(statement).await.map(drop)
}

/// Uses the code of a time step for a login, and replaces the secret by one under another key. Returns whether neither the code of this
/// step nor that of a later one was used before: of several replicas, one accepts a code.
pub(crate) async fn use_step(
    tx: &mut TenantTx,
    factor_id: FactorId,
    step: i64,
    renewed: Option<&[u8]>,
) -> Result<bool, Error> {
    let statement = sqlx::query!(
        "-- factor.use_step
        update identity.totp_factors
        set last_step = $2, last_used_at = $3, secret = coalesce($4, secret)
        where factor_id = $1 and last_step < $2",
        factor_id.0,
        step,
        tx.now(),
        renewed
    );
    Ok(tx.execute(statement).await? == 1)
}

/// Accepts the code of the last used time step again: the request that used it failed.
pub(crate) async fn release_step(tx: &mut TenantTx, user_id: UserId, step: i64) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- factor.release_step
        update identity.totp_factors set last_step = $2 - 1 where user_id = $1 and last_step = $2 and confirmed_at is not null",
        user_id.0,
        step
    );
    tx.execute(statement).await.map(drop)
}

/// The secret of an authenticator app under the previous key.
pub(crate) struct OutdatedSecret {
    pub(crate) tenant_id: String,
    pub(crate) user_id: UserId,
    pub(crate) factor_id: FactorId,
    pub(crate) secret: Vec<u8>,
}

/// Counts the secrets of all tenants by the id of their key.
pub(crate) async fn count_by_key(database: &Database) -> Result<Vec<(Vec<u8>, i64)>, Error> {
    let rows = sqlx::query!(
        r#"-- factor.count_by_key
        select key_id as "key_id!", secrets as "secrets!" from identity.count_factors_by_key()"#
    )
    .fetch_all(database.pool())
    .await?;
    Ok(rows.into_iter().map(|row| (row.key_id, row.secrets)).collect())
}

/// Lists secrets of all tenants under a key, in the order of their factors.
pub(crate) async fn list_of_key(
    database: &Database,
    key: FactorKeyId,
    after: FactorId,
    limit: i32,
) -> Result<Vec<OutdatedSecret>, Error> {
    let secrets = sqlx::query_as!(
        OutdatedSecret,
        r#"-- factor.list_of_key
        select tenant_id as "tenant_id!", user_id as "user_id!: UserId", factor_id as "factor_id!: FactorId", secret as "secret!"
        from identity.list_factors_of_key($1, $2, $3)"#,
        &key[..],
        after.0,
        limit
    );
    Ok(secrets.fetch_all(database.pool()).await?)
}

/// Replaces an encrypted secret, unless it has changed.
pub(crate) async fn replace_secret(
    tx: &mut TenantTx,
    factor_id: FactorId,
    stored: &[u8],
    renewed: &[u8],
) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- factor.replace_secret
        update identity.totp_factors set secret = $3 where factor_id = $1 and secret = $2",
        factor_id.0,
        stored,
        renewed
    );
    tx.execute(statement).await.map(drop)
}

/// Returns the wrong answers of a user.
pub(crate) async fn find_failures(tx: &mut TenantTx, user_id: UserId) -> Result<Failures, Error> {
    let row = sqlx::query!(
        "-- factor.find_failures
        select factor_failures, factor_window_ends_at from identity.users where user_id = $1",
        user_id.0
    );
    let row = row.fetch_one(tx.connection()).await?;
    Ok(Failures::from_stored(row.factor_failures, row.factor_window_ends_at, tx.now()))
}

/// Saves the number of wrong answers of a user.
pub(crate) async fn save_failures(
    tx: &mut TenantTx,
    user_id: UserId,
    failures: Failures,
) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- factor.save_failures
        update identity.users set factor_failures = $2, factor_window_ends_at = $3 where user_id = $1",
        user_id.0,
        failures.count,
        failures.window_ends_at
    );
    tx.execute(statement).await.map(drop)
}

/// Lists the confirmed factors of a user.
pub(crate) async fn list(tx: &mut TenantTx, user_id: UserId) -> Result<Vec<Factor>, Error> {
    let rows = sqlx::query!(
        r#"-- factor.list
        select factor_id as "factor_id!: FactorId", name, created_at as "created_at!", last_used_at
        from (
            select factor_id, null as name, created_at, last_used_at
            from identity.totp_factors
            where user_id = $1 and confirmed_at is not null
            union all
            select factor_id, name, created_at, last_used_at from identity.passkeys where user_id = $1
        ) as factors
        order by factor_id"#,
        user_id.0
    )
    .fetch_all(tx.connection())
    .await?;
    let factors = rows.into_iter().map(|row| Factor {
        factor_id: row.factor_id,
        kind: if row.name.is_some() { FactorType::Passkey } else { FactorType::Totp },
        name: row.name,
        created_at: row.created_at,
        last_used_at: row.last_used_at,
    });
    Ok(factors.collect())
}

/// Returns whether a user has a confirmed factor.
pub(crate) async fn exists(tx: &mut TenantTx, user_id: UserId) -> Result<bool, Error> {
    let exists = sqlx::query_scalar!(
        r#"-- factor.exists
        select exists (select from identity.totp_factors where user_id = $1 and confirmed_at is not null)
            or exists (select from identity.passkeys where user_id = $1) as "exists!""#,
        user_id.0
    );
    Ok(exists.fetch_one(tx.connection()).await?)
}

/// Deletes the factors of a user, or one of them. Returns the deleted ones.
pub(crate) async fn delete(
    tx: &mut TenantTx,
    user_id: UserId,
    factor_id: Option<FactorId>,
) -> Result<Vec<Deleted>, Error> {
    let rows = sqlx::query!(
        r#"-- factor.delete
        with apps as (
            delete from identity.totp_factors where user_id = $1 and ($2::uuid is null or factor_id = $2)
            returning confirmed_at is not null as is_confirmed
        ), keys as (
            delete from identity.passkeys where user_id = $1 and ($2::uuid is null or factor_id = $2) returning true
        )
        select is_confirmed as "is_confirmed!", false as "is_passkey!" from apps
        union all
        select true, true from keys"#,
        user_id.0,
        factor_id.map(|id| id.0)
    )
    .fetch_all(tx.connection())
    .await?;
    let deleted = rows.into_iter().map(|row| Deleted {
        kind: if row.is_passkey { FactorType::Passkey } else { FactorType::Totp },
        is_confirmed: row.is_confirmed,
    });
    Ok(deleted.collect())
}

/// Replaces the recovery codes of a user.
pub(crate) async fn replace_recovery_codes(
    tx: &mut TenantTx,
    user_id: UserId,
    codes: &[RecoveryCode],
) -> Result<(), Error> {
    let delete = sqlx::query!(
        "-- factor.delete_recovery_codes
        delete from identity.recovery_codes where user_id = $1",
        user_id.0
    );
    tx.execute(delete).await?;
    let digests: Vec<_> = codes.iter().map(|code| code.digest().as_bytes().to_vec()).collect();
    let insert = sqlx::query!(
        "-- factor.insert_recovery_codes
        insert into identity.recovery_codes (user_id, tenant_id, digest) select $1, $2, unnest($3::bytea[])",
        user_id.0,
        tx.tenant_id().as_str(),
        &digests
    );
    tx.execute(insert).await.map(drop)
}

/// Returns the number of unused recovery codes of a user.
pub(crate) async fn count_recovery_codes(tx: &mut TenantTx, user_id: UserId) -> Result<i64, Error> {
    let count = sqlx::query_scalar!(
        r#"-- factor.count_recovery_codes
        select count(*) as "count!" from identity.recovery_codes where user_id = $1"#,
        user_id.0
    );
    Ok(count.fetch_one(tx.connection()).await?)
}

/// Uses a recovery code. Returns whether the user had it.
pub(crate) async fn use_recovery_code(
    tx: &mut TenantTx,
    user_id: UserId,
    digest: TokenDigest,
) -> Result<bool, Error> {
    let statement = sqlx::query!(
        "-- factor.use_recovery_code
        delete from identity.recovery_codes where user_id = $1 and digest = $2",
        user_id.0,
        digest.as_bytes()
    );
    Ok(tx.execute(statement).await? == 1)
}

/// A challenge that is not stored yet.
pub(crate) struct NewChallenge {
    pub(crate) digest: TokenDigest,
    /// The version of the verified password.
    pub(crate) credential_version: i64,
    pub(crate) purpose: Purpose,
    /// The network of the login; `None` if the caller has a session.
    pub(crate) network: Option<String>,
}

/// Inserts a challenge of a user. Deletes the expired ones, and those above [`MAX_CHALLENGES`]: first the oldest of the networks with the
/// most challenges, so that logins from one network do not delete the challenge of another one. Returns its end.
pub(crate) async fn insert_challenge(
    tx: &mut TenantTx,
    user_id: UserId,
    challenge: &NewChallenge,
) -> Result<DateTime<Utc>, Error> {
    let expires_at = tx.now() + CHALLENGE_TTL;
    let delete = sqlx::query!(
        "-- factor.delete_old_challenges
        delete from identity.login_challenges
        where user_id = $1 and (expires_at <= $2 or digest in (
            select active.digest
            from (
                select
                    digest,
                    created_at,
                    row_number() over (partition by network order by created_at desc) as number
                from identity.login_challenges
                where user_id = $1 and expires_at > $2
            ) as active
            order by active.number, active.created_at desc
            offset $3
        ))",
        user_id.0,
        tx.now(),
        MAX_CHALLENGES - 1
    );
    tx.execute(delete).await?;
    let insert = sqlx::query!(
        "-- factor.insert_challenge
        insert into identity.login_challenges
            (digest, tenant_id, user_id, credential_version, purpose, network, created_at, expires_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8)",
        challenge.digest.as_bytes(),
        tx.tenant_id().as_str(),
        user_id.0,
        challenge.credential_version,
        challenge.purpose.as_str(),
        challenge.network.as_deref(),
        tx.now(),
        expires_at
    );
    tx.execute(insert).await?;
    Ok(expires_at)
}

/// The user of an active challenge.
pub(crate) struct Challenged {
    pub(crate) user_id: UserId,
    pub(crate) email: EmailKey,
    pub(crate) purpose: Purpose,
    pub(crate) expires_at: DateTime<Utc>,
}

/// Finds the user of an active challenge of a login.
pub(crate) async fn find_challenged(
    tx: &mut TenantTx,
    digest: TokenDigest,
) -> Result<Option<Challenged>, Error> {
    let row = sqlx::query!(
        r#"-- factor.find_challenged
        select users.user_id as "user_id: UserId", users.email_key, challenges.purpose, challenges.expires_at
        from identity.login_challenges as challenges
        join identity.users using (user_id)
        where challenges.digest = $1 and challenges.attempts < $2 and challenges.expires_at > $3
            and challenges.purpose <> 'register_passkey' and challenges.credential_version = users.credential_version"#,
        digest.as_bytes(),
        MAX_ATTEMPTS,
        tx.now()
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(row.map(|row| Challenged {
        user_id: row.user_id,
        email: EmailKey::from_stored(row.email_key),
        purpose: match &*row.purpose {
            "set_up" => Purpose::SetUp,
            "repeat_set_up" => Purpose::RepeatSetUp,
            _ => Purpose::LogIn,
        },
        expires_at: row.expires_at,
    }))
}

/// Counts an attempt at a challenge. Returns false if the challenge is not active or for another purpose, or the password has changed
/// since it was verified.
pub(crate) async fn count_attempt(
    tx: &mut TenantTx,
    user_id: UserId,
    digest: TokenDigest,
    credential_version: i64,
    purpose: Purpose,
) -> Result<bool, Error> {
    let statement = sqlx::query!(
        "-- factor.count_attempt
        update identity.login_challenges
        set attempts = attempts + 1
        where digest = $1 and user_id = $2 and credential_version = $3 and attempts < $4 and expires_at > $5
            and purpose = $6",
        digest.as_bytes(),
        user_id.0,
        credential_version,
        MAX_ATTEMPTS,
        tx.now(),
        purpose.as_str()
    );
    Ok(tx.execute(statement).await? == 1)
}

/// Deletes the challenges of a user, or one of them.
pub(crate) async fn delete_challenges(
    tx: &mut TenantTx,
    user_id: UserId,
    digest: Option<TokenDigest>,
) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- factor.delete_challenges
        delete from identity.login_challenges where user_id = $1 and ($2::bytea is null or digest = $2)",
        user_id.0,
        digest.as_ref().map(TokenDigest::as_bytes)
    );
    tx.execute(statement).await.map(drop)
}
