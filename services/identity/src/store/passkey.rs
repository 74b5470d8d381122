//! Passkeys. A caller locks the user first, as for the other factors.

use database::{Error, TenantTx};
use tenancy::{FactorId, UserId};

use crate::domain::passkey::{NewPasskey, StoredPasskey};

/// The constraint that rejects a credential id that is registered already.
pub(crate) const CREDENTIAL_KEY: &str = "passkeys_credential_id_key";

/// Inserts a passkey.
pub(crate) async fn insert(
    tx: &mut TenantTx,
    user_id: UserId,
    name: &str,
    StoredPasskey { factor_id, user_handle, passkey }: &StoredPasskey,
) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- passkey.insert
        insert into identity.passkeys (
            factor_id, tenant_id, user_id, name, credential_id, public_key, user_handle, sign_count, backup_eligible, created_at
        )
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        factor_id.0,
        tx.tenant_id().as_str(),
        user_id.0,
        name,
        passkey.credential_id,
        passkey.public_key,
        user_handle,
        i64::from(passkey.sign_count),
        passkey.backup_eligible,
        tx.now()
    );
    tx.execute(statement).await.map(drop)
}

/// Lists the passkeys of a user, oldest first.
pub(crate) async fn list(tx: &mut TenantTx, user_id: UserId) -> Result<Vec<StoredPasskey>, Error> {
    let rows = sqlx::query!(
        r#"-- passkey.list
        select factor_id as "factor_id: FactorId", user_handle, credential_id, public_key, sign_count, backup_eligible
        from identity.passkeys
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
            // The counter has 32 bits. A damaged row matches no assertion.
            sign_count: u32::try_from(row.sign_count).unwrap_or(u32::MAX),
            backup_eligible: row.backup_eligible,
        },
    });
    Ok(passkeys.collect())
}

/// Records a login with a passkey.
pub(crate) async fn mark_used(tx: &mut TenantTx, factor_id: FactorId, sign_count: u32) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- passkey.mark_used
        update identity.passkeys set sign_count = $2, last_used_at = $3 where factor_id = $1",
        factor_id.0,
        i64::from(sign_count),
        tx.now()
    );
    tx.execute(statement).await.map(drop)
}
