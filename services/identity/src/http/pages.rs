//! `/pages`, `/docs`, `/problems` and `/`: pages for browsers, rendered once per language at startup. Tokens are in the
//! fragment of the URL, which browsers do not send, so they reach neither servers nor logs. Also `/openapi.json` and `/version`.

mod files;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, LazyLock};

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Extension, Json};
use contract::ProblemKind;
use contract::identity::{PageLanguage, Version};
use data_encoding::HEXLOWER;
use http::header::{
    CACHE_CONTROL, CONTENT_LANGUAGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    REFERRER_POLICY, SET_COOKIE, VARY,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use service::Problem;
use service::http::QueryParameters;
use sha1::{Digest as _, Sha1};
use url::Url;

use self::files::Files;
use crate::branding::{Branding, Support};
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

/// What every page shows.
struct PageContext {
    /// Path of the files.
    files: String,
    texts: Texts,
    product: String,
    support: Option<Support>,
    has_logo: bool,
    min_length: usize,
    /// The texts that scripts use, as JSON.
    script_texts: String,
}

/// Prefixes of the keys of texts that scripts use.
const SCRIPT_TEXTS: &[&str] = &[
    "device.unknown",
    "error.",
    "failed.",
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
        branding: &Branding,
        min_length: usize,
        files: &Files,
    ) -> Result<Self, serde_json::Error> {
        let values = [("product", branding.product.as_str()), ("min_length", &min_length.to_string())];
        let texts = Texts::load(language, &values)?;
        let script_texts = serde_json::to_string(&texts.with_prefixes(SCRIPT_TEXTS))?;
        Ok(Self {
            files: files.path(),
            texts,
            product: branding.product.clone(),
            support: branding.support.clone(),
            has_logo: branding.logo.is_some(),
            min_length,
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
    Device = "pages/device.html",
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
        branding: &Branding,
        min_length: usize,
        public_url: &Url,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let files = Files::new(branding);
        let (mut languages, mut rendered) = (BTreeMap::new(), BTreeMap::new());
        for language in Language::ALL.iter().copied() {
            let context = PageContext::new(language, branding, min_length, &files)?;
            let page = &context;
            for (name, html) in [
                ("accept-invite", AcceptInvite { page }.render()?),
                ("reset-password", ResetPassword { page }.render()?),
                ("request-reset", RequestReset { page }.render()?),
                ("device", Device { page }.render()?),
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

    /// Returns a rendered page in the language of the request. A chosen language is kept in a cookie.
    fn page(&self, name: &str, query: &PageLanguage, headers: &HeaderMap) -> Result<Response, Problem> {
        let chosen = query.lang.as_ref().and_then(|tag| tag.parse::<Language>().ok());
        let language = chosen.unwrap_or_else(|| Language::from_headers(headers, self.default_language));
        let found = self.rendered.iter().find(|((known, of), _)| *known == name && *of == language);
        let (_, html) = found.ok_or(ProblemKind::NotFound)?;
        let negotiated = [
            (VARY, HeaderValue::from_static("accept-language, cookie")),
            (CONTENT_LANGUAGE, HeaderValue::from_static(language.tag())),
        ];
        let cookie = chosen.map(|language| [(SET_COOKIE, language.cookie(self.is_secure))]);
        Ok((negotiated, cookie, document(HTML, html.clone())).into_response())
    }
}

/// Names of pages that are not below `/pages`.
const HOME: &str = "/";
const DOCS: &str = "/docs";

/// `GET /pages/{name}`: public.
pub(super) async fn page(
    Path(name): Path<String>,
    Extension(pages): Extension<Arc<Pages>>,
    QueryParameters(query): QueryParameters<PageLanguage>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    match name.as_str() {
        HOME | DOCS => Err(ProblemKind::NotFound.into()),
        name => pages.page(name, &query, &headers),
    }
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
    QueryParameters(query): QueryParameters<PageLanguage>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    pages.page(HOME, &query, &headers)
}

/// `GET /docs`: public. Renders `/openapi.json` with Swagger UI.
pub(super) async fn docs(
    Extension(pages): Extension<Arc<Pages>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    pages.page(DOCS, &PageLanguage::default(), &headers)
}

/// Other paths at which people look for the documentation.
pub(super) async fn redirect_to_docs() -> Redirect {
    Redirect::temporary("/api/v1/docs")
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
