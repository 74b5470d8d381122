//! A browser of a test's own, used as a person with a keyboard uses it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::wait_until;

use e2e::Process;
use fantoccini::actions::{InputSource as _, KeyAction, KeyActions};
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;
use testsystem::TestSystem;

use super::web_driver::Extension;

/// Keys as `WebDriver` names them (section 17.4.2).
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";

/// The system, and a browser that looks at it.
pub(crate) struct Browser {
    pub(crate) system: TestSystem,
    client: Client,
    _driver: Process,
    _home: TempDir,
}

impl Browser {
    /// Starts both; nothing where no browser is to be had.
    pub(crate) async fn start() -> Option<Self> {
        let (chromium, driver) = programs()?;
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(driver);
        // Its own home: a browser keeps more than its profile there.
        command.arg("--port=0").env("HOME", home.path());
        let driver = Process::start(&mut command, &home.path().join("log"));
        let port = wait_until("the driver listens", async || {
            let said = driver.output();
            Some(said.split_once("started successfully on port ")?.1.split_once('.')?.0.to_owned())
        })
        .await;
        let capabilities = capabilities(&chromium, &home.path().join("profile"));
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let client = builder.capabilities(capabilities).connect(&format!("http://127.0.0.1:{port}")).await;
        let client = client.unwrap_or_else(|error| panic!("{error}: {}", driver.output()));
        let system = TestSystem::start().await.unwrap();
        Some(Self { system, client, _driver: driver, _home: home })
    }

    /// Opens an address as a person who follows a link.
    pub(crate) async fn open(&self, address: &str) {
        self.client.goto(address).await.unwrap();
    }

    /// Where the address bar says that this is.
    pub(crate) async fn address(&self) -> String {
        self.client.current_url().await.unwrap().to_string()
    }

    /// Presses keys, one after the other.
    pub(crate) async fn press(&self, keys: &str) {
        let actions = keys.chars().fold(KeyActions::new("keyboard".to_owned()), |actions, value| {
            actions.then(KeyAction::Down { value }).then(KeyAction::Up { value })
        });
        self.client.perform_actions(actions).await.unwrap();
    }

    /// What a script in the page returns.
    pub(crate) async fn ask(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap()
    }

    /// The id of what has the keyboard.
    pub(crate) async fn focus(&self) -> String {
        self.ask("return document.activeElement.id").await.as_str().unwrap().to_owned()
    }

    /// Waits until the page shows this text, and returns everything it shows.
    pub(crate) async fn shows(&self, text: &str) -> String {
        wait_until(&format!("the page shows {text:?}"), async || {
            let shown = self.ask("return document.body.innerText").await.as_str().unwrap().to_owned();
            shown.contains(text).then_some(shown)
        })
        .await
    }

    /// The picture of the page.
    pub(crate) async fn screenshot(&self) -> Vec<u8> {
        self.client.screenshot().await.unwrap()
    }

    /// A command of the `DevTools` protocol.
    pub(crate) async fn dev_tools(&self, command: &str, parameters: Value) {
        self.client.issue_cmd(Extension::dev_tools(command, &parameters)).await.unwrap();
    }

    /// Ends the browser. It must have complained of nothing and have asked nobody but the service.
    pub(crate) async fn close(self) {
        let mut complaints = self.log("browser").await;
        // That an answer is a refusal is told by the network, and shown by the page. What is recommended for a password's form
        // is a field for its user, whom only the service knows.
        complaints.retain(|entry| entry["source"] != "network" && entry["source"] != "recommendation");
        assert!(complaints.is_empty(), "{complaints:#?}");
        for entry in self.log("performance").await {
            let message: Value = serde_json::from_str(entry["message"].as_str().unwrap()).unwrap();
            if message["message"]["method"] == "Network.requestWillBeSent" {
                let url = message["message"]["params"]["request"]["url"].as_str().unwrap();
                // The page that it starts with is its own and asks nobody: `chrome:`, `data:`.
                let asks_somebody = url.starts_with("http") || url.starts_with("ws");
                assert!(!asks_somebody || url.starts_with(&self.system.base_url), "{url}");
            }
        }
        self.client.close().await.unwrap();
    }

    async fn log(&self, name: &str) -> Vec<Value> {
        let log = self.client.issue_cmd(Extension::log(name)).await.unwrap();
        log.as_array().unwrap().clone()
    }
}

fn capabilities(chromium: &Path, profile: &Path) -> serde_json::Map<String, Value> {
    let profile = format!("--user-data-dir={}", profile.display());
    let mut arguments = vec!["--headless=new", "--disable-dev-shm-usage", "--no-proxy-server", &profile];
    if rustix::process::geteuid().is_root() {
        // Its sandbox refuses root.
        arguments.push("--no-sandbox");
    }
    let capabilities = json!({
        "goog:chromeOptions": { "binary": chromium, "args": arguments },
        "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
    });
    capabilities.as_object().unwrap().clone()
}

/// Chromium and its driver, as `deploy/local/fetch.py` has found them.
fn programs() -> Option<(PathBuf, PathBuf)> {
    let tools = e2e::tools();
    let program = |name: &str| tools[name].as_str().map(PathBuf::from);
    let found = program("chromium").zip(program("chromedriver"));
    if found.is_none() {
        // Past the test harness, which keeps what passing tests print to itself.
        let _ = writeln!(
            std::io::stderr(),
            "no Chromium with its driver is here: a test of the pages is skipped"
        );
    }
    found
}
