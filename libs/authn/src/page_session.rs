//! The session of the page of own sessions. Its token is in a cookie that scripts cannot read. The cookie authenticates requests
//! of that page only, and the token is not valid as a bearer credential.

use std::sync::Arc;
use std::time::Duration;

use contract::ProblemKind;
use contract::internal::Credential;
use contract::session::SessionMethod;
use hashing::{RawToken, TokenKind};
use http::HeaderValue;
use http::header::{AUTHORIZATION, COOKIE, ORIGIN};
use http::request::Parts;
use service::Problem;
use url::Url;

use crate::{Caller, CredentialVerifier};

/// The name and the path of the cookie. With https, the prefix prevents that another host of the domain sets a cookie of this name
/// (RFC 6265bis, section 4.1.3.2); it requires the path `/`. Otherwise, browsers send the cookie only to the routes of the page.
fn name_and_path(is_https: bool) -> (&'static str, &'static str) {
    if is_https { ("__Host-svc_page_session", "/") } else { ("svc_page_session", "/api/v1/auth/sessions") }
}

/// Lifetime of the session and of its cookie.
pub const PAGE_SESSION_LIFETIME: Duration = Duration::from_mins(15);

/// Returns the value of `Set-Cookie` for a page session.
pub fn page_session_cookie(token: &str, public_url: &Url) -> String {
    let is_https = public_url.scheme() == "https";
    let ((name, path), secure) = (name_and_path(is_https), if is_https { "; Secure" } else { "" });
    let seconds = PAGE_SESSION_LIFETIME.as_secs();
    format!("{name}={token}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

impl Caller {
    /// Verifies the bearer credential or, without one, the cookie of a request from a page of this installation.
    ///
    /// # Errors
    /// As for a bearer credential.
    pub async fn from_page(
        parts: &Parts,
        verifier: &Arc<dyn CredentialVerifier>,
        public_url: &str,
    ) -> Result<Option<Self>, Problem> {
        if parts.headers.contains_key(AUTHORIZATION) || !is_same_origin(parts, public_url) {
            return Ok(None);
        }
        let (name, _) = name_and_path(public_url.starts_with("https:"));
        let Some(token) = token(parts, name) else { return Ok(None) };
        let caller = Self::verify(token.digest(), verifier).await?;
        if caller.is_page_session() { Ok(Some(caller)) } else { Err(ProblemKind::CredentialInvalid.into()) }
    }

    /// Returns whether the credential is the session of the page of own sessions.
    pub(crate) fn is_page_session(&self) -> bool {
        matches!(self.subject().credential, Credential::Session { method: SessionMethod::Page, .. })
    }
}

fn token(parts: &Parts, name: &str) -> Option<RawToken> {
    let cookies = parts.headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut cookies =
        cookies.flat_map(|value| value.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    let (_, token) = cookies.find(|(found, _)| *found == name)?;
    RawToken::parse(TokenKind::Session, token).ok()
}

/// Returns whether a page of this installation sent the request, as the browser states in `Sec-Fetch-Site` or, without secure
/// transport, in `Origin`. Browsers omit `Origin` in a GET request to the same origin, which changes nothing.
fn is_same_origin(parts: &Parts, public_url: &str) -> bool {
    let header = |name| parts.headers.get(name).map(HeaderValue::as_bytes);
    match (header("sec-fetch-site"), header(ORIGIN.as_str())) {
        (Some(site), _) => site == b"same-origin",
        (None, Some(origin)) => {
            Url::parse(public_url).is_ok_and(|url| url.origin().ascii_serialization().as_bytes() == origin)
        }
        (None, None) => parts.method.is_safe(),
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Request};

    use super::*;

    fn same_origin(method: Method, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        is_same_origin(&request.body(()).unwrap().into_parts().0, "https://svc.example/")
    }

    #[test]
    fn only_requests_of_the_own_origin_are_accepted() {
        let (own, other) = (("origin", "https://svc.example"), ("origin", "https://evil.example"));
        assert!(same_origin(Method::DELETE, &[own]));
        assert!(same_origin(Method::DELETE, &[("sec-fetch-site", "same-origin"), own]));
        assert!(same_origin(Method::GET, &[]));
        for headers in [
            &[][..],
            &[other],
            &[("origin", "null")],
            &[("sec-fetch-site", "same-site"), own],
            &[("sec-fetch-site", "cross-site")],
        ] {
            assert!(!same_origin(Method::DELETE, headers), "{headers:?}");
        }
        assert!(!same_origin(Method::GET, &[("sec-fetch-site", "cross-site")]));
    }

    #[test]
    fn the_cookie_is_secure_with_https_and_never_readable_by_scripts() {
        let cookie = |url: &str| page_session_cookie("svc_st_x", &url.parse().unwrap());
        assert_eq!(
            cookie("https://svc.example"),
            "__Host-svc_page_session=svc_st_x; Path=/; Max-Age=900; HttpOnly; SameSite=Strict; Secure"
        );
        assert_eq!(
            cookie("http://127.0.0.1:8080"),
            "svc_page_session=svc_st_x; Path=/api/v1/auth/sessions; Max-Age=900; HttpOnly; SameSite=Strict"
        );
    }

    #[test]
    fn a_cookie_that_another_host_of_the_domain_set_is_ignored() {
        let own = RawToken::generate(TokenKind::Session, &hashing::SystemEntropy);
        let planted = RawToken::generate(TokenKind::Session, &hashing::SystemEntropy);
        let cookies =
            format!("svc_page_session={}; __Host-svc_page_session={}", planted.expose(), own.expose());
        let request = Request::builder().header(COOKIE, cookies).body(()).unwrap();
        let (name, _) = name_and_path(true);
        let found = token(&request.into_parts().0, name).unwrap();
        assert_eq!(found.expose(), own.expose());
    }
}
