//! `/auth/session`.

use contract::session::{SessionMethod, SubjectType, Whoami};
use contract::{Role, Scope};
use testsystem::TestSystem;

#[tokio::test]
async fn a_session_is_told_who_it_is() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let whoami: Whoami = member.client.get("/auth/session").await.expect(200);
    assert_eq!(
        whoami,
        Whoami {
            subject_type: SubjectType::User,
            user_id: Some(member.user.user_id),
            key_id: None,
            tenant_id: "acme".parse().unwrap(),
            role: Some(Role::Member),
            scopes: vec![Scope::EventsWrite],
            method: Some(SessionMethod::Password),
            expires_at: member.session.expires_at,
            idle_expires_at: Some(member.session.idle_expires_at),
        }
    );
}

#[tokio::test]
async fn what_is_no_live_credential_is_refused_before_or_after_the_look_up_alike() {
    let system = TestSystem::start().await.unwrap();
    let get = async |token: &str| system.client().bearer(token).get("/auth/session").await;
    system.client().get("/auth/session").await.expect_problem(401, "unauthenticated");
    let unknown = "svc_st_0000000000000000000000000000000000000000000_000000";
    for token in ["", "nonsense", unknown, &system.platform_token] {
        let answer = get(token).await;
        answer.expect_problem(401, "credential_invalid");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
    }
    let basic = system.client().header("Authorization", "Basic YTpi");
    basic.get("/auth/session").await.expect_problem(401, "credential_invalid");
}
