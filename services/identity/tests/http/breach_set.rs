//! A mounted breach set: made by the real binary, heeded by the running system, and no start with one that is not whole.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use contract::identity::{AcceptedInvite, Invite};
use data_encoding::HEXUPPER;
use serde_json::json;
use sha1::{Digest as _, Sha1};
use tempfile::TempDir;
use testkit::World;

/// On no built-in list, also not in lower case.
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

/// A directory with a download and, at `set`, what is made of it.
fn built() -> (TempDir, String) {
    let home = tempfile::tempdir().unwrap();
    let (from, to) = (home.path().join("download"), home.path().join("set"));
    std::fs::write(&from, download(&[BREACHED, "another one", "and another"])).unwrap();
    let output = build(&from.display().to_string(), &to);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.ends_with("set: 3 passwords\n"), "{said}");
    let path = to.display().to_string();
    (home, path)
}

#[tokio::test]
async fn a_password_of_the_mounted_set_is_refused_and_the_token_is_not_spent() {
    let (_home, set) = built();
    let world = World::start_with(&[("SVC_BREACH_FILE", &set)]).await.unwrap();
    let admin = world.tenant("acme").await;
    let body = json!({ "email": "ada@acme.example", "delivery": "response" });
    let invite: Invite = admin.client.post("/users/invite", &body).await.expect(201);
    let token = invite.token.unwrap();
    let accept = async |password: &str| {
        world.client().post("/users/accept-invite", &json!({ "token": token, "password": password })).await
    };
    for breached in [BREACHED.to_owned(), format!(" {BREACHED} ")] {
        accept(&breached).await.expect_problem(422, "password_breached");
    }
    // In its exact case only.
    accept(&BREACHED.to_lowercase()).await.expect::<AcceptedInvite>(201);
}

#[test]
fn a_set_that_is_missing_cut_off_or_no_set_keeps_the_service_from_starting() {
    let (home, set) = built();
    let whole = std::fs::read(&set).unwrap();
    let refused = |path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc-identity"));
        command.arg("--check-config").env_clear().env("SVC_BREACH_FILE", path);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(64));
        let said = String::from_utf8(output.stderr).unwrap();
        said.lines().find(|line| line.contains("SVC_BREACH_FILE")).unwrap_or_default().to_owned()
    };
    assert_eq!(refused(&set), "");
    std::fs::write(&set, &whole[..whole.len() - 4]).unwrap();
    let cut = refused(&set);
    assert!(cut.contains("it has 68 bytes where it should have 72: it was cut off"), "{cut}");
    let download = refused(&home.path().join("download").display().to_string());
    assert!(
        download.contains("it is no breach set; `svc-identity breach-set build` makes one"),
        "{download}"
    );
    assert!(refused("/nowhere/set").contains("No such file"));
}

#[test]
fn a_download_of_the_wrong_kind_is_refused_with_a_sentence() {
    let home = tempfile::tempdir().unwrap();
    let from = home.path().join("download");
    std::fs::write(&from, format!("{}:12\n", "0".repeat(32))).unwrap();
    let output = build(&from.display().to_string(), &home.path().join("set"));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("download: line 1 has 32 hex digits: this is the download of NTLM hashes"),
        "{said}"
    );
    assert!(
        String::from_utf8(build("-", &home.path().join("set")).stderr)
            .unwrap()
            .contains("-: there is no digest")
    );
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
}
