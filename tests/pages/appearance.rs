//! Contrast, layout and accessibility of the pages in both languages: light and dark, wide and narrow. Screenshots are in
//! `target/pages` after the test.

use std::path::Path;

use contract::identity::{Delivery, Invite, InviteUser};
use contract::{ProblemKind, Role};
use serde_json::json;
use testkit::PASSWORD;

use super::browser::{Browser, ENTER, TAB};

/// A script that returns the lowest contrast ratio between text and background (WCAG 2.2, section 1.4.3).
const CONTRAST: &str = r#"
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
            for width in [1280, 390] {
                self.browser.set_appearance(scheme, width).await;
                self.expect_readable_now(format!("{state}-{}-{scheme}-{width}", self.language)).await;
            }
        }
    }

    /// Expects that the page fits the window, that its text has enough contrast, and that axe has no findings.
    async fn expect_readable_now(&self, name: String) {
        let overflow =
            "const root = document.documentElement; return Math.max(0, root.scrollWidth - root.clientWidth)";
        assert_eq!(self.browser.execute(overflow).await, 0, "{name} is wider than its window");
        let contrast = self.browser.execute(CONTRAST).await.as_f64().unwrap();
        assert!(contrast >= 4.5, "{name}: a text has a contrast of {contrast}");
        self.browser.expect_accessible(&name).await;
        self.browser.keep_screenshot(&name).await;
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
    look.wait_for("#command").await;
    look.expect_readable("accept-invite-done").await;
    look.open(&look.browser.page("reset-password")).await;
    look.wait_for("#failure").await;
    look.expect_readable("reset-password-failed").await;
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
    look.browser.press(&format!("{PASSWORD}{ENTER}")).await;
    look.wait_for("#log-out").await;
    look.expect_readable("sessions").await;
    look.browser.execute("document.getElementById('log-out').click()").await;
    look.wait_for("#done").await;
}

#[tokio::test]
async fn every_page_is_readable_and_accessible_in_both_languages_light_and_dark_wide_and_narrow() {
    let logo = Path::new(env!("CARGO_TARGET_TMPDIR")).join("logo.svg");
    std::fs::write(&logo, LOGO).unwrap();
    let branding = [
        ("SVC_PRODUCT_NAME", "Acme Cloud"),
        ("SVC_SUPPORT_ADDRESS", "help@acme.example"),
        ("SVC_LOGO_FILE", logo.to_str().unwrap()),
    ];
    let Some(browser) = Browser::start_with(&branding).await else { return };
    browser.system.create_tenant("acme").await;
    for language in ["en", "de"] {
        browser.set_language(language).await;
        let look = Look { browser: &browser, language };
        look.open(&browser.system.base_url).await;
        look.expect_readable("home").await;
        show_token_form(&look, &format!("user-{language}@acme.example")).await;
        show_request(&look).await;
        show_device(&look).await;
        show_sessions(&look).await;
        let problem = ProblemKind::HeaderMissing.code();
        look.open(&format!("{}/api/v1/problems/{problem}", browser.system.base_url)).await;
        look.expect_readable("problem").await;
    }
    browser.close().await;
}
