//! Device login: who may let a device in, when, and what comes of it.

use std::collections::BTreeMap;

use axum::body::Body;
use chrono::TimeDelta;
use contract::device::{Decision, DeviceCodes, DeviceError};
use contract::internal::{Credential, SubjectRecord, TenantRecord};
use contract::session::SessionMethod;
use contract::{TenantStatus, UserStatus};
use hashing::RawToken;
use http::{Request, StatusCode};
use service::Clock as _;

use crate::context::{Context, subject, tenant};
use crate::device::{decide, inspect, poll, start, token_of};

const WRONG: &str = "ZZZZ-ZZZZ";

/// A device, and a person who has just logged in.
struct Login {
    context: Context,
    person: SubjectRecord,
    token: RawToken,
    codes: DeviceCodes,
}

impl Login {
    async fn start() -> Self {
        let (context, person) = (Context::start().await, subject());
        let token = context.issue(&person, &tenant()).await.unwrap();
        let codes = start(&context).await;
        Self { context, person, token, codes }
    }

    async fn decide(&self, decision: Decision) -> StatusCode {
        decide(&self.context, &self.token, &self.codes.user_code, decision).await.0
    }

    async fn approve(&self) -> StatusCode {
        self.decide(Decision::Approve).await
    }
}

#[tokio::test]
async fn a_person_sees_what_asks_and_lets_it_in_for_a_long_time() {
    let login = Login::start().await;
    let asking = inspect(&login.context, &login.token, &login.codes.user_code.to_lowercase()).await.unwrap();
    assert_eq!(
        (asking.client_name.as_deref(), asking.created_at),
        (Some("Television"), login.context.clock.now())
    );
    assert_eq!(poll(&login.context, &login.codes).await.unwrap_err(), DeviceError::AuthorizationPending);
    assert_eq!(login.approve().await, StatusCode::NO_CONTENT);

    let device = poll(&login.context, &login.codes).await.unwrap();
    let now = login.context.clock.now();
    assert_eq!(device.access_token.expose(), device.session.session_id.expose());
    assert_eq!(
        (device.session.user_id, device.session.role, device.scope.as_str()),
        (login.person.user_id, login.person.role, "events:write")
    );
    assert_eq!(device.session.idle_expires_at, now + TimeDelta::days(7));
    assert_eq!(device.session.expires_at, now + TimeDelta::days(30));
    assert_eq!(device.expires_in, 30 * 24 * 3600);
    let told = login.context.introspect(&[&token_of(&device)]).await.remove(0).unwrap();
    assert!(matches!(told.credential, Credential::Session { method: SessionMethod::Device, .. }));
}

#[tokio::test]
async fn a_denied_device_is_told_so_as_often_as_it_asks() {
    let login = Login::start().await;
    assert_eq!(login.decide(Decision::Deny).await, StatusCode::NO_CONTENT);
    for _ in 0..2 {
        assert_eq!(poll(&login.context, &login.codes).await.unwrap_err(), DeviceError::AccessDenied);
    }
    assert_eq!(login.approve().await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn of_many_pollers_one_gets_the_session() {
    let login = Login::start().await;
    login.approve().await;
    let polls = (0..8).map(|_| poll(&login.context, &login.codes));
    let answers = testkit::join_all(polls).await;
    let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 7));
    assert!(lost.iter().all(|answer| matches!(answer, Err(DeviceError::InvalidGrant))), "{lost:?}");
    assert_eq!(login.context.rows("sessions").await, 2);
}

#[tokio::test]
async fn pollers_that_ask_at_once_are_in_time_once() {
    let login = Login::start().await;
    let mut counts = BTreeMap::new();
    for answer in testkit::join_all((0..8).map(|_| poll(&login.context, &login.codes))).await {
        *counts.entry(format!("{:?}", answer.unwrap_err())).or_insert(0) += 1;
    }
    assert_eq!(counts, BTreeMap::from([("AuthorizationPending".into(), 1), ("SlowDown".into(), 7)]));
    // Each of the seven has made the interval longer.
    login.context.clock.advance(TimeDelta::seconds(39));
    assert_eq!(poll(&login.context, &login.codes).await.unwrap_err(), DeviceError::SlowDown);
    login.context.clock.advance(TimeDelta::seconds(45));
    assert_eq!(poll(&login.context, &login.codes).await.unwrap_err(), DeviceError::AuthorizationPending);
}

#[tokio::test]
async fn only_a_password_that_was_just_shown_lets_a_device_in() {
    let login = Login::start().await;
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
    // To look and to deny takes no more than a session.
    assert!(inspect(&login.context, &device, &next.user_code).await.is_ok());
    assert_eq!(
        decide(&login.context, &device, &next.user_code, Decision::Deny).await.0,
        StatusCode::NO_CONTENT
    );
}

#[tokio::test]
async fn codes_are_of_use_for_ten_minutes() {
    let login = Login::start().await;
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
async fn nothing_comes_of_an_approval_whose_standing_is_over() {
    let approved = async || {
        let login = Login::start().await;
        assert_eq!(login.approve().await, StatusCode::NO_CONTENT);
        login
    };
    let newer = |login: &Login| SubjectRecord { version: 2, ..login.person.clone() };
    for change in ["password", "disabled", "suspended"] {
        let login = approved().await;
        let (mut person, mut of) = (newer(&login), tenant());
        match change {
            "password" => person.credential_version = 2,
            "disabled" => person.status = UserStatus::Disabled,
            _ => {
                of = TenantRecord {
                    status: TenantStatus::Suspended,
                    session_version: 2,
                    version: 2,
                    ..tenant()
                };
            }
        }
        login.context.issue(&person, &of).await;
        assert_eq!(
            poll(&login.context, &login.codes).await.unwrap_err(),
            DeviceError::InvalidGrant,
            "{change}"
        );
    }
    // A session that was kept across a change stands for what holds now.
    let login = Login::start().await;
    let told = login.context.introspect(&[&login.token]).await.remove(0).unwrap();
    let Credential::Session { session_id, .. } = told.credential else { panic!("{told:?}") };
    let kept = SubjectRecord { credential_version: 2, kept_session_id: Some(session_id), ..newer(&login) };
    login.context.issue(&kept, &tenant()).await.unwrap();
    assert_eq!(login.approve().await, StatusCode::NO_CONTENT);
    assert!(poll(&login.context, &login.codes).await.is_ok());
}

/// Ends all sessions of a user, but the one that asks.
async fn end_all(login: &Login) -> StatusCode {
    let request = Request::delete("/api/v1/auth/sessions?keep_current=true")
        .header("authorization", format!("Bearer {}", login.token.expose()))
        .header("x-user-id", login.person.user_id.to_string());
    login.context.send(request.body(Body::empty()).unwrap()).await.status()
}

#[tokio::test]
async fn who_ends_all_sessions_lets_no_device_in_that_was_approved_before() {
    let login = Login::start().await;
    assert_eq!(login.approve().await, StatusCode::NO_CONTENT);
    let somebody = login.context.issue(&subject(), &tenant()).await.unwrap();
    let theirs = start(&login.context).await;
    let approved = decide(&login.context, &somebody, &theirs.user_code, Decision::Approve).await;
    assert_eq!(approved.0, StatusCode::NO_CONTENT);

    assert_eq!(end_all(&login).await, StatusCode::NO_CONTENT);
    assert_eq!(poll(&login.context, &login.codes).await.unwrap_err(), DeviceError::AccessDenied);
    assert!(poll(&login.context, &theirs).await.is_ok(), "which is about nobody else");
    let next = start(&login.context).await;
    assert_eq!(
        decide(&login.context, &login.token, &next.user_code, Decision::Approve).await.0,
        StatusCode::NO_CONTENT
    );
    assert!(poll(&login.context, &next).await.is_ok(), "nor about what is approved afterwards");
}

#[tokio::test]
async fn a_device_that_asks_while_all_sessions_end_keeps_none() {
    let login = Login::start().await;
    for _ in 0..16 {
        let codes = start(&login.context).await;
        decide(&login.context, &login.token, &codes.user_code, Decision::Approve).await;
        let (polled, ended) = tokio::join!(poll(&login.context, &codes), end_all(&login));
        assert_eq!(ended, StatusCode::NO_CONTENT);
        if let Ok(session) = polled {
            assert!(!login.context.lives(&token_of(&session)).await);
        }
    }
}

#[tokio::test]
async fn a_code_of_another_tenant_is_like_one_that_never_was() {
    let login = Login::start().await;
    let person = SubjectRecord { tenant_id: "other".parse().unwrap(), ..subject() };
    let other = TenantRecord { tenant_id: "other".parse().unwrap(), ..tenant() };
    let other = login.context.issue(&person, &other).await.unwrap();
    let code = &login.codes.user_code;
    let bytes = async |user_code: &str| {
        let (status, body) = decide(&login.context, &other, user_code, Decision::Approve).await;
        let mut problem: contract::Problem = serde_json::from_slice(&body).unwrap();
        problem.request_id.clear();
        (status, problem)
    };
    assert_eq!(bytes(code).await, bytes(WRONG).await);
    assert_eq!(inspect(&login.context, &other, code).await.unwrap_err().0, StatusCode::NOT_FOUND);
    assert_eq!(login.approve().await, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn ten_wrong_codes_an_hour_are_all_a_user_may_type() {
    let login = Login::start().await;
    let limited = (StatusCode::TOO_MANY_REQUESTS, "rate_limited".to_owned());
    let look =
        async |code: &str| inspect(&login.context, &login.token, code).await.map_err(|(status, _)| status);
    assert_eq!(look("no code at all").await, Err(StatusCode::NOT_FOUND), "which is no guess");
    let guesses = testkit::join_all((0..16).map(|_| look(WRONG))).await;
    let looked_up = guesses.iter().filter(|guess| **guess == Err(StatusCode::NOT_FOUND)).count();
    assert_eq!(looked_up, 10, "{guesses:?}");
    let code = &login.codes.user_code;
    assert_eq!(inspect(&login.context, &login.token, code).await, Err(limited));
    let same = login.context.issue(&login.person, &tenant()).await.unwrap();
    assert_eq!(
        decide(&login.context, &same, code, Decision::Approve).await.0,
        StatusCode::TOO_MANY_REQUESTS,
        "a new session is the same user"
    );
    let somebody = login.context.issue(&subject(), &tenant()).await.unwrap();
    assert!(inspect(&login.context, &somebody, code).await.is_ok());

    login.context.clock.advance(TimeDelta::hours(1));
    let person = login.context.issue(&login.person, &tenant()).await.unwrap();
    let next = start(&login.context).await;
    assert!(inspect(&login.context, &person, &next.user_code).await.is_ok());
}

#[tokio::test]
async fn grants_and_wrong_codes_are_purged_a_day_after_they_are_over() {
    let login = Login::start().await;
    inspect(&login.context, &login.token, WRONG).await.unwrap_err();
    login.context.clock.advance(TimeDelta::hours(24) + TimeDelta::minutes(10) + TimeDelta::microseconds(1));
    let young = start(&login.context).await;
    let counts =
        async || [login.context.rows("device_grants").await, login.context.rows("wrong_user_codes").await];
    assert_eq!(counts().await, [2, 1]);
    // A purge begins when the process starts.
    let _restarted = login.context.restarted();
    testkit::wait_until("expired device grants are purged", async || {
        (counts().await == [1, 0]).then_some(())
    })
    .await;
    assert_eq!(poll(&login.context, &login.codes).await.unwrap_err(), DeviceError::InvalidGrant);
    assert_eq!(poll(&login.context, &young).await.unwrap_err(), DeviceError::AuthorizationPending);
}
