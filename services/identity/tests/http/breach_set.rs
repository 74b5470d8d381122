//! The mounted breach set: built by the real binary, checked by the running system.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use contract::identity::{AcceptedInvite, Invite};
use data_encoding::HEXUPPER;
use serde_json::json;
use sha1::{Digest as _, Sha1};
use tempfile::TempDir;
use testsystem::TestSystem;

/// On no built-in list, in any case.
const BREACHED: &str = "Regenschirm-Mandarine-77";

fn download(passwords: &[&str]) -> String {
    let digests: BTreeSet<_> = passwords.iter().map(|password| Sha1::digest(password.as_bytes())).collect();
    digests.iter().map(|digest| HEXUPPER.encode(digest) + ":3\r\n").collect()
}

fn build(from: &str, to: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc-identity"));
    command.args(["breach-set", "build", "--from", from, "--to"]).arg(to).env_clear();
    command.stdin(Stdio::null()).output().unwrap()
}

/// Creates a directory with a download and the breach set built from it.
fn built() -> (TempDir, String) {
    let home = tempfile::tempdir().unwrap();
    let (from, to) = (home.path().join("download"), home.path().join("set"));
    std::fs::write(&from, download(&[BREACHED, "another one", "and another"])).unwrap();
    let output = build(&from.display().to_string(), &to);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && stderr.ends_with("set: 3 passwords\n"), "{stderr}");
    let path = to.display().to_string();
    (home, path)
}

#[tokio::test]
async fn a_password_in_the_mounted_set_is_rejected_and_the_token_is_not_consumed() {
    let (_home, set) = built();
    let system = TestSystem::start_with(&[("SVC_BREACH_FILE", &set)]).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let body = json!({ "email": "ada@acme.example", "delivery": "response" });
    let invite: Invite = admin.client.post("/users/invite", &body).await.expect(201);
    let token = invite.token.unwrap();
    let accept = async |password: &str| {
        system.client().post("/users/accept-invite", &json!({ "token": token, "password": password })).await
    };
    for breached in [BREACHED.to_owned(), format!(" {BREACHED} "), BREACHED.replace("-77", "-７７")] {
        accept(&breached).await.expect_problem(422, "password_breached");
    }
    // Only the exact case matches.
    accept(&BREACHED.to_lowercase()).await.expect::<AcceptedInvite>(201);
}

#[test]
fn the_service_does_not_start_with_a_missing_truncated_or_invalid_breach_set() {
    let (home, set) = built();
    let content = std::fs::read(&set).unwrap();
    let config_error = |path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc-identity"));
        command.arg("--check-config").env_clear().env("SVC_BREACH_FILE", path);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(64));
        let stderr = String::from_utf8(output.stderr).unwrap();
        stderr.lines().find(|line| line.contains("SVC_BREACH_FILE")).unwrap_or_default().to_owned()
    };
    assert_eq!(config_error(&set), "");
    std::fs::write(&set, &content[..content.len() - 4]).unwrap();
    let truncated = config_error(&set);
    assert!(truncated.contains("the file has 68 bytes, expected 72"), "{truncated}");
    let download = config_error(&home.path().join("download").display().to_string());
    assert!(
        download.contains("not a breach set file; create one with `svc-identity breach-set build`"),
        "{download}"
    );
    assert!(config_error("/nowhere/set").contains("No such file"));
}

#[test]
fn a_wrong_download_is_rejected_with_an_explanation() {
    let home = tempfile::tempdir().unwrap();
    let from = home.path().join("download");
    std::fs::write(&from, format!("{}:12\n", "0".repeat(32))).unwrap();
    let output = build(&from.display().to_string(), &home.path().join("set"));
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("download: line 1 has 32 hex digits (NTLM)"), "{stderr}");
    assert!(
        String::from_utf8(build("-", &home.path().join("set")).stderr)
            .unwrap()
            .contains("-: the download contains no digest")
    );
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
}
