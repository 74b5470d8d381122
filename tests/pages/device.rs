//! `/pages/device`

use contract::Page;
use contract::device::{DeviceCodes, DeviceErrorResponse, DeviceSession, GRANT_TYPE};
use contract::session::{Session, SessionMethod};
use serde_json::json;
use testkit::{PASSWORD, TestResponse, wait_until};
use testsystem::TestUser;

use super::browser::{Browser, ENTER, TAB};

const EMAIL: &str = "admin@acme.example";
/// Somebody hopes that the page takes it for more than text.
const NAME: &str = "<img src=//evil.example/x onerror=alert(1)>";

/// The system with a device that waits, and a person who may let it in.
struct Login {
    browser: Browser,
    person: TestUser,
    codes: DeviceCodes,
}

impl Login {
    async fn start() -> Option<Self> {
        let browser = Browser::start().await?;
        let person = browser.system.create_tenant("acme").await;
        let device = browser.system.client().header("X-Tenant-ID", "acme");
        let codes = device.post("/auth/device/code", &json!({ "client_name": NAME })).await.expect(200);
        Some(Self { browser, person, codes })
    }

    async fn poll(&self) -> TestResponse {
        let poll = json!({ "grant_type": GRANT_TYPE, "device_code": self.codes.device_code });
        self.browser.system.client().post("/auth/device/token", &poll).await
    }

    /// How the person's sessions came to be.
    async fn sessions(&self) -> Vec<SessionMethod> {
        let user = self.person.user.user_id.to_string();
        let client = self.person.client.clone().header("X-User-ID", &user);
        let sessions: Page<Session> = client.get("/auth/sessions").await.expect(200);
        sessions.items.into_iter().map(|session| session.method).collect()
    }

    /// Opens the address with the code in it and logs in.
    async fn look(&self) {
        self.browser.open(&self.codes.verification_uri_complete).await;
        assert_eq!(self.browser.address().await, self.codes.verification_uri);
        // Code and tenant are there, so the keyboard is where the next field is.
        assert_eq!(self.browser.focus().await, "email");
        self.browser.press(&format!("{EMAIL}{TAB}{PASSWORD}{ENTER}")).await;
        self.browser.shows("Let it in only if you have started this yourself").await;
    }
}

#[tokio::test]
async fn a_person_sees_what_asks_and_lets_it_in_with_the_keyboard_alone() {
    let Some(login) = Login::start().await else { return };
    login.look().await;
    let shown = login.browser.shows(NAME).await;
    assert!(shown.contains("127.0.0.1") && shown.contains(&login.codes.user_code), "{shown}");
    let pending: DeviceErrorResponse = login.poll().await.expect(400);
    assert_eq!(pending.error, contract::device::DeviceError::AuthorizationPending, "to look decides nothing");
    assert_eq!(login.sessions().await.len(), 2);

    login.browser.press(&format!("{TAB}{ENTER}")).await;
    login.browser.shows("The device is let in.").await;
    let session: DeviceSession = login.poll().await.expect(200);
    assert_eq!(session.session.user_id, login.person.user.user_id);
    // That of the page has ended.
    assert_eq!(login.sessions().await, [SessionMethod::Password, SessionMethod::Device]);
    login.browser.close().await;
}

#[tokio::test]
async fn a_device_can_be_denied() {
    let Some(login) = Login::start().await else { return };
    login.look().await;
    login.browser.press(&format!("{TAB}{TAB}{ENTER}")).await;
    login.browser.shows("The device is denied.").await;
    let denied: DeviceErrorResponse = login.poll().await.expect(400);
    assert_eq!(denied.error, contract::device::DeviceError::AccessDenied);
    assert_eq!(login.sessions().await.len(), 1);
    login.browser.close().await;
}

#[tokio::test]
async fn a_mistake_is_told_where_it_was_made_and_leaves_no_session() {
    let Some(login) = Login::start().await else { return };
    login.browser.open(&login.codes.verification_uri).await;
    assert_eq!(login.browser.focus().await, "code");
    login.browser.press(&format!("bcdf ghjk{TAB}acme{TAB}{EMAIL}{TAB}wrong{ENTER}")).await;
    login.browser.shows("Login failed.").await;
    assert_eq!(login.browser.focus().await, "password");

    login.browser.ask("document.activeElement.select()").await;
    login.browser.press(&format!("{PASSWORD}{ENTER}")).await;
    login.browser.shows("No device waits under this code.").await;
    assert_eq!(login.browser.focus().await, "code");
    assert_eq!(login.sessions().await.len(), 1);
    login.browser.close().await;
}

#[tokio::test]
async fn who_leaves_without_a_decision_leaves_no_session() {
    let Some(login) = Login::start().await else { return };
    login.look().await;
    assert_eq!(login.sessions().await.len(), 2);
    login.browser.open("about:blank").await;
    wait_until("the session has ended", async || (login.sessions().await.len() == 1).then_some(())).await;
    let pending: DeviceErrorResponse = login.poll().await.expect(400);
    assert_eq!(pending.error, contract::device::DeviceError::AuthorizationPending);
    login.browser.close().await;
}
