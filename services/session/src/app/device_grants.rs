//! Device grants (RFC 8628): a device starts a grant and polls it; a user inspects it and approves or denies.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use audit::{Actor, AuditEvent, EventName};
use authn::Caller;
use contract::device::{
    DecideDevice, Decision, DeviceCodes, DeviceError, DeviceErrorResponse, DeviceRequest, DeviceSession,
    InspectDevice, StartDevice,
};
use contract::internal::Credential;
use contract::session::{AuthMethod, SessionMethod};
use contract::{ProblemKind, Secret};
use database::TenantTx;
use hashing::{RawToken, TokenDigest, TokenKind};
use ratelimit::{Limit, Rate, Source, source};
use service::Problem;
use tenancy::{SessionId, TenantId, UserId};

use super::App;
use super::sessions::{lock_session, require_session};
use crate::domain::account_status::AccountStatus;
use crate::domain::device_grant::{DeviceGrant, INTERVAL_SECONDS, LIFETIME, display_name};
use crate::domain::session::NewSession;
use crate::domain::user_code::UserCode;
use crate::store::account_status;
use crate::store::device_grant::{self, NewGrant, StoredGrant};

/// Wrong codes that a user can enter, from any address.
const WRONG_CODES_OF_USER: Limit =
    Limit { name: "user_code_of_user", rate: Some(Rate::per_hour(NonZeroU32::new(10).unwrap())) };
/// The number of user codes that are tried. With billions of codes, the first one is rarely in use.
const MAX_USER_CODES: usize = 8;

/// The client of a device that polls.
pub(crate) struct Device {
    pub(crate) ip: IpAddr,
    pub(crate) user_agent: Option<String>,
}

/// An error of the routes of a device.
#[derive(Debug)]
pub(crate) enum OAuthError {
    /// An error that RFC 6749 or RFC 8628 defines.
    Device(DeviceErrorResponse),
    /// Any other error. The edge renders it in the same form.
    Problem(Problem),
}

impl From<DeviceError> for OAuthError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error.into())
    }
}

impl From<Problem> for OAuthError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<database::Error> for OAuthError {
    fn from(error: database::Error) -> Self {
        Self::Problem(error.into())
    }
}

/// A pending grant and the user who decides. Both rows are locked.
struct PendingGrant {
    tx: TenantTx,
    stored: StoredGrant,
    account: AccountStatus,
}

impl App {
    /// Starts a grant. An unknown tenant gets the same response; its grant is never approved.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn start_device_grant(
        &self,
        tenant_id: &TenantId,
        request: &StartDevice,
        ip: IpAddr,
    ) -> Result<DeviceCodes, Problem> {
        self.limiter.count(&self.config.rate_limits.device, source(ip)).await?;
        let now = self.clock.now();
        let device_code = RawToken::generate(TokenKind::DeviceCode, &*self.entropy);
        let name = |text: &Option<String>| text.as_deref().and_then(display_name);
        let request = DeviceRequest {
            client_name: name(&request.client_name).or_else(|| name(&request.client_id)),
            ip: Some(ip.to_string()),
            created_at: now,
        };
        let user_code = self.insert_grant(tenant_id, device_code.digest(), &request).await?;
        let page = &self.device_url;
        Ok(DeviceCodes {
            device_code: Secret::new(device_code.expose()),
            user_code: user_code.to_string(),
            verification_uri_complete: format!("{page}#user_code={user_code}&tenant={tenant_id}"),
            verification_uri: page.to_string(),
            expires_in: LIFETIME.num_seconds().unsigned_abs(),
            interval: INTERVAL_SECONDS.into(),
        })
    }

    /// Inserts a pending grant. Returns its user code.
    async fn insert_grant(
        &self,
        tenant_id: &TenantId,
        digest: TokenDigest,
        request: &DeviceRequest,
    ) -> Result<UserCode, Problem> {
        for _ in 0..MAX_USER_CODES {
            let grant = NewGrant {
                tenant_id,
                digest,
                user_code: UserCode::generate(&*self.entropy),
                request,
                interval_seconds: INTERVAL_SECONDS,
                expires_at: request.created_at + LIFETIME,
            };
            if device_grant::insert(&self.database, &grant).await? {
                return Ok(grant.user_code);
            }
        }
        Err(Problem::new(ProblemKind::Overloaded)
            .detail("No free user code was found. Repeat the request.")
            .retry_after(Duration::from_secs(1)))
    }

    /// Redeems an approved grant. Of concurrent polls, one gets the session. The session is created under the account versions
    /// at the approval, so an approval has no effect after a password change, disable or suspension.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn redeem_device_grant(
        &self,
        device_code: &str,
        device: Device,
    ) -> Result<DeviceSession, OAuthError> {
        let invalid_grant = DeviceError::InvalidGrant;
        let device_code = RawToken::parse(TokenKind::DeviceCode, device_code).map_err(|_| invalid_grant)?;
        let lookup = self.limiter.lock(&self.config.rate_limits.device, &source(device.ip)).await;
        let now = self.clock.now();
        let polled = device_grant::poll(&self.database, device_code.digest(), now).await?;
        drop(lookup);
        let polled = polled.ok_or(invalid_grant)?;
        let versions = polled.grant.redeem(polled.early)?;

        let (tenant_id, user_id) = (polled.tenant_id, versions.user_id);
        let mut tx = self.begin(&tenant_id, Actor::User { user_id }).await?;
        let new = NewSession {
            versions,
            method: SessionMethod::Device,
            amr: polled.amr,
            ip: Some(device.ip),
            user_agent: device.user_agent,
            client_name: polled.client_name,
        };
        // Locks the user's row before the grant's row, in the order of a decision.
        let account = account_status::find_for_update(&mut tx, user_id).await?;
        let session = self.create_session(&mut tx, account, &new).await?.ok_or(invalid_grant)?;
        if !device_grant::save(&mut tx, polled.grant_id, DeviceGrant::Redeemed, &[]).await? {
            return Err(invalid_grant.into());
        }
        tx.commit().await?;

        let scopes: Vec<_> = session.role.scopes().iter().map(|scope| scope.as_str()).collect();
        Ok(DeviceSession {
            access_token: session.session_id.clone(),
            expires_in: (session.expires_at - now).num_seconds().unsigned_abs(),
            scope: scopes.join(" "),
            session,
        })
    }

    /// Returns the request of the device with this user code.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn inspect_device_grant(
        &self,
        caller: &Caller,
        request: &InspectDevice,
        address: IpAddr,
    ) -> Result<DeviceRequest, Problem> {
        let (user_id, session_id) = require_session(caller)?;
        let user_code = parse_user_code(&request.user_code)?;
        let inspect = async {
            let pending = self.find_pending_grant(caller, user_id, session_id, user_code).await?;
            Ok(pending.stored.request)
        };
        self.limit_wrong_codes(address, inspect).await
    }

    /// Approves or denies a device as the caller. Approval requires a recent password login, with the second factor if the user has one
    /// or must have one.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn decide_device_grant(
        &self,
        caller: &Caller,
        request: &DecideDevice,
        address: IpAddr,
    ) -> Result<(), Problem> {
        let (user_id, session_id) = require_session(caller)?;
        if request.decision == Decision::Approve {
            caller.require_recent_login(self.clock.now())?;
        }
        let user_code = parse_user_code(&request.user_code)?;
        let decide = async {
            let PendingGrant { mut tx, stored, account } =
                self.find_pending_grant(caller, user_id, session_id, user_code).await?;
            let user = account.versions;
            // The session is older than a factor of the user, or than the rule of the tenant that requires one.
            if request.decision == Decision::Approve && !account.permits_new_session(&user, amr_of(caller)) {
                return Err(Problem::from(ProblemKind::ReauthenticationRequired));
            }
            let decided = stored.grant.decide(request.decision, user).ok_or_else(unknown_code)?;
            device_grant::save(&mut tx, stored.grant_id, decided, amr_of(caller)).await?;
            let name = match request.decision {
                Decision::Approve => EventName::AuthnTokenCreated,
                Decision::Deny => EventName::AuthnTokenRevoked,
            };
            tx.audit(AuditEvent::new(name).about("device_grant").user(user_id).credential(&stored.digest));
            Ok(tx.commit().await?)
        };
        self.limit_wrong_codes(address, decide).await
    }

    /// Counts a wrong code against the limit of an address.
    async fn limit_wrong_codes<T>(
        &self,
        address: IpAddr,
        lookup: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let (limit, source) = (&self.config.rate_limits.user_code(), source(address));
        let is_wrong = |problem: &Problem| problem.kind() == ProblemKind::NotFound;
        self.limiter.count_wrong(limit, source, lookup, is_wrong).await
    }

    /// Returns the pending grant with a user code that the caller entered. An unknown code, a code of another tenant and the
    /// code of a decided grant are all wrong codes with the same response.
    async fn find_pending_grant(
        &self,
        caller: &Caller,
        user_id: UserId,
        session_id: SessionId,
        user_code: UserCode,
    ) -> Result<PendingGrant, Problem> {
        let mut tx = self.begin(caller.tenant_id(), caller.into()).await?;
        // Locks the user's row, so that wrong codes from several sessions of one user are counted one after the other.
        let account = lock_session(&mut tx, user_id, session_id).await?;
        let user = Source::from(&*user_id.to_string());
        self.limiter.count_in(tx.connection(), &WRONG_CODES_OF_USER, &user).await?;
        let grant = device_grant::find_for_update(&mut tx, user_code).await?;
        let Some(stored) = grant.filter(|stored| stored.grant == DeviceGrant::Pending) else {
            tx.commit().await?;
            return Err(unknown_code());
        };
        // Only wrong codes count.
        self.limiter.refund_in(tx.connection(), &WRONG_CODES_OF_USER, &user).await?;
        Ok(PendingGrant { tx, stored, account })
    }
}

/// How the user of the caller's session authenticated.
fn amr_of(caller: &Caller) -> &[AuthMethod] {
    match &caller.subject().credential {
        Credential::Session { amr, .. } => amr,
        Credential::ApiKey { .. } | Credential::ServiceAccount { .. } => &[],
    }
}

/// Parses a user code. Malformed input does not count as a wrong code, because it reveals nothing.
fn parse_user_code(input: &str) -> Result<UserCode, Problem> {
    input.parse().map_err(|_| unknown_code())
}

fn unknown_code() -> Problem {
    Problem::new(ProblemKind::NotFound)
        .detail("The code is wrong, was already used, or is older than ten minutes. Check it, or start the login on the device again.")
}
