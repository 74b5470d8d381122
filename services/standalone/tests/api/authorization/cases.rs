//! A request for each route with which nothing but the caller is wrong, and what becomes of it when the caller is let in.

use contract::ProblemKind;
use contract::routes::Route;
use reqwest::Method;
use serde_json::{Value, json};
use tenancy::UserId;
use testkit::{Client, TestResponse};

use super::expected::Expected;

/// Well formed, but nobody's.
pub(super) const UNKNOWN_SESSION: &str = "svc_st_0000000000000000000000000000000000000000000_000000";
const UNKNOWN: &str = "0000000000000000000000000000000000000000000_000000";

pub(super) struct Case {
    query: &'static str,
    /// `{id}` in it stands for what the call is about, `{new}` for what was never there.
    body: Option<Value>,
    /// What a caller gets who is let in. A route that asks for a proof is never shown the right one: whoever calls must
    /// get the same, whatever bearer comes with it.
    pub(super) let_in: Expected,
}

/// The case of a route, by the name of its operation.
pub(super) fn of(route: &Route) -> Option<Case> {
    let email = "{new}@acme.example";
    let event = json!({ "source_id": "authorization" });
    Some(match route.operation_id().as_str() {
        "log_in" => {
            with(json!({ "email": email, "password": "not the one" })).getting(ProblemKind::LoginFailed)
        }
        "change_password" => with(json!({ "current_password": "not the one", "new_password": "another" }))
            .getting(ProblemKind::LoginFailed),
        // An invite goes by mail: a key gets to see no token.
        "request_password_reset" | "invite_user" | "resend_invite" => with(json!({ "email": email })),
        "confirm_password_reset" => with(json!({ "token": unknown("pr"), "new_password": "another" }))
            .getting(ProblemKind::TokenInvalid),
        "accept_invite" => {
            with(json!({ "token": unknown("iv"), "password": "another" })).getting(ProblemKind::TokenInvalid)
        }
        "log_out" => plain().getting(ProblemKind::SessionNotFound),
        "redeem_device" => {
            let grant_type = "urn:ietf:params:oauth:grant-type:device_code";
            let asked = with(json!({ "grant_type": grant_type, "device_code": unknown("dc") }));
            Case { let_in: Expected::Status(400), ..asked }
        }
        "inspect_device" => with(json!({ "user_code": "{id}" })),
        "decide_device" => with(json!({ "user_code": "{id}", "decision": "deny" })),
        // Whoever calls goes on calling.
        "revoke_sessions" => Case { query: "?keep_current=true", ..plain() },
        "create_api_key" => with(json!({ "name": "made in passing" })),
        "create_tenant" => with(json!({ "tenant_id": "t-{new}", "display_name": "made in passing" })),
        // What is left out stays as it is.
        "start_device" | "update_tenant" | "update_user" => with(json!({})),
        "send_event" => with(event),
        "send_events" => with(json!([event])),
        "whoami" | "list_sessions" | "revoke_session" | "list_users" | "get_user" | "list_invites"
        | "revoke_invite" | "list_api_keys" | "revoke_api_key" | "list_tenants" | "get_tenant"
        | "get_openapi" | "read_docs" | "get_event_schema" | "get_health" | "get_version"
        | "read_problem" | "open_page" => plain(),
        _ => return None,
    })
}

fn plain() -> Case {
    Case { query: "", body: None, let_in: Expected::Success }
}

fn with(body: Value) -> Case {
    Case { body: Some(body), ..plain() }
}

fn unknown(kind: &str) -> String {
    format!("svc_{kind}_{UNKNOWN}")
}

impl Case {
    fn getting(self, kind: ProblemKind) -> Self {
        Self { let_in: Expected::Problem(kind), ..self }
    }

    pub(super) async fn send(&self, client: &Client, route: &Route, id: &str) -> TestResponse {
        let segments = route.path.split('/').map(|segment| match segment {
            // Pages and problems are anybody's.
            "{name}" => "accept-invite",
            "{code}" => "not_found",
            _ if segment.starts_with('{') => id,
            _ => segment,
        });
        let path = segments.collect::<Vec<_>>().join("/") + self.query;
        let method = Method::from_bytes(route.method.as_str().as_bytes()).unwrap();
        let request = client.request(method, &path);
        let Some(body) = &self.body else { return client.send(request).await };
        let body = body.to_string().replace("{id}", id).replace("{new}", &UserId::generate().to_string());
        client.send(request.header("Content-Type", "application/json").body(body)).await
    }
}
