//! Sessions over time, and under changes of account status.

use chrono::TimeDelta;
use contract::identity::SecondFactorPolicy;
use contract::internal::{Credential, INTROSPECT, ISSUE_SESSION, Introspect, SubjectRecord, TenantRecord};
use contract::session::AuthMethod;
use contract::{Role, TenantStatus, UserStatus};
use hashing::{RawToken, SystemEntropy, TokenKind};
use http::StatusCode;
use service::Clock as _;

use crate::context::{Context, SERVICE_TOKEN, subject, tenant};

#[tokio::test]
async fn session_expires_after_the_idle_timeout_unless_it_is_used() {
    let context = Context::start().await;
    let token = context.issue(&subject(), &tenant()).await.unwrap();
    for _ in 0..3 {
        context.clock.advance(TimeDelta::minutes(59));
        assert!(context.is_active(&token).await);
        context.wait_until_use_saved(&token).await;
    }
    context.clock.advance(TimeDelta::minutes(60));
    assert!(!context.is_active(&token).await);
}

#[tokio::test]
async fn session_in_use_expires_at_the_end_of_its_absolute_lifetime() {
    let context = Context::start().await;
    let token = context.issue(&subject(), &tenant()).await.unwrap();
    for _ in 0..23 {
        context.clock.advance(TimeDelta::minutes(30));
        assert!(context.is_active(&token).await);
        context.wait_until_use_saved(&token).await;
    }
    context.clock.advance(TimeDelta::minutes(30));
    assert!(!context.is_active(&token).await);
}

#[tokio::test]
async fn password_change_invalidates_older_sessions() {
    let context = Context::start().await;
    let (before, tenant) = (subject(), tenant());
    let old = context.issue(&before, &tenant).await.unwrap();
    let after = SubjectRecord { credential_version: 2, version: 2, ..before };
    let new = context.issue(&after, &tenant).await.unwrap();
    assert!(!context.is_active(&old).await && context.is_active(&new).await);
}

#[tokio::test]
async fn login_that_overlaps_a_password_change_yields_no_session() {
    let context = Context::start().await;
    let (before, tenant) = (subject(), tenant());
    let after = SubjectRecord { credential_version: 2, version: 2, ..before.clone() };
    let new = context.issue(&after, &tenant).await.unwrap();
    assert!(context.issue(&before, &tenant).await.is_none());
    assert!(context.is_active(&new).await);
}

#[tokio::test]
async fn issues_no_session_for_a_disabled_user_or_a_suspended_tenant() {
    let context = Context::start().await;
    let disabled = SubjectRecord { status: UserStatus::Disabled, ..subject() };
    assert!(context.issue(&disabled, &tenant()).await.is_none());
    let user = subject();
    let token = context.issue(&user, &tenant()).await.unwrap();
    let suspended =
        TenantRecord { status: TenantStatus::Suspended, session_version: 2, version: 2, ..tenant() };
    assert!(context.issue(&user, &suspended).await.is_none());
    assert!(!context.is_active(&token).await, "the record of the rejected login was applied");
    let resumed = TenantRecord { status: TenantStatus::Active, version: 3, ..suspended };
    let new = context.issue(&user, &resumed).await.unwrap();
    assert!(context.is_active(&new).await && !context.is_active(&token).await);
}

#[tokio::test]
async fn a_deleted_user_gets_no_session_from_an_earlier_record() {
    let context = Context::start().await;
    let (before, tenant) = (subject(), tenant());
    let token = context.issue(&before, &tenant).await.unwrap();
    let deleted = SubjectRecord {
        status: UserStatus::Disabled,
        credential_version: 2,
        api_key_version: 2,
        is_deleted: true,
        version: 2,
        ..before.clone()
    };
    context.apply_subject(&deleted).await;
    assert!(!context.is_active(&token).await);
    assert!(context.issue(&before, &tenant).await.is_none());
    // The first record of a user can be the deletion.
    let (unknown, user_id) = (subject(), tenancy::UserId::generate());
    context.apply_subject(&SubjectRecord { user_id, ..deleted }).await;
    assert!(context.issue(&SubjectRecord { user_id, ..unknown }, &tenant).await.is_none());
}

#[tokio::test]
async fn a_user_with_a_second_factor_gets_a_session_only_after_it() {
    let context = Context::start().await;
    let (before, tenant) = (subject(), tenant());
    let old = context.issue(&before, &tenant).await.unwrap();
    let with_factor = SubjectRecord { has_factor: true, version: 2, ..before.clone() };
    context.apply_subject(&with_factor).await;
    for record in [&before, &with_factor] {
        assert!(context.issue(record, &tenant).await.is_none(), "{record:?}");
    }
    let token = context.issue_with(&with_factor, &tenant, AuthMethod::ALL).await.unwrap();
    assert!(context.is_active(&token).await && context.is_active(&old).await);
    let found = context.introspect(&[&token]).await.remove(0).unwrap();
    assert!(
        matches!(&found.credential, Credential::Session { has_factor: true, amr, .. } if amr == AuthMethod::ALL)
    );
    let removed = SubjectRecord { has_factor: false, version: 3, ..with_factor };
    assert!(context.issue(&removed, &tenant).await.is_some());
}

#[tokio::test]
async fn a_user_who_must_have_a_second_factor_gets_a_session_only_after_it() {
    let context = Context::start().await;
    let (member, before) = (subject(), tenant());
    let admin = SubjectRecord { role: Role::Admin, ..subject() };
    let administrators =
        TenantRecord { second_factor: SecondFactorPolicy::Administrators, version: 2, ..before.clone() };
    assert!(context.issue(&admin, &before).await.is_some());
    // The record of the tenant is applied also by a request that gets no session.
    for record in [&administrators, &before] {
        assert!(context.issue(&admin, record).await.is_none(), "{record:?}");
        assert!(context.issue_with(&admin, record, AuthMethod::ALL).await.is_some(), "{record:?}");
        assert!(context.issue(&member, record).await.is_some(), "{record:?}");
    }
    let everyone = TenantRecord { second_factor: SecondFactorPolicy::Everyone, version: 3, ..before };
    assert!(context.issue(&member, &everyone).await.is_none());
}

#[tokio::test]
async fn an_identity_service_that_knows_no_second_factors_gets_no_session() {
    let context = Context::start().await;
    for missing in ["/amr", "/subject/has_factor", "/tenant/second_factor"] {
        let mut request = serde_json::json!({
            "subject": subject(), "tenant": tenant(), "method": "password", "amr": ["pwd"], "ip": null, "user_agent": null,
        });
        let (parent, name) = missing.rsplit_once('/').unwrap();
        request.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
        let (status, _) = context.post_internal(ISSUE_SESSION, SERVICE_TOKEN, &request).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{missing}");
    }
}

#[tokio::test]
async fn demoted_administrator_is_a_member_at_the_next_introspection() {
    let context = Context::start().await;
    let admin = SubjectRecord { role: Role::Admin, ..subject() };
    let token = context.issue(&admin, &tenant()).await.unwrap();
    let member = SubjectRecord { role: Role::Member, version: 2, ..admin };
    context.issue(&member, &tenant()).await.unwrap();
    let subject = context.introspect(&[&token]).await.remove(0).unwrap();
    assert!(matches!(subject.credential, Credential::Session { role: Role::Member, .. }));
}

#[tokio::test]
async fn introspection_returns_subjects_in_the_order_of_the_request() {
    let context = Context::start().await;
    let (first, second) = (subject(), subject());
    let a = context.issue(&first, &tenant()).await.unwrap();
    let b = context.issue(&second, &tenant()).await.unwrap();
    let unknown = RawToken::generate(TokenKind::Session, &SystemEntropy);
    let users = context.introspect(&[&b, &unknown, &a, &b]).await.into_iter().map(|subject| {
        match subject?.credential {
            Credential::Session { user_id, .. } => Some(user_id),
            _ => None,
        }
    });
    assert_eq!(
        users.collect::<Vec<_>>(),
        [Some(second.user_id), None, Some(first.user_id), Some(second.user_id)]
    );
}

#[tokio::test]
async fn internal_api_requires_the_service_token_and_valid_digests() {
    let context = Context::start().await;
    let request = Introspect { digests: Vec::new() };
    for token in ["", "another token of thirty-two characters or more"] {
        let (status, _) = context.post_internal(INTROSPECT, token, &request).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
    }
    let too_many = Introspect { digests: vec!["0".repeat(64); 257] };
    assert_eq!(
        context.post_internal(INTROSPECT, SERVICE_TOKEN, &too_many).await.0,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    let malformed = Introspect { digests: vec!["no digest".to_owned()] };
    assert_eq!(
        context.post_internal(INTROSPECT, SERVICE_TOKEN, &malformed).await.0,
        StatusCode::UNPROCESSABLE_ENTITY
    );
}

#[tokio::test]
async fn fifty_first_session_revokes_the_least_recently_used() {
    let context = Context::start().await;
    let user = subject();
    let first = context.issue(&user, &tenant()).await.unwrap();
    let second = context.issue(&user, &tenant()).await.unwrap();
    context.clock.advance(TimeDelta::minutes(2));
    assert!(context.is_active(&first).await);
    context.wait_until_use_saved(&first).await;
    for _ in 0..49 {
        context.issue(&user, &tenant()).await.unwrap();
    }
    assert!(context.is_active(&first).await && !context.is_active(&second).await);
    let other_user = context.issue(&subject(), &tenant()).await.unwrap();
    assert!(context.is_active(&other_user).await);
    let changed = SubjectRecord { credential_version: 2, version: 2, ..user.clone() };
    context.issue(&changed, &tenant()).await.unwrap();
    let mut connection = context.database.superuser().await.unwrap();
    let select = "select payload -> 'event' ->> 'about' from session.outbox
        where payload ->> 'name' = 'authn_token_revoked'";
    let revocations: Vec<String> = sqlx::query_scalar(select).fetch_all(&mut connection).await.unwrap();
    assert_eq!(revocations, ["surplus_sessions"], "once; a password change has ended the other sessions");
}

#[tokio::test]
async fn many_logins_within_a_minute_do_not_revoke_a_session_in_use() {
    let context = Context::start().await;
    let user = subject();
    let in_use = context.issue(&user, &tenant()).await.unwrap();
    context.clock.advance(TimeDelta::minutes(2));
    assert!(context.is_active(&in_use).await);
    context.wait_until_use_saved(&in_use).await;
    // Uses are saved once a minute, so this one is not.
    context.clock.advance(TimeDelta::seconds(30));
    assert!(context.is_active(&in_use).await);
    for _ in 0..60 {
        context.issue(&user, &tenant()).await.unwrap();
    }
    assert!(context.is_active(&in_use).await);
}

#[tokio::test]
async fn a_login_deletes_the_sessions_of_its_user_that_ended_first_if_many_are_stored() {
    let context = Context::start().await;
    let (user, other_user) = (subject(), subject());
    let kept = context.issue(&user, &tenant()).await.unwrap();
    let mut superuser = context.database.superuser().await.unwrap();
    let mut end_others = async |round: usize| {
        // Revoked, or created before a change of the password.
        let end = [
            "update session.sessions set inactive_since = $1 where inactive_since is null and digest <> $2",
            "update session.sessions set credential_version = 0, last_seen_at = $1 where inactive_since is null and digest <> $2",
        ][round % 2];
        let end = sqlx::query(end).bind(context.clock.now()).bind(kept.digest().as_bytes().to_vec());
        end.execute(&mut superuser).await.unwrap();
    };
    context.issue(&other_user, &tenant()).await.unwrap();
    let mut last_rows = 0;
    for round in 0..5 {
        for _ in 0..45 {
            assert!(context.issue(&user, &tenant()).await.is_some());
        }
        context.clock.advance(TimeDelta::seconds(1));
        end_others(round).await;
        last_rows = context.count_rows("sessions").await;
        assert!(last_rows <= 201, "{last_rows}");
    }
    assert!(last_rows > 100, "recently ended sessions are stored: {last_rows}");
    assert!(context.is_active(&kept).await, "an active session is not deleted");
    let mut connection = context.database.superuser().await.unwrap();
    let of_other = sqlx::query_scalar("select count(*) from session.sessions where user_id = $1");
    let of_other: i64 = of_other.bind(other_user.user_id.0).fetch_one(&mut connection).await.unwrap();
    assert_eq!(of_other, 1, "another user ends no sessions of this one");
}

#[tokio::test]
async fn purges_sessions_that_expired_a_day_ago() {
    let context = Context::start().await;
    let old = context.issue(&subject(), &tenant()).await.unwrap();
    context.clock.advance(TimeDelta::hours(1) + TimeDelta::hours(24) + TimeDelta::seconds(1));
    let new = context.issue(&subject(), &tenant()).await.unwrap();
    assert_eq!(context.count_rows("sessions").await, 2);
    // A process purges when it starts.
    let _replica = context.start_replica();
    testkit::wait_until("the old session is purged", async || {
        (context.count_rows("sessions").await == 1).then_some(())
    })
    .await;
    assert!(context.is_active(&new).await && !context.is_active(&old).await);
}
