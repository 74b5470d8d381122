//! `/pages/accept-invite`

use contract::identity::{CreateTenant, Delivery, Tenant};
use testkit::PASSWORD;

use super::browser::{Browser, ENTER, TAB};

const EMAIL: &str = "admin@acme.example";

async fn create_invite(browser: &Browser) -> String {
    let create = CreateTenant {
        tenant_id: "acme".parse().unwrap(),
        display_name: "Acme".to_owned(),
        admin_email: Some(EMAIL.to_owned()),
        delivery: Delivery::Response,
        quota: None,
    };
    let tenant: Tenant = browser.system.platform_admin().post("/tenants", &create).await.expect(201);
    tenant.invite.unwrap().token.unwrap().expose().to_owned()
}

#[tokio::test]
async fn a_user_accepts_an_invite_with_a_valid_password_and_the_keyboard() {
    let Some(browser) = Browser::start().await else { return };
    let page = format!("{}/api/v1/pages/accept-invite", browser.system.base_url);
    let token = create_invite(&browser).await;
    let link = format!("{page}#token={token}");
    browser.open(&link).await;
    assert_eq!(browser.address().await, page, "the address bar still contains the token");
    assert_eq!(
        browser.execute("return history.length").await,
        2,
        "the history contains the link with the token"
    );

    browser.press(&format!("{TAB}{PASSWORD}{TAB}another{ENTER}")).await;
    browser.wait_for_text("The passwords do not match.").await;
    assert_eq!(browser.focus().await, "again");

    browser.open(&link).await;
    browser.press(&format!("{TAB}short{TAB}short{ENTER}")).await;
    browser.wait_for_text("The password is too short").await;
    assert_eq!(browser.focus().await, "password");

    // The rejected password did not consume the token.
    browser.open(&link).await;
    browser.press(&format!("{TAB}{PASSWORD}{TAB}{PASSWORD}{ENTER}")).await;
    let page_text = browser.wait_for_text("Your account is ready. You can log in now.").await;
    assert!(!page_text.contains("New password"), "{page_text}");
    browser.system.log_in("acme", EMAIL).await;

    browser.open(&link).await;
    browser.press(&format!("{TAB}{PASSWORD}{TAB}{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("The token is not valid").await;
    browser.close().await;
}

#[tokio::test]
async fn a_link_without_a_token_shows_an_error() {
    let Some(browser) = Browser::start().await else { return };
    for page in ["accept-invite", "reset-password"] {
        browser.open(&format!("{}/api/v1/pages/{page}", browser.system.base_url)).await;
        let page_text = browser.wait_for_text("The link is incomplete.").await;
        assert!(!page_text.contains("New password"), "{page_text}");
    }
    browser.close().await;
}
