//! Addresses and forms: the service decides which addresses are valid. Every address that it accepts passes every form.

use contract::Role;
use contract::device::DeviceCodes;
use contract::identity::{Delivery, InviteUser};
use serde_json::{Value, json};
use testkit::{PASSWORD, wait_until};
use testsystem::TestUser;

use super::browser::{Browser, ENTER, TAB};

/// Characters that an address can contain, of all kinds.
const CHARACTERS: &str = "aZ0!#$%&'*+-/=?^_`{|}~.éßıİñøžΣςжяאبतกᄀあ漢字한ａ①½²€°√∞♥☃😀👩𝔞𐍈\u{301}\u{e9}\u{200d}\u{2028}\u{85}\u{a0}\u{ad}\u{202e}\u{feff}()[]:;,<>@\\\" \t";

/// Texts that could be addresses: each character at each position, in the part before the `@` and in the domain.
fn candidates() -> Vec<String> {
    let mut texts: Vec<String> = [
        "ada@acme.example",
        "zoë@acme.example",
        "o'brien@acme.example",
        "ada+tag@acme.example",
        "a@b",
        "a@1.2.3.4",
        "ada@bücher.example",
        "ada@xn--bcher-kva.example",
        "ada@例え.テスト",
        "用户@例え.テスト",
        "ada@acme.example.",
        "Ada@ACME.example",
        "ada@a-b.example",
        "ada@-a.example",
        "ada@[127.0.0.1]",
        "ada@localhost",
        "a.b.c@d.e.f",
        "ada@acme..example",
        "ada",
    ]
    .map(str::to_owned)
    .into();
    texts.push(format!("{}@acme.example", "a".repeat(64)));
    texts.push(format!("a@{0}.{0}.{0}.example", "d".repeat(60)));
    for c in CHARACTERS.chars() {
        texts.extend([
            format!("{c}da@acme.example"),
            format!("a{c}a@acme.example"),
            format!("ad{c}@acme.example"),
        ]);
        texts.extend([
            format!("{c}@acme.example"),
            format!("ada@a{c}e.example"),
            format!("ada@acme.exampl{c}"),
        ]);
    }
    texts
}

/// The candidates that the API accepts.
async fn accepted(browser: &Browser) -> Vec<String> {
    let admin = browser.system.platform_admin().header("X-Tenant-ID", "acme");
    let mut accepted = Vec::new();
    for email in candidates() {
        let invite = InviteUser { email: email.clone(), role: Role::Member, delivery: Delivery::Response };
        let response = admin.post("/users/invite", &invite).await;
        match response.status {
            // Another spelling of an address is a conflict.
            201 | 409 => accepted.push(email),
            _ => {
                response.expect_problem(422, "validation_failed");
            }
        }
    }
    accepted
}

/// A script that submits the form with each address, and returns those that the form did not send.
const SUBMIT: &str = "
const [addresses, done] = arguments;
const { form } = document.getElementById('email');
for (const id of ['tenant', 'password', 'code']) if (form.elements[id]) form.elements[id].value = 'acme';
const rejected = [];
let sent;
window.fetch = async (request) => {
    sent = (await request.json()).email;
    throw new TypeError('not sent');
};
const submit = async () => {
    for (const address of addresses) {
        sent = undefined;
        form.elements.email.value = address;
        form.querySelector('.primary').click();
        const isRejected = () => form.elements.email.hasAttribute('aria-invalid');
        while (sent === undefined && !isRejected()) await new Promise((next) => setTimeout(next));
        if (sent !== address.trim()) rejected.push(`${address} as ${sent}`);
        while (form.querySelector('.primary').disabled) await new Promise((next) => setTimeout(next));
    }
    done(rejected);
};
submit();";

#[tokio::test]
async fn every_address_that_the_service_accepts_passes_every_form() {
    let Some(browser) = Browser::start().await else { return };
    let _admin = browser.system.create_tenant("acme").await;
    let accepted = accepted(&browser).await;
    assert!((150..350).contains(&accepted.len()), "{}", accepted.len());
    for page in ["request-reset", "device", "sessions"] {
        browser.open(&browser.page(page)).await;
        wait_until("the form is shown", async || (!browser.focus().await.is_empty()).then_some(())).await;
        let rejected = browser.execute_async(SUBMIT, vec![json!(accepted)]).await;
        assert_eq!(rejected, Value::Array(Vec::new()), "{page}");
    }
    browser.close().await;
}

/// Accepts an invite on the page.
async fn accept_invite(browser: &Browser, admin: &TestUser, email: &str) {
    let invite = InviteUser { email: email.to_owned(), role: Role::Member, delivery: Delivery::Response };
    let invite: Value = admin.client.post("/users/invite", &invite).await.expect(201);
    let token = invite["token"].as_str().unwrap();
    browser.open(&format!("{}#token={token}", browser.page("accept-invite"))).await;
    browser.wait_for_text("Link valid until").await;
    assert_eq!(browser.value("email").await, format!("{email} (acme)"), "the address as typed");
    browser.press(&format!("{PASSWORD}{TAB}{TAB}{PASSWORD}{ENTER}")).await;
    browser.wait_for_text("Your account is ready").await;
}

#[tokio::test]
async fn a_person_with_any_address_uses_every_page() {
    let Some(browser) = Browser::start().await else { return };
    let admin = browser.system.create_tenant("acme").await;
    for email in ["zoë@acme.example", "o'brien@bücher.example", "用户@例え.テスト"] {
        accept_invite(&browser, &admin, email).await;
        browser.execute("document.getElementById('sessions-link').click()").await;
        wait_until("the login is shown", async || (browser.focus().await == "password").then_some(())).await;
        browser.press(&format!("{PASSWORD}{ENTER}")).await;
        browser.wait_for_text("Log out on this page").await;
        browser.execute("document.getElementById('log-out').click()").await;
        browser.wait_for_text("You are logged out on this page").await;

        browser.open(&browser.page("request-reset")).await;
        browser.press(&format!("acme{TAB}{email}{ENTER}")).await;
        browser.wait_for_text("Check your e-mail").await;
        wait_until("the mail is written", async || {
            let mails = browser.system.wait_for_mails(1).await;
            mails.iter().any(|mail| mail.contains("/pages/reset-password#token=")).then_some(())
        })
        .await;

        let device = browser.system.client().header("X-Tenant-ID", "acme");
        let codes: DeviceCodes = device.post("/auth/device/code", &json!({})).await.expect(200);
        browser.open(&codes.verification_uri_complete).await;
        browser.press(&format!("{email}{TAB}{PASSWORD}{ENTER}")).await;
        browser.wait_for_text("Connect this device?").await;
        browser.press(&format!("{TAB}{ENTER}")).await;
        browser.wait_for_text("The device is connected").await;
    }
    browser.close().await;
}
