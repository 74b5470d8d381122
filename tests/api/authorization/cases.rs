//! A request for each route that is valid apart from its caller, with the response for accepted callers.

use contract::ProblemKind;
use contract::routes::Route;
use reqwest::Method;
use serde_json::{Value, json};
use tenancy::UserId;
use testkit::{Client, TestResponse};

use super::expected::Expected;

/// Well-formed but unknown.
pub(super) const UNKNOWN_SESSION: &str = "svc_st_0000000000000000000000000000000000000000000_000000";
const UNKNOWN: &str = "0000000000000000000000000000000000000000000_000000";

pub(super) struct Case {
    query: &'static str,
    /// `{id}` is replaced by the id of the object, `{new}` by a new id.
    body: Option<Value>,
    /// Response for accepted callers. Routes with [`RequestSecret`](contract::routes::Access::RequestSecret) never get the
    /// right secret, so the response must not depend on the bearer credential.
    pub(super) accepted: Expected,
}

/// Returns the case of a route by its operation id.
pub(super) fn of(route: &Route) -> Option<Case> {
    let email = "{new}@acme.example";
    let event = json!({ "source_id": "authorization" });
    Some(match route.operation_id().as_str() {
        "log_in" | "log_in_on_page" => {
            with(json!({ "email": email, "password": "not the one" })).getting(ProblemKind::LoginFailed)
        }
        "change_password" => with(json!({ "current_password": "not the one", "new_password": "another" }))
            .getting(ProblemKind::LoginFailed),
        // Delivery by e-mail: an API key never receives the token.
        "request_password_reset" | "invite_user" => with(json!({ "email": email })),
        "confirm_password_reset" => with(json!({ "token": unknown("pr"), "new_password": "another" }))
            .getting(ProblemKind::TokenInvalid),
        "accept_invite" => {
            with(json!({ "token": unknown("iv"), "password": "another" })).getting(ProblemKind::TokenInvalid)
        }
        "inspect_password_reset" => {
            with(json!({ "token": unknown("pr") })).getting(ProblemKind::TokenInvalid)
        }
        "inspect_invite" => with(json!({ "token": unknown("iv") })).getting(ProblemKind::TokenInvalid),
        "log_out" => plain().getting(ProblemKind::SessionNotFound),
        "redeem_device" => {
            let grant_type = "urn:ietf:params:oauth:grant-type:device_code";
            let case = with(json!({ "grant_type": grant_type, "device_code": unknown("dc") }));
            Case { accepted: Expected::Status(400), ..case }
        }
        "inspect_device" => with(json!({ "user_code": "{id}" })),
        "decide_device" => with(json!({ "user_code": "{id}", "decision": "deny" })),
        // The caller sends further requests.
        "revoke_sessions" => Case { query: "?keep_current=true", ..plain() },
        "create_api_key" => with(json!({ "name": "created by a case" })),
        "create_tenant" => with(json!({ "tenant_id": "t-{new}", "display_name": "created by a case" })),
        "create_consumer" => with(json!({ "name": "c-{new}", "all_tenants": true })),
        "reset_consumer" => with(json!({ "to": "all" })),
        "replay_dead_letters" | "delete_dead_letters" | "delete_quarantined" => {
            with(json!({ "sequences": [1] }))
        }
        // Absent fields are unchanged.
        "start_device" | "update_tenant" | "update_user" | "resend_invite" => with(json!({})),
        // Otherwise the response does not end.
        "read_events" => Case { query: "?follow=false", ..plain() },
        "send_event" => with(event),
        "send_events" => with(json!([event])),
        "rotate_consumer_login"
        | "pause_consumer"
        | "resume_consumer"
        | "whoami"
        | "list_factors"
        | "set_up_totp"
        | "remove_factor"
        | "reset_factors"
        | "list_sessions"
        | "revoke_session"
        | "list_users"
        | "get_user"
        | "list_invites"
        | "list_consumers"
        | "get_consumer"
        | "get_consumer_accounts"
        | "list_audit"
        | "list_quarantined"
        | "get_quarantined"
        | "delete_consumer"
        | "list_dead_letters"
        | "revoke_invite"
        | "export_user"
        | "delete_user"
        | "delete_tenant"
        | "list_api_keys"
        | "revoke_api_key"
        | "list_tenants"
        | "list_mails"
        | "get_tenant"
        | "get_openapi"
        | "read_docs"
        | "get_event_schema"
        | "get_health"
        | "get_version"
        | "read_problem"
        | "open_page"
        | "load_page_file" => plain(),
        operation => return of_factors(operation),
    })
}

/// Returns the case of a route of second factors by its operation id, if it has a body or rejects accepted callers.
fn of_factors(operation: &str) -> Option<Case> {
    Some(match operation {
        "use_factor" | "use_factor_on_page" => {
            with(json!({ "challenge": unknown("ch"), "code": "287082" })).getting(ProblemKind::TokenInvalid)
        }
        "set_up_totp_at_login" => {
            with(json!({ "challenge": unknown("ch") })).getting(ProblemKind::TokenInvalid)
        }
        // An authenticator app, which has no name.
        "rename_passkey" => with(json!({ "name": "laptop" })).getting(ProblemKind::NotFound),
        // The body of an accepted caller is rejected before anything is looked up.
        "confirm_totp" => with(json!({ "code": "28708" })).getting(ProblemKind::ValidationFailed),
        // The origin of the test is an IP address.
        "start_passkey" | "start_passkey_login" => plain().getting(ProblemKind::PasskeyUnavailable),
        "set_up_passkey_at_login" => {
            with(json!({ "challenge": unknown("ch") })).getting(ProblemKind::PasskeyUnavailable)
        }
        "add_passkey" => {
            let response = json!({ "clientDataJSON": "", "authenticatorData": "" });
            let credential = json!({ "id": "", "response": response });
            with(json!({ "challenge": unknown("ch"), "name": "", "credential": credential }))
                .getting(ProblemKind::ValidationFailed)
        }
        "log_in_with_passkey" | "log_in_with_passkey_on_page" => {
            let response = json!({ "clientDataJSON": "", "authenticatorData": "", "signature": "" });
            with(json!({ "assertion": { "id": "", "response": response } }))
                .getting(ProblemKind::PasskeyUnavailable)
        }
        "replace_recovery_codes" => plain().getting(ProblemKind::NotFound),
        _ => return None,
    })
}

/// Returns the case of a route for the request that needs a recent login, by its operation id.
pub(super) fn sensitive_of(route: &Route) -> Option<Case> {
    let admin = json!({ "email": "{new}@acme.example", "role": "admin" });
    Some(match route.operation_id().as_str() {
        "create_api_key"
        | "delete_user"
        | "set_up_totp"
        | "confirm_totp"
        | "start_passkey"
        | "add_passkey"
        | "rename_passkey"
        | "replace_recovery_codes"
        | "remove_factor"
        | "reset_factors" => of(route)?,
        "invite_user" => with(admin),
        // The invite of an administrator.
        "resend_invite" => with(json!({})),
        "update_user" => with(json!({ "role": "member" })),
        "decide_device" => with(json!({ "user_code": "{id}", "decision": "approve" })),
        _ => return None,
    })
}

fn plain() -> Case {
    Case { query: "", body: None, accepted: Expected::Success }
}

fn with(body: Value) -> Case {
    Case { body: Some(body), ..plain() }
}

fn unknown(kind: &str) -> String {
    format!("svc_{kind}_{UNKNOWN}")
}

impl Case {
    fn getting(self, kind: ProblemKind) -> Self {
        Self { accepted: Expected::Problem(kind), ..self }
    }

    /// The same request with an invalid body and query. `None` if the route reads neither.
    pub(super) fn invalid(self, route: &Route) -> Option<Self> {
        let body = self.body.map(|_| json!([]));
        let query = if route.has_query { "?limit=invalid" } else { "" };
        (body.is_some() || route.has_query).then_some(Self { query, body, accepted: self.accepted })
    }

    pub(super) async fn send(&self, client: &Client, route: &Route, id: &str) -> TestResponse {
        let segments = route.path.split('/').map(|segment| match segment {
            // Pages and problems are public.
            "{name}" => "accept-invite",
            "{version}" => "any",
            "{file}" => "page.js",
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
