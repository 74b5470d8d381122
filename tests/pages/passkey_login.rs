//! The login of the pages with a passkey alone, with the virtual authenticator of Chromium.

use contract::device::DeviceCodes;
use contract::identity::Tenant;
use serde_json::{Value, json};
use testkit::{PASSWORD, wait_until};
use testsystem::TestUser;

use super::browser::{Browser, ENTER, TAB};

const EMAIL: &str = "admin@acme.example";

/// A browser and its authenticator with a passkey of the administrator of `acme`.
async fn with_passkey(started: Option<(Browser, Value)>) -> Option<(Browser, Value, TestUser)> {
    let (browser, authenticator) = started?;
    let user = browser.system.create_tenant("acme").await;
    browser.open(&browser.page("sessions")).await;
    browser.register_passkey(&user).await;
    Some((browser, authenticator, user))
}

async fn is_focused(browser: &Browser, id: &str) {
    wait_until(id, async || (browser.focus().await == id).then_some(())).await;
}

/// Presses the button by keyboard, from the first field of the form.
async fn press_button(browser: &Browser, first: &str) {
    is_focused(browser, first).await;
    browser.execute("document.getElementById('password').focus()").await;
    // The button that shows the password, and the one of the form.
    browser.press(&format!("{TAB}{TAB}{TAB}")).await;
    is_focused(browser, "passkey-login").await;
    browser.press(ENTER).await;
}

async fn permit(browser: &Browser, is_permitted: bool) {
    let patch = json!({ "passkey_login": is_permitted });
    browser.system.platform_admin().patch("/tenants/acme", &patch).await.expect::<Tenant>(200);
}

#[tokio::test]
async fn a_person_logs_in_with_a_passkey_alone_by_keyboard_and_with_the_password_if_that_fails() {
    let started = Browser::start_with_authenticator().await;
    let Some((browser, authenticator, _user)) = with_passkey(started).await else { return };
    for (language, button) in [("de", "Mit einem Passkey anmelden"), ("en", "Log in with a passkey")] {
        browser.set_language(language).await;
        browser.open(&browser.page("sessions")).await;
        browser.wait_for_text(button).await;
        browser.expect_accessible(button).await;
    }
    // A browser without suggestions of passkeys.
    let autocomplete = "return document.getElementById('email').autocomplete";
    assert_eq!(browser.execute(autocomplete).await, "email");
    browser.set_verified(&authenticator, false).await;
    press_button(&browser, "tenant").await;
    browser.wait_for_text("No passkey was used. Try again, or log in with your password.").await;
    is_focused(&browser, "form-error").await;
    browser.expect_accessible("no passkey was used").await;
    browser.set_verified(&authenticator, true).await;

    permit(&browser, false).await;
    browser.open(&browser.page("sessions")).await;
    press_button(&browser, "tenant").await;
    browser.wait_for_text("The login with this passkey failed. Log in with your password.").await;
    browser.execute("document.getElementById('tenant').focus()").await;
    browser.press(&format!("acme{TAB}{EMAIL}{TAB}{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("Use a passkey or enter a code to complete the login.").await;
    let is_hidden = "return document.getElementById('passkey-login').hidden";
    assert_eq!(browser.execute(is_hidden).await, true, "the second step has its own button");

    permit(&browser, true).await;
    for (page, text) in [("sessions", "Log out on this page"), ("factors", "Unused codes: 10")] {
        browser.open(&browser.page(page)).await;
        press_button(&browser, "tenant").await;
        let shown = browser.wait_for_text(text).await;
        assert!(shown.contains(EMAIL) && shown.contains("acme"), "{shown}");
    }
    // It is a recent login with the factor.
    browser.execute("document.getElementById('renew').click()").await;
    browser.wait_for_text("Store your recovery codes").await;
    browser.close_after_errors().await;
}

#[tokio::test]
async fn a_passkey_alone_approves_a_device_of_which_the_code_is_entered() {
    let started = Browser::start_with_authenticator().await;
    let Some((browser, _, _user)) = with_passkey(started).await else { return };
    let device = browser.system.client().header("X-Tenant-ID", "acme");
    let codes: DeviceCodes =
        device.post("/auth/device/code", &json!({ "client_name": "Television" })).await.expect(200);
    browser.open(&browser.page("device")).await;
    press_button(&browser, "code").await;
    browser.expect_field_error("code", "Fill in this field.").await;
    browser.press(&codes.user_code).await;
    press_button(&browser, "code").await;
    let shown = browser.wait_for_text("Television").await;
    assert!(shown.contains(EMAIL) && shown.contains("acme"), "{shown}");
    browser.execute("document.getElementById('approve').click()").await;
    browser.wait_for_text("logged out").await;
    browser.close_after_errors().await;
}

#[tokio::test]
async fn a_browser_suggests_passkeys_for_the_address() {
    let started = Browser::start_current_with_authenticator().await;
    let Some((browser, _, _user)) = with_passkey(started).await else { return };
    // The authenticator chooses the suggestion at once.
    browser.open(&browser.page("sessions")).await;
    let shown = browser.wait_for_text("Log out on this page").await;
    assert!(shown.contains(EMAIL) && shown.contains("acme"), "{shown}");
    let autocomplete = "return document.getElementById('email').autocomplete";
    assert_eq!(browser.execute(autocomplete).await, "email webauthn");
    browser.close_after_errors().await;
}

#[tokio::test]
async fn a_browser_without_passkeys_and_a_page_at_another_address_offer_none() {
    let Some((browser, _)) = Browser::start_with_authenticator().await else { return };
    let _user = browser.system.create_tenant("acme").await;
    let is_hidden = "return document.getElementById('passkey-login')?.hidden ?? 'absent'";
    browser.open(&browser.page("sessions")).await;
    is_focused(&browser, "tenant").await;
    assert_eq!(browser.execute(is_hidden).await, false);
    // The IP address of the same system.
    let other = browser.page("sessions").replace("localhost", "127.0.0.1");
    browser.open(&other).await;
    is_focused(&browser, "tenant").await;
    assert_eq!(browser.execute(is_hidden).await, true);
    browser.run_before_load("delete globalThis.PublicKeyCredential").await;
    browser.open(&format!("{}#tenant=acme&email={EMAIL}", browser.page("sessions"))).await;
    is_focused(&browser, "password").await;
    assert_eq!(browser.execute(is_hidden).await, true);
    browser.press(&format!("{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("Log out on this page").await;
    browser.close_after_errors().await;
}
