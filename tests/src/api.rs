//! Users of the API in plain JSON, without the types of this project.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{Client, PASSWORD, TestResponse, wait_until};

use crate::RunFile;

/// A user who is logged in.
#[derive(Clone)]
pub struct ApiUser {
    /// The raw session token.
    pub token: String,
    /// The user id.
    pub user_id: String,
    /// A client that sends the session token.
    pub client: Client,
}

impl ApiUser {
    /// Accepts the first invite of an installation and logs in.
    pub async fn first_admin(run_file: &RunFile) -> Self {
        let invite = run_file.admin_invite_token.as_deref().unwrap();
        Self::accept_invite(&run_file.base_url, invite).await
    }

    /// Accepts an invite and logs in.
    pub async fn accept_invite(base_url: &str, invite: &str) -> Self {
        let body = json!({ "token": invite, "password": PASSWORD });
        let user: Value = api_client(base_url).post("/users/accept-invite", &body).await.expect(201);
        let field = |name: &str| user[name].as_str().unwrap().to_owned();
        Self::log_in(base_url, &field("tenant_id"), &field("email")).await
    }

    /// Creates the tenant `acme` and logs in as its administrator.
    pub async fn create_acme(base_url: &str, platform_token: &str, email: &str) -> Self {
        Self::create_tenant(base_url, platform_token, "acme", email).await
    }

    /// Creates a tenant and logs in as its administrator.
    pub async fn create_tenant(base_url: &str, platform_token: &str, tenant: &str, email: &str) -> Self {
        let create = json!({
            "tenant_id": tenant, "display_name": "Acme", "admin_email": email, "delivery": "response",
        });
        let platform_admin = api_client(base_url).bearer(platform_token);
        let tenant: Value = platform_admin.post("/tenants", &create).await.expect(201);
        Self::accept_invite(base_url, tenant["invite"]["token"].as_str().unwrap()).await
    }

    /// Logs in.
    pub async fn log_in(base_url: &str, tenant: &str, email: &str) -> Self {
        let client = api_client(base_url);
        let body = json!({ "email": email, "password": PASSWORD });
        let login = client.clone().header("X-Tenant-ID", tenant).post("/auth/password/login", &body).await;
        let session: Value = login.expect(200);
        let token = session["session_id"].as_str().unwrap().to_owned();
        let user_id = session["user_id"].as_str().unwrap().to_owned();
        Self { client: client.bearer(&token), token, user_id }
    }
}

/// A client of the API without credentials.
pub fn api_client(base_url: &str) -> Client {
    Client::new(base_url)
}

/// Waits for a mail to the address in the directory.
pub async fn wait_for_mail(email: &str, mail_dir: &Path) -> String {
    let to = format!("To: {email}\r\n");
    wait_until("the mail is written", async || {
        let files = std::fs::read_dir(mail_dir).unwrap().map(|file| file.unwrap().path());
        let complete = files.filter(|file| file.extension().is_some_and(|extension| extension == "eml"));
        let mut mails = complete.filter_map(|file| std::fs::read_to_string(file).ok());
        mails.find(|mail| mail.contains(&to))
    })
    .await
}

/// The token in the fragment of a link.
pub fn token_in(mail: &str) -> &str {
    mail.split("#token=").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap()
}

/// Words of libraries and dependencies that a response must not contain.
const INTERNAL_WORDS: &[&str] =
    &["sqlx", "postgres", "nats", "panic", "serde", "hyper", "axum", "reqwest", "tcp", ".rs", "os error"];

/// Panics if the body shows an internal cause.
#[track_caller]
pub fn expect_no_internals(response: &TestResponse) {
    let body = response.body.to_lowercase();
    for word in INTERNAL_WORDS {
        assert!(!body.contains(word), "{word}: {response}");
    }
}
