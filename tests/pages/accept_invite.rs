//! `/pages/accept-invite`

use contract::Secret;
use contract::identity::{AcceptInvite, CreateTenant, Delivery, SecondFactorPolicy, Tenant};
use testkit::{PASSWORD, wait_until};

use super::browser::{Browser, ENTER, TAB};

const EMAIL: &str = "admin@acme.example";

async fn create_invite(browser: &Browser) -> String {
    let create = CreateTenant {
        tenant_id: "acme".parse().unwrap(),
        display_name: "Acme Ltd".to_owned(),
        admin_email: Some(EMAIL.to_owned()),
        delivery: Delivery::Response,
        quota: None,
        second_factor: SecondFactorPolicy::Optional,
        password_min_length: None,
        passkey_login: None,
    };
    let tenant: Tenant = browser.system.platform_admin().post("/tenants", &create).await.expect(201);
    tenant.invite.unwrap().token.unwrap().expose().to_owned()
}

#[tokio::test]
async fn a_user_accepts_an_invite_with_a_valid_password_and_the_keyboard() {
    let Some(browser) = Browser::start().await else { return };
    let page = browser.page("accept-invite");
    let token = create_invite(&browser).await;
    browser.open(&format!("{page}#token={token}")).await;
    let shown = browser.wait_for_text("Link valid until").await;
    assert!(shown.contains("Acme Ltd (acme)"), "the page does not name the tenant: {shown}");
    assert_eq!(browser.value("email").await, format!("{EMAIL} (acme)"), "the page does not name the account");
    assert_eq!(browser.address().await, page, "the address bar still contains the token");
    assert_eq!(
        browser.execute("return history.length").await,
        2,
        "the history contains the link with the token"
    );

    browser.press(&format!("{PASSWORD}{TAB}{TAB}another{ENTER}")).await;
    browser.expect_field_error("again", "The passwords do not match.").await;

    // A phone can drop the page while the person opens a password manager.
    browser.execute("location.reload()").await;
    browser.wait_for_text("Link valid until").await;
    browser.press(&format!("password1234{TAB}{TAB}password1234{ENTER}")).await;
    let error = "The password is too common. Use a password that is not on lists";
    let shown = browser.expect_field_error("password", error).await;
    assert_eq!(shown.matches("too common").count(), 1, "{shown}");

    // The rejected password did not consume the token.
    browser.execute("location.reload()").await;
    browser.wait_for_text("Link valid until").await;
    browser.press(&format!("{PASSWORD}{TAB}{TAB}{PASSWORD}{ENTER}")).await;
    let shown = browser.wait_for_text("Your account is ready").await;
    assert!(!shown.contains("Choose a password"), "the instruction is still shown: {shown}");
    let command =
        format!("svc auth login --base-url {} --tenant acme --email {EMAIL}", browser.system.base_url);
    let shown_command = "return document.getElementById('command').textContent";
    assert_eq!(browser.execute(shown_command).await, command);
    // The command line is for those who open it. The next step of others is a page.
    assert!(!shown.contains("svc auth login"), "{shown}");
    let next = "const { id, innerText } = document.querySelector('#done .primary'); return [id, innerText]";
    assert_eq!(browser.execute(next).await, serde_json::json!(["sessions-link", "Log in"]));
    browser.system.log_in("acme", EMAIL).await;
    // A reload, and the way back from another page.
    for script in ["location.reload()", "document.getElementById('sessions-link').click()"] {
        browser.execute(script).await;
        if script.contains("click") {
            browser.wait_for_text("Your sessions").await;
            browser.execute("history.back()").await;
        }
        let shown = browser.wait_for_text("Your account is ready").await;
        assert!(shown.contains("Acme Ltd (acme)"), "{shown}");
        assert_eq!(browser.execute(shown_command).await, command);
    }
    // The address bar has no token any more.
    browser.open("about:blank").await;
    browser.open(&page).await;
    let shown = browser.wait_for_text("Your account is ready").await;
    assert!(shown.contains("Acme Ltd (acme)"), "{shown}");
    let kept = browser.execute("return JSON.stringify(sessionStorage)").await;
    assert!(!kept.as_str().unwrap().contains("svc_iv_"), "the page kept the token: {kept}");
    browser.close().await;
}

#[tokio::test]
async fn a_person_changes_the_language_and_keeps_the_link() {
    let Some(browser) = Browser::start().await else { return };
    let page = browser.page("accept-invite");
    let token = create_invite(&browser).await;
    browser.open(&format!("{page}#token={token}")).await;
    browser.wait_for_text("Link valid until").await;
    browser.execute("document.querySelector('footer a[lang=de]').click()").await;
    browser.wait_for_text("Link gültig bis").await;
    assert_eq!(browser.value("email").await, format!("{EMAIL} (acme)"));
    assert_eq!(browser.execute("return document.documentElement.lang").await, "de");
    browser.execute("location.reload()").await;
    browser.wait_for_text("Link gültig bis").await;
    browser.press(&format!("{PASSWORD}{TAB}{TAB}{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("Ihr Konto ist bereit").await;
    browser.execute("document.querySelector('footer a[lang=en]').click()").await;
    browser.wait_for_text("Your account is ready").await;
    browser.close().await;
}

#[tokio::test]
async fn times_are_in_the_spelling_of_the_person_with_the_zone_of_the_browser() {
    let Some(browser) = Browser::start().await else { return };
    let token = create_invite(&browser).await;
    let zone = serde_json::json!({ "timezoneId": "America/New_York" });
    browser.dev_tools("Emulation.setTimezoneOverride", zone).await;
    browser.system.run_sql("update identity.invites set expires_at = '2035-01-30 20:05:00Z'").await;
    let expires = "return document.querySelector('[data-value=expires_at]').textContent";
    let american = "Jan 30, 2035, 3:05 PM EST";
    for (languages, shown) in [
        ("['fr', 'en-GB', 'en-US']", "30 Jan 2035, 15:05 GMT-5"),
        ("['de']", american),
        // Browsers in containers have this tag.
        ("['en-US@posix']", american),
    ] {
        let script = format!(
            "Object.defineProperty(navigator, 'languages', {{ value: {languages}, configurable: true }})"
        );
        browser.run_before_load(&script).await;
        browser.open("about:blank").await;
        browser.open(&format!("{}#token={token}", browser.page("accept-invite"))).await;
        browser.wait_for_text("Link valid until").await;
        let time = browser.execute(expires).await;
        // Some versions of the locale data have a narrow space.
        assert_eq!(time.as_str().unwrap().replace('\u{202f}', " "), shown);
    }
    browser.close().await;
}

#[tokio::test]
async fn an_expired_link_is_reported_before_a_password_is_typed() {
    let Some(browser) = Browser::start().await else { return };
    let token = create_invite(&browser).await;
    browser.system.run_sql("update identity.invites set expires_at = now() - interval '1 second'").await;
    browser.open(&format!("{}#token={token}", browser.page("accept-invite"))).await;
    let shown = browser.wait_for_text("The link was already used, has expired").await;
    assert!(!shown.contains("New password"), "{shown}");
    assert!(shown.contains("ask the person who invited you"), "{shown}");
    browser.close().await;
}

#[tokio::test]
async fn a_used_link_is_reported_before_a_password_is_typed() {
    let Some(browser) = Browser::start().await else { return };
    let token = create_invite(&browser).await;
    let accept = AcceptInvite { token: Secret::new(&token), password: Secret::new(PASSWORD) };
    browser.system.client().post("/users/accept-invite", &accept).await.expect::<serde_json::Value>(201);
    browser.open(&format!("{}#token={token}", browser.page("accept-invite"))).await;
    let shown = browser.wait_for_text("The link was already used").await;
    assert!(!shown.contains("New password"), "{shown}");
    // The address bar has no token any more.
    browser.open(&browser.page("accept-invite")).await;
    browser.wait_for_text("The link was already used").await;
    browser.close().await;
}

#[tokio::test]
async fn a_link_that_cannot_be_checked_now_can_be_checked_again() {
    let Some(browser) = Browser::start().await else { return };
    let token = create_invite(&browser).await;
    browser.system.run_sql("alter table identity.invites rename to unavailable").await;
    browser.open(&format!("{}#token={token}", browser.page("accept-invite"))).await;
    let shown = browser.wait_for_text("An internal error occurred.").await;
    assert!(!shown.contains("ask the person who invited you"), "{shown}");
    assert!(shown.contains("Try again later") && !shown.contains("The link does not work"), "{shown}");
    browser.system.run_sql("alter table identity.unavailable rename to invites").await;
    browser.execute("document.getElementById('retry').click()").await;
    browser.wait_for_text("Link valid until").await;
    browser.close().await;
}

#[tokio::test]
async fn after_an_invite_a_person_continues_to_the_product() {
    let app = "https://app.acme.example/start";
    let Some(browser) = Browser::start_with(&[("SVC_APP_URL", app), ("SVC_PRODUCT_NAME", "Acme")]).await
    else {
        return;
    };
    let token = create_invite(&browser).await;
    browser.open(&format!("{}#token={token}", browser.page("accept-invite"))).await;
    browser.wait_for_text("You join Acme Ltd (acme) as admin@acme.example.").await;
    browser.press(&format!("{PASSWORD}{TAB}{TAB}{PASSWORD}{ENTER}")).await;
    let shown = browser.wait_for_text("Continue to Acme").await;
    // The command line is for those who open it.
    assert!(shown.contains("Use the command line") && !shown.contains("svc auth login"), "{shown}");
    let link = "return document.querySelector('#done a.primary').href";
    assert_eq!(browser.execute(link).await, app);
    browser.execute("document.querySelector('summary').click()").await;
    browser.wait_for_text("svc auth login").await;
    browser.expect_accessible("done").await;
    browser.close().await;
}

#[tokio::test]
async fn a_damaged_link_asks_for_the_address_of_the_mail() {
    let Some(browser) = Browser::start().await else { return };
    let token = create_invite(&browser).await;
    // The fragment was dropped, or a part of the token.
    for fragment in [
        "",
        "#token=",
        &format!("#token={}", &token[..40]),
        &format!("#token={}", token.replace(&token[7..8], "_")),
    ] {
        for page in ["accept-invite", "reset-password"] {
            browser.open("about:blank").await;
            browser.open(&format!("{}{fragment}", browser.page(page))).await;
            let shown = browser.wait_for_text("The link is incomplete").await;
            assert!(shown.contains("The link does not work") && !shown.contains("New password"), "{shown}");
            assert!(!shown.contains("only once"), "{shown}");
            wait_until("the field has the focus", async || (browser.focus().await == "paste").then_some(()))
                .await;
        }
    }
    browser.press(&format!("something else{ENTER}")).await;
    browser.expect_field_error("paste", "This text contains no complete link.").await;
    browser.expect_accessible("damaged link").await;
    // The page of another kind of token opens the right one.
    browser.execute("document.getElementById('paste').value = ''").await;
    browser.press(&format!(" Token: {token}.{ENTER}")).await;
    browser.wait_for_text("Link valid until").await;
    assert_eq!(browser.address().await, browser.page("accept-invite"));
    browser.close().await;
}

#[tokio::test]
async fn a_link_works_with_text_that_mail_programs_add() {
    let Some(browser) = Browser::start().await else { return };
    let token = create_invite(&browser).await;
    let (start, end) = token.split_at(30);
    for link in [
        format!("#token={token}."),
        format!("#token={token}%3E"),
        format!("#token={token}%20"),
        format!("#token={token}%E2%80%8B"),
        format!("#token%3D{token})"),
        format!("#token={start}%20{end}"),
        format!("#utm_source=mail&token={token}&utm_medium=x"),
        format!("%23token={token}"),
        format!("%2523token={token}"),
        format!("/#token={token}"),
        format!("?utm_source=mail#token={token}"),
    ] {
        browser.open("about:blank").await;
        browser.open(&format!("{}{link}", browser.page("accept-invite"))).await;
        browser.wait_for_text("Link valid until").await;
        assert!(!browser.address().await.contains("svc_iv_"), "{link}: {}", browser.address().await);
    }
    browser.close().await;
}

#[tokio::test]
async fn the_form_shows_passwords_on_request_and_the_configured_minimum_length() {
    let Some(browser) = Browser::start_with(&[("SVC_PASSWORD_MIN_LENGTH", "15")]).await else { return };
    let token = create_invite(&browser).await;
    browser.open(&format!("{}#token={token}", browser.page("accept-invite"))).await;
    browser.wait_for_text("At least 15 characters,").await;
    browser.press(&format!("fourteen-chars{TAB}{ENTER}")).await;
    let types = "return ['password', 'again'].map((id) => document.getElementById(id).type).join()";
    assert_eq!(browser.execute(types).await, "text,text");
    browser.wait_for_text("Hide").await;
    let name = "return document.querySelector('.reveal').getAttribute('aria-label')";
    assert_eq!(browser.execute(name).await, "Hide password");
    browser.press(&format!("{TAB}fourteen-chars{ENTER}")).await;
    browser.expect_field_error("password", "Use at least 15 characters").await;
    // A corrected field has no error in its description, which includes hidden elements.
    browser.execute("document.getElementById('password').value = 'fifteen-chars-x'").await;
    browser.press(ENTER).await;
    browser.expect_field_error("again", "The passwords do not match.").await;
    let description = "return document.getElementById('password-error').textContent";
    assert_eq!(browser.execute(description).await, "");
    let autocomplete =
        "return [...document.querySelectorAll('#task input')].map((input) => input.autocomplete).join()";
    assert_eq!(browser.execute(autocomplete).await, "username,new-password,new-password");
    browser.close().await;
}
