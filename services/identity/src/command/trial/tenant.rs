//! The first tenant of a trial and its administrator, created through the public API.

use std::path::Path;
use std::time::Duration;

use authn::PLATFORM_TOKEN;
use contract::identity::{AcceptInvite, CreateTenant, Delivery, Invite, Tenant};
use contract::{Page, Secret};
use http::{Method, StatusCode};
use reqwest::{RequestBuilder, Response};
use serde_json::json;
use service::config::{Environment, Reader};
use tokio::time::{Instant, sleep};

use super::{REQUEST_TIMEOUT, Result};

const TENANT: &str = "demo";
const ADMINISTRATOR: &str = "admin@demo.example";
/// How long identity may take to start: images are pulled and the database is created.
const START_TIMEOUT: Duration = Duration::from_mins(10);
const POLL: Duration = Duration::from_secs(1);

/// Creates the tenant and accepts the invite of its administrator. Waits until identity responds.
pub(super) async fn create(url: &str, password_file: &Path, environment: &Environment) -> Result<String> {
    let mut reader = Reader::new(environment);
    let token = reader.required::<String>(&PLATFORM_TOKEN);
    let token = reader.finish(|| token)?;
    let password = std::fs::read_to_string(password_file)?.trim().to_owned();
    // Plain HTTP inside the cluster needs no certificates.
    let http = reqwest::Client::builder().no_proxy().timeout(REQUEST_TIMEOUT).tls_certs_only([]).build()?;
    let api = Api { http, url, token };
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        match api.ensure_administrator(&password).await {
            Ok(()) => return Ok(format!("the tenant {TENANT} has the administrator {ADMINISTRATOR}")),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => sleep(POLL).await,
        }
    }
}

struct Api<'a> {
    http: reqwest::Client,
    url: &'a str,
    token: String,
}

impl Api<'_> {
    /// Idempotent: continues after an attempt that was interrupted.
    async fn ensure_administrator(&self, password: &str) -> Result<()> {
        let Some(token) = self.invite_token().await? else { return Ok(()) };
        let accept = AcceptInvite { token, password: Secret::new(password) };
        let url = format!("{}{}/users/accept-invite", self.url, contract::API_PREFIX);
        checked(self.http.post(url).json(&accept)).await?;
        Ok(())
    }

    /// Returns the token of the invite, unless it was accepted.
    async fn invite_token(&self) -> Result<Option<Secret>> {
        let create = CreateTenant {
            tenant_id: TENANT.parse()?,
            display_name: "Demo".to_owned(),
            admin_email: Some(ADMINISTRATOR.to_owned()),
            delivery: Delivery::Response,
            quota: None,
        };
        let response = self.request(Method::POST, "/tenants").json(&create).send().await?;
        if response.status() != StatusCode::CONFLICT {
            let tenant: Tenant = successful(response).await?.json().await?;
            return Ok(tenant.invite.and_then(|invite| invite.token));
        }
        let pending = self.request(Method::GET, "/users/invites?limit=200&status=pending");
        let pending: Page<Invite> = checked(pending).await?.json().await?;
        let Some(invite) = pending.items.into_iter().find(|invite| invite.email == ADMINISTRATOR) else {
            return Ok(None);
        };
        let resend = self.request(Method::POST, &format!("/users/invites/{}/resend", invite.invite_id));
        let invite: Invite =
            checked(resend.json(&json!({ "delivery": Delivery::Response }))).await?.json().await?;
        Ok(invite.token)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{}{path}", self.url, contract::API_PREFIX);
        self.http.request(method, url).bearer_auth(&self.token).header(tenancy::X_TENANT_ID, TENANT)
    }
}

async fn checked(request: RequestBuilder) -> Result<Response> {
    successful(request.send().await?).await
}

async fn successful(response: Response) -> Result<Response> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    Err(format!("identity returned {status}: {}", response.text().await?).into())
}
