//! `/pages/factors`, with the codes of an own implementation of RFC 6238.

use contract::factors::Factors;
use contract::identity::Tenant;
use serde_json::json;
use testkit::{PASSWORD, totp_after, wait_until};

use super::browser::{Browser, ENTER, TAB};

const EMAIL: &str = "admin@acme.example";

/// Waits for the focus on a field and types into it.
async fn type_into(browser: &Browser, field: &str, keys: &str) {
    wait_until(field, async || (browser.focus().await == field).then_some(())).await;
    browser.press(keys).await;
}

/// Opens the page and enters the password.
async fn log_in(browser: &Browser) {
    browser.open(&format!("{}#tenant=acme&email={EMAIL}", browser.page("factors"))).await;
    type_into(browser, "password", &format!("{PASSWORD}{ENTER}")).await;
}

async fn log_in_with_code(browser: &Browser, code: &str) {
    log_in(browser).await;
    type_into(browser, "otp", &format!("{code}{ENTER}")).await;
    browser.wait_for_text("Unused codes:").await;
}

async fn click(browser: &Browser, id: &str) {
    browser.execute(&format!("document.getElementById('{id}').click()")).await;
}

async fn focus(browser: &Browser, id: &str) {
    browser.execute(&format!("document.getElementById('{id}').focus()")).await;
}

/// The secret on the page, once its QR code is shown.
async fn shown_secret(browser: &Browser) -> String {
    let width = "return document.getElementById('qr')?.naturalWidth";
    wait_until("the QR code is shown", async || {
        (browser.execute(width).await.as_u64() >= Some(200)).then_some(())
    })
    .await;
    let secret = "return document.getElementById('secret')?.textContent.replaceAll(' ', '') ?? ''";
    browser.execute(secret).await.as_str().unwrap().to_owned()
}

async fn shown_codes(browser: &Browser) -> Vec<String> {
    browser.wait_for_text("Store your recovery codes").await;
    let codes = browser.execute("return document.getElementById('recovery-codes').textContent").await;
    codes.as_str().unwrap().lines().map(str::to_owned).collect()
}

/// Waits for a text in the element that screen readers announce when it changes.
async fn wait_for_status(browser: &Browser, text: &str) {
    let status = "return document.querySelector('[role=status]').textContent";
    wait_until(text, async || (browser.execute(status).await == text).then_some(())).await;
}

async fn require_factor(browser: &Browser) {
    let patch = json!({ "second_factor": "everyone" });
    browser.system.platform_admin().patch("/tenants/acme", &patch).await.expect::<Tenant>(200);
}

#[tokio::test]
async fn a_user_sets_up_an_app_by_keyboard_stores_the_codes_and_removes_the_app() {
    let Some(browser) = Browser::start().await else { return };
    let user = browser.system.create_tenant("acme").await;
    log_in(&browser).await;
    browser.wait_for_text("You have no second factor.").await;
    browser.press(&format!("{TAB}{ENTER}")).await;
    let secret = shown_secret(&browser).await;
    let link = browser.execute("return document.getElementById('app-link').href").await;
    assert!(link.as_str().unwrap().starts_with("otpauth://totp/svc:admin%40acme"), "{link}");
    // The link to an app on this device is for touch screens only.
    let link = "return document.getElementById('app-link').getClientRects().length";
    assert_eq!(browser.execute(link).await, 0);
    assert_eq!(browser.execute("return document.title").await, "Set up an authenticator app · svc");
    browser.press(&format!("{TAB}12345{ENTER}")).await;
    browser.expect_field_error("first-code", "Enter the six digits that the app shows.").await;
    let typed = "document.getElementById('first-code').value = ''";
    browser.execute(typed).await;
    browser.press(&format!("{}{ENTER}", totp_after(&secret, 100))).await;
    let shown = browser.expect_field_error("first-code", "The code is wrong or has expired.").await;
    assert!(!shown.contains("recovery"), "there are no recovery codes yet: {shown}");
    browser.execute(typed).await;
    let code = totp_after(&secret, 0);
    browser.press(&format!("{} {}{ENTER}", &code[..3], &code[3..])).await;
    let codes = shown_codes(&browser).await;
    assert!(codes.len() == 10 && codes.iter().all(|code| code.len() == 19), "{codes:?}");
    browser.execute("window.print = () => { document.title = 'printed' }").await;
    click(&browser, "print").await;
    assert_eq!(browser.execute("return document.title").await, "printed");
    assert_eq!(browser.execute("return document.getElementById('copy').hidden").await, false);
    browser.execute("navigator.clipboard.writeText = () => Promise.reject(new Error())").await;
    click(&browser, "copy").await;
    browser.wait_for_text("Not copied. Select the text and copy it.").await;
    // The codes are shown once: no link leaves them, and the browser asks.
    let can_leave = "return [dispatchEvent(new Event('beforeunload', { cancelable: true })), !document.querySelector('footer').hidden]";
    assert_eq!(browser.execute(can_leave).await, json!([false, false]));

    // The session of the set-up is without the factor, so a change needs a new login.
    click(&browser, "stored").await;
    let shown = browser.wait_for_text("Your second factor is set up").await;
    assert!(
        shown.contains("From now on, a login with the password also needs a code or a passkey")
            && !shown.contains("Password"),
        "{shown}"
    );
    assert_eq!(browser.execute(can_leave).await, json!([true, true]));
    click(&browser, "manage").await;
    type_into(&browser, "password", &format!("{PASSWORD}{ENTER}")).await;
    type_into(&browser, "otp", &format!("{}{ENTER}", totp_after(&secret, 1))).await;
    browser.wait_for_text("Unused codes: 10").await;
    click(&browser, "renew").await;
    let renewed = shown_codes(&browser).await;
    assert!(renewed.len() == 10 && !renewed.contains(&codes[0]), "{renewed:?}");
    click(&browser, "stored").await;
    browser.wait_for_text("Unused codes: 10").await;
    let text = browser.execute("return document.body.textContent").await.to_string();
    assert!(!text.contains(&renewed[0]), "the codes stay in the page");
    browser.press(&format!("{TAB}{ENTER}")).await;
    browser.wait_for_text("Remove the second factor “Authenticator app”?").await;
    browser.press(&format!("{TAB}{TAB}{ENTER}")).await;
    browser.wait_for_text("Unused codes: 10").await;
    browser.press(&format!("{TAB}{ENTER}")).await;
    browser.wait_for_text("Remove the second factor “Authenticator app”?").await;
    browser.press(&format!("{TAB}{ENTER}")).await;
    browser.wait_for_text("The second factor was removed.").await;
    assert!(user.client.get("/auth/factors").await.expect::<Factors>(200).factors.is_empty());
    click(&browser, "log-out").await;
    browser.wait_for_text("You are logged out on this page").await;
    browser.close_after_errors().await;
}

#[tokio::test]
async fn a_login_that_must_set_up_a_factor_leads_to_the_page_and_back() {
    let Some(browser) = Browser::start().await else { return };
    let _user = browser.system.create_tenant("acme").await;
    require_factor(&browser).await;
    let device = browser.system.client().header("X-Tenant-ID", "acme");
    let codes = device.post("/auth/device/code", &json!({ "client_name": "Television" })).await.json();
    browser
        .open(&format!("{}&tenant=acme&email={EMAIL}", codes["verification_uri_complete"].as_str().unwrap()))
        .await;
    type_into(&browser, "password", &format!("{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("Your organization requires a second factor.").await;
    let secret = shown_secret(&browser).await;
    assert!(!browser.address().await.contains("svc_ch_"), "the challenge is in the address bar");
    browser.press(&format!("{TAB}{}{ENTER}", totp_after(&secret, 0))).await;
    assert_eq!(shown_codes(&browser).await.len(), 10);
    click(&browser, "stored").await;
    type_into(&browser, "password", &format!("{PASSWORD}{ENTER}")).await;
    type_into(&browser, "otp", &format!("{}{ENTER}", totp_after(&secret, 1))).await;
    browser.wait_for_text("Television").await;

    // The last factor stays.
    browser.system.run_sql("update identity.totp_factors set last_step = 0").await;
    log_in_with_code(&browser, &totp_after(&secret, 1)).await;
    browser.execute("document.querySelector('#factors button').click()").await;
    click(&browser, "remove").await;
    let error = "Add a passkey before you remove this factor.";
    browser.wait_for_text(error).await;
    // The error is of that attempt only.
    browser.execute("document.querySelector('#factors button').click()").await;
    browser.wait_for_text("you cannot remove the last one").await;
    click(&browser, "keep").await;
    let shown = browser.wait_for_text("Unused codes:").await;
    assert!(!shown.contains(error), "{shown}");
    browser.close_after_errors().await;
}

#[tokio::test]
async fn a_login_that_must_set_up_a_factor_accepts_a_passkey_in_place_of_an_app() {
    let Some((browser, _)) = Browser::start_with_authenticator().await else { return };
    let user = browser.system.create_tenant("acme").await;
    require_factor(&browser).await;
    for (language, field, text) in [
        ("de", "Name eines neuen Passkeys", "Ihre Organisation verlangt einen zweiten Faktor."),
        ("en", "Name of a new passkey", "Your organization requires a second factor."),
    ] {
        browser.set_language(language).await;
        browser.open(&format!("{}#tenant=acme&email={EMAIL}", browser.page("sessions"))).await;
        type_into(&browser, "password", &format!("{PASSWORD}{ENTER}")).await;
        let shown = browser.wait_for_text(field).await;
        assert!(shown.contains(text), "{shown}");
        browser.expect_accessible(text).await;
    }
    // An app is possible too. Nothing is set up yet.
    click(&browser, "add").await;
    shown_secret(&browser).await;
    click(&browser, "cancel").await;
    browser.wait_for_text("Name of a new passkey").await;
    assert_eq!(browser.execute("return document.getElementById('log-out').hidden").await, true);
    focus(&browser, "passkey-name").await;
    type_into(&browser, "passkey-name", &format!("laptop{ENTER}")).await;
    assert_eq!(shown_codes(&browser).await.len(), 10);
    let factors: Factors = user.client.get("/auth/factors").await.expect(200);
    assert_eq!(factors.factors[0].name.as_deref(), Some("laptop"));
    // The way back to the page of the login, which needs the passkey.
    click(&browser, "stored").await;
    type_into(&browser, "password", &format!("{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("Use a passkey or enter a code to complete the login.").await;
    click(&browser, "use-passkey").await;
    browser.wait_for_text("Log out on this page").await;
    browser.close_after_errors().await;
}

#[tokio::test]
async fn the_set_up_with_a_passkey_ends_if_the_person_cancels_it_or_its_challenge_expires() {
    let Some((browser, _)) = Browser::start_with_authenticator().await else { return };
    let _user = browser.system.create_tenant("acme").await;
    require_factor(&browser).await;
    log_in(&browser).await;
    browser.wait_for_text("Name of a new passkey").await;
    click(&browser, "leave").await;
    type_into(&browser, "password", &format!("{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("Name of a new passkey").await;
    browser.system.run_sql("update identity.login_challenges set expires_at = now()").await;
    focus(&browser, "passkey-name").await;
    type_into(&browser, "passkey-name", &format!("laptop{ENTER}")).await;
    browser.wait_for_text("The login took too long").await;
    assert_eq!(browser.value("email").await, EMAIL);
    browser.close_after_errors().await;
}

#[tokio::test]
async fn the_pages_of_a_session_lead_to_the_set_up_which_an_expired_challenge_ends() {
    let Some(browser) = Browser::start().await else { return };
    let _user = browser.system.create_tenant("acme").await;
    require_factor(&browser).await;
    for page in ["sessions", "change-password", "factors"] {
        browser.open(&format!("{}#tenant=acme&email={EMAIL}", browser.page(page))).await;
        let keys = if page == "change-password" {
            format!("{PASSWORD}{TAB}{TAB}another long phrase{TAB}{TAB}another long phrase{ENTER}")
        } else {
            format!("{PASSWORD}{ENTER}")
        };
        let field = if page == "change-password" { "current" } else { "password" };
        type_into(&browser, field, &keys).await;
        shown_secret(&browser).await;
        assert!(browser.address().await.ends_with("/pages/factors"), "{page}");
    }
    // A reload continues with the same challenge and another secret.
    let secret = shown_secret(&browser).await;
    browser.execute("location.reload()").await;
    wait_until("another secret", async || (shown_secret(&browser).await != secret).then_some(())).await;
    browser.system.run_sql("update identity.login_challenges set expires_at = now()").await;
    browser.execute("location.reload()").await;
    browser.wait_for_text("The login took too long").await;
    assert_eq!(browser.value("email").await, EMAIL);
    browser.close_after_errors().await;
}

#[tokio::test]
async fn the_pages_name_the_minimum_length_of_the_tenant() {
    let Some(browser) = Browser::start().await else { return };
    let admin = browser.system.create_tenant("acme").await;
    let patch = json!({ "password_min_length": 30 });
    browser.system.platform_admin().patch("/tenants/acme", &patch).await.expect::<Tenant>(200);
    let invite = json!({ "email": "ada@acme.example", "delivery": "response" });
    let invite: serde_json::Value = admin.client.post("/users/invite", &invite).await.expect(201);
    browser
        .open(&format!("{}#token={}", browser.page("accept-invite"), invite["token"].as_str().unwrap()))
        .await;
    browser.wait_for_text("At least 30 characters").await;
    type_into(&browser, "password", &format!("{PASSWORD}{TAB}{TAB}{PASSWORD}{ENTER}")).await;
    browser.expect_field_error("password", "Use at least 30 characters").await;

    browser.open(&format!("{}#tenant=acme&email={EMAIL}", browser.page("change-password"))).await;
    let new = "another long phrase";
    type_into(&browser, "current", &format!("{PASSWORD}{TAB}{TAB}{new}{TAB}{TAB}{new}{ENTER}")).await;
    let page = browser.expect_field_error("password", "Use at least 30 characters").await;
    assert!(page.contains("At least 30 characters"), "{page}");
    browser.close_after_errors().await;
}

#[tokio::test]
async fn a_person_adds_passkeys_logs_in_with_one_and_removes_them() {
    let Some((browser, _)) = Browser::start_with_authenticator().await else { return };
    let user = browser.system.create_tenant("acme").await;
    log_in(&browser).await;
    browser.wait_for_text("You have no second factor.").await;
    focus(&browser, "passkey-name").await;
    type_into(&browser, "passkey-name", &format!(" {ENTER}")).await;
    browser.expect_field_error("passkey-name", "Fill in this field.").await;
    browser.execute("document.getElementById('passkey-name').value = ''").await;
    focus(&browser, "passkey-name").await;
    type_into(&browser, "passkey-name", &format!("laptop{ENTER}")).await;
    assert_eq!(shown_codes(&browser).await.len(), 10);
    click(&browser, "stored").await;
    browser.wait_for_text("Your second factor is set up").await;
    browser.expect_accessible("the end of a set-up").await;
    click(&browser, "manage").await;
    type_into(&browser, "password", &format!("{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("Use a passkey or enter a code to complete the login.").await;
    click(&browser, "use-passkey").await;
    browser.wait_for_text("laptop").await;
    browser.expect_accessible("the list with a passkey").await;
    browser.execute("document.querySelectorAll('#factors button')[1].click()").await;
    browser.wait_for_text("Rename the passkey").await;
    browser.expect_accessible("the form with the name of a passkey").await;
    assert_eq!(browser.value("new-name").await, "laptop");
    browser.execute("document.getElementById('new-name').value = ''").await;
    focus(&browser, "new-name").await;
    type_into(&browser, "new-name", ENTER).await;
    browser.expect_field_error("new-name", "Fill in this field.").await;
    // Another attempt shows the name without the error.
    click(&browser, "keep-name").await;
    browser.wait_for_text("Unused codes:").await;
    browser.execute("document.querySelectorAll('#factors button')[1].click()").await;
    browser.wait_for_text("Rename the passkey").await;
    assert_eq!(browser.value("new-name").await, "laptop");
    assert_eq!(browser.execute("return document.getElementById('new-name-error').hidden").await, true);
    browser.execute("document.getElementById('new-name').value = ''").await;
    focus(&browser, "new-name").await;
    type_into(&browser, "new-name", &format!("telephone{ENTER}")).await;
    browser.wait_for_text("telephone").await;
    wait_for_status(&browser, "The passkey was renamed.").await;
    // The authenticator has a passkey of the account.
    focus(&browser, "passkey-name").await;
    type_into(&browser, "passkey-name", &format!("again{ENTER}")).await;
    browser.wait_for_text("No passkey was created.").await;
    browser.execute("document.querySelector('#factors button').click()").await;
    browser.wait_for_text("Remove the second factor “telephone”?").await;
    assert_eq!(browser.focus().await, "removal-name");
    click(&browser, "remove").await;
    wait_for_status(&browser, "The second factor was removed.").await;
    assert!(user.client.get("/auth/factors").await.expect::<Factors>(200).factors.is_empty());
    browser.close_after_errors().await;
}
