//! The tenant that a fresh installation begins with, made through the public API like any other. Its administrator's invite
//! token is kept in a file as long as it can be used, so that it can be shown again after a restart.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use contract::identity::{CreateTenant, Delivery, Invite, InviteStatus, InviteUser, Tenant};
use contract::{Page, Role};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::json;
use tenancy::TenantId;

use crate::secret;

/// What the first tenant is called.
const TENANT: &str = "demo";
/// Who administers it.
const ADMIN: &str = "admin@demo.example";
/// How often a pending invite is looked at.
const POLL: Duration = Duration::from_secs(1);

/// The first tenant, as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FirstTenant {
    /// Its id.
    pub(crate) tenant: String,
    /// Its administrator.
    pub(crate) admin_email: String,
    /// The administrator's invite, while it is unused.
    pub(crate) invite_token: Option<String>,
}

/// The operator's client of this installation.
pub(crate) struct PlatformAdmin {
    http: reqwest::Client,
    base_url: String,
    token: String,
    /// Where the invite's token is kept.
    kept: PathBuf,
}

impl PlatformAdmin {
    pub(crate) fn new(base_url: &str, token: &str, kept: &Path) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build()?;
        Ok(Self { http, base_url: base_url.to_owned(), token: token.to_owned(), kept: kept.to_owned() })
    }

    /// Makes the tenant, or finds it again.
    pub(crate) async fn first_tenant(&self) -> anyhow::Result<FirstTenant> {
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
            StatusCode::CREATED => self.keep(response.json::<Tenant>().await?.invite)?,
            StatusCode::CONFLICT => self.known_token().await?,
            status => bail!("the first tenant cannot be made: {status}: {}", response.text().await?),
        };
        Ok(FirstTenant { tenant: TENANT.to_owned(), admin_email: ADMIN.to_owned(), invite_token })
    }

    /// Waits until the invite is used or over, and forgets its token then.
    pub(crate) async fn until_used(&self) {
        loop {
            match self.invite(InviteStatus::Pending).await {
                Ok(None) => break,
                Ok(Some(_)) => {}
                Err(error) => tracing::debug!(%error, "the first invite cannot be looked at"),
            }
            tokio::time::sleep(POLL).await;
        }
        let _ = std::fs::remove_file(&self.kept); // an old token is of no use to anybody
    }

    /// The token of an invite that was made by an earlier run, if it can still be used.
    async fn known_token(&self) -> anyhow::Result<Option<String>> {
        if let Some(pending) = self.invite(InviteStatus::Pending).await? {
            if let Ok(token) = std::fs::read_to_string(&self.kept) {
                return Ok(Some(token));
            }
            // That run was killed before it could keep the token.
            let path = format!("/users/invites/{}/resend", pending.invite_id);
            return self.invited(&path, &json!({ "delivery": Delivery::Response })).await;
        }
        if self.invite(InviteStatus::Accepted).await?.is_some() {
            return Ok(None);
        }
        let anew = InviteUser { email: ADMIN.to_owned(), role: Role::Admin, delivery: Delivery::Response };
        self.invited("/users/invite", &anew).await
    }

    async fn invited(&self, path: &str, body: &impl serde::Serialize) -> anyhow::Result<Option<String>> {
        let response = self.request(Method::POST, path).json(body).send().await?.error_for_status()?;
        self.keep(Some(response.json().await?))
    }

    /// The administrator's invite, if it has this status.
    async fn invite(&self, status: InviteStatus) -> anyhow::Result<Option<Invite>> {
        let path = format!("/users/invites?limit=200&status={status}");
        let response = self.request(Method::GET, &path).send().await?.error_for_status()?;
        let invites: Page<Invite> = response.json().await?;
        Ok(invites.items.into_iter().find(|invite| invite.email == ADMIN))
    }

    fn keep(&self, invite: Option<Invite>) -> anyhow::Result<Option<String>> {
        let Some(token) = invite.and_then(|invite| invite.token) else { return Ok(None) };
        secret::write_private(&self.kept, token.expose().as_bytes())
            .context("cannot keep the first invite's token")?;
        Ok(Some(token.expose().to_owned()))
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{}{path}", self.base_url, contract::API_PREFIX);
        self.http.request(method, url).bearer_auth(&self.token).header(tenancy::X_TENANT_ID, TENANT)
    }
}
