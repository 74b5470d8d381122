//! `/pages/device`

use contract::Page;
use contract::device::{DeviceCodes, DeviceErrorResponse, DeviceSession, GRANT_TYPE};
use contract::session::{Session, SessionMethod};
use serde_json::json;
use testkit::{PASSWORD, TestResponse, wait_until};
use testsystem::TestUser;

use super::browser::{Browser, ENTER, TAB};

const EMAIL: &str = "admin@acme.example";
/// The page must escape this client name.
const NAME: &str = "<img src=//evil.example/x onerror=alert(1)>";

/// A browser, a pending device grant, and a user who can approve it.
struct DeviceLogin {
    browser: Browser,
    user: TestUser,
    codes: DeviceCodes,
}

impl DeviceLogin {
    async fn start() -> Option<Self> {
        let browser = Browser::start().await?;
        let user = browser.system.create_tenant("acme").await;
        let device = browser.system.client().header("X-Tenant-ID", "acme");
        let codes = device.post("/auth/device/code", &json!({ "client_name": NAME })).await.expect(200);
        Some(Self { browser, user, codes })
    }

    async fn poll(&self) -> TestResponse {
        let poll = json!({ "grant_type": GRANT_TYPE, "device_code": self.codes.device_code });
        self.browser.system.client().post("/auth/device/token", &poll).await
    }

    /// The methods of the user's sessions.
    async fn session_methods(&self) -> Vec<SessionMethod> {
        let user_id = self.user.user.user_id.to_string();
        let client = self.user.client.clone().header("X-User-ID", &user_id);
        let sessions: Page<Session> = client.get("/auth/sessions").await.expect(200);
        sessions.items.into_iter().map(|session| session.method).collect()
    }

    /// Opens the link with the code and logs in.
    async fn open_and_log_in(&self) {
        self.browser.open(&self.codes.verification_uri_complete).await;
        // The short address leads to the page.
        assert_eq!(self.codes.verification_uri, format!("{}/device", self.browser.system.base_url));
        assert_eq!(
            self.browser.address().await,
            format!("{}/api/v1/pages/device", self.browser.system.base_url)
        );
        // Code and tenant are filled in, so the next field has the focus.
        assert_eq!(self.browser.focus().await, "email");
        self.browser.press(&format!("{EMAIL}{TAB}{PASSWORD}{ENTER}")).await;
        let page = self.browser.wait_for_text("Connect it only if you started this login").await;
        assert!(page.contains(&format!("{EMAIL} (acme)")), "the page does not name the account: {page}");
    }
}

#[tokio::test]
async fn a_user_sees_the_device_and_approves_it_with_the_keyboard() {
    let Some(login) = DeviceLogin::start().await else { return };
    login.open_and_log_in().await;
    let page = login.browser.wait_for_text(NAME).await;
    assert!(page.contains("127.0.0.1") && page.contains(&login.codes.user_code), "{page}");
    let pending: DeviceErrorResponse = login.poll().await.expect(400);
    assert_eq!(
        pending.error,
        contract::device::DeviceError::AuthorizationPending,
        "viewing the page approves nothing"
    );
    assert_eq!(login.session_methods().await.len(), 2);

    login.browser.press(&format!("{TAB}{ENTER}")).await;
    login.browser.wait_for_text("The device is connected").await;
    login.browser.execute("location.reload()").await;
    login.browser.wait_for_text("The device is connected").await;
    let session: DeviceSession = login.poll().await.expect(200);
    assert_eq!(session.session.user_id, login.user.user.user_id);
    // The session of the page is revoked.
    assert_eq!(login.session_methods().await, [SessionMethod::Password, SessionMethod::Device]);
    login.browser.close().await;
}

#[tokio::test]
async fn a_user_can_deny_a_device() {
    let Some(login) = DeviceLogin::start().await else { return };
    login.open_and_log_in().await;
    login.browser.press(&format!("{TAB}{TAB}{ENTER}")).await;
    login.browser.wait_for_text("The device was not connected").await;
    let denied: DeviceErrorResponse = login.poll().await.expect(400);
    assert_eq!(denied.error, contract::device::DeviceError::AccessDenied);
    assert_eq!(login.session_methods().await.len(), 1);
    login.browser.close().await;
}

#[tokio::test]
async fn an_error_focuses_its_field_and_a_wrong_code_keeps_the_login_until_the_page_is_left() {
    let Some(login) = DeviceLogin::start().await else { return };
    login.browser.open(&login.codes.verification_uri).await;
    assert_eq!(login.browser.focus().await, "code");
    login.browser.press(&format!("bcdf ghjk{TAB}acme{TAB}{EMAIL}{TAB}wrong{ENTER}")).await;
    login
        .browser
        .expect_field_error("password", "Login failed. Check organization ID, e-mail address and password.")
        .await;

    login.browser.execute("document.activeElement.select()").await;
    login.browser.press(&format!("{PASSWORD}{ENTER}")).await;
    let error = "The code is wrong, was already used, or is older than ten minutes.";
    let shown = login.browser.expect_field_error("code", error).await;
    assert!(shown.contains("Type it again as the device shows it. If that does not help"), "{shown}");
    assert_eq!(login.session_methods().await.len(), 2);
    login.browser.execute("document.activeElement.select()").await;
    login.browser.press(&format!("{}{ENTER}", login.codes.user_code)).await;
    login.browser.wait_for_text("Connect this device?").await;
    assert_eq!(login.session_methods().await.len(), 2, "the page has logged in once");
    login.browser.open("about:blank").await;
    wait_until("the session is revoked", async || (login.session_methods().await.len() == 1).then_some(()))
        .await;
    login.browser.close().await;
}

#[tokio::test]
async fn the_link_to_a_password_reset_contains_the_account() {
    let Some(login) = DeviceLogin::start().await else { return };
    login.browser.open(&login.codes.verification_uri_complete).await;
    login.browser.press(EMAIL).await;
    login.browser.execute("document.getElementById('reset-link').click()").await;
    login.browser.wait_for_text("You receive a link").await;
    assert_eq!(login.browser.value("tenant").await, "acme");
    assert_eq!(login.browser.value("email").await, EMAIL);
    login.browser.close().await;
}

#[tokio::test]
async fn another_account_is_another_login() {
    let Some(login) = DeviceLogin::start().await else { return };
    login.browser.open(&login.browser.page("device")).await;
    assert_eq!(login.browser.focus().await, "code");
    login.browser.press(&format!("bcdf ghjk{TAB}acme{TAB}{EMAIL}{TAB}{PASSWORD}{ENTER}")).await;
    login.browser.expect_field_error("code", "The code is wrong").await;
    login.browser.execute("document.getElementById('email').focus()").await;
    login.browser.press("x").await;
    wait_until("the session is revoked", async || (login.session_methods().await.len() == 1).then_some(()))
        .await;
    login.browser.close().await;
}

#[tokio::test]
async fn another_language_keeps_the_entries_except_the_password() {
    let Some(login) = DeviceLogin::start().await else { return };
    let browser = &login.browser;
    browser.open(&browser.page("device")).await;
    assert_eq!(browser.focus().await, "code");
    browser.press(&format!("bcdf ghjk{TAB}acme{TAB}{EMAIL}{TAB}{PASSWORD}")).await;
    browser.execute("document.querySelector('footer a[lang=de]').click()").await;
    browser.wait_for_text("Gerät verbinden").await;
    wait_until("the form is filled in", async || (browser.focus().await == "password").then_some(())).await;
    for (field, value) in [("code", "bcdf ghjk"), ("tenant", "acme"), ("email", EMAIL), ("password", "")] {
        assert_eq!(browser.value(field).await, value, "{field}");
    }
    assert_eq!(browser.address().await, browser.page("device"));
    login.browser.close().await;
}

#[tokio::test]
async fn leaving_without_a_decision_leaves_no_session() {
    let Some(login) = DeviceLogin::start().await else { return };
    login.open_and_log_in().await;
    assert_eq!(login.session_methods().await.len(), 2);
    login.browser.open("about:blank").await;
    wait_until("the session is revoked", async || (login.session_methods().await.len() == 1).then_some(()))
        .await;
    let pending: DeviceErrorResponse = login.poll().await.expect(400);
    assert_eq!(pending.error, contract::device::DeviceError::AuthorizationPending);
    login.browser.close().await;
}
