//! Tenants that the operator manages.

use contract::TenantStatus;
use contract::identity::{Delivery, InspectedInvite, Quota, SecondFactorPolicy, Tenant};
use contract::managed::{
    FirstAdmin, IssuedInvite, ManagedTenant, Owner, StoredTenant, TENANTS, WrittenTenant, invite_path,
    tenant_path,
};
use serde_json::{Value, json};
use tenancy::TenantId;
use testkit::Client;
use testsystem::{BLUE, GREEN, SystemWithOperator};
use uuid::Uuid;

fn acme() -> TenantId {
    "acme".parse().unwrap()
}

fn owner(generation: i64) -> Owner {
    Owner { uid: Uuid::from_u128(1), generation }
}

fn desired(generation: i64) -> ManagedTenant {
    ManagedTenant {
        owner: owner(generation),
        adopt: false,
        take_over_from: Vec::new(),
        display_name: "Acme".to_owned(),
        status: TenantStatus::Active,
        quota: Quota { events_per_second: Some(100), bytes_per_second: None },
        second_factor: SecondFactorPolicy::Optional,
        password_min_length: None,
        passkey_login: None,
        admin: Some(FirstAdmin { email: "ada@acme.example".to_owned(), delivery: Delivery::Response }),
    }
}

async fn put(operator: &Client, desired: &ManagedTenant) -> WrittenTenant {
    operator.put(&tenant_path(&acme()), desired).await.expect(200)
}

#[track_caller]
fn conflict(response: &testkit::TestResponse) -> String {
    response.expect::<Value>(409)["conflict"].as_str().unwrap().to_owned()
}

async fn stored(operator: &Client) -> StoredTenant {
    operator.get(TENANTS).await.expect::<Vec<StoredTenant>>(200).remove(0)
}

async fn read(running: &SystemWithOperator) -> Tenant {
    running.system.platform_admin().get("/tenants/acme").await.expect(200)
}

/// Accepts the invite. Returns the status of the response.
async fn accept(running: &SystemWithOperator, invite: &IssuedInvite) -> u16 {
    let body = json!({ "token": invite.token.expose(), "password": testkit::PASSWORD });
    running.system.client().post("/users/accept-invite", &body).await.status
}

#[tokio::test]
async fn the_operator_creates_a_tenant_and_its_administrator_accepts_the_invite() {
    let running = SystemWithOperator::start().await.unwrap();
    let operator = running.operator_at_identity();
    let written = put(&operator, &desired(1)).await;
    assert!(!written.changed);
    let invite = written.invite.unwrap();
    assert_eq!(invite.email, "ada@acme.example");
    let tenant = read(&running).await;
    assert_eq!((tenant.display_name.as_str(), tenant.quota.events_per_second), ("Acme", Some(100)));
    let body = json!({ "token": invite.token.expose() });
    let inspected: InspectedInvite =
        running.system.client().post("/users/accept-invite/inspect", &body).await.expect(200);
    assert_eq!((inspected.tenant_id, inspected.role), (acme(), contract::Role::Admin));

    let now = stored(&operator).await;
    assert_eq!((now.owner, now.is_drifted), (owner(1), false));
    assert_eq!(now.invite.unwrap().status, contract::identity::InviteStatus::Pending);
    assert_eq!(accept(&running, &invite).await, 201);
    let status = stored(&operator).await.invite.unwrap().status;
    assert_eq!(status, contract::identity::InviteStatus::Accepted);
    assert_eq!(conflict(&operator.post(&invite_path(&acme()), &owner(1)).await), "invite_settled");
}

#[tokio::test]
async fn an_equal_tenant_is_not_written_again() {
    let running = SystemWithOperator::start().await.unwrap();
    let operator = running.operator_at_identity();
    put(&operator, &desired(1)).await;
    running.system.wait_for_empty_outbox().await;
    let rows = running.system.dump_database().await;
    let written = put(&operator, &desired(1)).await;
    assert!(!written.changed && written.invite.is_none());
    assert_eq!(running.system.dump_database().await, rows);
    let changed = put(&operator, &ManagedTenant { display_name: "Acme Inc.".to_owned(), ..desired(2) }).await;
    assert!(changed.changed && changed.invite.is_none());
    assert_eq!(read(&running).await.display_name, "Acme Inc.");
}

#[tokio::test]
async fn the_operator_sets_the_rules_for_logins_and_restores_them() {
    let running = SystemWithOperator::start().await.unwrap();
    let (operator, platform) = (running.operator_at_identity(), running.system.platform_admin());
    let second_factor = SecondFactorPolicy::Everyone;
    let strict = |generation| ManagedTenant {
        second_factor,
        password_min_length: Some(20),
        passkey_login: Some(false),
        ..desired(generation)
    };
    put(&operator, &strict(1)).await;
    let rules = |tenant: &Tenant| (tenant.second_factor, tenant.password_min_length, tenant.passkey_login);
    assert_eq!(rules(&read(&running).await), (second_factor, 20, false));
    let patch = json!({ "second_factor": "optional", "password_min_length": 12, "passkey_login": true });
    platform.patch("/tenants/acme", &patch).await.expect::<Tenant>(200);
    assert!(stored(&operator).await.is_drifted);
    assert!(put(&operator, &strict(1)).await.changed);
    assert_eq!(rules(&read(&running).await), (second_factor, 20, false));
    // Without them in the resource, those of the installation apply.
    put(&operator, &desired(2)).await;
    assert_eq!(rules(&read(&running).await), (SecondFactorPolicy::Optional, 12, true));
}

#[tokio::test]
async fn a_minimum_length_of_passwords_below_that_of_the_installation_is_raised_and_other_changes_are_accepted()
 {
    let running = SystemWithOperator::start().await.unwrap();
    let operator = running.operator_at_identity();
    // As after the installation's was raised: it is 12 in this system.
    let short = |generation| ManagedTenant { password_min_length: Some(11), ..desired(generation) };
    put(&operator, &short(1)).await;
    assert_eq!(read(&running).await.password_min_length, 12);
    assert!(!put(&operator, &short(1)).await.changed, "the stored value is that of the resource");
    let renamed = ManagedTenant { display_name: "Acme Inc.".to_owned(), ..short(2) };
    assert!(put(&operator, &renamed).await.changed);
    let tenant = read(&running).await;
    assert_eq!((tenant.display_name.as_str(), tenant.password_min_length), ("Acme Inc.", 12));
    let patch = json!({ "password_min_length": 11 });
    let patched = running.system.platform_admin().patch("/tenants/acme", &patch).await;
    let problem = patched.expect_problem(422, "validation_failed");
    assert!(problem.errors[0].message.contains("12 is the minimum of the installation"), "{problem:?}");
}

#[tokio::test]
async fn a_write_of_an_older_generation_or_of_another_owner_changes_nothing() {
    let running = SystemWithOperator::start().await.unwrap();
    let operator = running.operator_at_identity();
    put(&operator, &ManagedTenant { display_name: "New".to_owned(), ..desired(2) }).await;
    let path = tenant_path(&acme());
    let other = Owner { uid: Uuid::from_u128(2), generation: 9 };
    for (owner, reason) in [(owner(1), "stale"), (other, "not_released")] {
        let written = operator.put(&path, &ManagedTenant { owner, adopt: true, ..desired(1) }).await;
        assert_eq!(conflict(&written), reason);
        assert_eq!(conflict(&operator.post(&invite_path(&acme()), &owner).await), reason);
        let query = format!("{path}?uid={}&generation={}", owner.uid, owner.generation);
        assert_eq!(conflict(&operator.delete(&query).await), reason);
    }
    assert_eq!(read(&running).await.display_name, "New");
}

#[tokio::test]
async fn an_existing_tenant_is_only_taken_over_by_adoption() {
    let running = SystemWithOperator::start().await.unwrap();
    let operator = running.operator_at_identity();
    running.system.create_tenant("acme").await;
    assert_eq!(conflict(&operator.put(&tenant_path(&acme()), &desired(1)).await), "tenant_exists");
    assert_eq!(read(&running).await.display_name, "acme");
    let adopted = put(&operator, &ManagedTenant { adopt: true, ..desired(1) }).await;
    assert!(adopted.changed && adopted.invite.is_none(), "an adopted tenant gets no invite");
    assert_eq!(read(&running).await.display_name, "Acme");
}

#[tokio::test]
async fn a_released_tenant_remains_and_can_be_adopted() {
    let running = SystemWithOperator::start().await.unwrap();
    let operator = running.operator_at_identity();
    put(&operator, &desired(1)).await;
    let release = format!("{}?uid={}&generation=1", tenant_path(&acme()), owner(1).uid);
    operator.delete(&release).await.expect_empty(204);
    operator.delete(&release).await.expect_empty(204);
    assert_eq!(operator.get(TENANTS).await.expect::<Vec<Value>>(200).len(), 0);
    assert_eq!(read(&running).await.status, TenantStatus::Active);
    // A delayed write of a former leader.
    let late = ManagedTenant { adopt: true, status: TenantStatus::Suspended, ..desired(1) };
    assert_eq!(conflict(&operator.put(&tenant_path(&acme()), &late).await), "released");
    assert_eq!(read(&running).await.status, TenantStatus::Active);
    let other = Owner { uid: Uuid::from_u128(2), generation: 1 };
    put(&operator, &ManagedTenant { owner: other, adopt: true, ..desired(1) }).await;
    assert_eq!(stored(&operator).await.owner, other);
}

#[tokio::test]
async fn a_tenant_that_was_released_by_mistake_returns_to_its_resource_with_a_change_or_after_ten_minutes() {
    let running = SystemWithOperator::start().await.unwrap();
    let operator = running.operator_at_identity();
    put(&operator, &desired(1)).await;
    let release = async |generation| {
        let path = format!("{}?uid={}&generation={generation}", tenant_path(&acme()), owner(1).uid);
        operator.delete(&path).await.expect_empty(204);
    };
    release(1).await;
    put(&operator, &desired(2)).await;
    assert_eq!(stored(&operator).await.owner, owner(2));
    release(2).await;
    assert_eq!(conflict(&operator.put(&tenant_path(&acme()), &desired(2)).await), "released");
    let later = "update identity.managed_tenants set released_at = released_at - interval '10 minutes'";
    running.system.run_sql(later).await;
    put(&operator, &desired(2)).await;
    assert_eq!(stored(&operator).await.owner, owner(2));
}

#[tokio::test]
async fn an_operator_of_another_cluster_lists_changes_and_releases_only_its_own_tenants() {
    let running = SystemWithOperator::start().await.unwrap();
    let (blue, green) = (running.operator_at_identity(), running.at_identity(GREEN));
    put(&blue, &desired(1)).await;
    assert_eq!(green.get(TENANTS).await.expect::<Vec<Value>>(200).len(), 0);
    let path = tenant_path(&acme());
    let other = Owner { uid: Uuid::from_u128(2), generation: 9 };
    let elsewhere = json!({ "conflict": "managed_elsewhere", "operator": BLUE });
    for owner in [owner(1), owner(9), other] {
        let adopting = ManagedTenant { owner, adopt: true, display_name: "Green".to_owned(), ..desired(1) };
        assert_eq!(green.put(&path, &adopting).await.expect::<Value>(409), elsewhere);
        assert_eq!(green.post(&invite_path(&acme()), &owner).await.expect::<Value>(409), elsewhere);
        let query = format!("{path}?uid={}&generation={}", owner.uid, owner.generation);
        assert_eq!(green.delete(&query).await.expect::<Value>(409), elsewhere);
    }
    assert_eq!((stored(&blue).await.owner, read(&running).await.display_name), (owner(1), "Acme".to_owned()));
}

#[tokio::test]
async fn an_operator_takes_over_the_tenants_of_one_that_it_names() {
    let running = SystemWithOperator::start().await.unwrap();
    let (blue, green) = (running.operator_at_identity(), running.at_identity(GREEN));
    put(&blue, &desired(5)).await;
    let other = Owner { uid: Uuid::from_u128(2), generation: 1 };
    let taking = ManagedTenant { owner: other, take_over_from: vec![BLUE.parse().unwrap()], ..desired(1) };
    put(&green, &taking).await;
    assert_eq!(stored(&green).await.owner, other);
    assert_eq!(blue.get(TENANTS).await.expect::<Vec<Value>>(200).len(), 0);
    // The invite of the first cluster can be renewed for the second one.
    green.post(&invite_path(&acme()), &other).await.expect::<IssuedInvite>(200);
    let back = ManagedTenant { take_over_from: vec![GREEN.parse().unwrap()], ..desired(5) };
    assert_eq!(conflict(&blue.put(&tenant_path(&acme()), &back).await), "managed_elsewhere");
    let later = "update identity.managed_tenants set taken_over_at = taken_over_at - interval '10 minutes'";
    running.system.run_sql(later).await;
    put(&blue, &back).await;
    assert_eq!(stored(&blue).await.owner, owner(5));
}

#[tokio::test]
async fn a_change_by_someone_else_is_drift_until_the_next_write() {
    let running = SystemWithOperator::start().await.unwrap();
    let operator = running.operator_at_identity();
    put(&operator, &desired(1)).await;
    let suspended = json!({ "status": "suspended" });
    running.system.platform_admin().patch("/tenants/acme", &suspended).await.expect::<Value>(200);
    assert!(stored(&operator).await.is_drifted);
    assert!(put(&operator, &desired(1)).await.changed);
    assert!(!stored(&operator).await.is_drifted);
    assert_eq!(read(&running).await.status, TenantStatus::Active);
}

#[tokio::test]
async fn a_renewed_invite_replaces_the_token_also_after_its_expiry() {
    let running = SystemWithOperator::start().await.unwrap();
    let operator = running.operator_at_identity();
    let first = put(&operator, &desired(1)).await.invite.unwrap();
    let renew = async || operator.post(&invite_path(&acme()), &owner(1)).await.expect::<IssuedInvite>(200);
    let second = renew().await;
    let expire = "update identity.invites set expires_at = now() - interval '1 minute';
        update identity.managed_tenants set invite_expires_at = (select expires_at from identity.invites)";
    running.system.run_sql(expire).await;
    let expired = stored(&operator).await.invite.unwrap();
    assert_eq!(expired.status, contract::identity::InviteStatus::Expired);
    let third = renew().await;
    assert_eq!(stored(&operator).await.invite.unwrap().expires_at, third.expires_at);
    assert_eq!(accept(&running, &first).await, 400);
    assert_eq!(accept(&running, &second).await, 400);
    assert_eq!(accept(&running, &third).await, 201);
}

#[tokio::test]
async fn an_invite_that_someone_else_sent_again_is_not_replaced() {
    let running = SystemWithOperator::start().await.unwrap();
    let operator = running.operator_at_identity();
    put(&operator, &desired(1)).await;
    let admin = running.system.platform_admin().header("X-Tenant-ID", "acme");
    let invites: Value = admin.get("/users/invites").await.expect(200);
    let path = format!("/users/invites/{}/resend", invites["items"][0]["invite_id"].as_str().unwrap());
    let resent: Value = admin.post(&path, &json!({ "delivery": "response" })).await.expect(200);
    let invite = stored(&operator).await.invite.unwrap();
    assert_eq!(invite.status, contract::identity::InviteStatus::Revoked);
    assert_eq!(conflict(&operator.post(&invite_path(&acme()), &owner(1)).await), "invite_settled");
    let body = json!({ "token": resent["token"], "password": testkit::PASSWORD });
    assert_eq!(running.system.client().post("/users/accept-invite", &body).await.status, 201);
}

#[tokio::test]
async fn a_mailed_invite_is_mailed_once_and_not_returned() {
    let running = SystemWithOperator::start().await.unwrap();
    let operator = running.operator_at_identity();
    let admin = FirstAdmin { email: "ada@acme.example".to_owned(), delivery: Delivery::Email };
    let mailed = ManagedTenant { admin: Some(admin), ..desired(1) };
    for _ in 0..2 {
        assert!(put(&operator, &mailed).await.invite.is_none());
    }
    running.system.wait_for_empty_outbox().await;
    assert_eq!(running.system.wait_for_mails(1).await.len(), 1);
    assert_eq!(stored(&operator).await.invite, None);
}

#[tokio::test]
async fn a_deleted_tenant_is_not_created_again() {
    let running = SystemWithOperator::start().await.unwrap();
    let operator = running.operator_at_identity();
    put(&operator, &desired(1)).await;
    put(&operator, &ManagedTenant { status: TenantStatus::Suspended, ..desired(2) }).await;
    running.system.platform_admin().delete("/tenants/acme").await.expect_empty(204);
    assert_eq!(operator.get(TENANTS).await.expect::<Vec<Value>>(200).len(), 0);
    assert_eq!(conflict(&operator.put(&tenant_path(&acme()), &desired(3)).await), "tenant_deleted");
}

#[tokio::test]
async fn only_tokens_of_the_operator_for_identity_are_accepted() {
    let running = SystemWithOperator::start().await.unwrap();
    let put =
        async |token: &str| running.identity().bearer(token).put(&tenant_path(&acme()), &desired(1)).await;
    put(&running.system.service_token).await.expect_problem(401, "credential_invalid");
    put(&running.system.platform_token).await.expect_problem(401, "credential_invalid");
    put(&running.token("svc/operator", "svc-session")).await.expect_problem(401, "credential_invalid");
    put(&running.token("apps/collector", "svc-identity")).await.expect_problem(403, "forbidden");
    let without_operator = testsystem::TestSystem::start().await.unwrap();
    let internal =
        Client::at(&without_operator.internal_urls.identity).bearer(&without_operator.service_token);
    internal.put(&tenant_path(&acme()), &desired(1)).await.expect_problem(404, "not_found");
}
