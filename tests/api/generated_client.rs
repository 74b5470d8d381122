//! The client recipe of `docs/api.md`: the client is generated from the served document, and the program runs with it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use testkit::PASSWORD;
use testsystem::TestSystem;
use tokio::process::Command;

const DEADLINE: Duration = Duration::from_mins(5);

fn variable(name: &str) -> Option<OsString> {
    #[expect(clippy::disallowed_methods, reason = "`with-servers` passes settings to tests in variables")]
    std::env::var_os(name)
}

/// Python with the generator and the generated client on its path.
struct Python {
    program: OsString,
    library: PathBuf,
    directory: tempfile::TempDir,
}

impl Python {
    async fn run(&self, code: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let client = self.directory.path().join("svc-client");
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(code).args(arguments).envs(variables.iter().copied());
        command.env("PYTHONPATH", std::env::join_paths([&self.library, &client]).unwrap());
        // The generator formats its output with ruff, which pip installs into the same directory.
        command
            .env("PATH", self.library.join("bin"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("NO_COLOR", "1");
        command.current_dir(self.directory.path()).kill_on_drop(true);
        tokio::time::timeout(DEADLINE, command.output()).await.unwrap().unwrap()
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Returns the Python program in the document.
fn documented_program() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/api.md");
    let document = std::fs::read_to_string(path).unwrap();
    let program = document.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    program.unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_generated_python_client_logs_in_lists_sessions_and_sends_events() {
    let (Some(library), Some(program)) = (variable("SVC_TEST_CLIENT_GENERATOR"), variable("SVC_TEST_PYTHON"))
    else {
        eprintln!("openapi-python-client is not installed: skipping the test of the client recipe");
        return;
    };
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let python = Python { program, library: library.into(), directory: tempfile::tempdir().unwrap() };

    let generator = "from openapi_python_client.cli import app; app()";
    let url = format!("{}/api/v1/openapi.json", system.base_url);
    let generated = python.run(generator, &["generate", "--url", &url], &[]).await;
    let report = text(&generated);
    assert!(generated.status.success(), "{report}");
    let warnings: Vec<_> = report.lines().filter(|line| line.starts_with("WARNING")).collect();
    assert_eq!(warnings, ["WARNING parsing POST /events/batch within events."], "{report}");

    let operation = python.directory.path().join("svc-client/svc_client/api/sessions/list_sessions.py");
    let operation = std::fs::read_to_string(operation).unwrap();
    assert!(operation.contains("x_user_id: str"), "a header is not text: {operation}");

    let variables = [
        ("SVC_BASE_URL", system.base_url.as_str()),
        ("SVC_TENANT", "acme"),
        ("SVC_EMAIL", admin.user.email.as_str()),
        ("SVC_PASSWORD", PASSWORD),
    ];
    let ran = python.run(&documented_program(), &[], &variables).await;
    let report = text(&ran);
    assert!(ran.status.success(), "{report}");
    assert!(report.contains(" password True\n") && report.ends_with("2 events stored\n"), "{report}");
}
