//! Callers of every kind, in two tenants and a suspended one.

use contract::{Role, Scope};
use serde_json::{Value, json};
use tenancy::UserId;
use testsystem::{TestSystem, TestUser};

use super::objects::{Kind, Object};

/// Tenant of the callers, another tenant, and an unknown one. They have the same length, so that responses can be compared.
pub(super) const HOME: &str = "acme";
pub(super) const OTHER: &str = "umbr";
pub(super) const UNKNOWN: &str = "none";
const SUSPENDED: &str = "shut";

/// Kind of caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallerKind {
    Anonymous,
    Member,
    Admin,
    /// An administrator with a login an hour ago.
    EarlierAdmin,
    Key(Scope),
    PlatformAdmin,
    /// An expired or revoked credential, or one of a suspended tenant.
    Inactive,
}

pub(super) struct Caller {
    pub(super) name: String,
    pub(super) kind: CallerKind,
    pub(super) bearer: Option<String>,
    /// The caller's tenant, or the one that the platform administrator names.
    pub(super) tenant_id: &'static str,
    /// Id and e-mail address if the caller is a user.
    pub(super) user: Option<(UserId, String)>,
}

impl Caller {
    fn new(name: &str, kind: CallerKind, bearer: &str) -> Self {
        Self { name: name.to_owned(), kind, bearer: Some(bearer.to_owned()), tenant_id: HOME, user: None }
    }

    pub(super) fn anonymous() -> Self {
        Self { bearer: None, ..Self::new("an anonymous caller", CallerKind::Anonymous, "") }
    }

    fn user(name: &str, kind: CallerKind, user: &TestUser) -> Self {
        let own = (user.user.user_id, user.user.email.clone());
        Self { user: Some(own), ..Self::new(name, kind, user.session.session_id.expose()) }
    }

    pub(super) fn is_platform_admin(&self) -> bool {
        self.kind == CallerKind::PlatformAdmin
    }

    /// Returns whether the caller has an active credential of a tenant.
    pub(super) fn is_active(&self) -> bool {
        use CallerKind::{Admin, EarlierAdmin, Key, Member};
        matches!(self.kind, Member | Admin | EarlierAdmin | Key(_))
    }
}

/// Two tenants, each with an administrator and a user that is only the object of requests.
pub(super) struct Tenants {
    home: (TestUser, TestUser),
    other: (TestUser, TestUser),
}

impl Tenants {
    pub(super) async fn create(system: &TestSystem) -> Self {
        let create = async |tenant_id: &str| {
            let admin = system.create_tenant(tenant_id).await;
            let bystander =
                system.add_user(&admin, &format!("bystander@{tenant_id}.example"), Role::Member).await;
            (admin, bystander)
        };
        Self { home: create(HOME).await, other: create(OTHER).await }
    }

    /// Creates the invite of an administrator in the home tenant and returns its id.
    pub(super) async fn invite_of_admin(&self) -> String {
        invite(&self.home.0, Role::Admin).await
    }

    /// Returns the id of an object, as seen by the caller. Objects that a request can consume are created for each request.
    pub(super) async fn id_of(
        &self,
        system: &TestSystem,
        kind: Option<Kind>,
        object: Object,
        caller: &Caller,
    ) -> String {
        let Some(kind) = kind else { return String::new() };
        let at_home = (caller.tenant_id == HOME) != (object == Object::Foreign);
        let (admin, bystander) = if at_home { &self.home } else { &self.other };
        let bystander = (bystander.user.user_id, bystander.user.email.clone());
        let (user_id, email) = caller.user.clone().filter(|_| object == Object::Own).unwrap_or(bystander);
        let tenant_id = admin.user.tenant_id.as_str();
        match (object, kind) {
            (Object::Malformed, _) => "-".to_owned(),
            (Object::Missing, Kind::Tenant) => UNKNOWN.to_owned(),
            (Object::Missing, Kind::DeletedTenant) => format!("t-{}", UserId::generate()),
            (Object::Missing, Kind::UserCode) => "BBBB-BBBB".to_owned(),
            (Object::Missing, Kind::Quarantined) => sequence(999_999),
            (Object::Missing, _) => UserId::generate().to_string(),
            (_, Kind::Tenant) => tenant_id.to_owned(),
            (_, Kind::DeletedTenant) => {
                let (platform, tenant_id) = (system.platform_admin(), format!("t-{}", UserId::generate()));
                let create = json!({ "tenant_id": tenant_id, "display_name": "to be deleted" });
                platform.post("/tenants", &create).await.expect::<Value>(201);
                let suspend = json!({ "status": "suspended" });
                platform.patch(&format!("/tenants/{tenant_id}"), &suspend).await.expect::<Value>(200);
                tenant_id
            }
            (_, Kind::User | Kind::UserInHeader) => user_id.to_string(),
            (_, Kind::DeletedUser) => {
                let path = format!("/users?email={}", invited(admin).await);
                text(&admin.client.get(&path).await.expect::<Value>(200)["items"][0]["user_id"])
            }
            (_, Kind::Session) => session_of(system, tenant_id, &email).await,
            (_, Kind::Factor) => {
                let owner = if object == Object::Foreign { user_id } else { caller.user.as_ref().unwrap().0 };
                let factor_id = UserId::generate();
                let insert = format!(
                    "delete from identity.totp_factors where user_id = '{owner}';
                    insert into identity.totp_factors (factor_id, tenant_id, user_id, secret, created_at)
                    values ('{factor_id}', '{tenant_id}', '{owner}', '', now())"
                );
                system.run_sql(&insert).await;
                factor_id.to_string()
            }
            (_, Kind::Invite) => invite(admin, Role::Member).await,
            (_, Kind::UserCode) => {
                let device = system.client().header("X-Tenant-ID", tenant_id);
                text(&device.post("/auth/device/code", &json!({})).await.expect::<Value>(200)["user_code"])
            }
            (_, Kind::Key) => {
                let (key, _) = system.create_api_key(admin, &json!({ "name": "to be revoked" })).await;
                key.id.to_string()
            }
            (_, Kind::Quarantined) => {
                let path = "/events?invalid=quarantine";
                admin.client.post(path, &json!({ "n": UserId::generate() })).await.expect::<Value>(202);
                // A tenant has other numbers than the platform administrator.
                let client =
                    if caller.is_platform_admin() { &system.platform_admin() } else { &admin.client };
                let path = format!("/events/quarantine?tenant_id={tenant_id}");
                let listed = client.get(&path).await.expect::<Value>(200);
                sequence(listed["items"][0]["sequence"].as_u64().unwrap())
            }
            (_, Kind::Consumer) => {
                let body = json!({ "name": UserId::generate(), "tenant_id": tenant_id });
                text(&system.platform_admin().post("/consumers", &body).await.expect::<Value>(201)["name"])
            }
        }
    }
}

/// Returns a number in a form that occurs nowhere else in a response.
fn sequence(number: u64) -> String {
    format!("{number:0>20}")
}

/// Creates an invite and returns its id.
async fn invite(admin: &TestUser, role: Role) -> String {
    text(&new_invite(admin, role).await["invite_id"])
}

/// Creates an invited user and returns the address.
async fn invited(admin: &TestUser) -> String {
    text(&new_invite(admin, Role::Member).await["email"])
}

async fn new_invite(admin: &TestUser, role: Role) -> Value {
    let email = format!("{}@{}.example", UserId::generate(), admin.user.tenant_id);
    let body = json!({ "email": email, "role": role, "delivery": "response" });
    admin.client.post("/users/invite", &body).await.expect(201)
}

/// Creates a session and returns its public id.
async fn session_of(system: &TestSystem, tenant_id: &str, email: &str) -> String {
    let session = system.log_in(tenant_id, email).await;
    let client = system.client().bearer(session.session_id.expose());
    let client = client.header("X-User-ID", &session.user_id.to_string());
    let page: Value = client.get("/auth/sessions?limit=200").await.expect(200);
    let sessions = page["items"].as_array().unwrap();
    text(&sessions.iter().find(|session| session["current"] == true).unwrap()["id"])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Returns a caller of every kind.
pub(super) async fn all(system: &TestSystem, tenants: &Tenants) -> Vec<Caller> {
    let admin = &tenants.home.0;
    let member = system.add_user(admin, "member@acme.example", Role::Member).await;
    let earlier = system.add_user(admin, "earlier@acme.example", Role::Admin).await;
    system
        .run_sql(&format!(
            "update session.sessions set created_at = now() - interval '1 hour' where user_id = '{}'",
            earlier.user.user_id
        ))
        .await;
    let other = Caller::user("the other tenant's admin", CallerKind::Admin, &tenants.other.0);
    let mut callers = vec![
        Caller::anonymous(),
        Caller::user("a member", CallerKind::Member, &member),
        Caller::user("an admin", CallerKind::Admin, admin),
        Caller::user("an admin who logged in an hour ago", CallerKind::EarlierAdmin, &earlier),
        Caller { tenant_id: OTHER, ..other },
        Caller::new("the platform administrator", CallerKind::PlatformAdmin, &system.platform_token),
    ];
    for scope in Scope::ALL {
        let key = key(system, admin, &[*scope]).await;
        callers.push(Caller::new(&format!("a key with {scope}"), CallerKind::Key(*scope), &key));
    }
    callers.extend(inactive(system, admin).await);
    callers
}

async fn key(system: &TestSystem, admin: &TestUser, scopes: &[Scope]) -> String {
    let (key, _) = system.create_api_key(admin, &json!({ "name": "caller", "scopes": scopes })).await;
    key.key.unwrap().expose().to_owned()
}

/// Returns inactive credentials. None of them was used while it was active, so no cache contains them.
async fn inactive(system: &TestSystem, admin: &TestUser) -> Vec<Caller> {
    let expired = system.add_user(admin, "expired@acme.example", Role::Admin).await;
    let revoked = system.add_user(admin, "revoked@acme.example", Role::Admin).await;
    let (expired_key, _) =
        system.create_api_key(admin, &json!({ "name": "expired", "scopes": Scope::ALL })).await;
    let (revoked_key, _) =
        system.create_api_key(admin, &json!({ "name": "revoked", "scopes": Scope::ALL })).await;
    let past = "now() - interval '1 minute'";
    system
        .run_sql(&format!(
            "update session.sessions set expires_at = {past}, idle_expires_at = {past} where user_id = '{}';
            update session.api_keys set expires_at = {past} where key_id = '{}'",
            expired.user.user_id, expired_key.id
        ))
        .await;
    let log_out = system.client().header("X-Session-ID", revoked.session.session_id.expose());
    log_out.post_bytes("/auth/sessions/logout", "", "").await.expect_empty(204);
    admin.client.delete(&format!("/api-keys/{}", revoked_key.id)).await.expect_empty(204);
    let suspended = system.create_tenant(SUSPENDED).await;
    let suspended_key = key(system, &suspended, Scope::ALL).await;
    let path = format!("/tenants/{SUSPENDED}");
    system.platform_admin().patch(&path, &json!({ "status": "suspended" })).await.expect::<Value>(200);

    let raw = |key: &contract::session::ApiKey| key.key.as_ref().unwrap().expose().to_owned();
    [
        ("an expired session", expired.session.session_id.expose().to_owned()),
        ("a revoked session", revoked.session.session_id.expose().to_owned()),
        ("a suspended tenant's session", suspended.session.session_id.expose().to_owned()),
        ("an expired key", raw(&expired_key)),
        ("a revoked key", raw(&revoked_key)),
        ("a suspended tenant's key", suspended_key),
    ]
    .map(|(name, bearer)| Caller::new(name, CallerKind::Inactive, &bearer))
    .into()
}
