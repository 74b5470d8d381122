//! Mails that wait in the outbox or failed.

use chrono::{DateTime, Utc};
use contract::identity::{MailKind, MailStatus, UndeliveredMail};
use database::{Database, Error, TenantTx};
use tenancy::{InviteId, OutboxId, TenantId, UserId};

/// The mail of an invite that the mail server has not accepted.
pub(crate) struct UndeliveredInvite {
    pub(crate) invite_id: InviteId,
    /// The end of the term of the invite.
    pub(crate) expires_at: DateTime<Utc>,
    pub(crate) is_failed: bool,
    /// The error of the last attempt, with details of the installation.
    pub(crate) last_error: Option<String>,
}

/// Lists the undelivered mails of invites, of all their terms.
pub(crate) async fn list_undelivered_invites(
    tx: &mut TenantTx,
    invites: &[InviteId],
) -> Result<Vec<UndeliveredInvite>, Error> {
    let ids: Vec<_> = invites.iter().map(|id| id.0).collect();
    let rows = sqlx::query_as!(
        UndeliveredInvite,
        r#"-- mail.list_undelivered_invites
        select
            (payload ->> 'invite_id')::uuid as "invite_id!: InviteId",
            (payload ->> 'expires_at')::timestamptz as "expires_at!",
            dead_lettered_at is not null as "is_failed!",
            last_error
        from identity.outbox
        where kind = 'mail_invite' and (payload ->> 'invite_id')::uuid = any($1)"#,
        &ids
    );
    Ok(rows.fetch_all(tx.connection()).await?)
}

/// Lists the undelivered mails of all tenants after a given one, oldest first.
pub(crate) async fn list(
    database: &Database,
    after: Option<OutboxId>,
    limit: i64,
) -> Result<Vec<UndeliveredMail>, Error> {
    let rows = sqlx::query!(
        r#"-- mail.list
        select
            mail_id as "mail_id!: OutboxId", tenant_id as "tenant_id!: TenantId", kind as "kind!", is_failed as "is_failed!",
            user_id as "user_id: UserId", created_at as "created_at!", attempts as "attempts!", due_at as "due_at!", last_error
        from identity.list_mails($1, $2)"#,
        after.map(|id| id.0),
        i32::try_from(limit).unwrap_or(i32::MAX)
    )
    .fetch_all(database.pool())
    .await?;
    let mails = rows.into_iter().map(|row| {
        Ok(UndeliveredMail {
            mail_id: row.mail_id,
            tenant_id: row.tenant_id,
            kind: kind(&row.kind)?,
            status: if row.is_failed { MailStatus::Failed } else { MailStatus::Waiting },
            user_id: row.user_id,
            created_at: row.created_at,
            attempts: row.attempts.unsigned_abs(),
            next_attempt_at: (!row.is_failed).then_some(row.due_at),
            error: row.last_error,
        })
    });
    mails.collect()
}

/// The kind of a mail by the kind of its outbox message.
fn kind(message: &str) -> Result<MailKind, Error> {
    match message {
        "mail_invite" => Ok(MailKind::Invite),
        "mail_reset" => Ok(MailKind::Reset),
        "mail_notice" => Ok(MailKind::PasswordNotice),
        "mail_admin_notice" => Ok(MailKind::AdminNotice),
        "mail_api_key_notice" => Ok(MailKind::ApiKeyNotice),
        "mail_factor_notice" => Ok(MailKind::FactorNotice),
        other => Err(Error::corrupt("outbox.kind", format!("unexpected kind {other}"))),
    }
}
