//! Configuration of the Kubernetes operator (`services/operator`). It is here, so that `svc-standalone` documents the variables without
//! compiling a Kubernetes client.

use std::path::PathBuf;

use contract::managed::OperatorId;
use url::Url;

use crate::config::{Variable, Variables as _, parse_http_url};
use crate::process::{self, IDENTITY_URL, PUBLIC_URL, SESSION_URL, parse_origin};

crate::variables! {
    /// Configuration of the operator.
    #[derive(Clone, Debug)]
    pub struct Config {
        /// Origin of the public API, for the instructions in the Secret of an invite.
        pub public_url: Url = PUBLIC_URL.required_with(parse_origin),
        /// Internal API of identity.
        pub identity_url: Url = IDENTITY_URL.required_with(parse_http_url),
        /// Internal API of session.
        pub session_url: Url = SESSION_URL.required_with(parse_http_url),
        /// Token of the operator's service account for identity (audience `svc-identity`). The file is read for each request.
        pub identity_token: PathBuf = Variable::new("SVC_IDENTITY_TOKEN_FILE", "file")
            .default("/var/run/secrets/svc/identity-token")
            .required(),
        /// Token of the operator's service account for session (audience `svc-session`). The file is read for each request.
        pub session_token: PathBuf = Variable::new("SVC_SESSION_TOKEN_FILE", "file")
            .default("/var/run/secrets/svc/session-token")
            .required(),
        /// Internal API of ingest.
        pub ingest_url: Option<Url> = Variable::new("SVC_INGEST_URL", "URL")
            .meaning("URL of the internal API of ingest. Without it, the operator does not manage consumers, and needs no rights for them.")
            .optional_with(parse_http_url),
        /// Token of the operator's service account for ingest (audience `svc-ingest`). The file is read for each request.
        pub ingest_token: PathBuf = Variable::new("SVC_INGEST_TOKEN_FILE", "file")
            .default("/var/run/secrets/svc/ingest-token")
            .required(),
        /// Address of NATS for consumers, such as `nats://nats.example.com:4222`. The Secret of each consumer contains it as `NATS_URL`.
        pub consumer_nats_url: Option<String> = Variable::new("SVC_CONSUMER_NATS_URL", "URLs, separated by commas")
            .optional_with(parse_nats_urls),
        /// Namespace of the operator: of its lease and of the Secrets with invites.
        pub namespace: String = Variable::new("SVC_NAMESPACE", "name").required(),
        /// Name of the release. With the uid of the namespace `kube-system` and the namespace of the operator, it is the id of the
        /// operator, which identity, session and ingest store with each tenant, producer and consumer.
        pub release: String = Variable::new("SVC_RELEASE", "name").required(),
        /// Ids of operators of which this one takes over the tenants, producers and consumers that have a resource in this cluster.
        pub take_over_from: Option<Vec<OperatorId>> = Variable::new("SVC_TAKE_OVER_FROM", "ids, separated by commas")
            .optional_with(parse_operators),
        /// Number of tenants, of producers, and of consumers, that a new leader may release because their resources are missing or not
        /// allowed. Without it, a new leader holds the releases of a kind if they are more than 3 and more than a tenth. The log message
        /// of the held releases contains the number.
        pub confirmed_releases: usize = Variable::new("SVC_CONFIRMED_RELEASES", "number, 0 to 1000000").default("0").between(0, 1_000_000),
        /// Name of the pod, which identifies the holder of the lease.
        pub pod_name: String = Variable::new("SVC_POD_NAME", "name").required(),
        /// Name of the lease. All replicas of an installation have the same.
        pub lease: String = Variable::new("SVC_LEASE", "name").default("svc-operator").required(),
    }
}

fn parse_operators(text: &str) -> Result<Vec<OperatorId>, &'static str> {
    text.split(',').map(|id| id.trim().parse()).collect()
}

/// Parses addresses of NATS without a login, which each consumer has for itself.
fn parse_nats_urls(text: &str) -> Result<String, &'static str> {
    let is_address = |url: Url| {
        ["nats", "tls", "ws", "wss"].contains(&url.scheme())
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    };
    let is_valid = text.split(',').all(|url| url.trim().parse().is_ok_and(is_address));
    if is_valid {
        Ok(text.to_owned())
    } else {
        Err("must be URLs such as nats://nats.example.com:4222, without a login")
    }
}

/// Name of the process.
pub const NAME: &str = "operator";

/// Lists every variable of the process.
pub fn variables() -> Vec<Variable> {
    process::variables(Config::variables())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_for_consumers_have_no_login() {
        for valid in ["nats://nats.example.com:4222", "tls://a,tls://b:4222", "wss://nats.example.com"] {
            assert_eq!(parse_nats_urls(valid).as_deref(), Ok(valid));
        }
        for invalid in
            ["", "nats", "nats.example.com:4222", "http://a", "nats://user:password@a", "nats://a,b"]
        {
            assert!(parse_nats_urls(invalid).is_err(), "{invalid}");
        }
    }
}
