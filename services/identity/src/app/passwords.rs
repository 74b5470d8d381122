//! Passwords: the check of a new password, and the password change.

use std::io;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use audit::{AuditEvent, EventName};
use authn::Caller;
use contract::ProblemKind;
use contract::identity::ChangePassword;
use data_encoding::HEXLOWER;
use database::Error;
use hashing::{Lane, Overloaded, Password, PasswordDigest, Requester};
use ratelimit::source;
use service::Problem;
use tenancy::{Actor, SessionId, TenantId, UserId};

use super::{App, MailLimit, Work};
use crate::breach_set::Entry;
use crate::domain::account::{Account, AccountKey, AccountRef};
use crate::domain::email::EmailKey;
use crate::domain::password::{self, PasswordPolicy};
use crate::domain::throttle::Purpose;
use crate::message::{Message, Notice};
use crate::store::{factor, reset, tenant, user};

/// Notices of changed passwords. Each tenant has its own count: another tenant must not be able to prevent them.
const PASSWORD_NOTICES: MailLimit =
    MailLimit::per_hour("password_notice_recipient", NonZeroU32::new(5).unwrap()).per_tenant();
/// Hashes of a tenant per turn in the reserved lane of the hash queue.
const HASHES_OF_TENANT: u32 = 4;

impl App {
    /// Prepares a new password, or rejects it by the policy or the mounted breach set. `pointer` is its field in the request.
    ///
    /// # Errors
    /// The password is rejected; 503 if the breach set cannot be read.
    pub(super) async fn check_new_password(
        &self,
        raw: &str,
        email: &EmailKey,
        tenant_id: &TenantId,
        pointer: &'static str,
    ) -> Result<Password, Problem> {
        let policy = self.password_policy(tenant_id).await?;
        let min = policy.min_length;
        let rejected = |kind: ProblemKind| match kind {
            ProblemKind::PasswordTooShort => Problem::new(kind)
                .detail(format!("Use at least {min} characters. Leading and trailing spaces do not count."))
                .field(pointer, kind.code(), format!("use at least {min} characters")),
            _ => Problem::new(kind).field(pointer, kind.code(), kind.title()),
        };
        let password = policy.accept(raw, email, tenant_id).map_err(rejected)?;
        let breached = self.is_breached(&password).await.map_err(|error| {
            Problem::new(ProblemKind::DependencyUnavailable).caused_by(BreachSetError(error))
        })?;
        if breached { Err(rejected(ProblemKind::PasswordBreached)) } else { Ok(password) }
    }

    /// Returns the password policy of a tenant.
    async fn password_policy(&self, tenant_id: &TenantId) -> Result<PasswordPolicy, Error> {
        let mut tx = self.begin(tenant_id, Actor::Anonymous).await?;
        let tenant = tenant::find(&mut tx).await?;
        Ok(self.policy.for_tenant(tenant.map_or(0, |tenant| tenant.password_min_length)))
    }

    async fn is_breached(&self, password: &Password) -> io::Result<bool> {
        let Some(set) = self.config.breach_set.as_ref().map(Arc::clone) else { return Ok(false) };
        // Neither surrounding spaces nor full-width and similar characters make a password harder to guess.
        let plain = password::plain_spelling(password.expose().trim());
        let entries = [password.expose(), password.expose().trim(), &plain].map(Entry::from_password);
        let found = tokio::task::spawn_blocking(move || {
            Ok(set.contains(entries[0])? || set.contains(entries[1])? || set.contains(entries[2])?)
        });
        found.await.map_err(io::Error::other).flatten()
    }

    /// Hashes a new password. The caller has verified a single-use token or the current password.
    ///
    /// # Errors
    /// 503 `overloaded`.
    pub(super) async fn hash(
        &self,
        password: Password,
        address: IpAddr,
        account: AccountRef<'_>,
    ) -> Result<PasswordDigest, Problem> {
        let requester =
            reserved_lane(address, account.tenant_id(), &self.config.limiter_keys.get().account(&account));
        let hashed = self.hashes.hash(requester, password).await;
        Ok(hashed.map_err(|Overloaded| ProblemKind::Overloaded)?)
    }

    /// Changes a password. The current password is checked first, as an attempt like a login, then the new one. `caller` is the
    /// optional bearer: it must belong to the user, and its session is kept. All other sessions are revoked.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn change_password(
        &self,
        tenant_id: &TenantId,
        user_id: UserId,
        caller: Option<&Caller>,
        request: &ChangePassword,
        address: IpAddr,
    ) -> Result<(), Problem> {
        let kept = match caller {
            Some(caller) => Some(session_of(caller, tenant_id, user_id).ok_or(ProblemKind::NotFound)?),
            None => None,
        };
        let by_id = AccountRef::User(tenant_id, user_id);
        let email = user::find_email(&self.database, tenant_id, user_id).await?;
        let account = email.as_ref().map_or(by_id, |email| AccountRef::Email(tenant_id, email));
        let attempt = self.begin_attempt(account, by_id, address, Purpose::ChangePassword).await?;
        let current = request.current_password.expose();
        let verified = self.verify(attempt, current).await.map_err(wrong_current_password)?;
        // Otherwise, the password alone could replace itself, and so keep the owner out.
        let lacks_factor = verified.account().subject.has_factor
            && caller.is_none_or(|caller| {
                !caller.used_factor() || caller.require_recent_login(self.clock.now()).is_err()
            });
        let digest = if lacks_factor {
            Err(ProblemKind::ReauthenticationRequired.into())
        } else {
            self.new_digest(verified.account(), request, address).await
        };
        let (account, digest) = self.settle(verified, digest).await.map_err(wrong_current_password)?;
        let mut tx = self.begin(tenant_id, Actor::User { user_id }).await?;
        // Fails if the password was changed since the current one was checked.
        let seen = account.subject.credential_version;
        if !user::mark_password_changed(&mut tx, user_id, seen, &digest, kept).await? {
            return Err(wrong_current_password(ProblemKind::LoginFailed.into()));
        }
        // A reset mail that was requested before must not undo the change.
        reset::mark_replaced(&mut tx, user_id, None).await?;
        factor::delete_challenges(&mut tx, user_id, None).await?;
        tx.audit(AuditEvent::new(EventName::AuthnPasswordChange).about("change").user(user_id));
        tx.password_changed(user_id, &account.email).await?;
        Ok(tx.commit().await?)
    }

    /// Checks and hashes the new password of a change.
    async fn new_digest(
        &self,
        account: &Account,
        request: &ChangePassword,
        address: IpAddr,
    ) -> Result<PasswordDigest, Problem> {
        let (tenant_id, email) = (&account.tenant.tenant_id, &account.email);
        let new = request.new_password.expose();
        let new = self.check_new_password(new, email, tenant_id, "/new_password").await?;
        let current = password::prepare(request.current_password.expose());
        if current.is_some_and(|current| current.expose() == new.expose()) {
            let kind = ProblemKind::PasswordUnchanged;
            return Err(Problem::new(kind).field("/new_password", kind.code(), kind.title()));
        }
        self.hash(new, address, AccountRef::Email(tenant_id, email)).await
    }
}

impl Work<'_> {
    /// Sends the messages after a password change: the account status, and a notice if mail is configured.
    pub(super) async fn password_changed(&mut self, user_id: UserId, email: &EmailKey) -> Result<(), Error> {
        self.send(&Message::PushUserStatus { user_id });
        if self.app.can_mail && self.may_mail(&PASSWORD_NOTICES, email).await? {
            self.send(&Message::MailNotice(Notice::Password { user_id, changed_at: self.now() }));
        }
        Ok(())
    }
}

/// Adapts the text of a failed login. The text is the same for an unknown user.
fn wrong_current_password(problem: Problem) -> Problem {
    if problem.kind() != ProblemKind::LoginFailed {
        return problem;
    }
    problem.detail(
        "The current password is wrong. After several failures, wait a few minutes or reset the password.",
    )
}

/// The client of a hash in the open lane. The networks of its address take turns, with the same widths as in the rate limits.
pub(super) fn open_lane(address: IpAddr) -> Requester {
    Requester::new(Lane::Open, networks(address))
}

/// The client of a hash in the reserved lane. The account and its tenant take turns too: otherwise users with many known addresses
/// could fill the lane. In the open lane the account is not verified, and its turns would let an attacker delay its owner.
pub(super) fn reserved_lane(address: IpAddr, tenant_id: &TenantId, account: &AccountKey) -> Requester {
    let account = (format!("account {}", HEXLOWER.encode(&account.current)), 1);
    let tenant = (format!("tenant {tenant_id}"), HASHES_OF_TENANT);
    Requester::new(Lane::Reserved, networks(address).chain([account, tenant]))
}

fn networks(address: IpAddr) -> impl Iterator<Item = (String, u32)> {
    source(address).networks().to_vec().into_iter().map(|network| (network.name, network.width))
}

/// The breach set cannot be read, so the password is rejected.
#[derive(Debug, thiserror::Error)]
#[error("failed to read the breach set")]
struct BreachSetError(#[source] io::Error);

fn session_of(caller: &Caller, tenant_id: &TenantId, user_id: UserId) -> Option<SessionId> {
    let own = caller.tenant_id() == tenant_id && caller.user_id() == Some(user_id);
    caller.session_id().filter(|_| own)
}
