//! Device grants: who can approve a device, when, and which session results.

use std::collections::BTreeMap;

use axum::body::Body;
use chrono::TimeDelta;
use contract::device::{Decision, DeviceCodes, DeviceError};
use contract::identity::SecondFactorPolicy;
use contract::internal::{Credential, SubjectRecord, TenantRecord};
use contract::session::{AuthMethod, SessionMethod};
use contract::{TenantStatus, UserStatus};
use hashing::RawToken;
use http::{Request, StatusCode};
use service::Clock as _;

use crate::context::{Context, subject, tenant};
use crate::device_login::{decide, inspect, poll, start, token_of};

const WRONG: &str = "ZZZZ-ZZZZ";

/// A device, and a user who has just logged in.
struct DeviceLogin {
    context: Context,
    user: SubjectRecord,
    token: RawToken,
    codes: DeviceCodes,
}

impl DeviceLogin {
    async fn start() -> Self {
        let (context, user) = (Context::start().await, subject());
        let token = context.issue(&user, &tenant()).await.unwrap();
        let codes = start(&context).await;
        Self { context, user, token, codes }
    }

    async fn decide(&self, decision: Decision) -> StatusCode {
        decide(&self.context, &self.token, &self.codes.user_code, decision).await.0
    }

    async fn approve(&self) -> StatusCode {
        self.decide(Decision::Approve).await
    }
}

#[tokio::test]
async fn user_inspects_and_approves_a_device_which_gets_a_long_session() {
    let login = DeviceLogin::start().await;
    let request = inspect(&login.context, &login.token, &login.codes.user_code.to_lowercase()).await.unwrap();
    assert_eq!(
        (request.client_name.as_deref(), request.created_at),
        (Some("Television"), login.context.clock.now())
    );
    assert_eq!(poll(&login.context, &login.codes).await.unwrap_err(), DeviceError::AuthorizationPending);
    assert_eq!(login.approve().await, StatusCode::NO_CONTENT);

    let device = poll(&login.context, &login.codes).await.unwrap();
    let now = login.context.clock.now();
    assert_eq!(device.access_token.expose(), device.session.session_id.expose());
    assert_eq!(
        (device.session.user_id, device.session.role, device.scope.as_str()),
        (login.user.user_id, login.user.role, "events:write")
    );
    assert_eq!(device.session.idle_expires_at, now + TimeDelta::days(7));
    assert_eq!(device.session.expires_at, now + TimeDelta::days(30));
    assert_eq!(device.expires_in, 30 * 24 * 3600);
    let subject = login.context.introspect(&[&token_of(&device)]).await.remove(0).unwrap();
    assert!(matches!(subject.credential, Credential::Session { method: SessionMethod::Device, .. }));
}

#[tokio::test]
async fn denied_device_gets_access_denied_at_every_poll() {
    let login = DeviceLogin::start().await;
    assert_eq!(login.decide(Decision::Deny).await, StatusCode::NO_CONTENT);
    for _ in 0..2 {
        assert_eq!(poll(&login.context, &login.codes).await.unwrap_err(), DeviceError::AccessDenied);
    }
    assert_eq!(login.approve().await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn one_of_many_concurrent_polls_gets_the_session() {
    let login = DeviceLogin::start().await;
    login.approve().await;
    let polls = (0..8).map(|_| poll(&login.context, &login.codes));
    let responses = testkit::join_all(polls).await;
    let (won, lost): (Vec<_>, Vec<_>) = responses.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 7));
    assert!(lost.iter().all(|response| matches!(response, Err(DeviceError::InvalidGrant))), "{lost:?}");
    assert_eq!(login.context.count_rows("sessions").await, 2);
}

#[tokio::test]
async fn two_of_many_concurrent_polls_are_on_time() {
    let login = DeviceLogin::start().await;
    let mut counts = BTreeMap::new();
    for response in testkit::join_all((0..8).map(|_| poll(&login.context, &login.codes))).await {
        *counts.entry(format!("{:?}", response.unwrap_err())).or_insert(0) += 1;
    }
    assert_eq!(counts, BTreeMap::from([("AuthorizationPending".into(), 2), ("SlowDown".into(), 6)]));
    // Each pair of early polls lengthened the interval.
    login.context.clock.advance(TimeDelta::seconds(19));
    assert_eq!(poll(&login.context, &login.codes).await.unwrap_err(), DeviceError::SlowDown);
    login.context.clock.advance(TimeDelta::seconds(25));
    assert_eq!(poll(&login.context, &login.codes).await.unwrap_err(), DeviceError::AuthorizationPending);
}

#[tokio::test]
async fn approval_requires_a_recent_password_login() {
    let login = DeviceLogin::start().await;
    login.context.clock.advance(TimeDelta::minutes(10) - TimeDelta::seconds(1));
    assert_eq!(login.approve().await, StatusCode::NO_CONTENT);
    let device = token_of(&poll(&login.context, &login.codes).await.unwrap());

    let next = start(&login.context).await;
    let (status, body) = decide(&login.context, &device, &next.user_code, Decision::Approve).await;
    let problem: contract::Problem = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, problem.code.as_str()), (StatusCode::FORBIDDEN, "reauthentication_required"));
    login.context.clock.advance(TimeDelta::seconds(2));
    assert_eq!(
        decide(&login.context, &login.token, &next.user_code, Decision::Approve).await.0,
        StatusCode::FORBIDDEN
    );
    // Inspecting and denying require only a session.
    assert!(inspect(&login.context, &device, &next.user_code).await.is_ok());
    assert_eq!(
        decide(&login.context, &device, &next.user_code, Decision::Deny).await.0,
        StatusCode::NO_CONTENT
    );
}

#[tokio::test]
async fn codes_expire_after_ten_minutes() {
    let login = DeviceLogin::start().await;
    let other = start(&login.context).await;
    assert_eq!(login.approve().await, StatusCode::NO_CONTENT);
    login.context.clock.advance(TimeDelta::minutes(10));
    for codes in [&login.codes, &other] {
        assert_eq!(poll(&login.context, codes).await.unwrap_err(), DeviceError::ExpiredToken);
    }
    let missing = decide(&login.context, &login.token, &other.user_code, Decision::Deny).await.0;
    assert_eq!(missing, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn approval_yields_no_session_after_a_change_of_account_status() {
    let approved = async || {
        let login = DeviceLogin::start().await;
        assert_eq!(login.approve().await, StatusCode::NO_CONTENT);
        login
    };
    let newer = |login: &DeviceLogin| SubjectRecord { version: 2, ..login.user.clone() };
    for change in ["password", "disabled", "suspended"] {
        let login = approved().await;
        let (mut user, mut tenant_record) = (newer(&login), tenant());
        match change {
            "password" => user.credential_version = 2,
            "disabled" => user.status = UserStatus::Disabled,
            _ => {
                tenant_record = TenantRecord {
                    status: TenantStatus::Suspended,
                    session_version: 2,
                    version: 2,
                    ..tenant()
                };
            }
        }
        login.context.issue(&user, &tenant_record).await;
        assert_eq!(
            poll(&login.context, &login.codes).await.unwrap_err(),
            DeviceError::InvalidGrant,
            "{change}"
        );
    }
    // A session that was kept across a password change can approve.
    let login = DeviceLogin::start().await;
    let subject = login.context.introspect(&[&login.token]).await.remove(0).unwrap();
    let Credential::Session { session_id, .. } = subject.credential else { panic!("{subject:?}") };
    let kept = SubjectRecord { credential_version: 2, kept_session_id: Some(session_id), ..newer(&login) };
    login.context.issue(&kept, &tenant()).await.unwrap();
    assert_eq!(login.approve().await, StatusCode::NO_CONTENT);
    assert!(poll(&login.context, &login.codes).await.is_ok());
}

#[tokio::test]
async fn a_session_without_the_factor_that_the_tenant_requires_approves_no_device() {
    let login = DeviceLogin::start().await;
    let earlier = start(&login.context).await;
    let approved = decide(&login.context, &login.token, &earlier.user_code, Decision::Approve).await;
    assert_eq!(approved.0, StatusCode::NO_CONTENT);
    let everyone = TenantRecord { second_factor: SecondFactorPolicy::Everyone, version: 2, ..tenant() };
    let with_factor = login.context.issue_with(&login.user, &everyone, AuthMethod::ALL).await.unwrap();
    assert_eq!(poll(&login.context, &earlier).await.unwrap_err(), DeviceError::InvalidGrant);

    let (status, body) =
        decide(&login.context, &login.token, &login.codes.user_code, Decision::Approve).await;
    let problem: contract::Problem = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, problem.code.as_str()), (StatusCode::FORBIDDEN, "reauthentication_required"));
    let approved = decide(&login.context, &with_factor, &login.codes.user_code, Decision::Approve).await;
    assert_eq!(approved.0, StatusCode::NO_CONTENT);
    assert!(poll(&login.context, &login.codes).await.is_ok());
}

/// Revokes all sessions of the user except the current one.
async fn revoke_all(login: &DeviceLogin) -> StatusCode {
    let request = Request::delete("/api/v1/auth/sessions?keep_current=true")
        .header("authorization", format!("Bearer {}", login.token.expose()))
        .header("x-user-id", login.user.user_id.to_string());
    login.context.send(request.body(Body::empty()).unwrap()).await.status()
}

#[tokio::test]
async fn revoking_all_sessions_denies_devices_that_were_approved_before() {
    let login = DeviceLogin::start().await;
    assert_eq!(login.approve().await, StatusCode::NO_CONTENT);
    let other_user = login.context.issue(&subject(), &tenant()).await.unwrap();
    let theirs = start(&login.context).await;
    let approved = decide(&login.context, &other_user, &theirs.user_code, Decision::Approve).await;
    assert_eq!(approved.0, StatusCode::NO_CONTENT);

    assert_eq!(revoke_all(&login).await, StatusCode::NO_CONTENT);
    assert_eq!(poll(&login.context, &login.codes).await.unwrap_err(), DeviceError::AccessDenied);
    assert!(poll(&login.context, &theirs).await.is_ok(), "a device of another user is not affected");
    let next = start(&login.context).await;
    assert_eq!(
        decide(&login.context, &login.token, &next.user_code, Decision::Approve).await.0,
        StatusCode::NO_CONTENT
    );
    assert!(poll(&login.context, &next).await.is_ok(), "a later approval is not affected");
}

#[tokio::test]
async fn device_that_polls_while_all_sessions_are_revoked_keeps_no_session() {
    let login = DeviceLogin::start().await;
    for _ in 0..16 {
        let codes = start(&login.context).await;
        decide(&login.context, &login.token, &codes.user_code, Decision::Approve).await;
        let (polled, revoked) = tokio::join!(poll(&login.context, &codes), revoke_all(&login));
        assert_eq!(revoked, StatusCode::NO_CONTENT);
        if let Ok(session) = polled {
            assert!(!login.context.is_active(&token_of(&session)).await);
        }
    }
}

#[tokio::test]
async fn code_of_another_tenant_gets_the_response_of_an_unknown_code() {
    let login = DeviceLogin::start().await;
    let user = SubjectRecord { tenant_id: "other".parse().unwrap(), ..subject() };
    let other = TenantRecord { tenant_id: "other".parse().unwrap(), ..tenant() };
    let other = login.context.issue(&user, &other).await.unwrap();
    let code = &login.codes.user_code;
    let response = async |user_code: &str| {
        let (status, body) = decide(&login.context, &other, user_code, Decision::Approve).await;
        let mut problem: contract::Problem = serde_json::from_slice(&body).unwrap();
        problem.request_id.clear();
        (status, problem)
    };
    assert_eq!(response(code).await, response(WRONG).await);
    assert_eq!(inspect(&login.context, &other, code).await.unwrap_err().0, StatusCode::NOT_FOUND);
    assert_eq!(login.approve().await, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn user_can_enter_ten_wrong_codes_then_one_per_six_minutes() {
    let login = DeviceLogin::start().await;
    let limited = (StatusCode::TOO_MANY_REQUESTS, "rate_limited".to_owned());
    let enter =
        async |code: &str| inspect(&login.context, &login.token, code).await.map_err(|(status, _)| status);
    assert_eq!(enter("not a code").await, Err(StatusCode::NOT_FOUND), "malformed input does not count");
    let guesses = testkit::join_all((0..16).map(|_| enter(WRONG))).await;
    let checked = guesses.iter().filter(|guess| **guess == Err(StatusCode::NOT_FOUND)).count();
    assert_eq!(checked, 10, "{guesses:?}");
    let code = &login.codes.user_code;
    assert_eq!(inspect(&login.context, &login.token, code).await, Err(limited));
    let new_session = login.context.issue(&login.user, &tenant()).await.unwrap();
    assert_eq!(
        decide(&login.context, &new_session, code, Decision::Approve).await.0,
        StatusCode::TOO_MANY_REQUESTS,
        "the limit is per user, not per session"
    );
    let other_user = login.context.issue(&subject(), &tenant()).await.unwrap();
    assert!(inspect(&login.context, &other_user, code).await.is_ok());

    login.context.clock.advance(TimeDelta::minutes(6));
    let next = start(&login.context).await;
    for _ in 0..2 {
        assert!(
            inspect(&login.context, &login.token, &next.user_code).await.is_ok(),
            "correct codes do not count"
        );
    }
    assert_eq!(
        decide(&login.context, &login.token, &next.user_code, Decision::Deny).await.0,
        StatusCode::NO_CONTENT
    );
    assert_eq!(enter(WRONG).await, Err(StatusCode::NOT_FOUND));
    assert_eq!(enter(WRONG).await, Err(StatusCode::TOO_MANY_REQUESTS));
}

#[tokio::test]
async fn a_deleted_user_leaves_no_name_and_address_of_a_device() {
    let login = DeviceLogin::start().await;
    assert_eq!(login.approve().await, StatusCode::NO_CONTENT);
    poll(&login.context, &login.codes).await.unwrap();
    let codes = start(&login.context).await;
    decide(&login.context, &login.token, &codes.user_code, Decision::Approve).await;
    let stored = async |table: &str| {
        let mut connection = login.context.database.superuser().await.unwrap();
        let count = format!("select count(coalesce(client_name, ip)) from session.{table}");
        sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(count)).fetch_one(&mut connection).await.unwrap()
    };
    assert_eq!((stored("device_grants").await, stored("sessions").await), (2, 1));
    let deleted = SubjectRecord {
        status: UserStatus::Disabled,
        credential_version: 2,
        is_deleted: true,
        version: 2,
        ..login.user.clone()
    };
    login.context.apply_subject(&deleted).await;
    assert_eq!((stored("device_grants").await, stored("sessions").await), (0, 0));
    assert_eq!(poll(&login.context, &codes).await.unwrap_err(), DeviceError::AccessDenied);
}

#[tokio::test]
async fn purges_grants_after_a_day() {
    let login = DeviceLogin::start().await;
    login.context.clock.advance(TimeDelta::hours(24) + TimeDelta::minutes(10) + TimeDelta::microseconds(1));
    let new = start(&login.context).await;
    let count = async || login.context.count_rows("device_grants").await;
    assert_eq!(count().await, 2);
    // A process purges when it starts.
    let _replica = login.context.start_replica();
    testkit::wait_until("old grants are purged", async || (count().await == 1).then_some(())).await;
    assert_eq!(poll(&login.context, &login.codes).await.unwrap_err(), DeviceError::InvalidGrant);
    assert_eq!(poll(&login.context, &new).await.unwrap_err(), DeviceError::AuthorizationPending);
}
