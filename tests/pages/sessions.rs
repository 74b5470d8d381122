//! `/pages/sessions`

use contract::device::{DeviceCodes, DeviceSession, GRANT_TYPE};
use contract::factors::Factors;
use contract::session::{Session, SessionMethod};
use contract::{Page, Role};
use serde_json::json;
use testkit::{PASSWORD, totp_after, wait_until};
use testsystem::{TestUser, set_up_app};

use super::browser::{Browser, ENTER, TAB};

const EMAIL: &str = "admin@acme.example";

/// Opens the page and logs in.
async fn log_in(browser: &Browser) {
    log_in_as(browser, "acme", EMAIL).await;
}

async fn log_in_as(browser: &Browser, tenant: &str, email: &str) {
    browser.open(&format!("{}#tenant={tenant}&email={email}", browser.page("sessions"))).await;
    wait_until("the form is shown", async || (browser.focus().await == "password").then_some(())).await;
    browser.press(&format!("{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("Log out on this page").await;
}

async fn methods(user: &TestUser) -> Vec<SessionMethod> {
    let client = user.client.clone().header("X-User-ID", &user.user.user_id.to_string());
    let sessions: Page<Session> = client.get("/auth/sessions").await.expect(200);
    sessions.items.into_iter().map(|session| session.method).collect()
}

#[tokio::test]
async fn a_user_lists_and_revokes_sessions_and_logs_out() {
    let Some(browser) = Browser::start().await else { return };
    let user = browser.system.create_tenant("acme").await;
    log_in(&browser).await;
    let shown = browser.wait_for_text("127.0.0.1").await;
    assert!(shown.contains("acme") && shown.contains(EMAIL), "the page does not name the account: {shown}");
    assert_eq!(browser.execute("return document.cookie").await, "", "scripts can read the cookie");
    assert_eq!(methods(&user).await, [SessionMethod::Password, SessionMethod::Page]);

    browser.execute("location.reload()").await;
    browser.wait_for_text("127.0.0.1").await;
    browser.press(&format!("{TAB}{TAB}{ENTER}")).await;
    browser.wait_for_text("You are not logged in anywhere else.").await;
    user.client.get("/auth/session").await.expect_problem(401, "credential_invalid");

    let session = browser.system.log_in("acme", EMAIL).await;
    let client = browser.system.client().bearer(session.session_id.expose());
    let user = TestUser { session, client, ..user };
    browser.execute("document.getElementById('log-out').click()").await;
    browser.wait_for_text("You are logged out on this page").await;
    assert_eq!(methods(&user).await, [SessionMethod::Password]);
    browser.close().await;
}

#[tokio::test]
async fn a_login_with_a_second_factor_asks_for_the_code() {
    let Some(browser) = Browser::start().await else { return };
    let user = browser.system.create_tenant("acme").await;
    let (secret, _) = set_up_app(&user.client).await;
    browser.open(&format!("{}#tenant=acme&email={EMAIL}", browser.page("sessions"))).await;
    wait_until("the form is shown", async || (browser.focus().await == "password").then_some(())).await;
    browser.press(&format!("{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("Enter a code to complete the login.").await;
    assert_eq!(browser.focus().await, "otp");
    let errors = "return document.querySelectorAll('[aria-invalid], .error:not([hidden])').length";
    assert_eq!(browser.execute(errors).await, 0, "the next step is not an error");
    browser.press(&format!("000000{ENTER}")).await;
    browser.wait_for_text("The code is wrong").await;
    assert_eq!(browser.execute(errors).await, 2, "the field, and the text below it");
    let code = totp_after(&secret, 1);
    browser.press(&format!("{code}{ENTER}")).await;
    let shown = browser.wait_for_text("Log out on this page").await;
    assert!(shown.contains("sessions page + authenticator app"), "{shown}");
    // The app still shows the code. To type it again does not help.
    browser.execute("document.getElementById('log-out').click()").await;
    browser.wait_for_text("You are logged out on this page").await;
    browser.execute("document.querySelector('#done a').click()").await;
    wait_until("the account is filled in", async || (browser.focus().await == "password").then_some(()))
        .await;
    browser.press(&format!("{PASSWORD}{ENTER}")).await;
    wait_until("the code is needed", async || (browser.focus().await == "otp").then_some(())).await;
    browser.press(&format!("{code}{ENTER}")).await;
    browser.expect_field_error("otp", "Wait until the app shows the next code").await;
    browser.close_after_errors().await;
}

#[tokio::test]
async fn a_login_with_a_passkey_uses_the_authenticator_of_the_browser() {
    let Some((browser, authenticator)) = Browser::start_with_authenticator().await else { return };
    let user = browser.system.create_tenant("acme").await;
    browser.open(&browser.page("sessions")).await;
    browser.register_passkey(&user).await;

    let log_in = async || {
        browser.open(&format!("{}#tenant=acme&email={EMAIL}", browser.page("sessions"))).await;
        wait_until("the form is shown", async || (browser.focus().await == "password").then_some(())).await;
        browser.press(&format!("{PASSWORD}{ENTER}")).await;
        browser.wait_for_text("Use a passkey or enter a code to complete the login.").await;
        let button = "use-passkey";
        wait_until("the button is focused", async || (browser.focus().await == button).then_some(())).await;
    };
    log_in().await;
    // Without an app, the field is for a recovery code.
    let state = "return [document.getElementById('use-passkey').className, document.querySelector('label[for=otp]').textContent]";
    assert_eq!(browser.execute(state).await, json!(["primary", "Recovery code"]));
    browser.wait_for_text("No access to your second factor?").await;
    browser.expect_accessible("the second step with a passkey").await;
    // A person who does not pass the verification of the authenticator can try again.
    browser.set_verified(&authenticator, false).await;
    browser.press(ENTER).await;
    browser.wait_for_text("No passkey was used.").await;
    browser.set_verified(&authenticator, true).await;
    wait_until("the field is focused", async || (browser.focus().await == "otp").then_some(())).await;
    browser.press(&format!("{TAB}{ENTER}")).await;
    browser.wait_for_text("Log out on this page").await;
    let factors: Factors = user.client.get("/auth/factors").await.expect(200);
    assert!(factors.factors[0].last_used_at.is_some(), "{factors:?}");
    browser.close_after_errors().await;
}

#[tokio::test]
async fn a_password_in_a_link_is_neither_used_nor_kept() {
    let Some(browser) = Browser::start().await else { return };
    for page in ["sessions", "device", "change-password", "factors"] {
        let account = format!("tenant=acme&email={EMAIL}");
        let passwords = "current=hunter2&password=hunter2";
        browser.open(&format!("{}#{account}&{passwords}", browser.page(page))).await;
        wait_until("the account is filled in", async || {
            (browser.execute("return document.getElementById('tenant').value").await == "acme").then_some(())
        })
        .await;
        let found = "return JSON.stringify([...document.querySelectorAll('input')].map((input) => input.value)) + JSON.stringify(sessionStorage)";
        let found = browser.execute(found).await.to_string();
        assert!(!found.contains("hunter2") && found.contains("acme"), "{page}: {found}");
    }
    browser.close().await;
}

#[tokio::test]
async fn a_session_of_a_device_login_has_the_approved_name() {
    let Some(browser) = Browser::start().await else { return };
    let user = browser.system.create_tenant("acme").await;
    let device = browser.system.client().header("X-Tenant-ID", "acme").header("User-Agent", "tv/1");
    let codes: DeviceCodes =
        device.post("/auth/device/code", &json!({ "client_name": "Television" })).await.expect(200);
    let approve = json!({ "user_code": codes.user_code, "decision": "approve" });
    user.client.post("/auth/device/decide", &approve).await.expect_empty(204);
    let poll = json!({ "grant_type": GRANT_TYPE, "device_code": codes.device_code });
    device.post("/auth/device/token", &poll).await.expect::<DeviceSession>(200);
    log_in(&browser).await;
    let shown = browser.wait_for_text("Television").await;
    assert!(!shown.contains("tv/1"), "{shown}");
    browser.close().await;
}

#[tokio::test]
async fn a_user_logs_out_all_other_devices() {
    let Some(browser) = Browser::start().await else { return };
    let _user = browser.system.create_tenant("acme").await;
    // Sessions of one client are one row.
    for _ in 0..3 {
        browser.system.log_in("acme", EMAIL).await;
    }
    let tv = browser.system.client().header("X-Tenant-ID", "acme").header("User-Agent", "tv/1");
    let login = json!({ "email": EMAIL, "password": PASSWORD });
    tv.post("/auth/password/login", &login).await.expect::<serde_json::Value>(200);
    log_in(&browser).await;
    let shown = browser.wait_for_text("tv/1").await;
    assert!(shown.contains("4 logins") && shown.contains("This browser"), "{shown}");
    let rows = "return document.querySelectorAll('#sessions li').length";
    assert_eq!(browser.execute(rows).await, 2);
    let names = "const names = [...document.querySelectorAll('button[aria-label]')].map((button) => button.getAttribute('aria-label'));
        return new Set(names).size === names.length";
    assert_eq!(browser.execute(names).await, true, "two buttons have the same name");

    browser.execute("document.querySelector('.revoke').click()").await;
    browser.wait_for_text("Logged out:").await;
    assert_eq!(browser.execute(rows).await, 1);
    let again = browser.system.log_in("acme", EMAIL).await;
    browser.execute("location.reload()").await;
    browser.wait_for_text("Log out everywhere else").await;
    browser.execute("document.getElementById('revoke-others').click()").await;
    let shown = browser.wait_for_text("All other logins have ended.").await;
    assert!(
        shown.contains("You are not logged in anywhere else.") && !shown.contains("everywhere else"),
        "{shown}"
    );
    let client = browser.system.client().bearer(again.session_id.expose());
    client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    browser.execute("location.reload()").await;
    browser.wait_for_text("Log out on this page").await;
    browser.close().await;
}

#[tokio::test]
async fn a_long_list_shows_ten_rows_and_the_way_to_end_all_of_them_first() {
    let Some(browser) = Browser::start().await else { return };
    let _user = browser.system.create_tenant("acme").await;
    let login = json!({ "email": EMAIL, "password": PASSWORD });
    for number in 0..12 {
        let agent = format!("program-{number}/1");
        let client = browser.system.client().header("X-Tenant-ID", "acme").header("User-Agent", &agent);
        client.post("/auth/password/login", &login).await.expect::<serde_json::Value>(200);
    }
    log_in(&browser).await;
    browser.wait_for_text("Show all 13").await;
    let rows = "return [...document.querySelectorAll('#sessions li')].filter((row) => row.getClientRects().length > 0).length";
    assert_eq!(browser.execute(rows).await, 10);
    let order = "const [all, first] = ['#revoke-others', '#sessions li'].map((one) => document.querySelector(one).getBoundingClientRect().top);
        return all < first";
    assert_eq!(browser.execute(order).await, true);
    browser.expect_accessible("a long list").await;
    browser.execute("document.getElementById('show-all').click()").await;
    assert_eq!(browser.execute(rows).await, 13);
    let focus = "const row = document.activeElement.closest('li'); return [...row.parentElement.children].indexOf(row)";
    assert_eq!(browser.execute(focus).await, 10);
    assert!(!browser.text().await.contains("Show all"));
    browser.close().await;
}

#[tokio::test]
async fn links_to_other_pages_contain_the_account() {
    let Some(browser) = Browser::start().await else { return };
    browser.system.create_tenant("acme").await;
    log_in(&browser).await;
    for (link, page) in [
        ("footer a[href$=\"/change-password\"]", "change-password"),
        ("main a[href$=\"/factors\"]", "factors"),
    ] {
        browser.execute("location.reload()").await;
        browser.wait_for_text("Log out on this page").await;
        browser.execute(&format!("document.querySelector('{link}').click()")).await;
        wait_until(page, async || (browser.address().await == browser.page(page)).then_some(())).await;
        wait_until("the account is filled in", async || {
            let filled = "return ['tenant', 'email'].map((id) => document.getElementById(id)?.value)";
            (browser.execute(filled).await == json!(["acme", EMAIL])).then_some(())
        })
        .await;
        browser.execute("history.back()").await;
        browser.wait_for_text("Log out on this page").await;
    }
    browser.close().await;
}

#[tokio::test]
async fn each_browser_has_its_own_row_and_name() {
    let Some(browser) = Browser::start().await else { return };
    let _user = browser.system.create_tenant("acme").await;
    let iphone =
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko)";
    let chrome = |system: &str, version: &str| {
        format!(
            "Mozilla/5.0 ({system}) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{version} Safari/537.36"
        )
    };
    let agents = [
        (format!("{iphone} Version/17.0 Mobile/15E148 Safari/604.1"), "Safari, iPhone"),
        (format!("{iphone} CriOS/120.0.0.0 Mobile/15E148 Safari/604.1"), "Chrome, iPhone"),
        (format!("{iphone} FxiOS/120.0 Mobile/15E148 Safari/605.1.15"), "Firefox, iPhone"),
        (format!("{iphone} EdgiOS/120.0 Version/17.0 Mobile/15E148 Safari/604.1"), "Edge, iPhone"),
        (format!("{iphone} OPiOS/16.0 Mobile/15E148 Safari/9537.53"), "Opera, iPhone"),
        (chrome("Linux; Android 13", "115.0 SamsungBrowser/23.0"), "Samsung Internet, Android"),
        (chrome("X11; CrOS x86_64 14541.0.0", "120.0.0.0"), "Chrome, ChromeOS"),
        // The same names, but other browsers.
        (chrome("Windows NT 10.0; Win64; x64", "119.0.0.0"), "Chrome, Windows"),
        (chrome("Windows NT 10.0; Win64; x64", "120.0.0.0"), "Chrome, Windows"),
    ];
    let login = json!({ "email": EMAIL, "password": PASSWORD });
    for (agent, _) in &agents {
        let client = browser.system.client().header("X-Tenant-ID", "acme").header("User-Agent", agent);
        client.post("/auth/password/login", &login).await.expect::<serde_json::Value>(200);
    }
    log_in(&browser).await;
    let names =
        "return [...document.querySelectorAll('#sessions bdi')].map((name) => name.textContent).sort()";
    let names = browser.execute(names).await;
    let names: Vec<_> = names.as_array().unwrap().iter().filter_map(serde_json::Value::as_str).collect();
    let mut expected: Vec<_> = agents.iter().map(|(_, name)| *name).collect();
    expected.sort_unstable();
    // The session of the test is not of a browser.
    let of_browsers: Vec<_> = names.into_iter().filter(|name| name.contains(", ")).collect();
    assert_eq!(of_browsers, expected);
    browser.close().await;
}

#[tokio::test]
async fn a_user_name_of_a_password_manager_fills_both_fields() {
    let Some(browser) = Browser::start().await else { return };
    browser.system.create_tenant("acme").await;
    browser.open(&browser.page("sessions")).await;
    wait_until("the form is shown", async || (browser.focus().await == "tenant").then_some(())).await;
    // As the page of an invite offers it to the password manager.
    let fill = format!(
        "document.getElementById('email').value = '{EMAIL} (acme)';
        document.getElementById('password').value = '{PASSWORD}';
        document.querySelector('form .primary').click()"
    );
    browser.execute(&fill).await;
    browser.wait_for_text("Log out on this page").await;
    browser.close().await;
}

#[tokio::test]
async fn a_password_manager_keeps_one_entry_for_each_organization() {
    let Some(browser) = Browser::start().await else { return };
    browser.system.create_tenant("acme").await;
    let script = |inputs: &str, read: &str| {
        format!(
            "for (const [id, value] of {inputs}) {{
                document.getElementById(id).value = value;
                document.getElementById(id).dispatchEvent(new Event('input'));
            }}
            return {read}"
        )
    };
    let value_of = |id: &str| format!("document.getElementById('{id}').value");
    for (page, first) in [("sessions", "tenant"), ("change-password", "tenant"), ("device", "code")] {
        browser.open(&browser.page(page)).await;
        wait_until("the form is shown", async || (browser.focus().await == first).then_some(())).await;
        // Managers store the field before the password with this purpose. It contains what the page of an invite offers.
        let fields = "[...document.querySelectorAll('[autocomplete=username], [autocomplete=current-password]')].map(({ id }) => id).join()";
        let current = if page == "change-password" { "current" } else { "password" };
        assert_eq!(
            browser.execute(&format!("return {fields}")).await,
            format!("username,{current}"),
            "{page}"
        );
        let typed = script(&format!("[['tenant', ' Acme '], ['email', '{EMAIL}']]"), &value_of("username"));
        assert_eq!(browser.execute(&typed).await, format!("{EMAIL} (acme)"), "{page}");
        for (filled, tenant, email) in [
            ("cleo@acme.example (beta)", "beta", "cleo@acme.example"),
            ("dora@acme.example", "beta", "dora@acme.example"),
        ] {
            let fill = script(&format!("[['username', '{filled}']]"), &value_of("tenant"));
            assert_eq!(browser.execute(&fill).await, tenant, "{page}: {filled}");
            assert_eq!(browser.value("email").await, email, "{page}: {filled}");
        }
    }
    // The entry is for the account that has logged in.
    browser.open(&browser.page("sessions")).await;
    wait_until("the form is shown", async || (browser.focus().await == "tenant").then_some(())).await;
    browser.press(&format!("acme{TAB}{EMAIL}{TAB}{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("Log out on this page").await;
    assert_eq!(browser.value("username").await, format!("{EMAIL} (acme)"));
    browser.close().await;
}

#[tokio::test]
async fn a_failed_login_shows_its_error_at_the_password() {
    let Some(browser) = Browser::start().await else { return };
    browser.system.create_tenant("acme").await;
    browser.open(&browser.page("sessions")).await;
    wait_until("the form is shown", async || (browser.focus().await == "tenant").then_some(())).await;
    browser.press(&format!(" Acme{TAB}{EMAIL}{TAB}wrong{ENTER}")).await;
    browser.expect_field_error("password", "Login failed.").await;
    assert_eq!(browser.value("tenant").await, "acme", "a tenant id is lower case");
    browser.close().await;
}

#[tokio::test]
async fn an_expired_page_session_shows_the_login_again() {
    let Some(browser) = Browser::start().await else { return };
    let user = browser.system.create_tenant("acme").await;
    log_in(&browser).await;
    let expire = "update session.sessions set expires_at = created_at, idle_expires_at = created_at where method = 'page'";
    browser.system.run_sql(expire).await;
    browser.press(&format!("{TAB}{TAB}{ENTER}")).await;
    browser.wait_for_text("Your login on this page has expired. Log in again.").await;
    assert_eq!(methods(&user).await, [SessionMethod::Password]);
    browser.close().await;
}

#[tokio::test]
async fn after_another_account_logged_in_a_tab_reports_it_and_continues_to_work() {
    let Some(browser) = Browser::start().await else { return };
    let admin = browser.system.create_tenant("acme").await;
    browser.system.create_tenant("globex").await;
    browser.system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let replaced = "This browser is now logged in to another account.";
    // Of another tenant, an administrator of the same tenant, and a member of it.
    for (mine, theirs) in [
        (("acme", EMAIL), ("globex", "admin@globex.example")),
        (("acme", "ada@acme.example"), ("acme", EMAIL)),
        (("acme", EMAIL), ("acme", "ada@acme.example")),
    ] {
        for action in [
            "location.reload()",
            "document.getElementById('log-out').click()",
            "document.querySelector('.revoke').click()",
        ] {
            log_in_as(&browser, mine.0, mine.1).await;
            let tab = browser.open_tab().await;
            log_in_as(&browser, theirs.0, theirs.1).await;
            browser.close_tab(tab).await;
            browser.execute(action).await;
            let shown = browser.wait_for_text(replaced).await;
            assert!(!shown.contains("Log out on this page"), "{shown}");
            assert_eq!((&*browser.value("tenant").await, &*browser.value("email").await), mine);
            browser.press(&format!("{PASSWORD}{ENTER}")).await;
            let shown = browser.wait_for_text("Log out on this page").await;
            assert!(shown.contains(mine.1), "{shown}");
            browser.execute("document.getElementById('log-out').click()").await;
            browser.wait_for_text("You are logged out on this page").await;
        }
    }
    browser.close().await;
}
