//! The configuration of the environment. Variables belong to a process, so each case runs in a separate one.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed step fails the test, which reads its own variables"
)]

use std::process::Command;

use transport::HttpTransportConfig;

const CHILD: &str = "TRANSPORT_TEST_ENVIRONMENT";

/// In the process of a case: prints the configuration.
#[test]
fn reads_the_environment_of_a_case() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    match HttpTransportConfig::from_env() {
        Ok(config) => {
            let key = config.api_key.map(|key| key.expose().to_owned());
            println!("config: {} {}", config.endpoint, key.as_deref().unwrap_or("without a key"));
        }
        Err(error) => println!("config: {error}"),
    }
}

fn config_with(variables: [(&str, &str); 2]) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "reads_the_environment_of_a_case", "--nocapture"]);
    let output = child.env(CHILD, "1").envs(variables).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    output.split_once("config: ").unwrap_or_else(|| panic!("{output}")).1.lines().next().unwrap().to_owned()
}

#[test]
fn white_space_around_a_variable_is_removed_and_an_empty_one_is_unset() {
    for (address, key, expected) in [
        (" https://svc.example\n", "svc_ak_1\r\n", "https://svc.example svc_ak_1"),
        ("https://svc.example", "\n", "https://svc.example without a key"),
        ("", "svc_ak_1", "SVC_BASE_URL is not set"),
    ] {
        assert_eq!(config_with([("SVC_BASE_URL", address), ("SVC_API_KEY", key)]), expected);
    }
}
