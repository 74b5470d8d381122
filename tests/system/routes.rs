//! The routes, headers and fields of the specification, in plain HTTP and JSON.

use e2e::{Installation, api_client};
use serde_json::{Value, json};
use testkit::PASSWORD;

fn text<'a>(body: &'a Value, field: &str) -> &'a str {
    body[field].as_str().unwrap_or_else(|| panic!("{field} is not a string: {body}"))
}

#[tokio::test]
async fn every_route_of_the_specification_works_with_its_headers_and_fields() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let client = api_client(&run.run_file.base_url);
    let email = &run.run_file.admin_email;

    let accept = json!({ "token": run.run_file.admin_invite_token, "password": PASSWORD });
    let user: Value = client.post("/users/accept-invite", &accept).await.expect(201);
    assert_eq!((text(&user, "tenant_id"), text(&user, "email")), ("demo", email.as_str()));
    client.post("/users/accept-invite", &accept).await.expect_problem(400, "token_invalid");

    let login = json!({ "email": email, "password": PASSWORD });
    client.post("/auth/password/login", &login).await.expect_problem(400, "header_missing");
    let tenant = client.clone().header("X-Tenant-ID", "demo");
    let response = tenant.post("/auth/password/login", &login).await;
    assert_eq!(response.headers["cache-control"], "no-store");
    let session: Value = response.expect(200);
    assert_eq!((text(&session, "token_type"), text(&session, "user_id")), ("Bearer", text(&user, "user_id")));
    let token = text(&session, "session_id");
    assert!(token.starts_with("svc_st_"));

    let wrong = json!({ "email": email, "password": "another-horse-battery-9" });
    let unknown = json!({ "email": "unknown@demo.example", "password": PASSWORD });
    let problem = |response: testkit::TestResponse| {
        let mut problem = serde_json::to_value(response.expect_problem(401, "login_failed")).unwrap();
        problem["request_id"].take();
        problem
    };
    let (wrong, unknown) = (
        tenant.post("/auth/password/login", &wrong).await,
        tenant.post("/auth/password/login", &unknown).await,
    );
    assert_eq!(problem(wrong), problem(unknown), "the response reveals whether the account exists");

    let user_client = client.clone().bearer(token);
    user_client.get("/auth/sessions").await.expect_problem(400, "header_missing");
    let response =
        user_client.clone().header("X-User-ID", text(&user, "user_id")).get("/auth/sessions").await;
    assert!(!response.body.contains(token), "the response contains the raw token");
    let sessions: Value = response.expect(200);
    assert_eq!(sessions["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&sessions["items"][0]["current"], &sessions["items"][0]["method"]),
        (&json!(true), &json!("password"))
    );

    let event = json!({ "source_id": "s", "event_id": "e1" });
    client.post("/events", &event).await.expect_problem(401, "unauthenticated");
    let first: Value = user_client.post("/events", &event).await.expect(202);
    assert_eq!((text(&first, "event_id"), text(&first, "status")), ("e1", "accepted"));
    assert_eq!(first["duplicate"], false);
    let again: Value = user_client.post("/events", &event).await.expect(202);
    assert_eq!(again["duplicate"], true);
    assert_eq!(again["server_event_id"], first["server_event_id"]);

    let batch = json!([{ "source_id": "s", "event_id": "e2" }, { "event_id": "e3" }, { "source_id": "s" }]);
    let response: Value = user_client.post("/events/batch", &batch).await.expect(207);
    let counts = ["total_events", "successful_events", "failed_events"].map(|field| response[field].as_u64());
    assert_eq!(counts, [Some(3), Some(2), Some(1)], "{response}");
    let results = response["results"].as_array().unwrap();
    let statuses: Vec<_> = results.iter().map(|result| text(result, "status")).collect();
    assert_eq!(statuses, ["accepted", "rejected", "accepted"]);
    assert_eq!((text(&results[1], "event_id"), text(&results[1], "code")), ("e3", "validation_failed"));

    let raw = client.clone().header("X-Session-ID", token);
    for _ in 0..2 {
        raw.post_bytes("/auth/sessions/logout", "", "").await.expect_empty(204);
    }
    user_client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    user_client.post("/events", &event).await.expect_problem(401, "credential_invalid");
}
