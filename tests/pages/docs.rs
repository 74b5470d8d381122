//! `/docs`

use serde_json::{Value, json};
use testkit::wait_until;

use super::browser::Browser;

const READER: &str = include_str!("../../docs/consumers/read_events.js");

#[tokio::test]
async fn swagger_ui_renders_the_api_within_the_content_security_policy() {
    // Swagger UI supports current browsers only.
    let Some(browser) = Browser::start_current(&[]).await else { return };
    for scheme in ["light", "dark"] {
        for width in [1280, 390] {
            browser.set_appearance(scheme, width).await;
            browser.open(&format!("{}/api/v1/docs", browser.system.base_url)).await;
            browser.wait_for_text("Log in with e-mail and password").await;
            let overflow =
                "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
            assert_eq!(browser.execute(overflow).await, 0, "{scheme} {width}");
            let is_dark = "return document.documentElement.classList.contains('dark-mode')";
            assert_eq!(browser.execute(is_dark).await, scheme == "dark", "{width}");
        }
    }
    // The content of `#docs` is Swagger UI.
    browser.expect_accessible_outside("#docs", "docs").await;
    // Fails if the browser reported a violation of the policy or contacted another server.
    browser.close().await;
}

#[tokio::test]
async fn the_documented_reader_receives_events_in_a_browser() {
    let Some(browser) = Browser::start_current(&[]).await else { return };
    let system = &browser.system;
    let acme = system.create_tenant("acme").await;
    let key = json!({ "name": "page", "scopes": ["events:read"] });
    let key: Value = acme.client.post("/api-keys", &key).await.expect(201);
    browser.open(&format!("{}/api/v1/docs", system.base_url)).await;
    let take = "(event) => window.received.push(event.event_id)";
    let read = format!("{READER} window.received = []; readEvents('/api/v1', {}, {take});", key["key"]);
    browser.execute(&read).await;
    let mut sent = 0;
    let received = wait_until("the page receives an event", async || {
        sent += 1;
        let event = json!({ "source_id": "fw", "event_id": sent.to_string() });
        acme.client.post("/events", &event).await.expect::<Value>(202);
        Some(browser.execute("return window.received").await)
            .filter(|ids| ids.as_array().is_some_and(|ids| !ids.is_empty()))
    })
    .await;
    assert!(received.as_array().unwrap().iter().all(Value::is_string), "{received}");
    browser.close().await;
}
