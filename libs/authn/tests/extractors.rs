//! Which credentials the extractors accept, and what handlers learn about the caller.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails at once")]

use std::collections::HashMap;
use std::sync::Arc;

use authn::{
    AnyCaller, AnyUser, Caller, CredentialVerifier, Introspection, PLATFORM_TOKEN, PlatformAdmin,
    PlatformSecret, RecentAdmin, Unavailable,
};
use axum::Router;
use axum::body::Body;
use axum::extract::{FromRef, FromRequestParts as _, Path, Request, State};
use axum::routing::get;
use chrono::{DateTime, TimeDelta, Utc};
use contract::identity::Quota;
use contract::internal::{Credential, Subject};
use contract::session::{AuthMethod, SessionMethod};
use contract::{Role, Scope};
use hashing::{RawToken, SystemEntropy, TokenDigest, TokenKind};
use http::header::{AUTHORIZATION, COOKIE};
use http_body_util::BodyExt as _;
use service::Problem;
use service::clock::{Clock, ManualClock};
use service::config::{Environment, Variables as _};
use tenancy::{Actor, KeyId, SessionId, UserId};
use tower::ServiceExt as _;

const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;
const ORIGIN: &str = "https://svc.example";

#[derive(Default)]
struct Credentials {
    subjects: HashMap<TokenDigest, Arc<Subject>>,
    service_accounts: HashMap<String, TokenDigest>,
    is_unavailable: bool,
}

#[async_trait::async_trait]
impl CredentialVerifier for Credentials {
    async fn introspect(&self, digest: TokenDigest) -> Result<Introspection, Unavailable> {
        if self.is_unavailable {
            Err(Unavailable::because("down"))
        } else {
            Ok(self.subjects.get(&digest).cloned())
        }
    }

    async fn review(&self, token: &str) -> Result<Option<TokenDigest>, Unavailable> {
        Ok(self.service_accounts.get(token).copied())
    }
}

impl Credentials {
    /// Adds a credential and returns its token.
    fn add(&mut self, kind: TokenKind, credential: Credential) -> String {
        let token = RawToken::generate(kind, &SystemEntropy);
        self.subjects.insert(token.digest(), subject(credential));
        token.expose().to_owned()
    }
}

fn subject(credential: Credential) -> Arc<Subject> {
    Arc::new(Subject {
        credential,
        tenant_id: "acme".parse().unwrap(),
        quota: Quota::default(),
        expires_at: NOW + TimeDelta::days(1),
    })
}

fn session(user_id: UserId, role: Role, method: SessionMethod, age: TimeDelta) -> Credential {
    let session_id = SessionId::generate();
    let (amr, has_factor, created_at) = (vec![AuthMethod::Pwd], false, NOW - age);
    Credential::Session {
        session_id,
        user_id,
        role,
        method,
        amr,
        has_factor,
        created_at,
        idle_expires_at: NOW,
    }
}

#[derive(Clone)]
struct Api {
    verifier: Arc<dyn CredentialVerifier>,
    platform_secret: PlatformSecret,
    clock: Arc<dyn Clock>,
}

impl FromRef<Api> for Arc<dyn CredentialVerifier> {
    fn from_ref(api: &Api) -> Self {
        Arc::clone(&api.verifier)
    }
}

impl FromRef<Api> for PlatformSecret {
    fn from_ref(api: &Api) -> Self {
        api.platform_secret.clone()
    }
}

impl FromRef<Api> for Arc<dyn Clock> {
    fn from_ref(api: &Api) -> Self {
        Arc::clone(&api.clock)
    }
}

async fn of_page(State(api): State<Api>, request: Request) -> Result<String, Problem> {
    let caller = Caller::from_page(&request.into_parts().0, &api.verifier, ORIGIN).await?;
    Ok(caller.map_or_else(|| "none".to_owned(), |caller| caller.credential_label()))
}

/// Returns the requests of an API with these credentials and platform tokens.
fn api(verifier: Credentials, platform_tokens: &str) -> Router {
    let environment = Environment::from_pairs([(PLATFORM_TOKEN.name, platform_tokens)]);
    let platform_secret = PlatformSecret::load(&environment).unwrap();
    let clock = Arc::new(ManualClock::at(NOW));
    Router::new()
        .route("/caller", get(async |caller: Caller| caller.credential_label()))
        .route("/user", get(async |_: AnyUser| "user"))
        .route("/recent", get(async |_: RecentAdmin| "recent"))
        .route("/platform", get(async |_: PlatformAdmin| "platform"))
        .route(
            "/any",
            get(async |caller: AnyCaller| match caller {
                AnyCaller::PlatformAdmin => "platform",
                AnyCaller::Caller(_) => "caller",
            }),
        )
        .route(
            "/users/{user_id}",
            get(async |caller: Caller, Path(user_id): Path<UserId>| {
                caller.require_self_or_admin(user_id).map(|user_id| user_id.to_string())
            }),
        )
        .route("/page", get(of_page))
        .with_state(Api { verifier: Arc::new(verifier), platform_secret, clock })
}

/// Sends a request. Returns the body, or the code of the problem.
async fn send(api: &Router, path: &str, headers: &[(http::HeaderName, &str)]) -> String {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let response = api.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    if let Some(problem) = response.extensions().get::<Problem>() {
        return problem.kind().code().to_owned();
    }
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
}

async fn with_bearer(api: &Router, path: &str, token: &str) -> String {
    send(api, path, &[(AUTHORIZATION, &format!("Bearer {token}"))]).await
}

#[tokio::test]
async fn each_route_accepts_its_kinds_of_callers() {
    let (mut credentials, minute) = (Credentials::default(), TimeDelta::minutes(1));
    let user = UserId::generate();
    let mut add = |kind, credential| credentials.add(kind, credential);
    let member = add(TokenKind::Session, session(user, Role::Member, SessionMethod::Password, minute));
    let admin =
        add(TokenKind::Session, session(UserId::generate(), Role::Admin, SessionMethod::Password, minute));
    let old = add(
        TokenKind::Session,
        session(UserId::generate(), Role::Admin, SessionMethod::Password, minute * 11),
    );
    let page = add(TokenKind::Session, session(UserId::generate(), Role::Admin, SessionMethod::Page, minute));
    let key = add(TokenKind::ApiKey, api_key(&[Scope::EventsWrite]));
    let platform = RawToken::generate(TokenKind::PlatformAdmin, &SystemEntropy).expose().to_owned();
    let unknown = RawToken::generate(TokenKind::Session, &SystemEntropy).expose().to_owned();
    let account = "eyJhbGciOiJSUzI1NiJ9.e30.c2ln".to_owned();
    let digest = TokenDigest::from_text("collector");
    credentials.service_accounts.insert(account.clone(), digest);
    // Not reviewed: it does not have the form of a service account token.
    let malformed = "x".to_owned();
    credentials.service_accounts.insert(malformed.clone(), digest);
    credentials.subjects.insert(digest, subject(service_account()));
    let api = api(credentials, &platform);

    let (invalid, forbidden) = ("credential_invalid", "forbidden");
    for (name, token, user_route, recent_route, platform_route, any_route) in [
        ("member", &member, "user", forbidden, forbidden, "caller"),
        ("admin", &admin, "user", "recent", forbidden, "caller"),
        ("old admin", &old, "user", "reauthentication_required", forbidden, "caller"),
        ("page", &page, invalid, invalid, forbidden, invalid),
        ("key", &key, forbidden, forbidden, forbidden, "caller"),
        ("service account", &account, forbidden, forbidden, invalid, "caller"),
        ("platform", &platform, forbidden, forbidden, "platform", "platform"),
        ("unknown", &unknown, invalid, invalid, forbidden, invalid),
        ("malformed", &malformed, invalid, invalid, invalid, invalid),
    ] {
        for (path, expected) in [
            ("/user", user_route),
            ("/recent", recent_route),
            ("/platform", platform_route),
            ("/any", any_route),
        ] {
            assert_eq!(with_bearer(&api, path, token).await, expected, "{name} {path}");
        }
    }
    assert_eq!(with_bearer(&api, "/caller", &account).await, "serviceaccount:apps/collector");
    let other_account = "eyJhbGciOiJSUzI1NiJ9.e30.b3RoZXI";
    assert_eq!(with_bearer(&api, "/caller", other_account).await, invalid);

    let own = format!("/users/{user}");
    assert_eq!(with_bearer(&api, &own, &member).await, user.to_string());
    assert_eq!(with_bearer(&api, &own, &admin).await, user.to_string());
    assert_eq!(with_bearer(&api, &own, &key).await, forbidden);
    assert_eq!(with_bearer(&api, &own, &account).await, forbidden);
    assert_eq!(with_bearer(&api, &format!("/users/{}", UserId::generate()), &member).await, "not_found");
}

#[tokio::test]
async fn a_bearer_credential_is_one_header_with_any_case_of_the_scheme() {
    let mut credentials = Credentials::default();
    let token = credentials.add(TokenKind::ApiKey, api_key(&[]));
    let api = api(credentials, "");
    let valid = send(&api, "/caller", &[(AUTHORIZATION, &format!("Bearer {token}"))]).await;
    assert!(valid.starts_with("key:"), "{valid}");
    assert_eq!(send(&api, "/caller", &[(AUTHORIZATION, &format!("bEARER  {token} "))]).await, valid);
    for malformed in
        [token.clone(), format!("Basic {token}"), format!("Bearer{token}"), "Bearer é".to_owned()]
    {
        assert_eq!(
            send(&api, "/caller", &[(AUTHORIZATION, &malformed)]).await,
            "credential_invalid",
            "{malformed}"
        );
    }
    let bearer = format!("Bearer {token}");
    let twice = [(AUTHORIZATION, bearer.as_str()), (AUTHORIZATION, &bearer)];
    assert_eq!(send(&api, "/caller", &twice).await, "credential_invalid");
    assert_eq!(send(&api, "/caller", &[]).await, "unauthenticated");
    for (tenant, expected) in [("acme", &*valid), ("other", "tenant_mismatch"), ("-", "header_invalid")] {
        let headers = [(AUTHORIZATION, bearer.as_str()), (tenancy::X_TENANT_ID, tenant)];
        assert_eq!(send(&api, "/caller", &headers).await, expected);
    }
}

#[tokio::test]
async fn a_credential_that_cannot_be_verified_is_not_rejected() {
    let mut credentials = Credentials { is_unavailable: true, ..Credentials::default() };
    let token = credentials.add(TokenKind::ApiKey, api_key(&[]));
    assert_eq!(with_bearer(&api(credentials, ""), "/caller", &token).await, "dependency_unavailable");
}

#[tokio::test]
async fn the_platform_administrator_has_the_current_or_the_previous_token() {
    let [current, previous, other] =
        [(); 3].map(|()| RawToken::generate(TokenKind::PlatformAdmin, &SystemEntropy).expose().to_owned());
    let both = api(Credentials::default(), &format!("{current}\n{previous}"));
    for (token, expected) in [(&current, "platform"), (&previous, "platform"), (&other, "credential_invalid")]
    {
        assert_eq!(with_bearer(&both, "/platform", token).await, expected);
    }
    assert_eq!(send(&both, "/platform", &[]).await, "unauthenticated");
    let same = api(Credentials::default(), &format!("{current}\n{current}"));
    assert_eq!(with_bearer(&same, "/platform", &current).await, "platform");
    assert_eq!(PlatformSecret::variables(), [PLATFORM_TOKEN]);
    // Without a secret, every token is rejected.
    let none = api(Credentials::default(), "");
    assert_eq!(with_bearer(&none, "/platform", &current).await, "credential_invalid");
}

#[tokio::test]
async fn the_cookie_of_the_page_is_a_credential_of_requests_of_the_page_only() {
    let mut credentials = Credentials::default();
    let page = session(UserId::generate(), Role::Member, SessionMethod::Page, TimeDelta::zero());
    let page = credentials.add(TokenKind::Session, page);
    let login = session(UserId::generate(), Role::Member, SessionMethod::Password, TimeDelta::zero());
    let login = credentials.add(TokenKind::Session, login);
    let api = api(credentials, "");
    let cookie = |token: &str| format!("a=b; __Host-svc_page_session={token}");
    let (page, login) = (cookie(&page), cookie(&login));
    let accepted = send(&api, "/page", &[(COOKIE, &page)]).await;
    assert!(accepted.starts_with("session:"), "{accepted}");
    assert_eq!(send(&api, "/page", &[(COOKIE, &login)]).await, "credential_invalid");
    assert_eq!(send(&api, "/page", &[]).await, "none");
    let site = http::HeaderName::from_static("sec-fetch-site");
    assert_eq!(send(&api, "/page", &[(COOKIE, &page), (site, "cross-site")]).await, "none");
    assert_eq!(send(&api, "/page", &[(COOKIE, &page), (AUTHORIZATION, "Bearer x")]).await, "none");
}

fn api_key(scopes: &[Scope]) -> Credential {
    Credential::ApiKey { key_id: KeyId::generate(), scopes: scopes.to_vec(), source_ids: Vec::new() }
}

fn service_account() -> Credential {
    Credential::ServiceAccount { service_account: "apps/collector".parse().unwrap(), source_ids: Vec::new() }
}

/// The caller with a credential.
async fn caller(credential: Credential) -> Caller {
    let mut credentials = Credentials::default();
    let token = RawToken::generate(TokenKind::ApiKey, &SystemEntropy);
    credentials.subjects.insert(token.digest(), subject(credential));
    let request = Request::builder().header(AUTHORIZATION, format!("Bearer {}", token.expose()));
    let verifier: Arc<dyn CredentialVerifier> = Arc::new(credentials);
    let (mut parts, ()) = request.body(()).unwrap().into_parts();
    Caller::from_request_parts(&mut parts, &verifier).await.unwrap()
}

#[tokio::test]
async fn a_handler_learns_the_ids_the_scopes_and_the_actor_of_a_credential() {
    let (user_id, session_id, key_id) = (UserId::generate(), SessionId::generate(), KeyId::generate());
    let of_user = |role| Credential::Session {
        session_id,
        user_id,
        role,
        method: SessionMethod::Device,
        amr: vec![AuthMethod::Pwd],
        has_factor: false,
        created_at: NOW,
        idle_expires_at: NOW,
    };
    let key = Credential::ApiKey { key_id, scopes: vec![Scope::EventsRead], source_ids: Vec::new() };
    let no_program = (Some(user_id), Some(session_id));
    for (credential, ids, is_admin, label, actor, missing) in [
        (
            of_user(Role::Admin),
            no_program,
            true,
            format!("session:{session_id}"),
            Actor::User { user_id },
            None,
        ),
        (
            of_user(Role::Member),
            no_program,
            false,
            format!("session:{session_id}"),
            Actor::User { user_id },
            Some("forbidden"),
        ),
        (
            key,
            (None, None),
            false,
            format!("key:{key_id}"),
            Actor::ApiKey { key_id },
            Some("insufficient_scope"),
        ),
        (
            service_account(),
            (None, None),
            false,
            "serviceaccount:apps/collector".to_owned(),
            Actor::Anonymous,
            Some("insufficient_scope"),
        ),
    ] {
        let caller = caller(credential).await;
        assert_eq!((caller.user_id(), caller.session_id()), ids, "{label}");
        assert_eq!((caller.is_admin(), caller.credential_label()), (is_admin, label.clone()));
        assert_eq!(Actor::from(&caller), actor, "{label}");
        assert_eq!(caller.tenant_id().as_str(), "acme");
        let denied = caller.require(Scope::UsersWrite).err().map(|problem| problem.kind().code());
        assert_eq!(denied, missing, "{label}");
        let debug = format!("{caller:?}");
        assert!(debug.contains("acme") && !debug.contains("digest"), "{debug}");
    }
}
