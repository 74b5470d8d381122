//! Content and format of mails.

use contract::Role;
use serde_json::{Value, json};
use testkit::{MailServer, PASSWORD};
use testsystem::{TestSystem, set_up_app};

use super::{header, invite, system, token};

const NEW: &str = "another-horse-battery-10";

#[tokio::test]
async fn text_and_html_contain_the_same_single_link() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    invite(&admin, "ada@acme.example").await;
    let mail = server.wait_for_mails(1).await.remove(0);
    assert_eq!(mail["type"], "multipart/alternative");
    let link = format!("{}/api/v1/pages/accept-invite#token={}", system.base_url, token(&mail));
    let (text, html) = (&mail["parts"]["text/plain"], &mail["parts"]["text/html"]);
    assert!(text.as_str().unwrap().contains(&format!("\n\n{link}\n\n")), "{text}");
    assert!(text.as_str().unwrap().contains(" UTC.\n\nIf you did not expect this invite"), "{text}");
    let html = html.as_str().unwrap();
    assert!(html.contains(">Open this link to accept the invite and choose a password:</p>"), "{html}");
    assert!(html.contains(&format!("href=\"{link}\"")), "{html}");
    // Clients break the line at the marks.
    assert!(
        html.replace("<wbr>", "").contains(&format!(">{link}</a>")),
        "the address is not visible: {html}"
    );
    assert_eq!(html.matches("href=").count(), html.matches(&format!("href=\"{link}\"")).count(), "{html}");
    assert!(!html.contains("src=") && !html.contains("url("), "no remote content: {html}");
}

#[tokio::test]
async fn the_headers_name_sender_recipient_and_automatic_submission() {
    let server = MailServer::start("starttls").await.unwrap();
    let (_world, admin) = system(&server, &[("SVC_SUPPORT_ADDRESS", "help@acme.example")]).await;
    invite(&admin, "ada@acme.example").await;
    let mail = server.wait_for_mails(1).await.remove(0);
    assert_eq!(header(&mail, "From"), "Söhne & Co <svc@mail.example>");
    assert_eq!(header(&mail, "To"), "ada@acme.example");
    assert_eq!(header(&mail, "Subject"), "svc: admin@acme.example invited you to acme");
    assert_eq!(header(&mail, "Auto-Submitted"), "auto-generated");
    assert_eq!(header(&mail, "X-Auto-Response-Suppress"), "All");
    assert_eq!(header(&mail, "Reply-To"), "help@acme.example");
    assert_eq!(header(&mail, "MIME-Version"), "1.0");
    assert!(header(&mail, "Date").ends_with(" +0000"), "{}", header(&mail, "Date"));
    assert!(mail["raw"].as_str().unwrap().is_ascii());
}

#[tokio::test]
async fn resets_and_notices_are_mailed_and_a_notice_has_a_stable_id() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    let client = system.client().header("X-Tenant-ID", "acme");
    client.post("/auth/password/reset", &json!({ "email": "admin@acme.example" })).await.expect_empty(204);
    let reset = server.wait_for_mails(1).await.remove(0);
    let confirm = json!({ "token": token(&reset), "new_password": NEW });
    client.post("/auth/password/reset/confirm", &confirm).await.expect_empty(204);
    let notice = server.wait_for_mails(2).await.remove(1);
    assert_eq!(header(&reset, "Subject"), "svc: Reset your password");
    assert_eq!(header(&notice, "Subject"), "svc: Your password was changed");
    let id = header(&notice, "Message-ID");
    assert_eq!(id.len(), "<@mail.example>".len() + 36, "{id}");
    for part in ["text/plain", "text/html"] {
        assert!(!notice["parts"][part].as_str().unwrap().contains("svc_"), "{notice}");
    }
    drop(admin);
}

#[tokio::test]
async fn the_mail_of_a_reset_does_not_name_the_address_of_the_client() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, _admin) = system(&server, &[("SVC_TRUSTED_PROXIES", "127.0.0.0/8")]).await;
    let client = system.client().header("X-Tenant-ID", "acme").header("X-Forwarded-For", "192.0.2.77");
    client.post("/auth/password/reset", &json!({ "email": "admin@acme.example" })).await.expect_empty(204);
    let mail = server.wait_for_mails(1).await.remove(0);
    assert!(!mail.to_string().contains("192.0.2.77"), "{mail}");
}

async fn rename(system: &TestSystem, name: &str) -> testkit::TestResponse {
    let operator = system.platform_admin();
    let request =
        operator.request(reqwest::Method::PATCH, "/tenants/acme").json(&json!({ "display_name": name }));
    operator.send(request).await
}

#[tokio::test]
async fn a_tenant_name_is_escaped_in_mails() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    let name = "<img src=x onerror=alert(1)> \"Söhne\" & {{ 1 }} 山";
    rename(&system, name).await.expect::<Value>(200);
    invite(&admin, "ada@acme.example").await;
    let mail = server.wait_for_mails(1).await.remove(0);
    assert_eq!(header(&mail, "Subject"), format!("svc: admin@acme.example invited you to {name}"));
    assert!(mail["raw"].as_str().unwrap().is_ascii());
    let (text, html) = (&mail["parts"]["text/plain"], &mail["parts"]["text/html"]);
    assert!(
        text.as_str().unwrap().contains(&format!(
            "admin@acme.example has invited you to {name} (organization ID acme) in svc."
        )),
        "{text}"
    );
    let html = html.as_str().unwrap();
    assert!(!html.contains("<img") && html.contains("&#60;img src=x"), "{html}");
}

#[tokio::test]
async fn line_breaks_in_a_name_add_no_headers_or_lines() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    rename(&system, "Acme\r\nBcc: eve@evil.example").await.expect_problem(422, "validation_failed");
    // Bypasses the API check, directly in the database.
    system.run_sql(r"update identity.tenants set display_name = E'Acme\r\nBcc: eve@evil.example\r\n\r\nhello\u2028you'").await;
    invite(&admin, "ada@acme.example").await;
    let mail = server.wait_for_mails(1).await.remove(0);
    assert_eq!(mail["to"], json!(["ada@acme.example"]));
    assert!(!mail["headers"].as_array().unwrap().iter().any(|header| header[0] == "Bcc"), "{mail}");
    let text = mail["parts"]["text/plain"].as_str().unwrap();
    assert!(
        text.starts_with(
            "admin@acme.example has invited you to Acme  Bcc: eve@\u{200b}evil.\u{200b}example    hello you (organization"
        ),
        "{text}"
    );
}

#[tokio::test]
async fn an_address_cannot_inject_recipients_or_headers() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    for email in
        ["ada@acme.example\r\nBcc: eve@evil.example", "ada@acme.example>\r\nRCPT TO:<eve@evil.example"]
    {
        let body = json!({ "email": email });
        admin.client.post("/users/invite", &body).await.expect_problem(422, "validation_failed");
        // Bypasses the API check.
        let escaped = email.replace('\r', "\\r").replace('\n', "\\n");
        let id = member.user.user_id;
        system
            .run_sql(&format!("update identity.users set email = E'{escaped}' where user_id = '{id}'"))
            .await;
        let client = member.client.clone().header("X-User-ID", &id.to_string());
        let (current, new) = if email.contains('>') { (NEW, PASSWORD) } else { (PASSWORD, NEW) };
        let change = json!({ "current_password": current, "new_password": new });
        client.post("/auth/password/change", &change).await.expect_empty(204);
    }
    system.wait_for_empty_outbox().await;
    assert_eq!(server.mails().len(), 0);
    assert!(system.dump_database().await.contains("the recipient's address cannot receive mail"));
}

#[tokio::test]
async fn an_invite_does_not_contain_an_address_of_the_inviter_that_looks_like_a_link() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    for (inviter, recipient, is_named) in [
        ("ben@acme.example", "ada@acme.example", true),
        ("www.evil.example/pay-now@acme.example", "eve@acme.example", false),
    ] {
        let inviting = system.add_user(&admin, inviter, Role::Admin).await;
        inviting.client.post("/users/invite", &json!({ "email": recipient })).await.expect::<Value>(201);
        let subject =
            if is_named { "ben@acme.example invited you to acme" } else { "You have been invited to acme" };
        let mail = system.wait_for_mails_to(recipient, subject, 1).await.remove(0);
        assert_eq!(mail.contains(inviter), is_named, "{mail}");
    }
}

#[tokio::test]
async fn internationalized_addresses_receive_mail() {
    let server = MailServer::start("starttls").await.unwrap();
    let (_world, admin) = system(&server, &[]).await;
    invite(&admin, "ada@bücher.example").await;
    assert_eq!(server.wait_for_mails(1).await[0]["to"], json!(["ada@xn--bcher-kva.example"]));
    invite(&admin, "zoë@bücher.example").await;
    let mail = server.wait_for_mails(2).await.remove(1);
    assert_eq!(mail["to"], json!(["zoë@xn--bcher-kva.example"]));
    assert!(mail["options"].as_array().unwrap().contains(&json!("SMTPUTF8")), "{mail}");
}

#[tokio::test]
async fn a_notice_to_administrators_links_own_sessions_and_the_reset() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    let body = json!({ "email": "ada@acme.example", "role": "admin" });
    admin.client.post("/users/invite", &body).await.expect::<Value>(201);
    let mails = server.wait_for_mails(2).await;
    let notice = mails.iter().find(|mail| mail["to"] == json!(["admin@acme.example"])).unwrap();
    let pages = format!("{}/api/v1/pages", system.base_url);
    let (text, html) = (&notice["parts"]["text/plain"], &notice["parts"]["text/html"]);
    let (text, html) = (text.as_str().unwrap(), html.as_str().unwrap());
    let reset = format!("{pages}/request-reset#tenant=acme");
    assert!(
        text.contains(&format!(
            "\n\n{reset}\n\nThen check where you are logged in:\n\n{pages}/sessions#tenant=acme\n\n"
        )),
        "{text}"
    );
    assert!(html.contains(&format!("href=\"{pages}/sessions#tenant=acme\"")), "{html}");
    assert!(html.contains("but not from you, set a new password first:"), "{html}");
}

#[tokio::test]
async fn the_notice_of_a_new_factor_is_of_use_to_a_person_who_lacks_it() {
    for (language, helps, leads) in [
        (
            "en",
            "ask an administrator of your organization to remove",
            "if you can log in, check your second factors",
        ),
        ("de", "bitten Sie eine Person mit Administrationsrechten", "prüfen Sie Ihre zweiten Faktoren"),
    ] {
        let server = MailServer::start("starttls").await.unwrap();
        let (system, admin) = system(&server, &[("SVC_LANGUAGE", language)]).await;
        set_up_app(&admin.client).await;
        let notice = server.wait_for_mails(1).await.remove(0);
        let pages = format!("{}/api/v1/pages", system.base_url);
        for (part, quote) in [("text/plain", "\n"), ("text/html", "\"")] {
            let content = notice["parts"][part].as_str().unwrap();
            assert!(content.contains(helps) && content.contains(leads), "{content}");
            // In this order: without a new password, the other person stays logged in.
            let page = |name: &str| content.find(&format!("{quote}{pages}/{name}#tenant=acme{quote}"));
            let (reset, factors) = (page("request-reset").unwrap(), page("factors").unwrap());
            assert!(reset < factors && page("sessions").is_none(), "{content}");
        }
    }
}

#[tokio::test]
async fn each_administrator_gets_five_notices_at_once() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let path = format!("/users/{}", ada.user.user_id);
    for role in ["admin", "member"].repeat(4) {
        admin.client.patch(&path, &json!({ "role": role })).await.expect::<Value>(200);
    }
    system.wait_for_empty_outbox().await;
    let of_admin = system.wait_for_mails_to("admin@acme.example", "", 5).await;
    let of_ada = system.wait_for_mails_to("ada@acme.example", "", 5).await;
    assert_eq!((of_admin.len(), of_ada.len()), (5, 5));
}

#[tokio::test]
async fn all_administrators_get_a_notice_of_a_new_administrator_and_of_a_changed_role() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let second = system.add_user(&admin, "second@acme.example", Role::Admin).await;
    system.wait_for_mails_to("admin@acme.example", "second@acme.example was invited", 1).await;
    let path = format!("/users/{}", second.user.user_id);
    admin.client.patch(&path, &json!({ "role": "member" })).await.expect::<Value>(200);
    for (recipient, subject, lead) in [
        (
            "admin@acme.example",
            "second@acme.example is no longer an administrator of acme",
            "admin@acme.example made second@acme.example a member",
        ),
        (
            "second@acme.example",
            "You are no longer an administrator of acme",
            "admin@acme.example changed your role in acme",
        ),
    ] {
        let notice = system.wait_for_mails_to(recipient, subject, 1).await.remove(0);
        assert!(notice.contains(lead), "{notice}");
        assert_eq!(
            notice.contains("Administrators get this notice"),
            recipient.starts_with("admin"),
            "{notice}"
        );
    }
    // The new status is the same, so there is nothing to report.
    admin.client.patch(&path, &json!({ "role": "member" })).await.expect::<Value>(200);
    admin.client.patch(&path, &json!({ "role": "admin" })).await.expect::<Value>(200);
    system.wait_for_mails_to("admin@acme.example", "is now an administrator of acme", 1).await;
    system.wait_for_mails_to("second@acme.example", "You are now an administrator of acme", 1).await;
    system.wait_for_empty_outbox().await;
    let demotions =
        system.wait_for_mails_to("admin@acme.example", "is no longer an administrator of acme", 1).await;
    assert_eq!(demotions.len(), 1);
}
