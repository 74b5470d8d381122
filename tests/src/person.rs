//! People who use the API in plain JSON, without this project's types.

use std::path::Path;
use testkit::{Client, PASSWORD, wait_until};

use serde_json::{Value, json};

use crate::RunFile;

/// Somebody who is logged in.
#[derive(Clone)]
pub struct Person {
    /// The raw session token.
    pub token: String,
    /// Who.
    pub user_id: String,
    /// A client that sends the token as bearer.
    pub client: Client,
}

impl Person {
    /// Accepts the first invite of an installation and logs in.
    pub async fn first_of(run_file: &RunFile) -> Self {
        let invite = run_file.admin_invite_token.as_deref().unwrap();
        Self::invited(&run_file.base_url, invite).await
    }

    /// Accepts an invite and logs in.
    pub async fn invited(base_url: &str, invite: &str) -> Self {
        let body = json!({ "token": invite, "password": PASSWORD });
        let user: Value = raw_client(base_url).post("/users/accept-invite", &body).await.expect(201);
        let field = |name: &str| user[name].as_str().unwrap().to_owned();
        Self::logged_in(base_url, &field("tenant_id"), &field("email")).await
    }

    /// Logs in.
    pub async fn logged_in(base_url: &str, tenant: &str, email: &str) -> Self {
        let client = raw_client(base_url);
        let body = json!({ "email": email, "password": PASSWORD });
        let login = client.clone().header("X-Tenant-ID", tenant).post("/auth/password/login", &body).await;
        let session: Value = login.expect(200);
        let token = session["session_id"].as_str().unwrap().to_owned();
        let user_id = session["user_id"].as_str().unwrap().to_owned();
        Self { client: client.bearer(&token), token, user_id }
    }
}

/// A client of the API that shows nothing.
pub fn raw_client(base_url: &str) -> Client {
    // The first of the process's tests wins; all install the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::new(base_url)
}

/// The mail to an address, once it lies in the directory.
pub async fn mail_to(email: &str, mail_dir: &Path) -> String {
    let to = format!("To: {email}\r\n");
    wait_until("the mail lies there", async || {
        let files = std::fs::read_dir(mail_dir).unwrap();
        let mut mails = files.filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok());
        mails.find(|mail| mail.contains(&to))
    })
    .await
}

/// The token that stands in a link's fragment.
pub fn token_in(mail: &str) -> &str {
    mail.split("#token=").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap()
}
