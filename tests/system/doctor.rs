//! `svc doctor` against the running system.

use e2e::{Installation, api_client};
use serde_json::Value;
use testkit::PASSWORD;

/// Status of a check.
fn status<'a>(report: &'a Value, check: &str) -> &'a str {
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|result| result["check"] == check);
    found.and_then(|result| result["status"].as_str()).unwrap_or_else(|| panic!("{check}: {report}"))
}

#[tokio::test]
async fn doctor_passes_with_a_login_and_finds_a_revoked_one() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let svc = run.svc();
    let input = format!("{}\n{PASSWORD}\n", run.run_file.admin_invite_token.as_deref().unwrap());
    svc.run_ok(&["users", "accept-invite", "-", "--password-stdin"], &input).await;
    let login = ["auth", "login", "--email", &run.run_file.admin_email, "--password-stdin"];
    svc.run_ok(&login, PASSWORD).await;

    let report = svc.json(&["doctor", "--scope", "events:write"], "").await;
    for check in [
        "configuration",
        "logins",
        "connection",
        "proxy",
        "clock",
        "version",
        "credential",
        "tenant",
        "scopes",
    ] {
        assert_eq!(status(&report, check), "ok", "{report}");
    }

    let token = svc.run_ok(&["auth", "token"], "").await;
    let client = api_client(&run.run_file.base_url).header("X-Session-ID", token.trim());
    client.post_bytes("/auth/sessions/logout", "", "").await.expect_empty(204);
    let output = svc.run(&["doctor", "--output", "json"], "").await;
    assert_eq!(output.code, Some(4), "{output:?}");
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((status(&report, "connection"), status(&report, "credential")), ("ok", "failed"));
    assert!(output.stderr.contains("svc auth login --email"), "{output:?}");
}
