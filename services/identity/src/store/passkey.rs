//! Passkeys. A caller locks the user first, as for the other factors.

use chrono::{DateTime, Utc};
use contract::factors::{Factor, FactorType};
use database::{Database, Error, TenantTx};
use tenancy::{FactorId, TenantId, UserId};
use uuid::Uuid;

use crate::domain::email::EmailKey;
use crate::domain::factor::CHALLENGE_TTL;
use crate::domain::passkey::{NewPasskey, StoredPasskey};

/// The constraint that rejects a credential id that the user has already.
pub(crate) const CREDENTIAL_KEY: &str = "passkeys_credential_id_key";

/// Inserts a passkey.
pub(crate) async fn insert(
    tx: &mut TenantTx,
    user_id: UserId,
    factor_id: FactorId,
    name: &str,
    passkey: &NewPasskey,
) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- passkey.insert
        insert into identity.passkeys (
            factor_id, tenant_id, user_id, name, credential_id, public_key, sign_count, backup_eligible, created_at
        )
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        factor_id.0,
        tx.tenant_id().as_str(),
        user_id.0,
        name,
        passkey.credential_id,
        passkey.public_key,
        i64::from(passkey.sign_count),
        passkey.backup_eligible,
        tx.now()
    );
    tx.execute(statement).await.map(drop)
}

/// Renames a passkey of a user. Returns it.
pub(crate) async fn rename(
    tx: &mut TenantTx,
    user_id: UserId,
    factor_id: FactorId,
    name: &str,
) -> Result<Option<Factor>, Error> {
    let row = sqlx::query!(
        "-- passkey.rename
        update identity.passkeys set name = $3 where factor_id = $1 and user_id = $2
        returning name, created_at, last_used_at",
        factor_id.0,
        user_id.0,
        name
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(row.map(|row| Factor {
        factor_id,
        kind: FactorType::Passkey,
        name: Some(row.name),
        created_at: row.created_at,
        last_used_at: row.last_used_at,
    }))
}

/// Lists the passkeys of a user, oldest first.
pub(crate) async fn list(tx: &mut TenantTx, user_id: UserId) -> Result<Vec<StoredPasskey>, Error> {
    let rows = sqlx::query!(
        r#"-- passkey.list
        select factor_id as "factor_id: FactorId", user_handle, credential_id, public_key, sign_count, backup_eligible
        from identity.passkeys
        join identity.users using (user_id)
        where user_id = $1
        order by factor_id"#,
        user_id.0
    )
    .fetch_all(tx.connection())
    .await?;
    let passkeys = rows.into_iter().map(|row| StoredPasskey {
        factor_id: row.factor_id,
        user_handle: row.user_handle,
        passkey: NewPasskey {
            credential_id: row.credential_id,
            public_key: row.public_key,
            sign_count: counter(row.sign_count),
            backup_eligible: row.backup_eligible,
        },
    });
    Ok(passkeys.collect())
}

/// The counter has 32 bits. A damaged row matches no assertion.
fn counter(stored: i64) -> u32 {
    u32::try_from(stored).unwrap_or(u32::MAX)
}

/// Returns the user handle of a user.
pub(crate) async fn user_handle(tx: &mut TenantTx, user_id: UserId) -> Result<Uuid, Error> {
    let handle = sqlx::query_scalar!(
        "-- passkey.user_handle
        select user_handle from identity.users where user_id = $1",
        user_id.0
    );
    Ok(handle.fetch_one(tx.connection()).await?)
}

/// A passkey with its user.
pub(crate) struct FoundPasskey {
    pub(crate) tenant_id: TenantId,
    pub(crate) user_id: UserId,
    pub(crate) email: EmailKey,
    pub(crate) stored: StoredPasskey,
}

/// Finds the passkey with a credential id of the user with a handle, of any tenant.
pub(crate) async fn find(
    database: &Database,
    credential_id: Vec<u8>,
    user_handle: Uuid,
) -> Result<Option<FoundPasskey>, Error> {
    let row = sqlx::query!(
        r#"-- passkey.find
        select
            tenant_id as "tenant_id!: TenantId", user_id as "user_id!: UserId", email_key as "email_key!",
            user_handle as "user_handle!", factor_id as "factor_id!: FactorId", public_key as "public_key!",
            sign_count as "sign_count!", backup_eligible as "backup_eligible!"
        from identity.find_passkey($1, $2)"#,
        credential_id,
        user_handle
    )
    .fetch_optional(database.pool())
    .await?;
    Ok(row.map(|row| FoundPasskey {
        tenant_id: row.tenant_id,
        user_id: row.user_id,
        email: EmailKey::from_stored(row.email_key),
        stored: StoredPasskey {
            factor_id: row.factor_id,
            user_handle: row.user_handle,
            passkey: NewPasskey {
                credential_id,
                public_key: row.public_key,
                sign_count: counter(row.sign_count),
                backup_eligible: row.backup_eligible,
            },
        },
    }))
}

/// Records a login with a passkey. Returns whether the passkey exists and the counter is above the stored one, or both are 0: of several
/// logins with one counter, one succeeds.
pub(crate) async fn mark_used(
    tx: &mut TenantTx,
    factor_id: FactorId,
    sign_count: u32,
) -> Result<bool, Error> {
    let statement = sqlx::query!(
        "-- passkey.mark_used
        update identity.passkeys set sign_count = $2, last_used_at = $3
        where factor_id = $1 and (sign_count < $2 or sign_count = 0 and $2 = 0)",
        factor_id.0,
        i64::from(sign_count),
        tx.now()
    );
    Ok(tx.execute(statement).await? == 1)
}

/// Records the challenge of a login. Returns whether it was not used before. Deletes the expired ones of the user.
pub(crate) async fn use_challenge(
    tx: &mut TenantTx,
    user_id: UserId,
    challenge: &[u8],
    expires_at: DateTime<Utc>,
) -> Result<bool, Error> {
    let delete = sqlx::query!(
        "-- passkey.delete_used_challenges
        delete from identity.used_challenges where user_id = $1 and expires_at <= $2",
        user_id.0,
        // Another replica can have a clock that is behind.
        tx.now() - CHALLENGE_TTL
    );
    tx.execute(delete).await?;
    let insert = sqlx::query!(
        "-- passkey.use_challenge
        insert into identity.used_challenges (challenge, tenant_id, user_id, expires_at)
        values ($1, $2, $3, $4)
        on conflict (challenge) do nothing",
        challenge,
        tx.tenant_id().as_str(),
        user_id.0,
        expires_at
    );
    Ok(tx.execute(insert).await? == 1)
}
