//! Mails per recipient and hour. The key of a recipient is an HMAC, so that the table does not reveal addresses.

use chrono::{DateTime, TimeDelta, Utc};
use database::{Database, Error, TenantTx};

use crate::domain::account::RecipientKey;

/// The window in which mails count.
const WINDOW: TimeDelta = TimeDelta::hours(1);

/// A kind of mail with its maximum per recipient and hour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MailLimit {
    /// The name in the table and in metrics.
    pub(crate) name: &'static str,
    /// The maximum number of mails within an hour.
    pub(crate) per_hour: i32,
    /// Whether each tenant has its own count. Otherwise all tenants share one.
    pub(crate) per_tenant: bool,
}

/// The result of counting a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MailCount {
    /// The mail can be sent. `paused_until` is set if it is the last one, and is the time of the next one.
    Allowed { paused_until: Option<DateTime<Utc>> },
    /// The recipient already has the maximum. `until` is the time of the next mail.
    Limited { until: DateTime<Utc> },
}

/// Counts a mail of the transaction. Concurrent transactions for one recipient wait for each other.
pub(crate) async fn count_mail(
    tx: &mut TenantTx,
    limit: &MailLimit,
    recipient: &RecipientKey,
) -> Result<MailCount, Error> {
    let now = tx.now();
    // The newest time is the first. A full row is allowed again when its last time has left the window.
    let row = sqlx::query!(
        r#"-- recipient.count_mail
        insert into identity.recipients as known (kind, recipient_key, mailed_at, allowed)
        values ($1, $2, array[$3::timestamptz], true)
        on conflict (kind, recipient_key) do update
        set allowed = coalesce(known.mailed_at[$4::integer] <= $5, true),
            mailed_at = case
                when coalesce(known.mailed_at[$4::integer] <= $5, true)
                    then ($3::timestamptz || known.mailed_at)[1:$4::integer]
                else known.mailed_at
            end
        returning allowed, mailed_at[$4::integer] as "oldest: DateTime<Utc>""#,
        limit.name,
        recipient.as_bytes(),
        now,
        limit.per_hour,
        now - WINDOW
    )
    .fetch_one(tx.connection())
    .await?;
    Ok(match row.oldest.map(|oldest| oldest + WINDOW) {
        Some(until) if !row.allowed => MailCount::Limited { until },
        until => MailCount::Allowed { paused_until: until.filter(|until| *until > now) },
    })
}

/// Deletes recipients without a mail in the window before `now`. Returns their number, at most `limit`.
pub(crate) async fn delete_before(database: &Database, now: DateTime<Utc>, limit: i64) -> Result<i64, Error> {
    let deleted = sqlx::query_scalar!(
        r#"-- recipient.delete_before
        with deleted as (
            delete from identity.recipients where ctid = any(array(
                select ctid from identity.recipients
                where mailed_at[1] <= $1
                limit $2
                for update skip locked
            ))
            returning 1
        )
        select count(*) as "deleted!" from deleted"#,
        now - WINDOW,
        limit
    );
    Ok(deleted.fetch_one(database.pool()).await?)
}
