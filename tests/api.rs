//! Tests of the whole public API against the route table and the OpenAPI document.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod api {
    mod authorization;
    mod bodies;
    mod connections;
    mod generated_client;
    mod routes;
    mod schemathesis;
}
