//! Mails as people read them: light, dark, narrow, without styles, and as text. Pictures and texts are in `target/pages`.

use contract::Role;
use contract::factors::{AddedPasskey, Factors, RecoveryCodes};
use contract::session::IssuedSession;
use serde_json::{Value, json};
use testkit::{Authenticator, MailServer, PASSWORD, totp_after};
use testsystem::{TestSystem, TestUser, set_up_app};

use super::appearance::CONTRAST;
use super::browser::Browser;

/// Sends the mails about second factors: seven to a user who changes them, two to a user who has lost them, one to the administrator.
async fn send_factor_mails(system: &TestSystem, admin: &TestUser) {
    let emil = system.add_user(admin, "emil@acme.example", Role::Member).await;
    let (secret, codes) = set_up_app(&emil.client).await;
    let client = system.client().header("X-Tenant-ID", "acme");
    let login = json!({ "email": "emil@acme.example", "password": PASSWORD });
    let challenge = client.post("/auth/password/login", &login).await.json()["challenge"].clone();
    let recover = json!({ "challenge": challenge, "recovery_code": codes[0] });
    let session: IssuedSession = client.post("/auth/second-factor", &recover).await.expect(200);
    let recovered = system.client().bearer(session.session_id.expose());
    recovered.post("/auth/factors/recovery-codes", &Value::Null).await.expect::<RecoveryCodes>(201);

    let mut authenticator = Authenticator::new(&system.base_url.replace("127.0.0.1", "localhost"));
    let options: Value = recovered.post("/auth/factors/passkeys/options", &Value::Null).await.expect(201);
    let credential = authenticator.create(&options["public_key"]);
    let passkey = json!({ "challenge": options["challenge"], "name": "laptop", "credential": credential });
    recovered.post("/auth/factors/passkeys", &passkey).await.expect::<AddedPasskey>(201);

    // The wrong codes of a day except the last one.
    let failures =
        "update identity.users set factor_failures = 49, factor_window_ends_at = now() + interval '1 day'";
    system.run_sql(&format!("{failures} where user_id = '{}'", emil.user.user_id)).await;
    let challenge = client.post("/auth/password/login", &login).await.json()["challenge"].clone();
    let wrong = json!({ "challenge": challenge, "code": totp_after(&secret, 100) });
    client.post("/auth/second-factor", &wrong).await.expect_problem(401, "second_factor_failed");
    let factors: Factors = recovered.get("/auth/factors").await.expect(200);
    for factor in &factors.factors {
        recovered.delete(&format!("/auth/factors/{}", factor.factor_id)).await.expect_empty(204);
    }

    let fay = system.add_user(admin, "fay@acme.example", Role::Member).await;
    set_up_app(&fay.client).await;
    admin.client.delete(&format!("/users/{}/factors", fay.user.user_id)).await.expect_empty(204);
}

/// Sends at least one mail of every kind.
async fn send_every_mail(browser: &Browser) {
    let system = &browser.system;
    let admin = system.create_tenant("acme").await;
    let operator = system.platform_admin().header("X-Tenant-ID", "acme");
    operator.patch("/tenants/acme", &json!({ "display_name": "Söhne & Co" })).await.expect::<Value>(200);
    operator.post("/users/invite", &json!({ "email": "ben@acme.example" })).await.expect::<Value>(201);
    let invite = json!({ "email": "cleo@acme.example", "role": "admin" });
    admin.client.post("/users/invite", &invite).await.expect::<Value>(201);
    let dora = system.add_user(&admin, "dora@acme.example", Role::Member).await;
    let path = format!("/users/{}", dora.user.user_id);
    for role in ["admin", "member"] {
        admin.client.patch(&path, &json!({ "role": role })).await.expect::<Value>(200);
    }
    system.create_api_key(&admin, &json!({ "name": "firewalls" })).await;
    let client = system.client().header("X-Tenant-ID", "acme");
    client.post("/auth/password/reset", &json!({ "email": "dora@acme.example" })).await.expect_empty(204);
    let change = json!({ "current_password": PASSWORD, "new_password": "another long password of mine" });
    let client = client.header("X-User-ID", &dora.user.user_id.to_string());
    client.post("/auth/password/change", &change).await.expect_empty(204);
    send_factor_mails(system, &admin).await;
    system.wait_for_empty_outbox().await;
}

fn subject_and_parts(mail: &Value) -> (String, String, String) {
    let headers = mail["headers"].as_array().unwrap();
    let subject = headers.iter().find(|header| header[0] == "Subject").unwrap()[1].as_str().unwrap();
    let part = |name: &str| mail["parts"][name].as_str().unwrap().to_owned();
    (subject.to_owned(), part("text/plain"), part("text/html"))
}

/// Expects that the mail fits its window and is readable.
async fn expect_readable(browser: &Browser, name: &str) {
    let overflow =
        "const root = document.documentElement; return Math.max(0, root.scrollWidth - root.clientWidth)";
    assert_eq!(browser.execute(overflow).await, 0, "{name} is wider than its window");
    let contrast = browser.execute(CONTRAST).await.as_f64().unwrap();
    assert!(contrast >= 4.5, "{name}: a text has a contrast of {contrast}");
    browser.keep_whole_screenshot(name).await;
}

#[tokio::test]
async fn every_mail_is_readable_light_dark_narrow_and_without_styles() {
    for language in ["en", "de"] {
        let server = MailServer::start("starttls").await.unwrap();
        let mail = server.variables();
        let branding = [
            ("SVC_LANGUAGE", language),
            ("SVC_PRODUCT_NAME", "Acme Cloud"),
            ("SVC_SUPPORT_ADDRESS", "https://help.acme.example/contact"),
            // There are no passkeys at an IP address.
            ("SVC_PUBLIC_URL", "http://localhost:0"),
        ];
        let mail = mail.iter().map(|(name, value)| (*name, value.as_str()));
        let variables: Vec<_> = mail.chain(branding).collect();
        let Some(browser) = Browser::start_with(&variables).await else { return };
        send_every_mail(&browser).await;
        let mut mails = server.mails();
        assert_eq!(mails.len(), 20, "{mails:#?}");
        // The order of delivery differs between runs, and names contain the number.
        mails.sort_by_cached_key(|mail| (subject_and_parts(mail).0, mail["to"].to_string()));
        std::fs::create_dir_all(Browser::screenshots()).unwrap();
        for (number, mail) in mails.iter().enumerate() {
            let (subject, text, html) = subject_and_parts(mail);
            let name = format!("mail-{language}-{number}-{subject}")
                .replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            std::fs::write(Browser::screenshots().join(format!("{name}.txt")), text).unwrap();
            let file = Browser::screenshots().join(format!("{name}.html"));
            std::fs::write(&file, html).unwrap();
            browser.open(&format!("file://{}", file.display())).await;
            for (scheme, width) in [("light", 640), ("dark", 640), ("light", 320), ("dark", 320)] {
                browser.set_appearance(scheme, width).await;
                expect_readable(&browser, &format!("{name}-{scheme}-{width}")).await;
            }
            browser.set_appearance("light", 640).await;
            let strip = "for (const style of document.querySelectorAll('style')) style.remove();
                for (const element of document.querySelectorAll('[style]')) element.removeAttribute('style');
                document.body.style.background = 'white';";
            browser.execute(strip).await;
            expect_readable(&browser, &format!("{name}-without-styles")).await;
        }
        browser.close().await;
    }
}
