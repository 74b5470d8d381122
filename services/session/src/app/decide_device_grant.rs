//! Decide a device grant: a person looks at what asks under a user code, and lets it in or not.

use std::net::IpAddr;
use std::time::Duration;

use audit::{Actor, AuditEvent, EventName};
use authn::Caller;
use chrono::{DateTime, TimeDelta, Utc};
use contract::ProblemKind;
use contract::device::{DecideDevice, Decision, DeviceRequest, InspectDevice};
use contract::internal::Credential;
use contract::session::SessionMethod;
use database::TenantTx;
use ratelimit::source;
use service::Problem;
use tenancy::{SessionId, UserId};
use uuid::Uuid;

use super::App;
use crate::domain::device_grant::{DeviceGrant, is_fresh};
use crate::domain::standing::Standing;
use crate::domain::user_code::UserCode;
use crate::store::device_grant::{self, Found};
use crate::store::{standing, wrong_user_code};

/// So many wrong codes a user may type within [`WINDOW`].
const MOST_WRONG: usize = 10;
const WINDOW: TimeDelta = TimeDelta::hours(1);

/// A grant that waits for a decision, and the person who decides; both locked.
struct Pending {
    tx: TenantTx,
    grant_id: Uuid,
    credential: String,
    grant: DeviceGrant<Standing>,
    asking: DeviceRequest,
    person: Standing,
}

impl App {
    /// What asks under a code.
    pub(crate) async fn inspect_device_grant(
        &self,
        caller: &Caller,
        request: &InspectDevice,
        address: IpAddr,
    ) -> Result<DeviceRequest, Problem> {
        let session_id = caller.session_id().ok_or(ProblemKind::Forbidden)?;
        let user_code = parse(&request.user_code)?;
        let inspect = async { Ok(self.pending_grant(caller, session_id, user_code).await?.asking) };
        self.counting_mistakes(address, inspect).await
    }

    /// Lets it in as the caller, or not. Letting it in takes a session made with a password just now.
    pub(crate) async fn decide_device_grant(
        &self,
        caller: &Caller,
        request: &DecideDevice,
        address: IpAddr,
    ) -> Result<(), Problem> {
        let session_id = caller.session_id().ok_or(ProblemKind::Forbidden)?;
        if request.decision == Decision::Approve && !has_just_logged_in(caller, self.clock.now()) {
            return Err(ProblemKind::ReauthenticationRequired.into());
        }
        let user_code = parse(&request.user_code)?;
        let decide = async {
            let Pending { mut tx, grant_id, credential, grant, person, .. } =
                self.pending_grant(caller, session_id, user_code).await?;
            let decided = grant.decide(request.decision, person).map_err(|_| no_such_code())?;
            device_grant::save(&mut tx, grant_id, decided).await?;
            let told = AuditEvent {
                credential: Some(credential),
                ip: Some(address),
                ..told(caller, request.decision, person.user_id)
            };
            self.audit.record_at(&mut tx, caller.tenant_id(), told, self.clock.now()).await?;
            Ok(tx.commit().await?)
        };
        self.counting_mistakes(address, decide).await
    }

    /// Counts against the limit of wrong codes of an address: before the code is looked up, so that no two guesses at once are
    /// one too many, and given back unless it was wrong.
    async fn counting_mistakes<T>(
        &self,
        address: IpAddr,
        enter: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let (limit, source) = (self.limits.user_code(), source(address));
        self.limiter.count(&limit, &source).await?;
        let entered = enter.await;
        if entered.as_ref().err().map(Problem::kind) != Some(ProblemKind::NotFound) {
            // What was decided is decided, also when nobody can count.
            if let Err(error) = self.limiter.refund(&limit, &source).await {
                tracing::warn!(%error, "a right user code counts like a wrong one");
            }
        }
        entered
    }

    /// The grant under a code that the caller has typed. A code of another tenant, of a grant that is decided, and one that
    /// never was are the same wrong code.
    async fn pending_grant(
        &self,
        caller: &Caller,
        session_id: SessionId,
        user_code: UserCode,
    ) -> Result<Pending, Problem> {
        let now = self.clock.now();
        let mut tx = self.database.tenant(&caller.scope()).await?;
        let person = standing::find_of_session(&mut tx, session_id, now).await?;
        let person = person.ok_or(ProblemKind::CredentialInvalid)?;
        refuse_a_guesser(&mut tx, person.user_id, now).await?;
        let found = device_grant::find(&mut tx, user_code, now).await?;
        let Some(found) = found.filter(|found| found.grant == DeviceGrant::Pending) else {
            wrong_user_code::insert(&mut tx, caller.tenant_id(), person.user_id, now).await?;
            tx.commit().await?;
            return Err(no_such_code());
        };
        let Found { grant_id, credential, grant, asking } = found;
        Ok(Pending { tx, grant_id, credential, grant, asking, person })
    }
}

/// An approval makes a credential of the device's code, a denial ends what might have become one.
fn told(caller: &Caller, decision: Decision, user_id: UserId) -> AuditEvent {
    let name = match decision {
        Decision::Approve => EventName::AuthnTokenCreated,
        Decision::Deny => EventName::AuthnTokenRevoked,
    };
    let (about, user_id) = (Some("device_grant"), Some(user_id));
    AuditEvent { about, user_id, ..AuditEvent::new(name, Actor::from(caller)) }
}

/// What cannot be a code tells a guesser nothing, so it is no guess.
fn parse(typed: &str) -> Result<UserCode, Problem> {
    typed.parse().map_err(|_| no_such_code())
}

fn has_just_logged_in(caller: &Caller, now: DateTime<Utc>) -> bool {
    matches!(
        caller.subject().credential,
        Credential::Session { method: SessionMethod::Password, created_at, .. } if is_fresh(created_at, now)
    )
}

async fn refuse_a_guesser(tx: &mut TenantTx, user_id: UserId, now: DateTime<Utc>) -> Result<(), Problem> {
    let wrong = wrong_user_code::list(tx, user_id, now - WINDOW).await?;
    // The limit ends when the oldest of the last ten is out of the window.
    let Some(oldest) = wrong.iter().rev().nth(MOST_WRONG - 1) else { return Ok(()) };
    let wait = (*oldest + WINDOW - now).to_std().unwrap_or(Duration::ZERO);
    Err(Problem::new(ProblemKind::RateLimited).detail("Too many wrong codes.").retry_after(wait))
}

fn no_such_code() -> Problem {
    Problem::new(ProblemKind::NotFound).detail("No device waits under this code.")
}
