//! `/pages`, `/docs`, `/problems` and `/`: pages for browsers, rendered once per language at startup. Tokens are in the
//! fragment of the URL, which browsers do not send, so they reach neither servers nor logs. Also `/openapi.json` and `/version`.

mod files;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use askama::Template;
use axum::extract::{Path, RawQuery};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get};
use axum::{Extension, Json};
use contract::identity::Version;
use contract::{API_PREFIX, ProblemKind};
use data_encoding::HEXLOWER;
use http::header::{
    CACHE_CONTROL, CONTENT_LANGUAGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    REFERRER_POLICY, SET_COOKIE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use service::Problem;
use sha1::{Digest as _, Sha1};
use url::Url;

use self::files::Files;
use crate::branding::{Branding, Support};
use crate::domain::passkey::RelyingParty;
use crate::texts::{Language, Texts};

/// Pages load scripts, styles and images from this service only. `data:` images are the icons of Swagger UI.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const HTML: &str = "text/html; charset=utf-8";

/// Written by `make gen`; the crate `openapi` tests that it matches the route table.
const DOCUMENT: &str = include_str!("../../../../catalog/openapi.json");
/// Digest of the document: the same in every process of a build.
static TAG: LazyLock<String> =
    LazyLock::new(|| format!("\"{}\"", HEXLOWER.encode(&Sha1::digest(DOCUMENT.as_bytes()))));

/// What the pages show of the installation.
pub(crate) struct Installation<'a> {
    pub(crate) branding: &'a Branding,
    /// Minimum length of a new password.
    pub(crate) min_length: usize,
    pub(crate) public_url: &'a Url,
    /// Whether mail is configured.
    pub(crate) can_mail: bool,
}

/// What every page shows.
#[expect(clippy::struct_excessive_bools, reason = "independent settings of the installation")]
struct PageContext {
    /// The public origin.
    origin: String,
    /// Path of the files.
    files: String,
    texts: Texts,
    product: String,
    support: Option<Support>,
    app_url: Option<Url>,
    has_logo: bool,
    has_dark_logo: bool,
    min_length: usize,
    can_mail: bool,
    /// Whether browsers have passkeys at the public origin.
    has_passkeys: bool,
    /// The texts that scripts use, as JSON.
    script_texts: String,
}

/// Prefixes of the keys of texts that scripts use.
const SCRIPT_TEXTS: &[&str] = &[
    "accept.account",
    "copied",
    "copy",
    "done.",
    "reset.account",
    "device.undecided",
    "device.unknown",
    "error.",
    "factors.",
    "failed.",
    "field.recovery_code",
    "limited.",
    "passkey.",
    "password.",
    "problem.",
    "sessions.",
    "token.",
    "unknown",
    "wait",
];

impl PageContext {
    fn new(
        language: Language,
        installation: &Installation<'_>,
        files: &Files,
    ) -> Result<Self, serde_json::Error> {
        let &Installation { branding, min_length, public_url, can_mail } = installation;
        let values = [("product", branding.product.as_str()), ("min_length", &min_length.to_string())];
        let texts = Texts::load(language, &values)?;
        let script_texts = serde_json::to_string(&texts.with_prefixes(SCRIPT_TEXTS))?;
        Ok(Self {
            origin: public_url.origin().ascii_serialization(),
            files: files.path(),
            texts,
            product: branding.product.clone(),
            support: branding.support.clone(),
            app_url: branding.app_url.clone(),
            has_logo: branding.logo.is_some(),
            has_dark_logo: branding.logo_dark.is_some(),
            min_length,
            can_mail,
            has_passkeys: RelyingParty::new(public_url, &branding.product).is_some(),
            script_texts,
        })
    }

    fn language(&self) -> &'static str {
        self.texts.language.tag()
    }

    fn other_languages(&self) -> impl Iterator<Item = &'static Language> {
        Language::ALL.iter().filter(|other| **other != self.texts.language)
    }

    fn text<'a>(&'a self, key: &'a str) -> &'a str {
        self.texts.get(key)
    }
}

macro_rules! templates {
    ($($name:ident = $path:literal,)+) => {
        $(
            #[derive(Template)]
            #[template(path = $path)]
            struct $name<'a> { page: &'a PageContext }
        )+
    };
}

templates! {
    AcceptInvite = "pages/accept-invite.html",
    ResetPassword = "pages/reset-password.html",
    RequestReset = "pages/request-reset.html",
    ChangePassword = "pages/change-password.html",
    Device = "pages/device.html",
    Factors = "pages/factors.html",
    Sessions = "pages/sessions.html",
    Home = "pages/home.html",
    Docs = "pages/docs.html",
}

#[derive(Template)]
#[template(path = "pages/problem.html")]
struct ProblemPage<'a> {
    page: &'a PageContext,
    kind: ProblemKind,
    /// The remedy. Parts in backticks are code.
    remedy: Vec<(bool, &'static str)>,
}

/// Instead of a problem document, for a person who opened an address.
#[derive(Template)]
#[template(path = "pages/error.html")]
struct Error<'a> {
    page: &'a PageContext,
    /// The keys of its texts.
    title: &'static str,
    content: &'static str,
}

impl<'a> Error<'a> {
    fn new(page: &'a PageContext, kind: ProblemKind) -> Self {
        let (title, content) = match kind {
            ProblemKind::NotFound => ("missing.title", "missing"),
            ProblemKind::RateLimited => ("failed.later", "limited.later"),
            _ if kind.status() >= 500 => ("failed.later", "problem.dependency_unavailable"),
            _ => ("failed.request", "error.other"),
        };
        Self { page, title, content }
    }

    fn can_retry(&self) -> bool {
        self.title == "failed.later"
    }
}

/// The pages of the installation with their texts and branding.
pub(crate) struct Pages {
    languages: BTreeMap<Language, PageContext>,
    default_language: Language,
    rendered: BTreeMap<(&'static str, Language), String>,
    files: Files,
    /// Whether browsers use https.
    is_secure: bool,
}

impl Pages {
    /// Renders the pages.
    ///
    /// # Errors
    /// A template or a file of texts is damaged.
    pub(crate) fn new(
        installation: &Installation<'_>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let &Installation { branding, public_url, .. } = installation;
        let files = Files::new(branding);
        let (mut languages, mut rendered) = (BTreeMap::new(), BTreeMap::new());
        for language in Language::ALL.iter().copied() {
            let context = PageContext::new(language, installation, &files)?;
            let page = &context;
            for (name, html) in [
                ("accept-invite", AcceptInvite { page }.render()?),
                ("reset-password", ResetPassword { page }.render()?),
                ("request-reset", RequestReset { page }.render()?),
                ("change-password", ChangePassword { page }.render()?),
                ("device", Device { page }.render()?),
                ("factors", Factors { page }.render()?),
                ("sessions", Sessions { page }.render()?),
                (HOME, Home { page }.render()?),
                (DOCS, Docs { page }.render()?),
            ] {
                rendered.insert((name, language), html);
            }
            languages.insert(language, context);
        }
        let (default_language, is_secure) = (branding.language, public_url.scheme() == "https");
        Ok(Self { languages, default_language, rendered, files, is_secure })
    }

    /// Returns the page of a problem, in the language of the request.
    pub(crate) fn error(&self, kind: ProblemKind, headers: &HeaderMap) -> Response {
        let language = Language::from_headers(headers, self.default_language);
        let page = self.languages.get(&language);
        // A template that is rendered at the start cannot fail later.
        let html = page.and_then(|page| Error::new(page, kind).render().ok()).unwrap_or_default();
        let mut response =
            (negotiated("accept, accept-language, cookie", language), document(HTML, html)).into_response();
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    /// Returns where a damaged address of a page leads: without a slash at its end, and with the fragment that a mail program has
    /// made a part of the path. Without one, browsers keep the fragment of the address (RFC 9110, section 10.2.2).
    fn repaired(&self, name: &str) -> Option<Redirect> {
        let (page, fragment) =
            ["#", "%23"].iter().find_map(|mark| name.split_once(mark)).unwrap_or((name, ""));
        let page = page.trim_end_matches('/');
        let (known, _) = self.rendered.keys().find(|(known, _)| *known == page)?;
        let is_safe = |c: char| c.is_ascii_alphanumeric() || "=&_-.@+%".contains(c);
        let fragment: String = fragment.chars().filter(|c| is_safe(*c)).collect();
        let mark = if fragment.is_empty() { "" } else { "#" };
        Some(Redirect::temporary(&format!("{API_PREFIX}/pages/{known}{mark}{fragment}")))
    }

    /// Returns a rendered page in the language of the request. A chosen language is kept in a cookie.
    fn page(&self, name: &str, query: Option<&str>, headers: &HeaderMap) -> Result<Response, Problem> {
        let chosen = query.and_then(chosen_language);
        let language = chosen.unwrap_or_else(|| Language::from_headers(headers, self.default_language));
        let found = self.rendered.iter().find(|((known, of), _)| *known == name && *of == language);
        let (_, html) = found.ok_or(ProblemKind::NotFound)?;
        let cookie = chosen.map(|language| [(SET_COOKIE, language.cookie(self.is_secure))]);
        Ok((negotiated("accept-language, cookie", language), cookie, document(HTML, html.clone()))
            .into_response())
    }
}

/// Returns the first shipped language of the parameters `lang` of a query. Others have no effect.
fn chosen_language(query: &str) -> Option<Language> {
    let parameters = url::form_urlencoded::parse(query.as_bytes());
    parameters.filter(|(name, _)| name == "lang").find_map(|(_, tag)| tag.parse().ok())
}

fn negotiated(vary: &'static str, language: Language) -> [(HeaderName, HeaderValue); 2] {
    [(VARY, HeaderValue::from_static(vary)), (CONTENT_LANGUAGE, HeaderValue::from_static(language.tag()))]
}

/// Names of pages that are not below `/pages`.
const HOME: &str = "/";
const DOCS: &str = "/docs";

/// `GET /pages/{name}`: public.
pub(super) async fn page(
    Path(name): Path<String>,
    Extension(pages): Extension<Arc<Pages>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    match name.as_str() {
        HOME | DOCS => Err(ProblemKind::NotFound.into()),
        name if name.contains(['#', '%']) => {
            Ok(pages.repaired(name).ok_or(ProblemKind::NotFound)?.into_response())
        }
        name => pages.page(name, query.as_deref(), &headers),
    }
}

/// `GET /pages/{name}/`: leads to the page without the slash.
pub(super) async fn page_without_slash(
    Path(name): Path<String>,
    Extension(pages): Extension<Arc<Pages>>,
) -> Result<Redirect, Problem> {
    Ok(pages.repaired(&name).filter(|_| !name.is_empty()).ok_or(ProblemKind::NotFound)?)
}

/// `GET /pages/files/{version}/{file}`: public.
pub(super) async fn file(
    Path((version, name)): Path<(String, String)>,
    Extension(pages): Extension<Arc<Pages>>,
) -> Result<Response, Problem> {
    Ok(pages.files.get(&version, &name).ok_or(ProblemKind::NotFound)?)
}

/// `GET /`: links to the other pages.
pub(super) async fn home(
    Extension(pages): Extension<Arc<Pages>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    pages.page(HOME, query.as_deref(), &headers)
}

/// `GET /docs`: public. Renders `/openapi.json` with Swagger UI.
pub(super) async fn docs(
    Extension(pages): Extension<Arc<Pages>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    pages.page(DOCS, None, &headers)
}

/// Returns a route that leads to a page.
pub(super) fn redirect(to: &'static str) -> MethodRouter {
    get(move || async move { Redirect::temporary(to) })
}

/// `GET /problems/{code}`: public. The page contains texts of the problem table only, nothing from the request.
pub(super) async fn problem(
    Path(code): Path<String>,
    Extension(pages): Extension<Arc<Pages>>,
) -> Result<Response, Problem> {
    let kind = ProblemKind::from_code(&code).ok_or(ProblemKind::NotFound)?;
    let page = pages.languages.get(&Language::English).ok_or(ProblemKind::NotFound)?;
    let remedy = kind.remedy().split('`').enumerate().map(|(part, text)| (part % 2 == 1, text)).collect();
    let html = ProblemPage { page, kind, remedy }.render();
    Ok(document(HTML, html.map_err(|error| Problem::new(ProblemKind::Internal).caused_by(error))?))
}

fn document(content_type: &'static str, content: impl IntoResponse) -> Response {
    let headers = [
        (CONTENT_TYPE, content_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        // A page that opens this one gets no handle to it.
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, content).into_response()
}

/// `GET /openapi.json`: public.
pub(super) async fn openapi(headers: HeaderMap) -> Response {
    let caching = [(ETAG, TAG.as_str()), (CACHE_CONTROL, "no-cache")];
    if matches(&headers, &TAG) {
        return (StatusCode::NOT_MODIFIED, caching).into_response();
    }
    (caching, [(CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

/// Returns whether `If-None-Match` contains the tag (RFC 9110, section 13.1.2). Compressing proxies make the tag weak.
fn matches(headers: &HeaderMap, tag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|value| matches!(value.trim(), "*") || value.trim().trim_start_matches("W/") == tag)
}

/// `GET /version`: public.
pub(super) async fn version() -> Json<Version> {
    Json(Version { version: env!("CARGO_PKG_VERSION").to_owned() })
}

#[cfg(test)]
mod tests {
    use service::config::{Environment, Variables as _};

    use super::*;

    #[test]
    fn without_a_mail_server_the_page_of_a_reset_has_no_form() {
        let branding = Branding::load(&Environment::from_pairs::<&str, &str>([])).unwrap();
        let public_url: Url = "https://svc.example".parse().unwrap();
        for can_mail in [true, false] {
            let installation =
                Installation { branding: &branding, min_length: 12, public_url: &public_url, can_mail };
            let pages = Pages::new(&installation).unwrap();
            let page = &pages.rendered[&("request-reset", Language::English)];
            assert_eq!(page.contains("<form"), can_mail, "{page}");
            assert_eq!(page.contains("svc cannot send e-mails here."), !can_mail, "{page}");
        }
    }
}
