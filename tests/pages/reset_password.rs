//! `/pages/request-reset` and `/pages/reset-password`

use contract::Secret;
use contract::identity::Login;
use e2e::token_in;
use testkit::PASSWORD;

use super::browser::{Browser, ENTER, TAB};

const EMAIL: &str = "admin@acme.example";
const NEW: &str = "another-horse-battery-9";

#[tokio::test]
async fn a_person_requests_a_link_and_sets_a_new_password() {
    let Some(browser) = Browser::start().await else { return };
    let user = browser.system.create_tenant("acme").await;
    browser.open(&browser.page("request-reset")).await;
    assert_eq!(browser.focus().await, "tenant");
    browser.press(&format!("acme{TAB}{EMAIL}{ENTER}")).await;
    let shown = browser.wait_for_text("Check your e-mail").await;
    assert!(shown.contains("acme") && shown.contains(EMAIL), "{shown}");

    let mail = browser.system.wait_for_mail(EMAIL).await;
    // Sends a second mail to the same address.
    let (_, key) = browser.system.create_api_key(&user, &serde_json::json!({ "name": "firewalls" })).await;
    let page = browser.page("reset-password");
    let link = format!("{page}#token={}", token_in(&mail));
    assert!(mail.contains(&link), "{mail}");
    browser.open(&link).await;
    browser.wait_for_text("Link valid until").await;
    assert_eq!(browser.address().await, page, "the address bar still contains the token");
    assert_eq!(browser.value("email").await, format!("{EMAIL} (acme)"));
    browser.execute("location.reload()").await;
    browser.wait_for_text("Link valid until").await;
    browser.press(&format!("{EMAIL}{TAB}{TAB}{EMAIL}{ENTER}")).await;
    browser.expect_field_error("password", "The password is easy to guess from the account.").await;

    browser.execute("document.querySelector('form').reset()").await;
    browser.press(&format!("{NEW}{TAB}{TAB}{NEW}{TAB} {ENTER}")).await;
    browser.wait_for_text("Your password was changed").await;
    key.get("/auth/session").await.expect_problem(401, "credential_invalid");
    let client = browser.system.client().header("X-Tenant-ID", "acme");
    let log_in = async |password: &str| {
        let login = Login { email: EMAIL.to_owned(), password: Secret::new(password) };
        client.post("/auth/password/login", &login).await
    };
    log_in(PASSWORD).await.expect_problem(401, "login_failed");
    assert_eq!(log_in(NEW).await.status, 200);

    browser.open(&link).await;
    browser.wait_for_text("The link was already used").await;
    assert_eq!(browser.link_to("sessions").await, "Log in");
    assert_eq!(browser.link_to("request-reset").await, "Reset your password");
    browser.close().await;
}

#[tokio::test]
async fn an_expired_link_is_reported_before_a_password_is_typed() {
    let Some(browser) = Browser::start().await else { return };
    browser.system.create_tenant("acme").await;
    let client = browser.system.client().header("X-Tenant-ID", "acme");
    client.post("/auth/password/reset", &serde_json::json!({ "email": EMAIL })).await.expect_empty(204);
    let mail = browser.system.wait_for_mail(EMAIL).await;
    browser.system.run_sql("update identity.resets set expires_at = now() - interval '1 second'").await;
    browser.open(&format!("{}#token={}", browser.page("reset-password"), token_in(&mail))).await;
    let shown = browser.wait_for_text("The link was already used, has expired").await;
    assert!(!shown.contains("New password"), "{shown}");
    assert_eq!(browser.link_to("request-reset").await, "Reset your password");
    browser.close().await;
}

#[tokio::test]
async fn the_request_for_a_link_validates_its_fields_and_focuses_the_first_error() {
    let Some(browser) = Browser::start().await else { return };
    browser.open(&format!("{}#tenant=acme", browser.page("request-reset"))).await;
    // The tenant is filled in.
    assert_eq!(browser.focus().await, "email");
    browser.press(ENTER).await;
    browser.expect_field_error("email", "Fill in this field.").await;
    browser.press(&format!("ada{ENTER}")).await;
    browser.expect_field_error("email", "Enter a complete e-mail address").await;
    browser.execute("document.getElementById('tenant').value = 'Acme Ltd'").await;
    browser.press(&format!("@acme.example{ENTER}")).await;
    browser.expect_field_error("tenant", "Use lower-case letters, digits and hyphens.").await;
    browser.close().await;
}
