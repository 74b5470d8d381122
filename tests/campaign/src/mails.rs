//! Mails of invites. Each is delivered. One that is delivered twice, because the server or the service was interrupted, has a new link.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde_json::Value;
use testkit::MailServer;

use crate::findings::Findings;

/// The start of the token of an invite.
const INVITE_TOKEN: &str = "svc_iv_";

/// The mail server, and the mails that it has accepted.
pub(crate) struct Mails {
    server: MailServer,
    received: Mutex<Received>,
}

#[derive(Default)]
struct Received {
    count: usize,
    /// The text of the last invite for each address.
    texts: HashMap<String, String>,
}

impl Mails {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        Ok(Self { server: MailServer::start("none").await?, received: Mutex::default() })
    }

    /// Variables of identity.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        self.server.variables().to_vec()
    }

    /// Returns the token of the last invite of an address, or `None` before its mail arrives.
    pub(crate) fn invite_token(&self, email: &str, findings: &Findings) -> Option<String> {
        let mut received = self.received.lock();
        for mail in self.server.mails_after(received.count) {
            received.count += 1;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (address, text) = (text(&mail["to"][0]), text(&mail["parts"]["text/plain"]));
            if text.contains(INVITE_TOKEN) && received.texts.insert(address, text).is_some() {
                findings.count_repeated_mail();
            }
        }
        received
            .texts
            .get(email)?
            .split_whitespace()
            .find(|word| word.starts_with(INVITE_TOKEN))
            .map(ToOwned::to_owned)
    }
}
