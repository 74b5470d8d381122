//! `/pages`, `/problems` and `/version`.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use contract::ProblemKind;
use database::Parts;
use hashing::{RawToken, SystemEntropy, TokenKind};
use http_body_util::BodyExt as _;
use service::Tasks;
use service::clock::SystemClock;
use service::config::{Environment, Variables as _};
use service::telemetry::{Telemetry, TraceSettings};
use testkit::{CHEAP_HASHES, LIMITS_OFF, TestDatabase};
use testsystem::TestSystem;
use tower::ServiceExt as _;

/// A valid key, and a valid secret of the internal API.
const SECRET: &str = "a secret of thirty-two characters or more";

#[tokio::test]
async fn pages_load_only_own_resources_and_send_no_referrer() {
    let system = TestSystem::start().await.unwrap();
    for (name, content_type) in [
        ("accept-invite", "text/html; charset=utf-8"),
        ("reset-password", "text/html; charset=utf-8"),
        ("request-reset", "text/html; charset=utf-8"),
        ("sessions", "text/html; charset=utf-8"),
        ("factors", "text/html; charset=utf-8"),
        ("change-password", "text/html; charset=utf-8"),
        ("device", "text/html; charset=utf-8"),
        ("files/any/style.css", "text/css; charset=utf-8"),
        ("files/any/failure.js", "text/javascript; charset=utf-8"),
        ("files/any/page.js", "text/javascript; charset=utf-8"),
        ("files/any/device.js", "text/javascript; charset=utf-8"),
        ("files/any/login.js", "text/javascript; charset=utf-8"),
        ("files/any/change-password.js", "text/javascript; charset=utf-8"),
        ("files/any/token.js", "text/javascript; charset=utf-8"),
        ("files/any/token-form.js", "text/javascript; charset=utf-8"),
        ("files/any/request-reset.js", "text/javascript; charset=utf-8"),
        ("files/any/factors.js", "text/javascript; charset=utf-8"),
        ("files/any/sessions.js", "text/javascript; charset=utf-8"),
        ("files/any/docs.js", "text/javascript; charset=utf-8"),
    ] {
        let page = system.client().get(&format!("/pages/{name}")).await;
        assert_eq!(
            (page.status, &page.headers["content-type"]),
            (200, &content_type.parse().unwrap()),
            "{name}"
        );
        assert!(
            page.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'; ")
        );
        assert_eq!(page.headers["referrer-policy"], "no-referrer");
        assert_eq!(page.headers["cross-origin-opener-policy"], "same-origin");
        let body = page.body.replace(&system.base_url, "");
        assert!(!body.contains("http://") && !body.contains("https://"), "{name}");
        assert!(!page.body.contains("<script>") && !page.body.contains("style=\""), "{name}");
    }
    for missing in ["nowhere", "files/any/logo", "files/any/nowhere", "%2F"] {
        system.client().get(&format!("/pages/{missing}")).await.expect_problem(404, "not_found");
    }
}

/// Adds the scripts that a script imports, directly and through others.
async fn add_imports(system: &TestSystem, script: &str, imports: &mut BTreeSet<String>) {
    let mut waiting = vec![script.to_owned()];
    while let Some(script) = waiting.pop() {
        let content = system.client().get(&format!("/pages/files/any/{script}")).await.body;
        let named = content.split(" from \"./").skip(1).filter_map(|rest| rest.split('"').next());
        waiting.extend(named.filter(|name| imports.insert((*name).to_owned())).map(str::to_owned));
    }
}

#[tokio::test]
async fn a_page_loads_all_its_scripts_at_once_and_names_a_complete_command_without_them() {
    let system = TestSystem::start().await.unwrap();
    for (page, title, command) in [
        ("accept-invite", "Accept your invite", "svc users accept-invite --base-url"),
        ("reset-password", "Set a new password", "svc auth password confirm-reset --base-url"),
        ("request-reset", "Reset your password", "svc auth password reset --base-url"),
        ("change-password", "Change your password", "svc auth password change"),
        ("device", "Connect a device", "svc auth device approve CODE"),
        ("factors", "Your second factor", "svc auth factors list"),
        ("sessions", "Your sessions", "svc auth sessions list"),
    ] {
        let document = system.client().get(&format!("/pages/{page}")).await.body;
        let file_of = |tag: &str| {
            let address = tag.split('"').find(|text| text.starts_with("/api/v1/pages/files/"))?;
            address.rsplit('/').next().map(str::to_owned)
        };
        let tags = |mark: &str| -> BTreeSet<String> {
            document.split('<').filter(|tag| tag.contains(mark)).filter_map(file_of).collect()
        };
        let (preloaded, modules) = (tags("modulepreload"), tags("type=\"module\""));
        let mut imports = BTreeSet::new();
        for module in &modules {
            add_imports(&system, module, &mut imports).await;
        }
        assert!(modules.len() == 1 && !imports.is_empty(), "{page}: {modules:?}");
        assert_eq!(preloaded, imports, "{page}");

        // A section that only a script shows is hidden.
        let heading = format!("<h1>{title}</h1>");
        let shown = ["<section id=\"task\">\n", "<noscript>"].map(|before| format!("{before}{heading}"));
        assert!(shown.iter().any(|heading| document.contains(heading)), "{page}: {document}");
        let origin = &system.base_url;
        let complete = if command.ends_with("--base-url") {
            format!("<code>{command} {origin}</code>")
        } else {
            format!("<code>svc auth login --base-url {origin} &amp;&amp; {command}</code>")
        };
        assert!(document.contains(&complete), "{page}: {document}");
    }
}

#[tokio::test]
async fn a_page_is_in_the_language_that_the_client_accepts_or_in_the_configured_one() {
    let system = TestSystem::start_with(&[("SVC_LANGUAGE", "de")]).await.unwrap();
    for (accepted, language, title) in [
        ("en", "en", "<h1>Reset your password</h1>"),
        ("de-CH", "de", "<h1>Passwort zurücksetzen</h1>"),
        ("fr", "de", "<h1>Passwort zurücksetzen</h1>"),
    ] {
        let client = system.client().header("Accept-Language", accepted);
        let page = client.get("/pages/request-reset").await;
        assert!(page.body.contains(title), "{accepted}: {page}");
        assert!(page.body.contains(&format!("<html lang=\"{language}\">")), "{accepted}: {page}");
        assert_eq!(page.headers["content-language"], language);
        assert_eq!(page.headers["vary"], "accept-language, cookie");
        assert!(!page.headers.contains_key("set-cookie"));
    }
}

#[tokio::test]
async fn a_page_links_to_the_other_language_and_a_cookie_keeps_the_choice() {
    let system = TestSystem::start().await.unwrap();
    let client = system.client().header("Accept-Language", "en");
    let german = "<h1>Passwort zurücksetzen</h1>";
    let page = client.get("/pages/request-reset").await;
    assert!(page.body.contains(r#"<a href="?lang=de" lang="de" hreflang="de">Deutsch</a>"#), "{page}");
    let chosen = client.get("/pages/request-reset?lang=de").await;
    assert!(chosen.body.contains(german), "{chosen}");
    assert!(chosen.body.contains(r#"<a href="?lang=en" lang="en" hreflang="en">English</a>"#), "{chosen}");
    let cookie = "svc_language=de; Path=/; Max-Age=31536000; HttpOnly; SameSite=Lax";
    assert_eq!(chosen.headers["set-cookie"], cookie);
    let later = client.clone().header("Cookie", "svc_language=de").get("/pages/request-reset").await;
    assert!(later.body.contains(german), "{later}");
    let unknown = client.get("/pages/request-reset?lang=xx").await;
    assert!(unknown.body.contains("<h1>Reset your password</h1>"), "{unknown}");
    assert!(!unknown.headers.contains_key("set-cookie"));
    let repeated = client.get("/pages/request-reset?lang=xx&lang=de&lang=en").await;
    assert!(repeated.body.contains(german), "{repeated}");
    let problem = client.get("/problems/not_found").await.body;
    assert!(!problem.contains("?lang="), "a problem page has one language: {problem}");
}

#[tokio::test]
async fn pages_show_the_configured_branding() {
    let logo = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(logo.path(), "<svg xmlns=\"http://www.w3.org/2000/svg\"/>").unwrap();
    let system = TestSystem::start_with(&[
        ("SVC_PRODUCT_NAME", "Acme <Cloud>"),
        ("SVC_LOGO_FILE", logo.path().to_str().unwrap()),
        ("SVC_LOGO_DARK_FILE", logo.path().to_str().unwrap()),
        ("SVC_ACCENT_COLOR", "#7a1f5c"),
        ("SVC_SUPPORT_ADDRESS", "help@acme.example"),
        ("SVC_PASSWORD_MIN_LENGTH", "15"),
    ])
    .await
    .unwrap();
    let page = system.client().get("/pages/accept-invite").await.body;
    for part in [
        "<title>Accept your invite · Acme &#60;Cloud&#62;</title>",
        "<a href=\"mailto:help@acme.example\">help@acme.example</a>",
        "At least 15 characters,",
        "minlength=\"15\"",
    ] {
        assert!(page.contains(part), "{part} is missing: {page}");
    }
    assert!(page.contains("/logo-dark\">"), "{page}");
    let logo = page.split("<img src=\"/api/v1").nth(1).unwrap().split('"').next().unwrap();
    let style = system.client().get(&logo.replace("/logo", "/style.css")).await;
    assert!(style.body.starts_with(":root { --accent: #7a1f5c; }"));
    let logo = system.client().get(logo).await;
    assert_eq!(logo.headers["content-type"], "image/svg+xml");
    assert_eq!(
        logo.headers["content-security-policy"],
        "default-src 'none'; style-src 'unsafe-inline'; sandbox"
    );
    let problem = system.client().get("/problems/not_found").await.body;
    assert!(problem.contains("Acme &#60;Cloud&#62;"), "{problem}");
}

#[tokio::test]
async fn problem_pages_render_code_as_code() {
    let system = TestSystem::start().await.unwrap();
    let page = system.client().get("/problems/header_missing").await.body;
    assert!(page.contains("<code>detail</code>") && !page.contains('`'), "{page}");
}

#[tokio::test]
async fn paths_outside_the_api_lead_to_the_pages() {
    let system = TestSystem::start().await.unwrap();
    let http =
        reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let get = async |path: &str| http.get(format!("{}{path}", system.base_url)).send().await.unwrap();
    let home = get("/").await;
    assert_eq!((home.status().as_u16(), &home.headers()["content-language"]), (200, &"en".parse().unwrap()));
    for (path, page) in [
        ("/docs", "/api/v1/docs"),
        ("/docs/", "/api/v1/docs"),
        ("/api/v1", "/api/v1/docs"),
        ("/api/v1/docs/", "/api/v1/docs"),
        ("/.well-known/change-password", "/api/v1/pages/change-password"),
        ("/device", "/api/v1/pages/device"),
        ("/device/", "/api/v1/pages/device"),
    ] {
        let redirect = get(path).await;
        assert_eq!(
            (redirect.status().as_u16(), &redirect.headers()["location"]),
            (307, &page.parse().unwrap()),
            "{path}"
        );
    }
    assert_eq!(get("/other").await.status(), 404);
}

#[tokio::test]
async fn without_a_mail_server_the_page_of_a_reset_shows_its_text_and_no_form() {
    let with_mail = TestSystem::start().await.unwrap().client().get("/pages/request-reset").await.body;
    assert!(
        with_mail.contains("<form") && !with_mail.contains("svc cannot send e-mails here."),
        "{with_mail}"
    );

    let (database, tasks) = (TestDatabase::create().await.unwrap(), Tasks::default());
    let platform_token = RawToken::generate(TokenKind::PlatformAdmin, &SystemEntropy);
    let environment = Environment::from_pairs(LIMITS_OFF).with(CHEAP_HASHES).with([
        ("SVC_DATABASE_URL", database.url("svc_identity").as_str()),
        ("SVC_SESSION_URL", "http://127.0.0.1:1"),
        ("SVC_SERVICE_TOKEN", SECRET),
        ("SVC_NATS_URL", "nats://127.0.0.1:1"),
        ("SVC_STREAM_MAX_BYTES", "64MiB"),
        ("SVC_PLATFORM_TOKEN", platform_token.expose()),
        ("SVC_LIMITER_KEY", SECRET),
        ("SVC_FACTOR_KEY", SECRET),
        ("SVC_TRUSTED_PROXIES", "0.0.0.0/32"),
    ]);
    let parts = Parts {
        database: database.pool("svc_identity").unwrap(),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        tasks: tasks.clone(),
        telemetry: Telemetry::start("test", &TraceSettings::default()).unwrap(),
    };
    let identity = identity::build(identity::Config::load(&environment).unwrap(), parts).unwrap();
    let request = Request::get("/api/v1/pages/request-reset").body(Body::empty()).unwrap();
    let response = identity.public.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let page = response.into_body().collect().await.unwrap().to_bytes();
    let page = String::from_utf8(page.to_vec()).unwrap();
    assert!(page.contains("svc cannot send e-mails here.") && !page.contains("<form"), "{page}");
    tasks.stopping().cancel();
    tasks.draining().cancel();
}

/// What browsers send when a person opens an address.
const OPENED: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

#[tokio::test]
async fn a_person_who_opens_a_wrong_address_gets_a_page() {
    let system = TestSystem::start().await.unwrap();
    for (accept, language, text) in [
        (OPENED, "en", "<h1>Page not found</h1>"),
        (OPENED, "de", "<h1>Seite nicht gefunden</h1>"),
        ("application/json, text/html", "en", "not_found"),
        ("*/*", "en", "not_found"),
    ] {
        let client = system.client().header("Accept", accept).header("Accept-Language", language);
        for path in ["/pages/nowhere", "/nowhere", "/pages/nowhere/"] {
            let response = client.get(path).await;
            assert!(response.status == 404 && response.body.contains(text), "{accept} {path}: {response}");
            assert_eq!(response.headers["cache-control"], "no-store");
            let is_page = response.headers["content-type"] == "text/html; charset=utf-8";
            assert_eq!(is_page, accept == OPENED, "{response}");
        }
    }
    let limited = TestSystem::start_with(&[("SVC_LIMIT_DEFAULT", "1/h")]).await.unwrap();
    let client = limited.client().header("Accept", OPENED);
    assert_eq!(client.get("/pages/sessions").await.status, 200);
    let response = client.get("/pages/sessions").await;
    assert!(response.status == 429 && response.body.contains("Too many requests."), "{response}");
    assert_eq!(response.headers["retry-after"], "3600");
}

#[tokio::test]
async fn a_damaged_address_leads_to_its_page() {
    let system = TestSystem::start().await.unwrap();
    let http =
        reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let pages = format!("{}/api/v1/pages", system.base_url);
    for (damaged, location) in [
        // Browsers keep the fragment of the address if this one has none.
        ("sessions/", "/api/v1/pages/sessions"),
        ("sessions%23", "/api/v1/pages/sessions"),
        ("accept-invite%23token=svc_iv_x", "/api/v1/pages/accept-invite#token=svc_iv_x"),
        ("accept-invite%2523token=svc_iv_x", "/api/v1/pages/accept-invite#token=svc_iv_x"),
        ("device%23%0d%0a<b>", "/api/v1/pages/device#b"),
    ] {
        let response = http.get(format!("{pages}/{damaged}")).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["location"]),
            (307, &location.parse().unwrap()),
            "{damaged}"
        );
    }
    for unknown in ["//evil.example/", "nowhere%23token=x", "%23", "%2F%23x"] {
        assert_eq!(http.get(format!("{pages}/{unknown}")).send().await.unwrap().status(), 404, "{unknown}");
    }
}

/// The address of the style sheet of a system.
async fn style_sheet(system: &TestSystem) -> String {
    let page = system.client().get("/pages/sessions").await.body;
    let address = page.split('"').find(|text| text.ends_with("/style.css")).unwrap();
    address.trim_start_matches("/api/v1").to_owned()
}

#[tokio::test]
async fn browsers_keep_files_until_one_changes() {
    let system = TestSystem::start().await.unwrap();
    let current = style_sheet(&system).await;
    let file = system.client().get(&current).await;
    assert_eq!(file.headers["cache-control"], "public, max-age=31536000, immutable");
    assert_eq!(system.client().get("/pages/sessions").await.headers["cache-control"], "no-cache");
    let other = TestSystem::start_with(&[("SVC_ACCENT_COLOR", "#7a1f5c")]).await.unwrap();
    let changed = style_sheet(&other).await;
    assert_ne!(current, changed);
    // During an update, a page of one replica loads its files from another one, which the browser must not keep.
    let file = other.client().get(&current).await;
    assert_eq!((file.status, &file.headers["cache-control"]), (200, &"no-cache".parse().unwrap()));
}

#[tokio::test]
async fn swagger_ui_is_served_compressed() {
    let system = TestSystem::start().await.unwrap();
    for (name, content_type) in
        [("swagger-ui.js", "text/javascript; charset=utf-8"), ("swagger-ui.css", "text/css; charset=utf-8")]
    {
        let file = system.client().get(&format!("/pages/files/any/{name}")).await;
        assert_eq!(file.status, 200, "{name}");
        assert_eq!(file.headers["content-encoding"], "gzip");
        assert_eq!(file.headers["content-type"], content_type);
    }
}

#[tokio::test]
async fn every_problem_type_has_a_page() {
    let system = TestSystem::start().await.unwrap();
    for kind in ProblemKind::ALL {
        let page = system.client().get(&format!("/problems/{}", kind.code())).await;
        assert!(page.status == 200 && page.body.contains(kind.title()), "{page}");
        assert!(!page.body.contains('`'), "{page}");
    }
    let page = system.client().get("/problems/validation_failed").await;
    assert!(page.body.contains("<code>errors</code>"), "{page}");
    let problem = system.client().get("/problems/none").await.expect_problem(404, "not_found");
    assert_eq!(problem.type_uri, format!("{}/api/v1/problems/not_found", system.base_url));
}

#[tokio::test]
async fn the_version_is_served() {
    let system = TestSystem::start().await.unwrap();
    assert_eq!(system.client().get("/version").await.json()["version"], env!("CARGO_PKG_VERSION"));
}
