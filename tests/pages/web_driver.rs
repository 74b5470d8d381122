//! What Chromium's driver can do beyond the standard: commands of the `DevTools` protocol, and logs.

use fantoccini::wd::WebDriverCompatibleCommand;
use http::Method;
use serde_json::{Value, json};
use url::{ParseError, Url};

/// A command of this driver alone.
#[derive(Debug)]
pub(crate) struct Extension {
    path: &'static str,
    body: Value,
}

impl Extension {
    /// A command of the `DevTools` protocol.
    pub(crate) fn dev_tools(command: &str, parameters: &Value) -> Self {
        Self { path: "goog/cdp/execute", body: json!({ "cmd": command, "params": parameters }) }
    }

    /// What a log holds since it was last read.
    pub(crate) fn log(name: &str) -> Self {
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
