//! The tenant of a new installation, created through the public API. A file keeps the invite token of its administrator until
//! the invite is used, so that a restart can print it again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use contract::identity::{CreateTenant, Delivery, Invite, InviteStatus, InviteUser, Tenant};
use contract::{Page, Role};
use devservers::secret;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::json;
use tenancy::TenantId;

const TENANT: &str = "demo";
const ADMIN: &str = "admin@demo.example";
/// How often the status of the invite is read.
const POLL: Duration = Duration::from_secs(1);

/// The first tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FirstTenant {
    pub(crate) tenant: String,
    pub(crate) admin_email: String,
    /// The invite token of the administrator, until it is used.
    pub(crate) invite_token: Option<String>,
}

/// A client of the API with the platform token.
pub(crate) struct PlatformClient {
    http: reqwest::Client,
    base_url: String,
    token: String,
    /// The file of the invite token.
    invite_file: PathBuf,
}

impl PlatformClient {
    pub(crate) fn new(base_url: &str, token: &str, invite_file: &Path) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build()?;
        Ok(Self {
            http,
            base_url: base_url.to_owned(),
            token: token.to_owned(),
            invite_file: invite_file.to_owned(),
        })
    }

    /// Creates the tenant if it does not exist.
    pub(crate) async fn ensure_first_tenant(&self) -> anyhow::Result<FirstTenant> {
        let tenant_id: TenantId = TENANT.parse()?;
        let create = CreateTenant {
            tenant_id,
            display_name: "Demo".to_owned(),
            admin_email: Some(ADMIN.to_owned()),
            delivery: Delivery::Response,
            quota: None,
        };
        let response = self.request(Method::POST, "/tenants").json(&create).send().await?;
        let invite_token = match response.status() {
            StatusCode::CREATED => self.store_token(response.json::<Tenant>().await?.invite)?,
            StatusCode::CONFLICT => self.usable_token().await?,
            status => bail!("POST /tenants returned {status}: {}", response.text().await?),
        };
        Ok(FirstTenant { tenant: TENANT.to_owned(), admin_email: ADMIN.to_owned(), invite_token })
    }

    /// Waits until the invite is no longer pending, and removes its token.
    pub(crate) async fn wait_until_invite_used(&self) {
        loop {
            match self.invite(InviteStatus::Pending).await {
                Ok(None) => break,
                Ok(Some(_)) => {}
                Err(error) => tracing::debug!(%error, "failed to read first invite"),
            }
            tokio::time::sleep(POLL).await;
        }
        let _ = std::fs::remove_file(&self.invite_file); // the token is no longer valid
    }

    /// A token for an existing tenant if its administrator has not accepted an invite yet.
    async fn usable_token(&self) -> anyhow::Result<Option<String>> {
        if let Some(pending) = self.invite(InviteStatus::Pending).await? {
            if let Ok(token) = std::fs::read_to_string(&self.invite_file) {
                return Ok(Some(token));
            }
            // The earlier run was killed before it stored the token.
            let path = format!("/users/invites/{}/resend", pending.invite_id);
            return self.request_invite(&path, &json!({ "delivery": Delivery::Response })).await;
        }
        if self.invite(InviteStatus::Accepted).await?.is_some() {
            return Ok(None);
        }
        let invite = InviteUser { email: ADMIN.to_owned(), role: Role::Admin, delivery: Delivery::Response };
        self.request_invite("/users/invite", &invite).await
    }

    async fn request_invite(
        &self,
        path: &str,
        body: &impl serde::Serialize,
    ) -> anyhow::Result<Option<String>> {
        let response = self.request(Method::POST, path).json(body).send().await?.error_for_status()?;
        self.store_token(Some(response.json().await?))
    }

    /// The administrator's invite with this status.
    async fn invite(&self, status: InviteStatus) -> anyhow::Result<Option<Invite>> {
        let path = format!("/users/invites?limit=200&status={status}");
        let response = self.request(Method::GET, &path).send().await?.error_for_status()?;
        let invites: Page<Invite> = response.json().await?;
        Ok(invites.items.into_iter().find(|invite| invite.email == ADMIN))
    }

    fn store_token(&self, invite: Option<Invite>) -> anyhow::Result<Option<String>> {
        let Some(token) = invite.and_then(|invite| invite.token) else { return Ok(None) };
        secret::write_private(&self.invite_file, token.expose().as_bytes())
            .with_context(|| format!("failed to write {}", self.invite_file.display()))?;
        Ok(Some(token.expose().to_owned()))
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{}{path}", self.base_url, contract::API_PREFIX);
        self.http.request(method, url).bearer_auth(&self.token).header(tenancy::X_TENANT_ID, TENANT)
    }
}
