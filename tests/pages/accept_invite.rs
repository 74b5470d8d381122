//! `/pages/accept-invite`

use contract::identity::{CreateTenant, Delivery, Tenant};
use testkit::PASSWORD;

use super::browser::{Browser, ENTER, TAB};

const EMAIL: &str = "admin@acme.example";

async fn invited(browser: &Browser) -> String {
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
async fn an_invite_is_accepted_with_the_keyboard_alone_once_the_password_is_good() {
    let Some(browser) = Browser::start().await else { return };
    let page = format!("{}/api/v1/pages/accept-invite", browser.system.base_url);
    let token = invited(&browser).await;
    let link = format!("{page}#token={token}");
    browser.open(&link).await;
    assert_eq!(browser.address().await, page, "the token has left the address bar");
    assert_eq!(browser.ask("return history.length").await, 2, "and stands nowhere behind it");

    browser.press(&format!("{TAB}{PASSWORD}{TAB}another{ENTER}")).await;
    browser.shows("The two passwords are not the same.").await;
    assert_eq!(browser.focus().await, "again");

    browser.open(&link).await;
    browser.press(&format!("{TAB}short{TAB}short{ENTER}")).await;
    browser.shows("The password is too short").await;
    assert_eq!(browser.focus().await, "password");

    // The refused one has not spent the token.
    browser.open(&link).await;
    browser.press(&format!("{TAB}{PASSWORD}{TAB}{PASSWORD}{ENTER}")).await;
    let shown = browser.shows("Your account is ready. You can log in now.").await;
    assert!(!shown.contains("New password"), "{shown}");
    browser.system.log_in("acme", EMAIL).await;

    browser.open(&link).await;
    browser.press(&format!("{TAB}{PASSWORD}{TAB}{PASSWORD}{ENTER}")).await;
    browser.shows("The token is not valid").await;
    browser.close().await;
}

#[tokio::test]
async fn a_link_without_its_token_says_what_to_do() {
    let Some(browser) = Browser::start().await else { return };
    for page in ["accept-invite", "reset-password"] {
        browser.open(&format!("{}/api/v1/pages/{page}", browser.system.base_url)).await;
        let shown = browser.shows("The link is not complete.").await;
        assert!(!shown.contains("New password"), "{shown}");
    }
    browser.close().await;
}
