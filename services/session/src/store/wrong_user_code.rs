//! User codes that somebody has typed and that were none.

use chrono::{DateTime, Utc};
use database::{Error, TenantTx};
use tenancy::{TenantId, UserId};

/// Notes a wrong code.
pub(crate) async fn insert(
    tx: &mut TenantTx,
    tenant_id: &TenantId,
    user_id: UserId,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "-- wrong_user_code.insert
        insert into session.wrong_user_codes (tenant_id, user_id, entered_at) values ($1, $2, $3)",
        tenant_id.as_str(),
        user_id.0,
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// When a user typed wrong codes since a time, oldest first.
pub(crate) async fn list(
    tx: &mut TenantTx,
    user_id: UserId,
    since: DateTime<Utc>,
) -> Result<Vec<DateTime<Utc>>, Error> {
    Ok(sqlx::query_scalar!(
        "-- wrong_user_code.list
        select entered_at from session.wrong_user_codes
        where user_id = $1 and entered_at > $2
        order by entered_at",
        user_id.0,
        since
    )
    .fetch_all(tx.connection())
    .await?)
}
