//! Device login with the examples of docs/device-login.md: clients of the standard (RFC 8628) that know nothing about this service. A
//! program that is not installed is skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::{ApiUser, Installation, Process, api_client, tools};
use serde_json::json;
use testkit::{wait_until, within};

const BUILD_DEADLINE: Duration = Duration::from_mins(5);

fn copy(home: &Path, files: &[(&str, &str)]) {
    std::fs::create_dir_all(home).unwrap();
    for (name, copied) in files {
        let documented = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/device-login").join(name);
        std::fs::copy(documented, home.join(copied)).unwrap();
    }
}

async fn run(command: &mut tokio::process::Command, home: &Path) -> Option<()> {
    let output = command.current_dir(home).env("GOTOOLCHAIN", "local").kill_on_drop(true).output();
    let output = within(BUILD_DEADLINE, "the installation of the example", output).await.ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

async fn install_javascript(home: &Path) -> Option<Command> {
    copy(home, &[("login.mjs", "login.mjs"), ("package.json", "package.json")]);
    let mut install = tokio::process::Command::new("npm");
    install.args(["install", "--no-package-lock", "--no-audit", "--no-fund"]);
    run(&mut install, home).await?;
    let mut node = Command::new("node");
    node.arg(home.join("login.mjs"));
    Some(node)
}

fn install_python() -> Option<Command> {
    let tools = tools();
    let mut python = Command::new(tools["python"].as_str()?);
    python.env("PYTHONPATH", tools["requests_oauthlib_path"].as_str()?);
    python.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/device-login/login.py"));
    Some(python)
}

/// Builds the example, or with the default of the library, which tries both ways to authenticate and so sends each poll twice.
async fn build_go(home: &Path, with_default_style: bool) -> Option<Command> {
    let go = tools()["go"].as_str().map(PathBuf::from)?;
    copy(home, &[("login.go", "main.go"), ("go.mod", "go.mod"), ("go.sum", "go.sum")]);
    if with_default_style {
        let source = std::fs::read_to_string(home.join("main.go")).unwrap();
        let changed = source.replace("AuthStyle: oauth2.AuthStyleInParams,", "");
        assert_ne!(changed, source);
        std::fs::write(home.join("main.go"), changed).unwrap();
    }
    run(tokio::process::Command::new(go).args(["build", "-o", "login", "."]), home).await?;
    Some(Command::new(home.join("login")))
}

/// The word after this text in the output.
fn word(output: &str, before: &str) -> Option<String> {
    let (word, rest) = output.split_once(before)?.1.split_once(char::is_whitespace)?;
    rest.is_empty().then(|| word.to_owned())
}

#[tokio::test]
async fn libraries_of_the_standard_log_in_while_other_clients_of_their_address_are_limited() {
    // Enough for the administrator, and less than the polls of a device.
    let installation = Installation::new(&[("SVC_LIMIT_DEFAULT", "20/min")]);
    let running = installation.up().await;
    let api = format!("{}/api/v1", running.run_file.base_url);
    let user = ApiUser::first_admin(&running.run_file).await;
    let names = ["python", "javascript", "go", "go-default"];
    let [_, javascript, go, go_default] = names.map(|name| installation.path(name));
    let commands = [
        install_python(),
        install_javascript(&javascript).await,
        build_go(&go, false).await,
        build_go(&go_default, true).await,
    ];
    for (command, name) in commands.into_iter().zip(names) {
        let Some(mut command) = command else {
            eprintln!("{name} is not installed: skipping its example");
            continue;
        };
        command.args([&api, "demo"]);
        let mut process = Process::start(&mut command, &installation.path(&format!("{name}.out")));
        let code = wait_until("the example prints a code", async || {
            process.expect_running();
            word(&process.output(), " and enter ")
        })
        .await;
        let decide = json!({ "user_code": code, "decision": "approve" });
        // Other clients of the address use up its limit, and continue until a poll has failed or succeeded.
        let anonymous = api_client(&running.run_file.base_url);
        wait_until("the address is limited", async || {
            (anonymous.get("/auth/session").await.status == 429).then_some(())
        })
        .await;
        wait_until("the administrator approves the device", async || {
            (user.client.post("/auth/device/decide", &decide).await.status == 204).then_some(())
        })
        .await;
        let token = wait_until("the example prints the token", async || {
            assert_ne!(anonymous.get("/auth/session").await.status, 200);
            word(&process.output(), "Token: ")
        })
        .await;
        wait_until("the session works", async || {
            let response = anonymous.clone().bearer(&token).get("/auth/session").await;
            (response.status != 429).then(|| assert_eq!(response.json()["method"], "device"))
        })
        .await;
        drop(process);
    }
}
