//! Device login with the real client at both ends.

use e2e::Installation;
use serde_json::Value;
use testkit::{DEADLINE, within};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::standalone::enter;

#[tokio::test]
async fn a_machine_is_let_in_by_a_person_at_another_one() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let (person, machine) = (run.svc(), run.svc());
    enter(&person, &run.run_file).await;

    let mut login = machine.start(&["auth", "login", "--device", "--output", "json"]);
    let mut told = String::new();
    BufReader::new(login.stderr.as_mut().unwrap()).read_line(&mut told).await.unwrap();
    let told: Value = serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"));
    let code = told["device"]["user_code"].as_str().unwrap();
    let decided = person.json(&["auth", "device", "approve", &code.to_lowercase(), "--yes"], "").await;
    assert!(decided["client_name"].as_str().unwrap().starts_with("svc on "), "{decided}");

    let output = within(DEADLINE, "the login", login.wait_with_output()).await.unwrap();
    let logged_in: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(logged_in["email"], run.run_file.admin_email.as_str());
    let (there, here) =
        (machine.json(&["auth", "whoami"], "").await, person.json(&["auth", "whoami"], "").await);
    assert_eq!(there["user_id"], here["user_id"]);
    assert_eq!((&there["method"], &here["method"]), (&"device".into(), &"password".into()));
    // It cannot let in another one: that takes the password.
    let refused = machine.run(&["auth", "device", "approve", code, "--yes"], "").await;
    assert_ne!(refused.code, Some(0), "{refused:?}");
}
