//! The running system against its OpenAPI document. schemathesis, which nobody here wrote, asks every route with what the
//! document allows and with what it does not, and compares status, headers and body of each answer with what is promised.

use std::path::Path;
use std::time::Duration;

use contract::Role;
use serde_json::json;
use testsystem::TestSystem;
use tokio::process::Command;

/// It takes half a minute; a machine that is busy with other tests takes its time.
const DEADLINE: Duration = Duration::from_mins(10);

#[tokio::test(flavor = "multi_thread")]
async fn every_route_keeps_what_the_openapi_document_promises() {
    let (Some(library), Some(python)) = (variable("SVC_TEST_SCHEMATHESIS"), variable("SVC_TEST_PYTHON"))
    else {
        eprintln!("schemathesis is not here: the API is not held against its OpenAPI document");
        return;
    };
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("schemathesis").await;
    let member = system.add_user(&admin, "member@schemathesis.example", Role::Member).await;
    let other = system.create_tenant("suspended-at-will").await;
    let scopes = json!({ "name": "asks", "scopes": ["events:write", "users:read", "users:write"] });
    let (key, _) = system.create_api_key(&admin, &scopes).await;
    let (revoked, _) = system.create_api_key(&admin, &json!({ "name": "revoked at will" })).await;

    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api");
    let away = tempfile::tempdir().unwrap();
    let mut command = Command::new(python);
    command.args(["-c", "from schemathesis.cli import schemathesis; schemathesis()", "--config-file"]);
    command
        .arg(here.join("schemathesis.toml"))
        .arg("run")
        .arg(format!("{}/api/v1/openapi.json", system.base_url));
    command.env("PYTHONPATH", std::env::join_paths([Path::new(&library), &here]).unwrap());
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
    command.current_dir(away.path()).kill_on_drop(true);
    let output = tokio::time::timeout(DEADLINE, command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    #[expect(clippy::disallowed_methods, reason = "what `with-servers` tells its tests")]
    std::env::var_os(name)
}
