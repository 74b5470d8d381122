//! The notice of a new API key, from its creation to the mail server.

use contract::Role;
use serde_json::{Value, json};
use testkit::MailServer;

use super::{header, system};

fn notices(server: &MailServer) -> Vec<Value> {
    let mut mails = server.mails();
    mails.retain(|mail| header(mail, "Subject").contains("API"));
    mails.sort_by_key(|mail| mail["to"].to_string());
    mails
}

#[tokio::test]
async fn the_active_administrators_of_the_tenant_get_a_notice_of_a_new_key() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    system.create_tenant("other").await;
    let second = system.add_user(&admin, "second@acme.example", Role::Admin).await;
    let third = system.add_user(&admin, "third@acme.example", Role::Admin).await;
    system.add_user(&admin, "member@acme.example", Role::Member).await;
    let path = format!("/users/{}", third.user.user_id);
    admin.client.patch(&path, &json!({ "status": "disabled" })).await.expect::<Value>(200);

    let expires_at = service::Clock::now(&service::clock::SystemClock) + chrono::TimeDelta::days(30);
    let create = json!({ "name": "fire <b>walls</b>", "scopes": ["events:write", "users:read"], "expires_at": expires_at });
    let (key, _) = system.create_api_key(&second, &create).await;
    system.wait_for_empty_outbox().await;

    let notices = notices(&server);
    let recipients: Vec<_> = notices.iter().map(|mail| mail["to"].clone()).collect();
    assert_eq!(recipients, [json!(["admin@acme.example"]), json!(["second@acme.example"])]);
    for mail in &notices {
        assert_eq!(header(mail, "Subject"), "svc: An API key was created in acme");
        let text = mail["parts"]["text/plain"].as_str().unwrap();
        let expected = format!(
            "second@acme.example created the API key “fire <b>walls</b>” in acme (organization ID acme) on {}. Its scopes are: events:write, users:read. It expires on {}.",
            key.created_at.format("%-d %B %Y, %H:%M UTC"),
            expires_at.format("%-d %B %Y, %H:%M UTC"),
        );
        assert!(text.contains(&expected), "{text}");
        let command =
            format!("\n\nsvc api-keys revoke {} --tenant acme --base-url {}\n", key.id, system.base_url);
        assert!(text.contains(&command), "{text}");
        let html = mail["parts"]["text/html"].as_str().unwrap();
        assert!(html.contains("fire &#60;b&#62;walls"), "{html}");
        assert!(!mail["raw"].as_str().unwrap().contains("svc_ak_"), "{mail}");
    }
}

#[tokio::test]
async fn the_notice_is_in_the_language_of_the_installation() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[("SVC_LANGUAGE", "de")]).await;
    system.create_api_key(&admin, &json!({ "name": "firewalls" })).await;
    system.wait_for_empty_outbox().await;
    let notices = notices(&server);
    assert_eq!(header(&notices[0], "Subject"), "svc: In acme wurde ein API-Schlüssel erstellt");
    let text = notices[0]["parts"]["text/plain"].as_str().unwrap();
    assert!(text.contains(" Uhr (UTC)"), "{text}");
    assert!(
        text.contains("den API-Schlüssel „firewalls“ in acme (Organisations-ID acme) erstellt"),
        "{text}"
    );
}
