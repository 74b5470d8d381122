//! Optional fields of request bodies, and query parameters, on every route of the OpenAPI document.

use reqwest::Method;
use serde_json::{Value, json};
use tenancy::UserId;
use testkit::Client;
use testsystem::{TestSystem, TestUser};

/// Returns method, path and field of each optional field, and whether only the platform administrator can call the route.
fn optional_fields(document: &Value) -> Vec<(Method, String, String, bool)> {
    let mut fields = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let body = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
            let Some(schema) = body.as_str().and_then(|body| document.pointer(&body[1..])) else { continue };
            // A field with two spellings is required if the other one is absent.
            let required = schema.get("required").unwrap_or(&schema["then"]["required"]);
            let required = required.as_array().cloned().unwrap_or_default();
            let of_platform = is_of_platform(operation);
            let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap();
            let names = schema["properties"].as_object().unwrap().keys();
            for name in names.filter(|name| !required.contains(&json!(name))) {
                fields.push((method.clone(), path.clone(), name.clone(), of_platform));
            }
        }
    }
    fields
}

/// Returns whether only the platform administrator can call the route.
fn is_of_platform(operation: &Value) -> bool {
    let callers = operation["security"].as_array().unwrap();
    callers.iter().all(|caller| caller.get("platform").is_some()) && !callers.is_empty()
}

/// Returns a client with the credential of an administrator, or of the platform administrator if only that one can call the route.
fn client_of(system: &TestSystem, admin: &TestUser, operation: &Value) -> Client {
    let bearer =
        if is_of_platform(operation) { &*system.platform_token } else { admin.session.session_id.expose() };
    let client = system.client().bearer(bearer).header("X-Tenant-ID", "acme");
    client.header("X-User-ID", &admin.user.user_id.to_string())
}

#[tokio::test]
async fn a_query_parameter_that_is_not_utf_8_is_an_error_on_every_route() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let document: Value = system.client().get("/openapi.json").await.expect(200);
    let mut tried = 0;
    // A page is shown in spite of an invalid language.
    let paths = document["paths"].as_object().unwrap().iter().filter(|(path, _)| *path != "/pages/{name}");
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().unwrap() {
            let client = client_of(&system, &admin, operation);
            let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap();
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
                let name = parameter["name"].as_str().unwrap();
                let path = format!("{}?{name}=%E4", path.replace("{consumer_name}", "c"));
                let response = client.send(client.request(method.clone(), &path)).await;
                assert_eq!(response.status, 422, "{path}: {response}");
                let error = &response.json()["errors"][0];
                let expected = json!({ "pointer": format!("/{name}"), "code": "invalid_value", "message": "must be UTF-8" });
                assert_eq!(*error, expected, "{path}");
                tried += 1;
            }
        }
    }
    assert!(tried > 20, "{tried}");
}

#[tokio::test]
async fn null_of_an_optional_field_counts_as_absent_on_every_route() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let document: Value = system.client().get("/openapi.json").await.expect(200);
    let fields = optional_fields(&document);
    assert!(fields.len() > 20, "{fields:?}");
    for (method, path, field, of_platform) in fields {
        let bearer = if of_platform { &*system.platform_token } else { admin.session.session_id.expose() };
        let client = system.client().bearer(bearer).header("X-Tenant-ID", "acme");
        let path = path.replace("{tenant_id}", "acme").replace("{user_id}", &UserId::generate().to_string());
        let path = path.replace("{invite_id}", &UserId::generate().to_string());
        let response = client.send(client.request(method, &path).json(&json!({ (&*field): null }))).await;
        assert!(!response.body.contains("malformed") && response.status < 500, "{path} {field}: {response}");
        let pointer = format!("\"/{field}");
        assert!(!response.body.contains(&pointer), "{path} {field}: {response}");
    }
}

#[tokio::test]
async fn an_unknown_field_is_an_error_on_every_route_with_a_closed_schema() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let document: Value = system.client().get("/openapi.json").await.expect(200);
    let (mut tried, mut wrong) = (0, Vec::new());
    let paths = document["paths"].as_object().unwrap();
    // A request for a reset has the same response whatever its body is.
    for (path, operations) in paths.iter().filter(|(path, _)| *path != "/auth/password/reset") {
        for (method, operation) in operations.as_object().unwrap() {
            let body = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
            let Some(schema) = body.as_str().and_then(|body| document.pointer(&body[1..])) else { continue };
            let example = &schema["examples"][0];
            if schema["additionalProperties"] != false || !example.is_object() {
                continue;
            }
            let client = client_of(&system, &admin, operation);
            let mut path = path.replace("{tenant_id}", "acme").replace("{consumer_name}", "c");
            for id in ["user_id", "invite_id", "factor_id", "key_id", "session_id"] {
                path = path.replace(&format!("{{{id}}}"), &UserId::generate().to_string());
            }
            let mut body = example.clone();
            body["svc_unknown"] = json!({ "a": 1 });
            let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap();
            let response = client.send(client.request(method, &path).json(&body)).await;
            if !response.body.contains(r#""pointer":"/svc_unknown","code":"unknown_field""#) {
                wrong.push(format!("{path}: {response}"));
            }
            tried += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 15, "{tried}");
}
