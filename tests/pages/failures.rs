//! Every request of every page fails once, in every way. The page then shows what failed, and a way to continue.

use contract::ProblemKind;
use contract::device::DeviceCodes;
use contract::identity::{Delivery, Invite, InviteUser};
use contract::{Role, Secret};
use e2e::token_in;
use http::StatusCode;
use serde_json::json;
use testkit::{PASSWORD, totp_after, wait_until};
use testsystem::{TestUser, set_up_app};

use super::browser::{Browser, ENTER, TAB};
use super::proxy::{FailingProxy, Failure, Target};

const EMAIL: &str = "admin@acme.example";
const NEW: &str = "another-horse-battery-9";
const UNAVAILABLE: &str = "svc is not available at the moment.";
const UNREACHABLE: &str = "svc is not reachable.";
const UNEXPECTED: &str = "The response was not from svc.";
const INCOMPLETE: &str = "This page could not be loaded completely. Reload it.";

/// Each failure with the text that a person reads.
const FAILURES: [(Failure, &str); 7] = [
    (Failure::Problem(ProblemKind::DependencyUnavailable), UNAVAILABLE),
    (Failure::Problem(ProblemKind::RateLimited), "Too many requests."),
    // Pages have no own text for this one.
    (Failure::Problem(ProblemKind::MediaType), "svc could not process the request."),
    (Failure::Html(StatusCode::BAD_GATEWAY), UNAVAILABLE),
    (Failure::Html(StatusCode::OK), UNEXPECTED),
    (Failure::Connection, UNREACHABLE),
    (Failure::Truncated, UNREACHABLE),
];

/// A person who uses a page through a proxy.
struct Visit {
    browser: Browser,
    proxy: FailingProxy,
    admin: TestUser,
    /// The text that ends the visit early.
    failure: Option<&'static str>,
    /// What the page shows if its logout fails: its task is done then.
    without_logout: &'static str,
}

impl Visit {
    async fn start() -> Option<Self> {
        let browser = Browser::start().await?;
        let proxy = FailingProxy::start(&browser.system.base_url).await;
        let browser = browser.through(&proxy.base_url);
        let admin = browser.system.create_tenant("acme").await;
        let without_logout = "The logout on this page failed.";
        Some(Self { browser, proxy, admin, failure: None, without_logout })
    }

    /// Waits for the text of a successful step or of the failure. Returns whether the step failed.
    async fn fails_before(&self, success: &str) -> bool {
        wait_until(&format!("the page shows {success:?} or a failure"), async || {
            let shown = self.browser.text().await;
            let failed = self.failure.is_some_and(|failure| shown.contains(failure));
            (failed || shown.contains(success)).then_some(failed)
        })
        .await
    }

    /// Opens a page with a fragment that is different for each visit.
    async fn open(&self, page: &str, fragment: &str) {
        // Another document of the same origin, so that each visit starts without the state of the last one.
        self.browser.open(&self.browser.page("nowhere")).await;
        self.browser.execute("sessionStorage.clear()").await;
        self.browser.open(&format!("{}#{fragment}", self.browser.page(page))).await;
    }

    /// Expects that the current page offers to continue: a control that is visible and enabled.
    async fn expect_a_way_to_continue(&self, name: &str) {
        let controls = "return [...document.querySelectorAll('main a, main button:enabled:not(.reveal)')]
            .filter((control) => control.getClientRects().length > 0).length";
        assert_ne!(self.browser.execute(controls).await, 0, "{name}: {}", self.browser.text().await);
    }

    /// Waits until a field has the focus, and types into it.
    async fn type_into(&self, field: &str, keys: &str) {
        wait_until(field, async || (self.browser.focus().await == field).then_some(())).await;
        self.browser.press(keys).await;
    }

    async fn click(&self, selector: &str) {
        self.browser.execute(&format!("document.querySelector('{selector}').click()")).await;
    }

    /// The secret of an authenticator app on the page.
    async fn shown_secret(&self) -> String {
        let secret = "return document.getElementById('secret').textContent.replaceAll(' ', '')";
        self.browser.execute(secret).await.as_str().unwrap().to_owned()
    }

    /// Fails each request of a visit of a page in each way. `visit` ends with the first failure.
    async fn fail_each_request(mut self, page: &str, requests: usize, visit: impl AsyncFn(&Self)) {
        self.proxy.pass();
        visit(&self).await;
        let sent = self.proxy.requests();
        assert_eq!(sent.len(), requests, "{sent:?}");
        for (number, (method, path)) in sent.iter().enumerate() {
            for (failure, text) in FAILURES {
                let name = format!("{page}: {method} {path} with {failure:?}");
                let text = if path.ends_with("/logout") { self.without_logout } else { text };
                self.failure = Some(text);
                self.proxy.fail(Target::Api(number), failure);
                visit(&self).await;
                let shown = self.browser.text().await;
                assert!(shown.contains(text), "{name}: {shown}");
                assert!(!shown.contains(INCOMPLETE), "{name}: {shown}");
                self.expect_a_way_to_continue(&name).await;
                // Without the id of a session or factor, which has digits.
                let operation = path.rsplit('/').find(|segment| !segment.contains(char::is_numeric)).unwrap();
                let picture = format!("failure-{page}-{number}-{operation}-{failure:?}");
                self.browser.keep_screenshot(&picture).await;
            }
        }
        self.browser.close().await;
    }

    async fn invite(&self, email: &str) -> String {
        let invite = InviteUser { email: email.to_owned(), role: Role::Member, delivery: Delivery::Response };
        let admin = self.browser.system.platform_admin().header("X-Tenant-ID", "acme");
        let invite: Invite = admin.post("/users/invite", &invite).await.expect(201);
        invite.token.as_ref().map(Secret::expose).unwrap().to_owned()
    }
}

async fn set_password(visit: &Visit, page: &str, token: &str, new: &str, done: &str) {
    visit.open(page, &format!("token={token}")).await;
    if visit.fails_before("Link valid until").await {
        return;
    }
    visit.browser.press(&format!("{new}{TAB}{TAB}{new}{ENTER}")).await;
    visit.fails_before(done).await;
}

#[tokio::test]
async fn accept_invite_shows_each_failed_request() {
    let Some(visit) = Visit::start().await else { return };
    let number = std::cell::Cell::new(0);
    let accept = async |visit: &Visit| {
        number.set(number.get() + 1);
        let token = visit.invite(&format!("user-{}@acme.example", number.get())).await;
        set_password(visit, "accept-invite", &token, PASSWORD, "Your account is ready").await;
    };
    visit.fail_each_request("accept-invite", 2, accept).await;
}

#[tokio::test]
async fn reset_password_shows_each_failed_request() {
    let Some(visit) = Visit::start().await else { return };
    let number = std::cell::Cell::new(0);
    let reset = async |visit: &Visit| {
        number.set(number.get() + 1);
        for mail in std::fs::read_dir(visit.browser.system.mails.path()).unwrap() {
            std::fs::remove_file(mail.unwrap().path()).unwrap();
        }
        visit.browser.system.run_sql("delete from identity.limits where limit_name like '%_recipient'").await;
        let client = visit.browser.system.client().header("X-Tenant-ID", "acme");
        client.post("/auth/password/reset", &json!({ "email": EMAIL })).await.expect_empty(204);
        let mail = visit.browser.system.wait_for_mail(EMAIL).await;
        // Not the current one.
        let new = format!("a long password number {}", number.get());
        set_password(visit, "reset-password", token_in(&mail), &new, "Your password was changed").await;
    };
    visit.fail_each_request("reset-password", 2, reset).await;
}

#[tokio::test]
async fn request_reset_shows_each_failed_request() {
    let Some(visit) = Visit::start().await else { return };
    let request = async |visit: &Visit| {
        visit.open("request-reset", "tenant=acme").await;
        visit.browser.press(&format!("{EMAIL}{ENTER}")).await;
        visit.fails_before("Check your e-mail").await;
    };
    visit.fail_each_request("request-reset", 1, request).await;
}

#[tokio::test]
async fn device_shows_each_failed_request() {
    let Some(visit) = Visit::start().await else { return };
    visit.browser.run_before_load(STAY_LOGGED_IN).await;
    let approve = async |visit: &Visit| {
        let device = visit.browser.system.client().header("X-Tenant-ID", "acme");
        let codes: DeviceCodes = device.post("/auth/device/code", &json!({})).await.expect(200);
        visit.open("device", &format!("tenant=acme&email={EMAIL}&user_code={}", codes.user_code)).await;
        visit.browser.press(&format!("{PASSWORD}{ENTER}")).await;
        if visit.fails_before("Connect this device?").await {
            return;
        }
        visit.browser.press(&format!("{TAB}{ENTER}")).await;
        visit.fails_before("You are logged out on this page").await;
    };
    visit.fail_each_request("device", 4, approve).await;
}

#[tokio::test]
async fn sessions_shows_each_failed_request() {
    let Some(visit) = Visit::start().await else { return };
    let revoke_and_log_out = async |visit: &Visit| {
        let account = &visit.admin.user.user_id;
        let others = format!(
            "update session.sessions set inactive_since = created_at where user_id = '{account}' and inactive_since is null"
        );
        visit.browser.system.run_sql(&others).await;
        visit.browser.system.log_in("acme", EMAIL).await;
        visit.open("sessions", &format!("tenant=acme&email={EMAIL}")).await;
        wait_until("the form is shown", async || (visit.browser.focus().await == "password").then_some(()))
            .await;
        visit.browser.press(&format!("{PASSWORD}{ENTER}")).await;
        if visit.fails_before("Log out on this page").await {
            return;
        }
        visit.browser.execute("document.querySelector('.revoke').click()").await;
        if visit.fails_before("You are not logged in anywhere else.").await {
            return;
        }
        visit.browser.execute("document.getElementById('log-out').click()").await;
        visit.fails_before("You are logged out on this page").await;
    };
    visit.fail_each_request("sessions", 4, revoke_and_log_out).await;
}

#[tokio::test]
async fn change_password_shows_each_failed_request() {
    let Some(mut visit) = Visit::start().await else { return };
    let done = "Your password was changed";
    // The change has revoked the session of the page too.
    visit.without_logout = done;
    visit.browser.run_before_load(STAY_LOGGED_IN).await;
    let passwords = std::cell::Cell::new([PASSWORD, NEW]);
    let change = async |visit: &Visit| {
        let [current, new] = passwords.get();
        visit.open("change-password", &format!("tenant=acme&email={EMAIL}")).await;
        visit.type_into("current", &format!("{current}{TAB}{TAB}{new}{TAB}{TAB}{new}{ENTER}")).await;
        visit.fails_before(done).await;
        if visit.browser.text().await.contains(done) {
            passwords.set([new, current]);
        }
    };
    visit.fail_each_request("change-password", 3, change).await;
}

/// A page that is left logs out. This keeps its request apart from those of the next visit.
const STAY_LOGGED_IN: &str = "addEventListener('pagehide', (event) => event.stopImmediatePropagation())";

#[tokio::test]
async fn factors_shows_each_failed_request_of_a_set_up() {
    let Some(mut visit) = Visit::start().await else { return };
    let done = "Store your recovery codes";
    visit.without_logout = done;
    visit.browser.run_before_load(STAY_LOGGED_IN).await;
    let number = std::cell::Cell::new(0);
    let set_up = async |visit: &Visit| {
        number.set(number.get() + 1);
        let email = format!("user-{}@acme.example", number.get());
        visit.browser.system.add_user(&visit.admin, &email, Role::Member).await;
        visit.open("factors", &format!("tenant=acme&email={email}")).await;
        visit.type_into("password", &format!("{PASSWORD}{ENTER}")).await;
        if visit.fails_before("You have no second factor.").await {
            return;
        }
        visit.click("#add").await;
        if visit.fails_before("Or type this secret into the app:").await {
            return;
        }
        let code = totp_after(&visit.shown_secret().await, 0);
        visit.browser.execute("document.getElementById('first-code').focus()").await;
        visit.type_into("first-code", &format!("{code}{ENTER}")).await;
        visit.fails_before(done).await;
    };
    visit.fail_each_request("factors-setup", 5, set_up).await;
}

/// Sets up an authenticator app of a new user. Returns its secret.
async fn add_user_with_app(visit: &Visit, email: &str) -> String {
    let user = visit.browser.system.add_user(&visit.admin, email, Role::Member).await;
    set_up_app(&user.client).await.0
}

#[tokio::test]
async fn factors_shows_each_failed_request_of_a_change() {
    let Some(visit) = Visit::start().await else { return };
    visit.browser.run_before_load(STAY_LOGGED_IN).await;
    let number = std::cell::Cell::new(0);
    let change = async |visit: &Visit| {
        number.set(number.get() + 1);
        let email = format!("user-{}@acme.example", number.get());
        let secret = add_user_with_app(visit, &email).await;
        visit.open("factors", &format!("tenant=acme&email={email}")).await;
        visit.type_into("password", &format!("{PASSWORD}{ENTER}")).await;
        if visit.fails_before("Enter a code to complete the login.").await {
            return;
        }
        visit.type_into("otp", &format!("{}{ENTER}", totp_after(&secret, 1))).await;
        for (selector, success) in [
            ("#renew", "Unused codes:"),
            ("#stored", "Store your recovery codes"),
            ("#factors button", "Unused codes:"),
            ("#remove", "Remove the second factor “Authenticator app”?"),
            ("#log-out", "The second factor was removed."),
        ] {
            if visit.fails_before(success).await {
                return;
            }
            visit.click(selector).await;
        }
        visit.fails_before("You are logged out on this page").await;
    };
    visit.fail_each_request("factors-change", 8, change).await;
}

#[tokio::test]
async fn a_change_without_a_response_is_shown_as_possible() {
    let Some(visit) = Visit::start().await else { return };
    let browser = &visit.browser;
    let account = format!("tenant=acme&email={EMAIL}");
    let possible = "It is possible that your new password is already set.";
    visit.proxy.fail(Target::Path("/auth/password/change"), Failure::Connection);
    visit.open("change-password", &account).await;
    visit.type_into("current", &format!("{PASSWORD}{TAB}{TAB}{NEW}{TAB}{TAB}{NEW}{ENTER}")).await;
    browser.wait_for_text(possible).await;
    // The next attempt uses a password that the change has possibly replaced.
    visit.proxy.fail(Target::Path("/auth/password/login"), Failure::Problem(ProblemKind::LoginFailed));
    visit.click("form .primary").await;
    let shown = browser.wait_for_text("Login failed.").await;
    assert!(shown.contains(possible), "{shown}");

    let token = visit.invite("ada@acme.example").await;
    visit.proxy.fail(Target::Path("/users/accept-invite"), Failure::Html(StatusCode::BAD_GATEWAY));
    set_password(&visit, "accept-invite", &token, PASSWORD, possible).await;

    let device = browser.system.client().header("X-Tenant-ID", "acme");
    let codes: DeviceCodes = device.post("/auth/device/code", &json!({})).await.expect(200);
    visit.proxy.fail(Target::Path("/auth/device/decide"), Failure::Truncated);
    visit.open("device", &format!("{account}&user_code={}", codes.user_code)).await;
    visit.type_into("password", &format!("{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("Connect this device?").await;
    visit.click("#approve").await;
    browser.wait_for_text("Your decision may have arrived.").await;

    visit.proxy.fail(Target::Path("/auth/factors/totp/confirm"), Failure::Connection);
    visit.open("factors", &account).await;
    visit.type_into("password", &format!("{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("You have no second factor.").await;
    visit.click("#add").await;
    browser.wait_for_text("Or type this secret into the app:").await;
    browser.execute("document.getElementById('first-code').focus()").await;
    visit.type_into("first-code", &format!("123456{ENTER}")).await;
    let lost = "Your second factor may be set up already.";
    browser.wait_for_text(lost).await;
    // As after a set-up: the session is without the factor.
    let expired = Failure::Problem(ProblemKind::ReauthenticationRequired);
    visit.proxy.fail(Target::Path("/auth/factors/totp/confirm"), expired);
    visit.click("#setup .primary").await;
    let shown = browser.wait_for_text("Log in to set up or manage").await;
    assert!(shown.contains(lost), "{shown}");

    // A list changes nothing.
    visit.proxy.fail(Target::Path("/auth/factors"), Failure::Connection);
    visit.type_into("password", &format!("{PASSWORD}{ENTER}")).await;
    let shown = browser.wait_for_text(UNREACHABLE).await;
    assert!(!shown.contains("possible"), "{shown}");
    visit.browser.close().await;
}

#[tokio::test]
async fn without_a_network_the_page_names_it() {
    let Some(visit) = Visit::start().await else { return };
    let offline = "Object.defineProperty(navigator, 'onLine', { value: false })";
    visit.browser.run_before_load(offline).await;
    visit.proxy.fail(Target::Path("/auth/password/reset"), Failure::Connection);
    visit.open("request-reset", "tenant=acme").await;
    visit.type_into("email", &format!("{EMAIL}{ENTER}")).await;
    visit.browser.wait_for_text("This device has no network connection.").await;
    visit.browser.close().await;
}

#[tokio::test]
async fn the_list_of_sessions_can_be_loaded_again() {
    let Some(visit) = Visit::start().await else { return };
    let browser = &visit.browser;
    visit.open("sessions", &format!("tenant=acme&email={EMAIL}")).await;
    wait_until("the form is shown", async || (browser.focus().await == "password").then_some(())).await;
    visit.proxy.fail(Target::Path("/auth/sessions"), Failure::Connection);
    browser.press(&format!("{PASSWORD}{ENTER}")).await;
    browser.wait_for_text(UNREACHABLE).await;
    browser.execute("location.reload()").await;
    browser.wait_for_text(UNREACHABLE).await;
    visit.proxy.pass();
    browser.press(&format!("{TAB}{ENTER}")).await;
    browser.wait_for_text("Log out on this page").await;
    visit.browser.close().await;
}

#[tokio::test]
async fn a_page_without_running_scripts_is_not_blank() {
    let Some(visit) = Visit::start().await else { return };
    let browser = &visit.browser;
    browser.dev_tools("Network.enable", json!({})).await;
    browser.dev_tools("Network.setCacheDisabled", json!({ "cacheDisabled": true })).await;
    let pages = [
        "accept-invite",
        "reset-password",
        "request-reset",
        "device",
        "sessions",
        "change-password",
        "factors",
    ];
    let failures =
        [Failure::Connection, Failure::Html(StatusCode::OK), Failure::Problem(ProblemKind::RateLimited)];
    for (language, text) in
        [("en", INCOMPLETE), ("de", "Diese Seite konnte nicht vollständig geladen werden.")]
    {
        browser.set_language(language).await;
        for (page, failure) in pages.into_iter().zip(failures.into_iter().cycle()) {
            for script in ["/page.js", "/passkey.js"] {
                visit.proxy.fail(Target::Path(script), failure);
                visit.open(page, "tenant=acme").await;
                browser.wait_for_text(text).await;
                let forms =
                    "return [...document.forms].filter((form) => form.getClientRects().length > 0).length";
                assert_eq!(browser.execute(forms).await, 0, "{page}: a form that does nothing");
                browser.keep_screenshot(&format!("incomplete-{page}-{language}")).await;
            }
            visit.proxy.pass();
            browser.execute("location.reload()").await;
            wait_until("the page works", async || {
                let hidden = "return document.getElementById('incomplete')?.hidden ?? false";
                (browser.execute(hidden).await == true).then_some(())
            })
            .await;
        }
    }
    // The notices need no script.
    visit.proxy.fail(Target::Path(".js"), Failure::Connection);
    visit.open("sessions", "tenant=acme").await;
    let shown = browser.wait_for_text("Diese Seite wird noch geladen").await;
    assert!(!shown.contains("Laden Sie sie neu."), "{shown}");
    let shown = browser.wait_for_text("Laden Sie sie neu.").await;
    assert!(!shown.contains("Diese Seite wird noch geladen"), "{shown}");
    visit.proxy.fail(Target::Path("swagger-ui.js"), Failure::Connection);
    browser.open(&format!("{}/api/v1/docs", visit.proxy.base_url)).await;
    browser.wait_for_text("If it does not appear, reload this page.").await;
    visit.browser.close_after_errors().await;
}

#[tokio::test]
async fn a_page_without_its_style_sheet_works() {
    let Some(visit) = Visit::start().await else { return };
    visit.proxy.fail(Target::Path("/style.css"), Failure::Connection);
    let token = visit.invite("ada@acme.example").await;
    set_password(&visit, "accept-invite", &token, PASSWORD, "Your account is ready").await;
    visit.browser.close().await;
}

#[tokio::test]
async fn a_fault_of_the_page_is_not_presented_as_one_of_the_network() {
    let Some(visit) = Visit::start().await else { return };
    let browser = &visit.browser;
    // As in a browser that lacks a feature. The first is used during a request, the second when the result is shown.
    for (feature, text) in [
        ("delete Element.prototype.getClientRects", "This page has an error."),
        ("Date.prototype.toLocaleString = () => undefined.missing", INCOMPLETE),
    ] {
        let script = browser.run_before_load(feature).await;
        let token = visit.invite(&format!("user-{}@acme.example", text.len())).await;
        visit.open("accept-invite", &format!("token={token}")).await;
        let shown = browser.wait_for_text(text).await;
        assert!(!shown.contains("not reachable") && !shown.contains("not available"), "{shown}");
        browser.dev_tools("Page.removeScriptToEvaluateOnNewDocument", json!({ "identifier": script })).await;
    }
    visit.browser.close_after_errors().await;
}

/// A browser that stores no data for the site.
const NO_STORAGE: &str = "Object.defineProperty(window, 'sessionStorage', { get() { throw new DOMException('', 'SecurityError') } })";

#[tokio::test]
async fn every_page_works_in_a_browser_that_stores_no_data() {
    let Some(visit) = Visit::start().await else { return };
    let browser = &visit.browser;
    browser.run_before_load(NO_STORAGE).await;
    let open = async |page: &str, fragment: &str| {
        browser.open(&browser.page("nowhere")).await;
        browser.open(&format!("{}#{fragment}", browser.page(page))).await;
    };
    let token = visit.invite("ada@acme.example").await;
    open("accept-invite", &format!("token={token}")).await;
    browser.wait_for_text("Link valid until").await;
    assert_eq!(
        browser.address().await,
        browser.page("accept-invite"),
        "the address still contains the token"
    );
    for (language, text) in [("de", "Link gültig bis"), ("en", "Link valid until")] {
        visit.click(&format!("footer a[lang={language}]")).await;
        browser.wait_for_text(text).await;
    }
    browser.press(&format!("{PASSWORD}{TAB}{TAB}{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("Your account is ready").await;
    open("request-reset", "tenant=acme").await;
    browser.press(&format!("{EMAIL}{ENTER}")).await;
    browser.wait_for_text("Check your e-mail").await;
    let mail = browser.system.wait_for_mail(EMAIL).await;
    open("reset-password", &format!("token={}", token_in(&mail))).await;
    browser.wait_for_text("Link valid until").await;
    browser.press(&format!("{NEW}{TAB}{TAB}{NEW}{ENTER}")).await;
    browser.wait_for_text("Your password was changed").await;
    let account = format!("tenant=acme&email={EMAIL}");
    open("sessions", &account).await;
    visit.type_into("password", &format!("{NEW}{ENTER}")).await;
    browser.wait_for_text("Log out on this page").await;
    let device = browser.system.client().header("X-Tenant-ID", "acme");
    let codes: DeviceCodes = device.post("/auth/device/code", &json!({})).await.expect(200);
    open("device", &format!("{account}&user_code={}", codes.user_code)).await;
    visit.type_into("password", &format!("{NEW}{ENTER}")).await;
    browser.wait_for_text("Connect this device?").await;
    visit.click("#approve").await;
    browser.wait_for_text("You are logged out on this page").await;
    open("factors", &account).await;
    visit.type_into("password", &format!("{NEW}{ENTER}")).await;
    browser.wait_for_text("You have no second factor.").await;
    visit.click("#add").await;
    browser.wait_for_text("Or type this secret into the app:").await;
    open("change-password", &account).await;
    visit.type_into("current", &format!("{NEW}{TAB}{TAB}{PASSWORD}{TAB}{TAB}{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("Your password was changed").await;
    visit.browser.close().await;
}

#[tokio::test]
async fn a_login_without_a_cookie_is_explained() {
    let Some(visit) = Visit::start().await else { return };
    // The proxy has another address than the one that the service knows.
    let wrong_address = format!("only at the address {}.", visit.browser.system.base_url);
    let log_in = async |browser: &Browser| {
        browser.open(&format!("{}#tenant=acme&email={EMAIL}", browser.page("sessions"))).await;
        wait_until("the form is shown", async || (browser.focus().await == "password").then_some(())).await;
        browser.press(&format!("{PASSWORD}{ENTER}")).await;
    };
    let (browser, proxy) = (visit.browser, visit.proxy);
    let own = browser.system.base_url.clone();
    let browser = browser.through(&own);
    // As if the browser accepts no cookies.
    let script =
        "const send = fetch; window.fetch = (request) => send(new Request(request, { credentials: 'omit' }))";
    let script = browser.run_before_load(script).await;
    log_in(&browser).await;
    let shown = browser.wait_for_text("it stores no cookies for this address").await;
    assert!(!shown.contains("has expired"), "{shown}");
    browser.dev_tools("Page.removeScriptToEvaluateOnNewDocument", json!({ "identifier": script })).await;
    let browser = browser.through(&proxy.base_url);
    proxy.fail(Target::Path("/login"), Failure::Without("set-cookie"));
    log_in(&browser).await;
    browser.wait_for_text(&wrong_address).await;
    browser.close().await;
}

#[tokio::test]
async fn waiting_is_visible_and_ends() {
    let Some(visit) = Visit::start().await else { return };
    let browser = &visit.browser;
    let token = visit.invite("ada@acme.example").await;
    visit.proxy.fail(Target::Path("/inspect"), Failure::Silence);
    // The page gives up after a tenth of a second, or not at all.
    let shorten = |milliseconds: u32| {
        format!(
            "const set = setTimeout; window.setTimeout = (action, time, ...values) => set(action, time > 10_000 ? {milliseconds} : time, ...values)"
        )
    };
    let script = browser.run_before_load(&shorten(1_000_000)).await;
    visit.open("accept-invite", &format!("token={token}")).await;
    browser.wait_for_text("Please wait").await;
    browser.expect_accessible("waiting").await;
    browser.keep_screenshot("waiting").await;
    browser.dev_tools("Page.removeScriptToEvaluateOnNewDocument", json!({ "identifier": script })).await;
    browser.run_before_load(&shorten(100)).await;
    visit.open("accept-invite", &format!("token={token}")).await;
    browser.wait_for_text("svc did not respond in time.").await;
    visit.expect_a_way_to_continue("no response").await;
    visit.browser.close().await;
}

#[tokio::test]
async fn a_limit_is_shown_with_the_time_to_wait() {
    let Some(browser) = Browser::start_with(&[("SVC_LIMIT_LOGIN", "1/h")]).await else { return };
    browser.system.create_tenant("acme").await;
    browser.open(&format!("{}#tenant=acme&email={EMAIL}", browser.page("sessions"))).await;
    wait_until("the form is shown", async || (browser.focus().await == "password").then_some(())).await;
    browser.press(&format!("wrong{ENTER}")).await;
    browser.wait_for_text("Try again in 60 minutes.").await;
    browser.close().await;
}

#[tokio::test]
async fn no_password_is_part_of_an_address() {
    let Some(visit) = Visit::start().await else { return };
    let browser = &visit.browser;
    // The form is sent by the browser, not by the script, and no policy prevents it.
    for page in ["accept-invite", "reset-password", "device", "sessions", "change-password", "factors"] {
        visit.proxy.fail(Target::Path(page), Failure::Without("content-security-policy"));
        visit.open(page, "tenant=acme").await;
        let submit = format!(
            "for (const form of document.forms) {{
                for (const input of form.querySelectorAll('input')) input.value = '{PASSWORD}';
                if (form.querySelector('[type=password]')) form.submit();
            }}"
        );
        browser.execute(&submit).await;
        wait_until("the form is sent", async || browser.text().await.contains("The request").then_some(()))
            .await;
        assert!(!browser.address().await.contains(PASSWORD), "{}", browser.address().await);
    }
    visit.browser.close_after_errors().await;
}
