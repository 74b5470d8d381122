//! Configuration of the ingest service.

use authn::{InvalidSecret, SERVICE_TOKEN, SERVICE_TOKEN_PREVIOUS, SESSION_URL, ServiceSecret, SharedSecret};
use bus::{Durability, InvalidationKeys, NATS_URL, Profile};
use contract::Secret;
use service::config::{Variable, parse_bytes};
use service::http::ConnectionSettings;
use service::process::{PUBLIC_URL, parse_origin};
use url::Url;

service::variables! {
    /// Configuration of the ingest service.
    #[derive(Clone)]
    pub struct Config {
        pub(crate) public_url: Url = PUBLIC_URL.required_with(parse_origin),
        pub(crate) connections: ConnectionSettings,
        pub(crate) session_url: Url = SESSION_URL.required(),
        pub(crate) service_token: Secret =
            SERVICE_TOKEN.required_with(|text| SharedSecret::service(text).map(|_| Secret::new(text))),
        pub(crate) previous_service_token: Option<SharedSecret> =
            SERVICE_TOKEN_PREVIOUS.optional_with(SharedSecret::service),
        pub(crate) nats_url: Secret = NATS_URL.required_with(|text| bus::check_url(text).map(|()| Secret::new(text))),
        /// Reaction to a missing stream: `verify` reports an error, `ensure` creates the stream.
        pub(crate) stream_mode: StreamMode = Variable::new("SVC_STREAM_MODE", "`verify` or `ensure`")
            .default("verify")
            .one_of([("verify", StreamMode::Verify), ("ensure", StreamMode::Ensure)]),
        /// Number of servers that store each event.
        pub(crate) replicas: usize = Variable::new("SVC_STREAM_REPLICAS", "number, 1 to 5").default("3").between(1, 5),
        /// Maximum size of the event stream. Use at most 75 % of the broker's volume.
        pub(crate) max_bytes: u64 = Variable::new("SVC_STREAM_MAX_BYTES", "size, as in `20GiB`").required_with(parse_bytes),
        /// Guarantee of a 202 response: `strict` is synced to disk by every replica, `standard` is written by a
        /// majority, `dev` is written by one server.
        pub(crate) durability: Durability = Variable::new("SVC_NATS_DURABILITY", "`strict`, `standard` or `dev`")
            .default("standard")
            .one_of([
                ("strict", Durability::Strict),
                ("standard", Durability::Standard),
                ("dev", Durability::Dev),
            ]),
    }
}

/// Reaction of the service to a missing stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamMode {
    Verify,
    Ensure,
}

impl Config {
    /// The keys that authenticate invalidations.
    pub(crate) fn invalidation_keys(&self) -> Result<InvalidationKeys, InvalidSecret> {
        let current = SharedSecret::service(self.service_token.expose())?;
        Ok(ServiceSecret(current.or(self.previous_service_token.clone())).invalidation_keys())
    }

    pub(crate) fn profile(&self) -> Profile {
        Profile { durability: self.durability, replicas: self.replicas, max_bytes: self.max_bytes }
    }
}
