//! Mail tests on the whole system with a third-party SMTP server.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "mail/acceptance.rs"]
mod acceptance;
#[path = "mail/api_keys.rs"]
mod api_keys;
#[path = "mail/letters.rs"]
mod letters;
#[path = "mail/logs.rs"]
mod logs;
#[path = "mail/outbox.rs"]
mod outbox;
#[path = "mail/queue.rs"]
mod queue;
#[path = "mail/smtp.rs"]
mod smtp;

use contract::identity::Invite;
use serde_json::{Value, json};
use testkit::MailServer;
use testsystem::{TestSystem, TestUser};

/// Starts a system that sends mail through the server, with an administrator.
async fn system(server: &MailServer, further: &[(&str, &str)]) -> (TestSystem, TestUser) {
    let variables = server.variables();
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .chain(further.iter().copied())
        .collect();
    let system = TestSystem::start_with(&variables).await.unwrap();
    let admin = system.create_tenant("acme").await;
    (system, admin)
}

async fn invite(admin: &TestUser, email: &str) -> Invite {
    admin.client.post("/users/invite", &json!({ "email": email })).await.expect(201)
}

fn header<'a>(mail: &'a Value, name: &str) -> &'a str {
    assert_eq!(mail["defects"], json!([]), "{mail}");
    let headers = mail["headers"].as_array().unwrap();
    let found: Vec<_> = headers.iter().filter(|header| header[0] == name).collect();
    assert_eq!(found.len(), 1, "{name} in {headers:?}");
    found[0][1].as_str().unwrap()
}

fn token(mail: &Value) -> String {
    let text = mail["parts"]["text/plain"].as_str().unwrap();
    text.split_whitespace().find(|word| word.starts_with("svc_")).unwrap().to_owned()
}
