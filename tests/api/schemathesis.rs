//! The running system against its OpenAPI document: schemathesis sends valid and invalid requests to every route and checks
//! status, headers and body of the responses.

use std::path::Path;
use std::time::Duration;

use contract::Role;
use serde_json::json;
use testsystem::TestSystem;
use tokio::process::Command;

/// The run takes half a minute on an idle machine.
const DEADLINE: Duration = Duration::from_mins(30);

#[tokio::test(flavor = "multi_thread")]
async fn every_route_matches_the_openapi_document() {
    let (Some(library), Some(python)) = (variable("SVC_TEST_SCHEMATHESIS"), variable("SVC_TEST_PYTHON"))
    else {
        eprintln!("schemathesis is not installed: skipping the test of the OpenAPI document");
        return;
    };
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("schemathesis").await;
    let member = system.add_user(&admin, "member@schemathesis.example", Role::Member).await;
    let other = system.create_tenant("suspended-at-will").await;
    let deleted = system.add_user(&admin, "deleted@schemathesis.example", Role::Member).await;
    let scopes = json!({ "name": "asks", "scopes": ["events:write", "users:read", "users:write"] });
    let (key, _) = system.create_api_key(&admin, &scopes).await;
    let (revoked, _) = system.create_api_key(&admin, &json!({ "name": "revoked at will" })).await;

    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("api");
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(python);
    command.args(["-c", "from schemathesis.cli import schemathesis; schemathesis()", "--config-file"]);
    command
        .arg(config.join("schemathesis.toml"))
        .arg("run")
        .arg(format!("{}/api/v1/openapi.json", system.base_url));
    command.env("PYTHONPATH", std::env::join_paths([Path::new(&library), &config]).unwrap());
    command.envs([
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("SCHEMATHESIS_HOOKS", "schemathesis_hooks"),
        ("NO_COLOR", "1"),
    ]);
    command
        .env("SESSION", admin.session.session_id.expose())
        .env("API_KEY", key.key.as_ref().unwrap().expose());
    command.env("PLATFORM", &system.platform_token).env("OTHER_TENANT", other.user.tenant_id.as_str());
    command.env("MEMBER", member.user.user_id.to_string()).env("OTHER_KEY", revoked.id.to_string());
    command.env("DELETED_USER", deleted.user.user_id.to_string());
    command.current_dir(directory.path()).kill_on_drop(true);
    let output = tokio::time::timeout(DEADLINE, command.output()).await.unwrap().unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    #[expect(clippy::disallowed_methods, reason = "`with-servers` passes settings to tests in variables")]
    std::env::var_os(name)
}
