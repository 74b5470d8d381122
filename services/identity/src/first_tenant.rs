//! The first tenant of a trial or of a system for development, and the invite of its administrator, through the public API.

use std::error::Error;
use std::time::Duration;

use contract::identity::{
    AcceptInvite, CreateTenant, Delivery, Invite, InviteStatus, InviteUser, SecondFactorPolicy, Tenant,
};
use contract::{Page, Role, Secret};
use http::{Method, StatusCode};
use reqwest::{RequestBuilder, Response};
use serde_json::json;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A client of the public API with the platform token.
pub struct FirstTenant {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl FirstTenant {
    /// The id of the tenant.
    pub const ID: &str = "demo";
    /// The e-mail address of its administrator.
    pub const ADMINISTRATOR: &str = "admin@demo.example";

    /// Creates the client. `url` is the origin of the API.
    ///
    /// # Errors
    /// The HTTP client cannot be created.
    pub fn new(url: &str, token: &str) -> Result<Self> {
        // Plain HTTP inside the cluster, or of one machine, needs no certificates.
        let http =
            reqwest::Client::builder().no_proxy().timeout(REQUEST_TIMEOUT).tls_certs_only([]).build()?;
        Ok(Self { http, url: url.to_owned(), token: token.to_owned() })
    }

    /// Creates the tenant and the invite of its administrator, unless they exist. Returns a new token of the invite, which replaces
    /// earlier ones, or `None` if the invite was accepted.
    ///
    /// # Errors
    /// A service does not respond, or rejects a request.
    pub async fn invite(&self) -> Result<Option<Secret>> {
        let create = CreateTenant {
            tenant_id: Self::ID.parse()?,
            display_name: "Demo".to_owned(),
            admin_email: Some(Self::ADMINISTRATOR.to_owned()),
            delivery: Delivery::Response,
            quota: None,
            second_factor: SecondFactorPolicy::Optional,
            password_min_length: None,
            passkey_login: None,
        };
        let response = self.request(Method::POST, "/tenants").json(&create).send().await?;
        if response.status() != StatusCode::CONFLICT {
            let tenant: Tenant = successful(response).await?.json().await?;
            return Ok(tenant.invite.and_then(|invite| invite.token));
        }
        let request = if let Some(pending) = self.find_invite(InviteStatus::Pending).await? {
            let resend = self.request(Method::POST, &format!("/users/invites/{}/resend", pending.invite_id));
            resend.json(&json!({ "delivery": Delivery::Response }))
        } else if self.find_invite(InviteStatus::Accepted).await?.is_some() {
            return Ok(None);
        } else {
            let (email, role) = (Self::ADMINISTRATOR.to_owned(), Role::Admin);
            let invite = InviteUser { email, role, delivery: Delivery::Response };
            self.request(Method::POST, "/users/invite").json(&invite)
        };
        let invite: Invite = checked(request).await?.json().await?;
        Ok(invite.token)
    }

    /// Accepts the invite with this password.
    ///
    /// # Errors
    /// As for [`Self::invite`].
    pub async fn accept(&self, token: Secret, password: Secret) -> Result<()> {
        let url = format!("{}{}/users/accept-invite", self.url, contract::API_PREFIX);
        checked(self.http.post(url).json(&AcceptInvite { token, password })).await.map(drop)
    }

    /// Returns whether the invite is pending.
    ///
    /// # Errors
    /// As for [`Self::invite`].
    pub async fn is_invited(&self) -> Result<bool> {
        Ok(self.find_invite(InviteStatus::Pending).await?.is_some())
    }

    async fn find_invite(&self, status: InviteStatus) -> Result<Option<Invite>> {
        let list = self.request(Method::GET, &format!("/users/invites?limit=200&status={status}"));
        let invites: Page<Invite> = checked(list).await?.json().await?;
        Ok(invites.items.into_iter().find(|invite| invite.email == Self::ADMINISTRATOR))
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{}{path}", self.url, contract::API_PREFIX);
        self.http.request(method, url).bearer_auth(&self.token).header(tenancy::X_TENANT_ID, Self::ID)
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
