//! A headless Chromium, controlled through `WebDriver` with keyboard input.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use contract::factors::AddedPasskey;
use e2e::Process;
use fantoccini::actions::{InputSource as _, KeyAction, KeyActions};
use fantoccini::wd::{WebDriverCompatibleCommand, WindowHandle};
use fantoccini::{Client, ClientBuilder};
use http::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::wait_until;
use testsystem::{TestSystem, TestUser};
use url::{ParseError, Url};

/// Keys in the encoding of `WebDriver` (section 17.4.2).
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";

/// A running system and a browser.
pub(crate) struct Browser {
    pub(crate) system: TestSystem,
    /// The origin at which the browser opens pages.
    origin: String,
    client: Client,
    _driver: Process,
    _home: TempDir,
}

impl Browser {
    /// Starts both. `None` if the machine has no browser.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with(&[]).await
    }

    /// Starts both, the system with additional variables. The browser lacks what the oldest supported browsers lack.
    pub(crate) async fn start_with(variables: &[(&str, &str)]) -> Option<Self> {
        let browser = Self::start_current(variables).await?;
        browser.be_old().await;
        Some(browser)
    }

    /// Starts both with the browser as it is.
    pub(crate) async fn start_current(variables: &[(&str, &str)]) -> Option<Self> {
        let (chromium, driver) = programs()?;
        let home = tempfile::tempdir().unwrap();
        let (driver, port) = start_driver(&driver, home.path()).await;
        let capabilities = capabilities(&chromium, &home.path().join("profile"));
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let client = builder.capabilities(capabilities).connect(&format!("http://127.0.0.1:{port}")).await;
        let client = client.unwrap_or_else(|error| panic!("{error}: {}", driver.output()));
        let system = TestSystem::start_with(variables).await.unwrap();
        let origin = system.base_url.clone();
        Some(Self { system, origin, client, _driver: driver, _home: home })
    }

    /// Starts both, with `localhost` in the address of the pages and an authenticator with a verified user: browsers have no passkeys at
    /// an IP address. Returns the id of the authenticator too.
    pub(crate) async fn start_with_authenticator() -> Option<(Self, Value)> {
        let (browser, authenticator) = Self::start_current_with_authenticator().await?;
        browser.be_old().await;
        Some((browser, authenticator))
    }

    /// The same with the browser as it is.
    pub(crate) async fn start_current_with_authenticator() -> Option<(Self, Value)> {
        let browser = Self::start_current(&[("SVC_PUBLIC_URL", "http://localhost:0")]).await?;
        let origin = browser.system.base_url.replace("127.0.0.1", "localhost");
        let browser = browser.through(&origin);
        browser.dev_tools("WebAuthn.enable", json!({})).await;
        let options = json!({
            "protocol": "ctap2", "transport": "internal", "hasResidentKey": true, "hasUserVerification": true, "isUserVerified": true,
        });
        let added =
            browser.dev_tools("WebAuthn.addVirtualAuthenticator", json!({ "options": options })).await;
        Some((browser, added["authenticatorId"].clone()))
    }

    /// Sets whether the user passes the verification of an authenticator.
    pub(crate) async fn set_verified(&self, authenticator: &Value, is_verified: bool) {
        let parameters = json!({ "authenticatorId": authenticator, "isUserVerified": is_verified });
        self.dev_tools("WebAuthn.setUserVerified", parameters).await;
    }

    /// Registers a passkey of a user with the script of the pages. A page must be open.
    pub(crate) async fn register_passkey(&self, user: &TestUser) {
        let options: Value =
            user.client.post("/auth/factors/passkeys/options", &json!(null)).await.expect(201);
        let created = self.create_passkey(&options["public_key"]).await;
        let body = json!({ "challenge": options["challenge"], "name": "browser", "credential": created });
        user.client.post("/auth/factors/passkeys", &body).await.expect::<AddedPasskey>(201);
    }

    /// Creates a passkey with the script of the pages.
    async fn create_passkey(&self, options: &Value) -> Value {
        let script = "const [options, done] = arguments;
            const { src } = document.querySelector('script[type=module]');
            import(new URL('passkey.js', src)).then(({ create }) => create(options)).then(done, (error) => done(String(error)));";
        self.execute_async(script, vec![options.clone()]).await
    }

    /// Opens pages at another origin: a reverse proxy of the system.
    pub(crate) fn through(self, origin: &str) -> Self {
        Self { origin: origin.to_owned(), ..self }
    }

    /// Opens another tab. Returns the first one.
    pub(crate) async fn open_tab(&self) -> WindowHandle {
        let first = self.client.window().await.unwrap();
        let tab = self.client.new_window(true).await.unwrap();
        self.client.switch_to_window(tab.handle).await.unwrap();
        self.be_old().await;
        first
    }

    /// Closes the current tab and continues in another one.
    pub(crate) async fn close_tab(&self, other: WindowHandle) {
        self.client.close_window().await.unwrap();
        self.client.switch_to_window(other).await.unwrap();
    }

    /// Removes what the oldest supported browsers lack, in all pages that are opened from now on.
    async fn be_old(&self) {
        self.run_before_load(&super::baseline::removal()).await;
    }

    /// Runs a script in each page before its own scripts. Returns the id of the script.
    pub(crate) async fn run_before_load(&self, script: &str) -> String {
        let added =
            self.dev_tools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script })).await;
        added["identifier"].as_str().unwrap().to_owned()
    }

    /// The address of a page.
    pub(crate) fn page(&self, name: &str) -> String {
        format!("{}/api/v1/pages/{name}", self.origin)
    }

    /// Opens an address.
    pub(crate) async fn open(&self, address: &str) {
        self.client.goto(address).await.unwrap();
    }

    /// The address in the address bar.
    pub(crate) async fn address(&self) -> String {
        self.client.current_url().await.unwrap().to_string()
    }

    /// Presses keys in sequence.
    pub(crate) async fn press(&self, keys: &str) {
        let actions = keys.chars().fold(KeyActions::new("keyboard".to_owned()), |actions, value| {
            actions.then(KeyAction::Down { value }).then(KeyAction::Up { value })
        });
        self.client.perform_actions(actions).await.unwrap();
    }

    /// Runs a script in the page and returns its result.
    pub(crate) async fn execute(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap()
    }

    /// Runs a script with arguments, the last of which is a function that takes the result.
    pub(crate) async fn execute_async(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.client.execute_async(script, arguments).await.unwrap()
    }

    /// The id of the focused element.
    pub(crate) async fn focus(&self) -> String {
        self.execute("return document.activeElement.id").await.as_str().unwrap().to_owned()
    }

    /// All visible text of the page.
    pub(crate) async fn text(&self) -> String {
        self.execute("return document.body.innerText").await.as_str().unwrap().to_owned()
    }

    /// Waits until the page contains the text. Returns all text of the page.
    pub(crate) async fn wait_for_text(&self, text: &str) -> String {
        wait_until(&format!("the page contains {text:?}"), async || {
            let page = self.text().await;
            page.contains(text).then_some(page)
        })
        .await
    }

    /// The value of an input.
    pub(crate) async fn value(&self, id: &str) -> String {
        let value = self.execute(&format!("return document.getElementById('{id}').value")).await;
        value.as_str().unwrap().to_owned()
    }

    /// The text of the first link in the content to a page.
    pub(crate) async fn link_to(&self, page: &str) -> String {
        let link = format!(
            "return [...document.querySelectorAll('main a[href$=\"/{page}\"]')].find((a) => a.getClientRects().length > 0)?.innerText ?? ''"
        );
        self.execute(&link).await.as_str().unwrap().to_owned()
    }

    /// Waits for an error at a field. Expects that it is marked as invalid, described by the error, the only invalid field, and
    /// focused. Returns all text of the page.
    pub(crate) async fn expect_field_error(&self, id: &str, error: &str) -> String {
        let page = self.wait_for_text(error).await;
        let state = format!(
            "const field = document.getElementById('{id}');
            const descriptions = field.getAttribute('aria-describedby').split(' ').map((id) => document.getElementById(id).innerText);
            const invalid = [...document.querySelectorAll('[aria-invalid=true]')].map((field) => field.id);
            return {{ invalid, description: descriptions.join(' '), focus: document.activeElement.id }}"
        );
        let state = wait_until("the field is focused", async || {
            let state = self.execute(&state).await;
            (state["focus"] == id).then_some(state)
        })
        .await;
        assert_eq!(state["invalid"], json!([id]));
        assert!(state["description"].as_str().unwrap().contains(error), "{state}");
        page
    }

    /// Sets `Accept-Language`.
    pub(crate) async fn set_language(&self, ranges: &str) {
        self.dev_tools("Network.enable", json!({})).await;
        let headers = json!({ "headers": { "Accept-Language": ranges } });
        self.dev_tools("Network.setExtraHTTPHeaders", headers).await;
    }

    /// Sets color scheme and size of the window.
    pub(crate) async fn set_appearance(&self, scheme: &str, width: u32) {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.dev_tools("Emulation.setEmulatedMedia", media).await;
        let metrics = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 400 });
        self.dev_tools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Checks the page with axe, in its current state. Expects no finding.
    pub(crate) async fn expect_accessible(&self, name: &str) {
        self.expect_accessible_outside("no-such-element", name).await;
    }

    /// Checks the page with axe, in its current state. Expects no finding outside the elements that a selector matches.
    pub(crate) async fn expect_accessible_outside(&self, container: &str, name: &str) {
        if self.execute("return typeof axe").await == "undefined" {
            let script = Path::new(e2e::tools()["axe_path"].as_str().unwrap()).join("axe.min.js");
            self.execute(&std::fs::read_to_string(script).unwrap()).await;
        }
        let run = format!(
            "const done = arguments[0];
            const isOutside = ({{ target }}) => !document.querySelector(target.at(-1))?.closest('{container}');
            axe.run(document, {{ resultTypes: ['violations'], rules: {{ 'target-size': {{ enabled: true }} }} }}).then(({{ violations }}) => done(violations
                .map(({{ id, impact, nodes }}) => [id, impact, nodes.filter(isOutside).map(({{ html }}) => html)])
                .filter(([, , nodes]) => nodes.length > 0)));"
        );
        let findings = self.execute_async(&run, Vec::new()).await;
        assert_eq!(findings, json!([]), "{name}");
    }

    /// Keeps a screenshot of the page in its full height.
    pub(crate) async fn keep_whole_screenshot(&self, name: &str) {
        let size = "return [innerWidth, Math.max(800, document.documentElement.scrollHeight)]";
        let size = self.execute(size).await;
        let (width, height) = (size[0].as_u64().unwrap(), size[1].as_u64().unwrap());
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 400 });
        self.dev_tools("Emulation.setDeviceMetricsOverride", metrics).await;
        self.keep_screenshot(name).await;
    }

    /// The directory of screenshots.
    pub(crate) fn screenshots() -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("pages")
    }

    /// Keeps a screenshot of the page in `target/pages`.
    pub(crate) async fn keep_screenshot(&self, name: &str) {
        let directory = Self::screenshots();
        std::fs::create_dir_all(&directory).unwrap();
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        std::fs::write(directory.join(format!("{name}.png")), self.client.screenshot().await.unwrap())
            .unwrap();
    }

    /// Runs a command of the `DevTools` protocol. Returns its result.
    pub(crate) async fn dev_tools(&self, command: &str, parameters: Value) -> Value {
        self.client.issue_cmd(Extension::dev_tools(command, &parameters)).await.unwrap()
    }

    /// Closes the browser. Expects no console errors and no requests except to the system.
    pub(crate) async fn close(self) {
        let mut errors = self.log("browser").await;
        // `network` reports expected 4xx responses.
        errors.retain(|entry| entry["source"] != "network");
        assert!(errors.is_empty(), "{errors:#?}");
        self.close_after_errors().await;
    }

    /// Closes the browser after a test that caused console errors. Expects no requests except to the system.
    pub(crate) async fn close_after_errors(self) {
        for entry in self.log("performance").await {
            let message: Value = serde_json::from_str(entry["message"].as_str().unwrap()).unwrap();
            if message["message"]["method"] == "Network.requestWillBeSent" {
                let url = message["message"]["params"]["request"]["url"].as_str().unwrap();
                // The start page of the browser uses `chrome:` and `data:`.
                let is_remote = url.starts_with("http") || url.starts_with("ws");
                let is_own =
                    [&self.system.base_url, &self.origin].into_iter().any(|own| url.starts_with(own));
                assert!(!is_remote || is_own, "{url}");
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
        // The sandbox of Chromium does not work as root.
        arguments.push("--no-sandbox");
    }
    let capabilities = json!({
        "goog:chromeOptions": { "binary": chromium, "args": arguments },
        "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
    });
    capabilities.as_object().unwrap().clone()
}

/// Starts the driver. Returns it with its port.
async fn start_driver(program: &Path, home: &Path) -> (Process, String) {
    loop {
        let mut command = Command::new(program);
        // Its own home directory: Chromium writes more than its profile there.
        command.arg("--port=0").env("HOME", home);
        let mut driver = Process::start(&mut command, &home.join("log"));
        let port = wait_until("the driver listens", async || {
            let exited = driver.has_exited();
            let output = driver.output();
            // It takes a free port of IPv4 and exits if another process has that port of IPv6.
            if output.contains("port not available") {
                return Some(None);
            }
            assert!(!exited, "the driver exited:\n{output}");
            Some(Some(output.split_once("started successfully on port ")?.1.split_once('.')?.0.to_owned()))
        })
        .await;
        if let Some(port) = port {
            return (driver, port);
        }
    }
}

/// Chromium and its driver from the tools file.
fn programs() -> Option<(PathBuf, PathBuf)> {
    let tools = e2e::tools();
    let program = |name: &str| tools[name].as_str().map(PathBuf::from);
    let found = program("chromium").zip(program("chromedriver"));
    if found.is_none() {
        // Written directly to standard error: the test harness hides the output of passing tests.
        let _ = writeln!(std::io::stderr(), "skipped: Chromium and chromedriver are not installed");
    }
    found
}

/// A command of chromedriver that is not part of `WebDriver`.
#[derive(Debug)]
struct Extension {
    path: &'static str,
    body: Value,
}

impl Extension {
    /// A command of the `DevTools` protocol.
    fn dev_tools(command: &str, parameters: &Value) -> Self {
        Self { path: "goog/cdp/execute", body: json!({ "cmd": command, "params": parameters }) }
    }

    /// Reads new entries of a log.
    fn log(name: &str) -> Self {
        Self { path: "se/log", body: json!({ "type": name }) }
    }
}

impl WebDriverCompatibleCommand for Extension {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}
