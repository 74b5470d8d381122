//! What operations share: the naming headers, the headers of answers, the credentials.

use contract::routes::SchemaRef;
use serde_json::{Value, json};
use tenancy::{TenantId, UserId};

use super::components::Components;

/// The headers that name what a call is about.
pub(super) fn parameters(components: &mut Components) -> Value {
    let tenant = components.taken(SchemaRef::of::<TenantId>());
    json!({
        "TenantId": {
            "name": "X-Tenant-ID", "in": "header", "required": true, "schema": tenant,
            "description": "The tenant that the call is about.",
        },
        "TenantOfPlatformAdmin": {
            "name": "X-Tenant-ID", "in": "header", "required": false, "schema": tenant,
            "description": "The tenant that the call is about: needed from the operator. From others it may name their own \
                tenant; the credential says which that is.",
        },
        "UserId": {
            "name": "X-User-ID", "in": "header", "required": true, "schema": components.taken(SchemaRef::of::<UserId>()),
            "description": "The user that the call is about.",
        },
        "SessionToken": {
            "name": "X-Session-ID", "in": "header", "required": true,
            "schema": { "type": "string", "format": "password" },
            "description": "The raw session token (`svc_st_…`) of the session to end.",
        },
    })
}

/// The headers of answers.
pub(super) fn headers() -> Value {
    json!({
        "RequestId": {
            "required": true, "schema": { "type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$" },
            "description": "Finds this request in the logs: the caller's own `X-Request-Id` where it was fit, else a fresh one.",
        },
        "RetryAfter": {
            "schema": { "type": "integer", "minimum": 1 },
            "description": "In how many seconds to try again.",
        },
        "Challenge": {
            "required": true, "schema": { "type": "string", "const": "Bearer" },
            "description": "How to show a credential (RFC 6750).",
        },
        "ETag": {
            "required": true, "schema": { "type": "string" },
            "description": "Names these bytes; send it back as `If-None-Match`.",
        },
    })
}

/// The credentials, each as `Authorization: Bearer`.
pub(super) fn security_schemes() -> Value {
    let bearer = |format: &str, about: &str| json!({ "type": "http", "scheme": "bearer", "bearerFormat": format, "description": about });
    json!({
        "session": bearer("svc_st_…", "A person's session token: `session_id` in the answer to a login. Where `admin` is \
            named, only an administrator's will do."),
        "api_key": bearer("svc_ak_…", "An API key of a tenant, with the scope that is named."),
        "operator": bearer("svc_pt_…", "The operator's token, from `SVC_PLATFORM_TOKEN` of the installation."),
    })
}
