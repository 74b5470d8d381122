//! Contrast, layout and accessibility of the pages in both languages: light and dark, wide and narrow. Screenshots are in
//! `target/pages` after the test.

use std::path::Path;

use contract::identity::{Delivery, Invite, InviteUser};
use contract::{ProblemKind, Role};
use serde_json::json;
use testkit::PASSWORD;

use super::browser::{Browser, ENTER, TAB};

/// A script that returns the lowest contrast ratio between text and background (WCAG 2.2, section 1.4.3).
pub(super) const CONTRAST: &str = r#"
const channels = (color) => color.match(/[\d.]+/g).slice(0, 3).map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
const luminance = (color) => channels(color).reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (element) => {
    const color = getComputedStyle(element).backgroundColor;
    return /, 0\)$/.test(color) ? behind(element.parentElement) : color;
};
const ratios = [...document.querySelectorAll("h1, h2, p, a, label, input, button, dt, dd, code, span")]
    .filter((element) => element.getClientRects().length > 0 && (element.textContent.trim() || element.value))
    .map((element) => [getComputedStyle(element).color, behind(element)].map(luminance).sort((a, b) => b - a))
    .map(([lighter, darker]) => (lighter + 0.05) / (darker + 0.05));
return Math.min(...ratios);
"#;

/// A script that returns the smallest space between a field and the text below it, in pixels.
const SPACE: &str = "
const texts = [...document.querySelectorAll('.field > .help, .field > .error')];
const spaces = texts.filter((text) => text.getClientRects().length > 0).map((text) => {
    const input = text.parentElement.querySelector('input:not([aria-hidden])');
    return text.getBoundingClientRect().top - input.getBoundingClientRect().bottom;
});
return Math.min(100, ...spaces);
";
/// A script that returns the smallest space between a button and the next text, field or button, in pixels.
const SPACE_BELOW_BUTTONS: &str = "
const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
const shown = [...document.querySelectorAll('main *')]
    .filter((element) => element.getClientRects().length > 0)
    .filter((element) => hasText(element) || element.matches('input:not([aria-hidden]), img'));
const spaces = shown.slice(0, -1).map((element, index) => {
    if (!element.matches('.primary, .secondary')) return Infinity;
    return shown[index + 1].getBoundingClientRect().top - element.getBoundingClientRect().bottom;
});
return Math.min(100, ...spaces);
";
/// The width of the focus ring with its distance from the field or the button.
const FOCUS_RING: f64 = 5.0;

const LOGO: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="8" fill="#1d4ed8"/><circle cx="16" cy="16" r="7" fill="#fff"/></svg>"##;

/// A browser with one language.
struct Look<'a> {
    browser: &'a Browser,
    language: &'static str,
}

impl Look<'_> {
    /// Expects that the page is readable in its current state: light and dark, wide and narrow.
    async fn expect_readable(&self, state: &str) {
        for scheme in ["light", "dark"] {
            for width in [1280, 320] {
                self.browser.set_appearance(scheme, width).await;
                self.expect_readable_now(format!("{state}-{}-{scheme}-{width}", self.language)).await;
            }
        }
    }

    /// Expects that the page fits the smallest window, in both schemes.
    async fn expect_fitting(&self, state: &str) {
        for scheme in ["light", "dark"] {
            self.browser.set_appearance(scheme, 320).await;
            self.expect_readable_now(format!("{state}-{scheme}-320")).await;
        }
    }

    /// Expects that the page fits the window, that its text has enough contrast, and that axe has no findings.
    async fn expect_readable_now(&self, name: String) {
        let overflow =
            "const root = document.documentElement; return Math.max(0, root.scrollWidth - root.clientWidth)";
        assert_eq!(self.browser.execute(overflow).await, 0, "{name} is wider than its window");
        let contrast = self.browser.execute(CONTRAST).await.as_f64().unwrap();
        assert!(contrast >= 4.5, "{name}: a text has a contrast of {contrast}");
        let space = self.browser.execute(SPACE).await.as_f64().unwrap();
        assert!(space >= FOCUS_RING, "{name}: the focus ring of a field covers the text below it ({space})");
        let space = self.browser.execute(SPACE_BELOW_BUTTONS).await.as_f64().unwrap();
        assert!(space >= 2.0 * FOCUS_RING, "{name}: a button is too close to the element below it ({space})");
        self.browser.expect_accessible(&name).await;
        self.browser.keep_whole_screenshot(&name).await;
    }

    async fn open(&self, address: &str) {
        self.browser.open(address).await;
    }

    /// Waits until an element of the current section is visible.
    async fn wait_for(&self, selector: &str) {
        let visible = format!("return document.querySelector('{selector}')?.getClientRects().length > 0");
        testkit::wait_until(selector, async || (self.browser.execute(&visible).await == true).then_some(()))
            .await;
    }
}

/// Creates an invite and returns its link.
async fn invite(browser: &Browser, email: &str) -> String {
    let invite = InviteUser { email: email.to_owned(), role: Role::Member, delivery: Delivery::Response };
    let admin = browser.system.platform_admin().header("X-Tenant-ID", "acme");
    let invite: Invite = admin.post("/users/invite", &invite).await.expect(201);
    format!("{}#token={}", browser.page("accept-invite"), invite.token.unwrap().expose())
}

async fn show_token_form(look: &Look<'_>, email: &str) {
    look.open(&invite(look.browser, email).await).await;
    look.wait_for("form").await;
    look.expect_readable("accept-invite").await;
    look.browser.press(&format!("short{TAB}{TAB}other{ENTER}")).await;
    look.wait_for("#again-error").await;
    look.expect_readable("accept-invite-errors").await;
    look.browser.execute("document.querySelector('form').reset()").await;
    look.browser.press(&format!("{PASSWORD}{TAB}{TAB}{PASSWORD}{ENTER}")).await;
    look.wait_for("#done").await;
    look.expect_readable("accept-invite-done").await;
    look.open(&look.browser.page("reset-password")).await;
    look.wait_for("#paste").await;
    look.expect_readable("reset-password-damaged").await;
}

async fn show_used_link(look: &Look<'_>, email: &str) {
    let link = invite(look.browser, email).await;
    look.browser.system.run_sql("update identity.invites set expires_at = now() - interval '1 second'").await;
    look.open(&link).await;
    look.wait_for("#remedy").await;
    look.expect_readable("accept-invite-expired").await;
}

async fn show_change(look: &Look<'_>) {
    look.open(&format!("{}#tenant=acme&email=admin@acme.example", look.browser.page("change-password")))
        .await;
    look.wait_for("form").await;
    look.expect_readable("change-password").await;
    look.browser.press(&format!("wrong{TAB}{TAB}{PASSWORD}{TAB}{TAB}{PASSWORD}{ENTER}")).await;
    look.wait_for("#current-error").await;
    look.expect_readable("change-password-error").await;
}

async fn show_request(look: &Look<'_>) {
    look.open(&look.browser.page("request-reset")).await;
    look.expect_readable("request-reset").await;
    look.browser.press(&format!("acme{TAB}ada@acme.example{ENTER}")).await;
    look.wait_for("#done").await;
    look.expect_readable("request-reset-done").await;
}

async fn show_device(look: &Look<'_>) {
    let device = look.browser.system.client().header("X-Tenant-ID", "acme");
    let request = json!({ "client_name": format!("svc on {}", "a-machine-with-a-long-name.".repeat(2)) });
    let codes = device.post("/auth/device/code", &request).await.json();
    look.open(codes["verification_uri_complete"].as_str().unwrap()).await;
    look.expect_readable("device").await;
    look.browser.press(&format!("admin@acme.example{TAB}{PASSWORD}{ENTER}")).await;
    look.wait_for("#request").await;
    look.expect_readable("device-request").await;
    look.browser.press(&format!("{TAB}{ENTER}")).await;
    look.wait_for("#approved").await;
    look.expect_readable("device-approved").await;
}

async fn show_sessions(look: &Look<'_>) {
    look.open(&format!("{}#tenant=acme&email=admin@acme.example", look.browser.page("sessions"))).await;
    look.wait_for("form").await;
    look.browser.press(ENTER).await;
    look.wait_for("#password-error").await;
    look.expect_readable("sessions-error").await;
    for agent in [
        "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) Version/18.5 Safari/604.1",
        "svc/0.1.0",
        "svc/0.1.0",
    ] {
        let client = look.browser.system.client().header("X-Tenant-ID", "acme").header("User-Agent", agent);
        let login = json!({ "email": "admin@acme.example", "password": PASSWORD });
        client.post("/auth/password/login", &login).await.expect::<serde_json::Value>(200);
    }
    look.browser.press(&format!("{PASSWORD}{ENTER}")).await;
    look.wait_for("#log-out").await;
    look.expect_readable("sessions").await;
    look.browser.execute("document.getElementById('log-out').click()").await;
    look.wait_for("#done").await;
}

async fn show_no_factor(look: &Look<'_>) {
    look.open(&format!("{}#tenant=acme&email=admin@acme.example", look.browser.page("factors"))).await;
    look.wait_for("form").await;
    look.browser.press(&format!("{PASSWORD}{ENTER}")).await;
    look.wait_for("#none").await;
    look.expect_readable("factors-none").await;
    look.browser.execute("document.getElementById('log-out').click()").await;
    look.wait_for("#done").await;
}

/// Opens the page of a new tenant that requires a second factor.
async fn open_factors_of_strict_tenant(look: &Look<'_>) {
    let (browser, tenant) = (look.browser, format!("strict-{}", look.language));
    browser.system.create_tenant(&tenant).await;
    let patch = json!({ "second_factor": "everyone" });
    let administrator = browser.system.platform_admin();
    administrator.patch(&format!("/tenants/{tenant}"), &patch).await.expect::<serde_json::Value>(200);
    look.open(&format!("{}#tenant={tenant}&email=admin@{tenant}.example", browser.page("factors"))).await;
    look.wait_for("form").await;
}

async fn show_factors(look: &Look<'_>) {
    let browser = look.browser;
    open_factors_of_strict_tenant(look).await;
    look.expect_readable("factors").await;
    browser.press(&format!("{PASSWORD}{ENTER}")).await;
    look.wait_for("#qr").await;
    browser.execute("document.getElementById('first-code').focus()").await;
    browser.press(&format!("1{ENTER}")).await;
    look.wait_for("#first-code-error").await;
    look.expect_readable("factors-setup").await;
    let secret = "return document.getElementById('secret').textContent.replaceAll(' ', '')";
    let secret = browser.execute(secret).await.as_str().unwrap().to_owned();
    browser.execute("document.getElementById('first-code').value = ''").await;
    browser.press(&format!("{}{ENTER}", testkit::totp_after(&secret, 0))).await;
    look.wait_for("#stored").await;
    look.expect_readable("factors-codes").await;
    browser.execute("document.getElementById('stored').click()").await;
    look.wait_for("#renew").await;
    look.expect_readable("factors-list").await;
    browser.execute("document.querySelector('#factors button').click()").await;
    look.wait_for("#removal").await;
    look.expect_readable("factors-removal").await;
    browser.execute("document.getElementById('remove').click()").await;
    look.wait_for("#list-error").await;
    look.expect_readable("factors-last").await;
}

async fn show_passkeys(look: &Look<'_>) {
    let browser = look.browser;
    open_factors_of_strict_tenant(look).await;
    browser.press(&format!("{PASSWORD}{ENTER}")).await;
    look.wait_for("#passkey-name").await;
    look.expect_readable("factors-choice").await;
    browser.execute("document.getElementById('passkey-name').focus()").await;
    browser.press(&format!("a laptop with a long name{ENTER}")).await;
    look.wait_for("#stored").await;
    browser.execute("document.getElementById('stored').click()").await;
    look.wait_for("#renew").await;
    look.expect_readable("factors-list-passkey").await;
    browser.execute("document.querySelectorAll('#factors button')[1].click()").await;
    look.wait_for("#new-name").await;
    look.expect_readable("factors-renaming").await;
    browser.execute("document.getElementById('new-name').value = ''").await;
    browser.execute("document.getElementById('new-name').focus()").await;
    browser.press(ENTER).await;
    look.wait_for("#new-name-error").await;
    look.expect_readable("factors-renaming-error").await;
}

#[tokio::test]
async fn the_choice_of_a_factor_and_the_form_with_the_name_of_a_passkey_are_readable() {
    let Some((browser, _)) = Browser::start_with_authenticator().await else { return };
    for language in ["en", "de"] {
        browser.set_language(language).await;
        show_passkeys(&Look { browser: &browser, language }).await;
    }
    browser.close().await;
}

#[tokio::test]
async fn every_page_is_readable_and_accessible_in_both_languages_light_and_dark_wide_and_narrow() {
    let logo = Path::new(env!("CARGO_TARGET_TMPDIR")).join("logo.svg");
    std::fs::write(&logo, LOGO).unwrap();
    let branding = [
        ("SVC_PRODUCT_NAME", "Acme Cloud"),
        ("SVC_SUPPORT_ADDRESS", "help@acme.example"),
        ("SVC_LOGO_FILE", logo.to_str().unwrap()),
        ("SVC_APP_URL", "https://app.acme.example"),
    ];
    let Some(browser) = Browser::start_with(&branding).await else { return };
    browser.system.create_tenant("acme").await;
    for language in ["en", "de"] {
        browser.set_language(language).await;
        let look = Look { browser: &browser, language };
        look.open(&browser.system.base_url).await;
        look.expect_readable("home").await;
        show_token_form(&look, &format!("user-{language}@acme.example")).await;
        show_used_link(&look, &format!("late-{language}@acme.example")).await;
        show_change(&look).await;
        show_request(&look).await;
        show_device(&look).await;
        show_sessions(&look).await;
        show_no_factor(&look).await;
        show_factors(&look).await;
        let problem = ProblemKind::HeaderMissing.code();
        look.open(&format!("{}/api/v1/problems/{problem}", browser.system.base_url)).await;
        look.expect_readable("problem").await;
        look.open(&look.browser.page("nowhere")).await;
        look.expect_readable("missing").await;
    }
    browser.close().await;
}

/// Wider than high, and too dark for a dark background.
const WIDE_LOGO: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="120"><rect width="1200" height="120" rx="60" fill="#111"/></svg>"##;

#[tokio::test]
async fn long_names_and_wide_logos_keep_the_layout() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (logo, dark) = (directory.join("wide.svg"), directory.join("wide-dark.svg"));
    std::fs::write(&logo, WIDE_LOGO).unwrap();
    std::fs::write(&dark, WIDE_LOGO.replace("#111", "#eee")).unwrap();
    let word = "W".repeat(60);
    let branding = [
        ("SVC_PRODUCT_NAME", &*word),
        ("SVC_LOGO_FILE", logo.to_str().unwrap()),
        ("SVC_LOGO_DARK_FILE", dark.to_str().unwrap()),
        ("SVC_APP_URL", "https://app.acme.example"),
    ];
    let Some(browser) = Browser::start_with(&branding).await else { return };
    let admin = browser.system.create_tenant("acme").await;
    let operator = browser.system.platform_admin();
    operator.patch("/tenants/acme", &json!({ "display_name": word })).await.expect::<serde_json::Value>(200);
    browser.set_language("de").await;
    let look = Look { browser: &browser, language: "de" };
    let email = format!("{}@{}.example", "w".repeat(60), "w".repeat(60));
    look.open(&invite(&browser, &email).await).await;
    look.wait_for("form").await;
    look.expect_fitting("long-accept-invite").await;
    let ratio = "const { naturalWidth, naturalHeight } = document.querySelector('header img');
        const { width, height } = document.querySelector('header img').getBoundingClientRect();
        const fit = Math.min(width / naturalWidth, height / naturalHeight);
        return fit > 0 && getComputedStyle(document.querySelector('header img')).objectFit === 'contain'";
    assert_eq!(browser.execute(ratio).await, true, "the logo is distorted");
    let shown = "return document.querySelector('header img').currentSrc";
    assert!(browser.execute(shown).await.as_str().unwrap().ends_with("/logo-dark"));
    look.browser.press(&format!("{PASSWORD}{TAB}{TAB}{PASSWORD}{ENTER}")).await;
    look.wait_for("#done").await;
    look.expect_fitting("long-accept-invite-done").await;

    let device = browser.system.client().header("X-Tenant-ID", "acme");
    let codes = device.post("/auth/device/code", &json!({ "client_name": word })).await.json();
    look.open(codes["verification_uri_complete"].as_str().unwrap()).await;
    look.browser.press(&format!("admin@acme.example{TAB}{PASSWORD}{ENTER}")).await;
    look.wait_for("#request").await;
    look.expect_fitting("long-device-request").await;
    let agent = browser.system.client().header("X-Tenant-ID", "acme").header("User-Agent", &word);
    let login = json!({ "email": "admin@acme.example", "password": PASSWORD });
    agent.post("/auth/password/login", &login).await.expect::<serde_json::Value>(200);
    look.open(&format!("{}#tenant=acme&email=admin@acme.example", browser.page("sessions"))).await;
    look.wait_for("form").await;
    look.browser.press(&format!("{PASSWORD}{ENTER}")).await;
    look.wait_for("#log-out").await;
    look.expect_fitting("long-sessions").await;
    drop(admin);
    browser.close().await;
}

#[tokio::test]
async fn names_without_marks_of_direction_and_the_code_are_shown_as_on_the_device() {
    let Some(browser) = Browser::start().await else { return };
    browser.system.create_tenant("acme").await;
    let device = browser.system.client().header("X-Tenant-ID", "acme");
    let name = json!({ "client_name": "TV \u{202e}gnp.exe in the living room" });
    let codes = device.post("/auth/device/code", &name).await.json();
    let code = codes["user_code"].as_str().unwrap();
    browser.open(&format!("{}#tenant=acme&email=admin@acme.example", browser.page("device"))).await;
    // Typed as people type it, and shown as the device shows it.
    browser
        .press(&format!("{}{TAB}{TAB}{TAB}{PASSWORD}{ENTER}", code.replace('-', " ").to_lowercase()))
        .await;
    let shown = browser.wait_for_text("TV gnp.exe in the living room").await;
    assert!(shown.contains(code), "{shown}");
    let size = "return parseFloat(getComputedStyle(document.querySelector('.code code')).fontSize)";
    assert!(browser.execute(size).await.as_f64().unwrap() > 24.0);
    browser.close().await;
}
