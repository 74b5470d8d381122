//! Sessions: issue, list, log out, revoke.

use audit::{Actor, AuditEvent, EventName};
use authn::Caller;
use bus::Invalidation;
use contract::internal::{Credential, IssueSession, SubjectRecord, TenantRecord};
use contract::session::{IssuedSession, Session as ListedSession, TokenType};
use contract::{Page, ProblemKind, Role, Secret};
use database::{TenantTx, UnitOfWork};
use hashing::{RawToken, TokenKind};
use service::Problem;
use service::http::Paging;
use tenancy::{SessionId, TenantId, UserId};

use super::App;
use crate::domain::account_status::AccountStatus;
use crate::domain::session::{MAX_SESSIONS, NewSession, Session, SessionLifecycle, is_use_due};
use crate::store::session::StoredSession;
use crate::store::{account_status, device_grant, session};

/// A session that is not stored yet, with its token.
struct Draft {
    stored: StoredSession,
    token: RawToken,
    role: Role,
}

impl Draft {
    fn issued(self, tenant_id: &TenantId) -> IssuedSession {
        let Session { created_under, lifecycle, .. } = self.stored.session;
        IssuedSession {
            session_id: Secret::new(self.token.expose()),
            token_type: TokenType::Bearer,
            user_id: created_under.user_id,
            tenant_id: tenant_id.clone(),
            role: self.role,
            expires_at: lifecycle.expires_at,
            idle_expires_at: lifecycle.idle_expires_at,
            recovery_codes: None,
        }
    }
}

impl App {
    /// Issues a session under the account status of the records. Records that are newer than the stored ones are applied in the same
    /// transaction. Returns `None` if the account status has changed since the login, or forbids a session.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn issue_session(
        &self,
        request: IssueSession,
    ) -> Result<Option<IssuedSession>, database::Error> {
        let IssueSession { subject, tenant, method, amr, ip, user_agent } = request;
        let (tenant_id, user_id) = (tenant.tenant_id.clone(), subject.user_id);
        let versions = AccountStatus::from_records(&tenant, &subject).versions;
        let new = NewSession { versions, method, amr, ip, user_agent, client_name: None };
        let issued = self.issue_in_one_statement(&tenant, &subject, &new).await?;
        if issued.is_some() {
            return Ok(issued);
        }
        let mut tx = self.begin(&tenant_id, Actor::User { user_id }).await?;
        // Stored records that are newer can still permit the session. Then logins of one tenant do not wait for its row.
        let mut account =
            account_status::find_since_for_update(&mut tx, user_id, tenant.version, subject.version).await?;
        if account.is_none() {
            // A new transaction: the order of the locks is tenant, user, and the user can be locked already.
            drop(tx);
            tx = self.begin(&tenant_id, Actor::User { user_id }).await?;
            self.apply_tenant(&mut tx, &tenant).await?;
            self.apply_subject(&mut tx, &subject).await?;
            account = account_status::find_for_update(&mut tx, user_id).await?;
        }
        let session = self.create_session(&mut tx, account, &new).await?;
        // Also commits if no session was created, so that the applied records are kept.
        tx.commit().await?;
        Ok(session)
    }

    /// Issues a session in one statement if the records are the stored ones and the user has fewer than [`MAX_SESSIONS`] active and few
    /// ended ones, as usual.
    async fn issue_in_one_statement(
        &self,
        tenant: &TenantRecord,
        subject: &SubjectRecord,
        new: &NewSession,
    ) -> Result<Option<IssuedSession>, database::Error> {
        let actor = Actor::User { user_id: subject.user_id };
        let mut call = self.database.call(&tenant.tenant_id, actor, self.clock.now());
        let account = AccountStatus::from_records(tenant, subject);
        let Some(draft) = self.draft_session(&mut call, Some(account), new) else { return Ok(None) };
        let inserted = session::insert_if_stored(call, (tenant, subject), new, &draft.stored).await?;
        Ok(inserted.map(|()| draft.issued(&tenant.tenant_id)))
    }

    /// Creates a session of the transaction's actor. `account` is their locked status. Returns `None` if the account status
    /// does not permit it. If the user would have more than [`MAX_SESSIONS`], revokes the least recently used ones. If many have
    /// ended, deletes those that ended first.
    pub(super) async fn create_session(
        &self,
        tx: &mut TenantTx,
        account: Option<AccountStatus>,
        new: &NewSession,
    ) -> Result<Option<IssuedSession>, database::Error> {
        let Some(draft) = self.draft_session(tx, account, new) else { return Ok(None) };
        let user_id = new.versions.user_id;
        let surplus = session::mark_surplus_revoked(tx, user_id, MAX_SESSIONS - 1).await?;
        if !surplus.is_empty() {
            tx.audit(AuditEvent::new(EventName::AuthnTokenRevoked).about("surplus_sessions").user(user_id));
        }
        for digest in surplus {
            self.invalidate(tx, Invalidation::Credential(digest));
        }
        session::delete_ended(tx, user_id).await?;
        session::insert(tx, new, &draft.stored).await?;
        Ok(Some(draft.issued(tx.tenant_id())))
    }

    /// Returns a session with its token, and records it in the audit; `None` if the account status does not permit it.
    fn draft_session<C>(
        &self,
        unit: &mut UnitOfWork<C>,
        account: Option<AccountStatus>,
        new: &NewSession,
    ) -> Option<Draft> {
        let account = account.filter(|account| account.permits_new_session(&new.versions, &new.amr))?;
        let token = RawToken::generate(TokenKind::Session, &*self.entropy);
        let session = Session {
            id: SessionId::generate(),
            created_under: new.versions,
            lifecycle: SessionLifecycle::start(&self.config.lifetimes, new.method, unit.now()),
        };
        let event = AuditEvent {
            about: Some(new.method.as_str()),
            user_id: Some(new.versions.user_id),
            session_id: Some(session.id),
            amr: new.amr.clone(),
            ip: new.ip,
            ..AuditEvent::new(EventName::SessionCreated).credential(&token.digest())
        };
        unit.audit(event);
        let stored = StoredSession { session, digest: token.digest() };
        Some(Draft { stored, token, role: account.role })
    }

    /// Returns a page of the active sessions of a user. The user is the caller, or any user of the tenant if the caller is
    /// an administrator.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn list_sessions(
        &self,
        caller: &Caller,
        user_id: UserId,
        paging: &Paging<SessionId>,
    ) -> Result<Page<ListedSession>, Problem> {
        let user_id = caller.require_self_or_admin(user_id)?;
        let mut tx = self.begin(caller.tenant_id(), caller.into()).await?;
        if !account_status::has_subject(&mut tx, user_id).await? {
            return Err(ProblemKind::NotFound.into());
        }
        let mut sessions = session::list(&mut tx, user_id, paging.after, paging.rows()).await?;
        if let Credential::Session { session_id, idle_expires_at, .. } = caller.subject().credential
            && let Some(current) = sessions.iter_mut().find(|session| session.id == session_id)
        {
            current.current = Some(true);
            if is_use_due(Some(current.last_seen_at), tx.now()) {
                // This request is a use of the session, which can be saved later.
                current.last_seen_at = tx.now();
                current.idle_expires_at = idle_expires_at;
            }
        }
        Ok(paging.page(sessions, |session| session.id))
    }

    /// Revokes the session with this raw token. The token is the credential of the request. A repetition has no effect.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn log_out(&self, token: &str) -> Result<(), Problem> {
        let token = RawToken::parse(TokenKind::Session, token).map_err(|_| ProblemKind::SessionNotFound)?;
        let session = session::find_by_digest(&self.database, token.digest()).await?;
        let (session_id, tenant_id, user_id) = session.ok_or(ProblemKind::SessionNotFound)?;
        let mut tx = self.begin(&tenant_id, Actor::User { user_id }).await?;
        if let Some(session) = session::find_for_update(&mut tx, session_id).await? {
            self.revoke(&mut tx, session).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Revokes a session by its public id. The session is one of the caller, or any of the tenant if the caller is an
    /// administrator.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn revoke_session(&self, caller: &Caller, session_id: SessionId) -> Result<(), Problem> {
        let mut tx = self.begin(caller.tenant_id(), caller.into()).await?;
        let session = session::find_for_update(&mut tx, session_id).await?;
        let is_own = |found: &StoredSession| caller.user_id() == Some(found.session.created_under.user_id);
        let session = session.filter(|found| caller.is_admin() || is_own(found));
        self.revoke(&mut tx, session.ok_or(ProblemKind::NotFound)?).await?;
        Ok(tx.commit().await?)
    }

    /// Revokes all sessions of a user, except the current one with `keep_current`. The user is the caller, or any user of the
    /// tenant if the caller is an administrator. Also denies approved device grants that no device has redeemed.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn revoke_all_sessions(
        &self,
        caller: &Caller,
        user_id: UserId,
        keep_current: bool,
    ) -> Result<(), Problem> {
        let user_id = caller.require_self_or_admin(user_id)?;
        let mut tx = self.begin(caller.tenant_id(), caller.into()).await?;
        // Locks the user, so that no session is created meanwhile.
        account_status::find_for_update(&mut tx, user_id).await?.ok_or(ProblemKind::NotFound)?;
        let kept = caller.session_id().filter(|_| keep_current);
        let revoked = session::mark_all_revoked(&mut tx, user_id, kept).await?;
        let denied = device_grant::deny_approved(&mut tx, user_id).await?;
        // A repetition changes nothing. Otherwise a user could fill the audit stream.
        if revoked + denied > 0 {
            let event = AuditEvent::new(EventName::AuthnTokenRevoked).about("all_sessions").user(user_id);
            tx.audit(event.always_recorded());
            self.invalidate(&mut tx, Invalidation::User(user_id));
        }
        Ok(tx.commit().await?)
    }

    /// Revokes a session and publishes the invalidation. Only the first revocation is audited.
    async fn revoke(&self, tx: &mut TenantTx, stored: StoredSession) -> Result<(), database::Error> {
        if let Some(lifecycle) = stored.session.lifecycle.revoke(tx.now()) {
            session::save_revocation(tx, stored.session.id, &lifecycle).await?;
            tx.audit(revoked(&stored));
        }
        self.invalidate(tx, Invalidation::Credential(stored.digest));
        Ok(())
    }
}

/// The audit event of a revoked session.
pub(crate) fn revoked(stored: &StoredSession) -> AuditEvent {
    AuditEvent {
        about: Some("session"),
        user_id: Some(stored.session.created_under.user_id),
        session_id: Some(stored.session.id),
        ..AuditEvent::new(EventName::AuthnTokenRevoked).credential(&stored.digest).always_recorded()
    }
}

/// Returns the user and the session of the caller.
///
/// # Errors
/// 403 `forbidden` for an API key.
pub(super) fn require_session(caller: &Caller) -> Result<(UserId, SessionId), Problem> {
    Ok(caller.user_id().zip(caller.session_id()).ok_or(ProblemKind::Forbidden)?)
}

/// Locks the user's row, then the session's row, and returns the account status. The session cannot be revoked until the
/// transaction ends.
///
/// # Errors
/// 401 `credential_invalid` if the session was revoked after its introspection.
pub(super) async fn lock_session(
    tx: &mut TenantTx,
    user_id: UserId,
    session_id: SessionId,
) -> Result<AccountStatus, Problem> {
    let account = account_status::find_for_update(tx, user_id).await?;
    let found = session::find_for_update(tx, session_id).await?;
    let (account, found) = account.zip(found).ok_or(ProblemKind::CredentialInvalid)?;
    if found.session.is_active(&account, tx.now()) {
        Ok(account)
    } else {
        Err(ProblemKind::CredentialInvalid.into())
    }
}
