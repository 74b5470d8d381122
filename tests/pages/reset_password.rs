//! `/pages/reset-password`

use contract::Secret;
use contract::identity::{Login, RequestReset};
use e2e::token_in;
use testkit::PASSWORD;

use super::browser::{Browser, ENTER, TAB};

const EMAIL: &str = "admin@acme.example";
const NEW: &str = "another-horse-battery-9";

#[tokio::test]
async fn the_link_in_the_mail_sets_a_new_password() {
    let Some(browser) = Browser::start().await else { return };
    browser.system.create_tenant("acme").await;
    let client = browser.system.client().header("X-Tenant-ID", "acme");
    client.post("/auth/password/reset", &RequestReset { email: EMAIL.to_owned() }).await.expect_empty(204);
    let mail = browser.system.wait_for_mail(EMAIL).await;
    let page = format!("{}/api/v1/pages/reset-password", browser.system.base_url);
    let link = format!("{page}#token={}", token_in(&mail));
    assert!(mail.contains(&link), "{mail}");
    browser.open(&link).await;
    assert_eq!(browser.address().await, page, "the address bar still contains the token");

    let common = "password1234";
    browser.press(&format!("{TAB}{common}{TAB}{common}{ENTER}")).await;
    browser.wait_for_text("The password is too common").await;
    assert_eq!(browser.focus().await, "password");

    browser.open(&link).await;
    browser.press(&format!("{TAB}{NEW}{TAB}{NEW}{ENTER}")).await;
    browser.wait_for_text("Your password was changed, and all sessions were logged out.").await;
    let log_in = async |password: &str| {
        let login = Login { email: EMAIL.to_owned(), password: Secret::new(password) };
        client.post("/auth/password/login", &login).await
    };
    log_in(PASSWORD).await.expect_problem(401, "login_failed");
    assert_eq!(log_in(NEW).await.status, 200);
    browser.close().await;
}
