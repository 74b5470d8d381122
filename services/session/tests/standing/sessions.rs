//! Sessions under standing and time.

use chrono::TimeDelta;
use contract::internal::{Credential, INTROSPECT, Introspect, SubjectRecord, TenantRecord};
use contract::{Role, TenantStatus, UserStatus};
use hashing::{RawToken, SystemEntropy, TokenKind};
use http::StatusCode;

use crate::context::{Context, SERVICE_TOKEN, subject, tenant};

#[tokio::test]
async fn a_session_ends_idle_and_its_use_keeps_it_alive() {
    let context = Context::start().await;
    let token = context.issue(&subject(), &tenant()).await.unwrap();
    for _ in 0..3 {
        context.clock.advance(TimeDelta::minutes(59));
        assert!(context.lives(&token).await);
    }
    context.clock.advance(TimeDelta::minutes(60));
    assert!(!context.lives(&token).await);
}

#[tokio::test]
async fn a_session_ends_absolutely_however_much_it_is_used() {
    let context = Context::start().await;
    let token = context.issue(&subject(), &tenant()).await.unwrap();
    for _ in 0..23 {
        context.clock.advance(TimeDelta::minutes(30));
        assert!(context.lives(&token).await);
    }
    context.clock.advance(TimeDelta::minutes(30));
    assert!(!context.lives(&token).await);
}

#[tokio::test]
async fn a_changed_password_ends_older_sessions_when_its_record_arrives() {
    let context = Context::start().await;
    let (before, tenant) = (subject(), tenant());
    let old = context.issue(&before, &tenant).await.unwrap();
    let after = SubjectRecord { credential_version: 2, version: 2, ..before };
    let new = context.issue(&after, &tenant).await.unwrap();
    assert!(!context.lives(&old).await && context.lives(&new).await);
}

#[tokio::test]
async fn a_login_in_flight_across_a_change_yields_no_session() {
    let context = Context::start().await;
    let (before, tenant) = (subject(), tenant());
    let after = SubjectRecord { credential_version: 2, version: 2, ..before.clone() };
    let new = context.issue(&after, &tenant).await.unwrap();
    assert!(context.issue(&before, &tenant).await.is_none());
    assert!(context.lives(&new).await);
}

#[tokio::test]
async fn nobody_gets_a_session_who_is_disabled_or_whose_tenant_is_suspended() {
    let context = Context::start().await;
    let disabled = SubjectRecord { status: UserStatus::Disabled, ..subject() };
    assert!(context.issue(&disabled, &tenant()).await.is_none());
    let user = subject();
    let token = context.issue(&user, &tenant()).await.unwrap();
    let suspended =
        TenantRecord { status: TenantStatus::Suspended, session_version: 2, version: 2, ..tenant() };
    assert!(context.issue(&user, &suspended).await.is_none());
    assert!(!context.lives(&token).await, "what was learned from the refused login holds");
    let resumed = TenantRecord { status: TenantStatus::Active, version: 3, ..suspended };
    let new = context.issue(&user, &resumed).await.unwrap();
    assert!(context.lives(&new).await && !context.lives(&token).await);
}

#[tokio::test]
async fn a_demoted_administrator_is_a_member_at_the_next_look_up() {
    let context = Context::start().await;
    let admin = SubjectRecord { role: Role::Admin, ..subject() };
    let token = context.issue(&admin, &tenant()).await.unwrap();
    let member = SubjectRecord { role: Role::Member, version: 2, ..admin };
    context.issue(&member, &tenant()).await.unwrap();
    let seen = context.introspect(&[&token]).await.remove(0).unwrap();
    assert!(matches!(seen.credential, Credential::Session { role: Role::Member, .. }));
}

#[tokio::test]
async fn many_credentials_are_answered_in_the_order_they_were_asked() {
    let context = Context::start().await;
    let (first, second) = (subject(), subject());
    let a = context.issue(&first, &tenant()).await.unwrap();
    let b = context.issue(&second, &tenant()).await.unwrap();
    let unknown = RawToken::generate(TokenKind::Session, &SystemEntropy);
    let users = context.introspect(&[&b, &unknown, &a, &b]).await.into_iter().map(|subject| {
        match subject?.credential {
            Credential::Session { user_id, .. } => Some(user_id),
            Credential::ApiKey { .. } => None,
        }
    });
    assert_eq!(
        users.collect::<Vec<_>>(),
        [Some(second.user_id), None, Some(first.user_id), Some(second.user_id)]
    );
}

#[tokio::test]
async fn the_internal_api_is_for_holders_of_the_service_token() {
    let context = Context::start().await;
    let question = Introspect { digests: Vec::new() };
    for token in ["", "another token of thirty-two characters or more"] {
        let (status, _) = context.ask_internal(INTROSPECT, token, &question).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
    }
    let many = Introspect { digests: vec!["0".repeat(64); 257] };
    assert_eq!(
        context.ask_internal(INTROSPECT, SERVICE_TOKEN, &many).await.0,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    let bad = Introspect { digests: vec!["no digest".to_owned()] };
    assert_eq!(
        context.ask_internal(INTROSPECT, SERVICE_TOKEN, &bad).await.0,
        StatusCode::UNPROCESSABLE_ENTITY
    );
}

#[tokio::test]
async fn a_user_has_fifty_sessions_and_the_least_recently_used_gives_way() {
    let context = Context::start().await;
    let user = subject();
    let first = context.issue(&user, &tenant()).await.unwrap();
    let second = context.issue(&user, &tenant()).await.unwrap();
    context.clock.advance(TimeDelta::minutes(2));
    assert!(context.lives(&first).await, "which notes the use");
    for _ in 0..49 {
        context.issue(&user, &tenant()).await.unwrap();
    }
    assert!(context.lives(&first).await && !context.lives(&second).await);
    let somebody = context.issue(&subject(), &tenant()).await.unwrap();
    assert!(context.lives(&somebody).await);
}

#[tokio::test]
async fn what_is_over_for_a_day_is_purged_and_what_lives_is_not() {
    let context = Context::start().await;
    let old = context.issue(&subject(), &tenant()).await.unwrap();
    context.clock.advance(TimeDelta::hours(1) + TimeDelta::hours(24) + TimeDelta::seconds(1));
    let new = context.issue(&subject(), &tenant()).await.unwrap();
    assert_eq!(context.rows("sessions").await, 2);
    // A purge begins when the process starts.
    let _restarted = context.restarted();
    testkit::wait_until("one session is left", async || (context.rows("sessions").await == 1).then_some(()))
        .await;
    assert!(context.lives(&new).await && !context.lives(&old).await);
}
