//! `/pages/change-password`

use contract::Page;
use contract::Secret;
use contract::identity::Login;
use contract::session::Session;
use testkit::{PASSWORD, totp_after, wait_until};
use testsystem::set_up_app;

use super::browser::{Browser, ENTER, TAB};

const EMAIL: &str = "admin@acme.example";
const NEW: &str = "another long password of mine";

#[tokio::test]
async fn a_user_changes_a_known_password_and_is_logged_out_everywhere() {
    let Some(browser) = Browser::start().await else { return };
    let user = browser.system.create_tenant("acme").await;
    browser.open(&format!("{}/.well-known/change-password", browser.system.base_url)).await;
    assert_eq!(browser.address().await, browser.page("change-password"));
    wait_until("the form is shown", async || (browser.focus().await == "tenant").then_some(())).await;
    let fill = |current: &str, new: &str| format!("{current}{TAB}{TAB}{new}{TAB}{TAB}{new}{ENTER}");
    browser.press(&format!("acme{TAB}{EMAIL}{TAB}{}", fill("wrong password", NEW))).await;
    browser.expect_field_error("current", "Login failed.").await;
    browser
        .execute("document.querySelectorAll('[type=password]').forEach((field) => (field.value = ''))")
        .await;
    browser.press(&fill(PASSWORD, "short")).await;
    browser.expect_field_error("password", "The password is too short.").await;
    browser
        .execute("for (const id of ['current', 'password', 'again']) document.getElementById(id).value = ''")
        .await;
    browser.execute("document.getElementById('current').focus()").await;
    browser.press(&fill(PASSWORD, PASSWORD)).await;
    browser.expect_field_error("password", "The new password is the current one.").await;
    browser
        .execute("for (const id of ['current', 'password', 'again']) document.getElementById(id).value = ''")
        .await;
    browser.execute("document.getElementById('current').focus()").await;
    browser.press(&fill(PASSWORD, NEW)).await;
    let shown = browser.wait_for_text("Your password was changed").await;
    assert!(shown.contains(EMAIL) && shown.contains("acme"), "{shown}");
    browser.execute("location.reload()").await;
    browser.wait_for_text("Your password was changed").await;

    user.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    let login = Login { email: EMAIL.to_owned(), password: Secret::new(NEW) };
    let client = browser.system.client().header("X-Tenant-ID", "acme");
    let session = client.post("/auth/password/login", &login).await.json();
    let client = browser.system.client().bearer(session["session_id"].as_str().unwrap());
    let client = client.header("X-User-ID", &user.user.user_id.to_string());
    let sessions: Page<Session> = client.get("/auth/sessions").await.expect(200);
    assert_eq!(sessions.items.len(), 1, "the page leaves no session");
    // Opened again, the page has its form.
    browser.open("about:blank").await;
    browser.open(&browser.page("change-password")).await;
    wait_until("the form is shown", async || (browser.focus().await == "tenant").then_some(())).await;
    browser.close().await;
}

#[tokio::test]
async fn a_rejected_password_keeps_the_login_because_a_code_is_valid_once() {
    let Some(browser) = Browser::start().await else { return };
    let user = browser.system.create_tenant("acme").await;
    let (secret, _) = set_up_app(&user.client).await;
    let code = |steps| totp_after(&secret, steps);
    browser.open(&format!("{}#tenant=acme&email={EMAIL}", browser.page("change-password"))).await;
    wait_until("the form is shown", async || (browser.focus().await == "current").then_some(())).await;
    let common = "password1234";
    browser.press(&format!("{PASSWORD}{TAB}{TAB}{common}{TAB}{TAB}{common}{ENTER}")).await;
    wait_until("the code is needed", async || (browser.focus().await == "otp").then_some(())).await;
    browser.press(&format!("{}{ENTER}", code(1))).await;
    browser.expect_field_error("password", "The password is too common.").await;
    browser.execute("for (const id of ['password', 'again']) document.getElementById(id).value = ''").await;
    browser.press(&format!("{NEW}{TAB}{TAB}{NEW}{ENTER}")).await;
    browser.wait_for_text("Your password was changed").await;
    assert_eq!(browser.execute("return document.title").await, "Your password was changed · svc");
    browser.close().await;
}
