//! What the ingest service can be told.

use authn::{SERVICE_TOKEN, SERVICE_TOKEN_PREVIOUS, SESSION_URL, SharedSecret};
use bus::{Durability, NATS_URL, Profile};
use contract::Secret;
use service::config::{ConfigErrors, Environment, Reader, Variable, parse_bytes};
use service::http::{TRUSTED_PROXIES, TrustedProxies};
use service::process::PUBLIC_URL;
use url::Url;

const STREAM_MODE: Variable = plain(
    "SVC_STREAM_MODE",
    "`verify` or `ensure`",
    "verify",
    "Whether a missing stream is an error, or is created.",
);
const REPLICAS: Variable =
    plain("SVC_STREAM_REPLICAS", "number, 1 to 5", "3", "How many servers hold each event.");
const MAX_BYTES: Variable = Variable {
    name: "SVC_STREAM_MAX_BYTES",
    form: "size",
    default: None,
    secret: false,
    meaning: "Where the stream of events is full; at most 80 % of the broker's volume.",
};
const DURABILITY: Variable = plain(
    "SVC_NATS_DURABILITY",
    "`strict`, `standard` or `dev`",
    "standard",
    "What a 202 means: synced by every replica, written by a majority, or written by one server.",
);

const fn plain(
    name: &'static str,
    form: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Variable {
    Variable { name, form, default: Some(default), secret: false, meaning }
}

/// Every variable that the service reads.
pub const VARIABLES: &[Variable] = &[
    PUBLIC_URL,
    TRUSTED_PROXIES,
    SESSION_URL,
    SERVICE_TOKEN,
    SERVICE_TOKEN_PREVIOUS,
    NATS_URL,
    STREAM_MODE,
    REPLICAS,
    MAX_BYTES,
    DURABILITY,
];

/// What to do about a stream that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamMode {
    Verify,
    Ensure,
}

/// The service's configuration.
#[derive(Clone)]
pub struct Config {
    pub(crate) public_url: Url,
    pub(crate) proxies: TrustedProxies,
    pub(crate) session_url: Url,
    pub(crate) service_token: Secret,
    pub(crate) nats_url: Secret,
    pub(crate) stream_mode: StreamMode,
    pub(crate) profile: Profile,
}

impl Config {
    /// Reads it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(environment: &Environment) -> Result<Self, ConfigErrors> {
        let mut read = Reader::new(environment);
        let public_url = read.required(&PUBLIC_URL);
        let proxies = TrustedProxies::read(&mut read);
        let session_url = read.required(&SESSION_URL);
        let service_token =
            read.required_with(&SERVICE_TOKEN, |text| SharedSecret::service(text).map(|_| Secret::new(text)));
        let nats_url = read.required::<String>(&NATS_URL).map(Secret::new);
        let stream_mode = read.required_with(&STREAM_MODE, |text| match text {
            "verify" => Ok(StreamMode::Verify),
            "ensure" => Ok(StreamMode::Ensure),
            _ => Err("unknown mode"),
        });
        let replicas = read.required_with(&REPLICAS, |text| match text.parse() {
            Ok(replicas @ 1..=5) => Ok(replicas),
            _ => Err("out of bounds"),
        });
        let max_bytes = read.required_with(&MAX_BYTES, parse_bytes);
        let durability = read.required_with(&DURABILITY, |text| match text {
            "strict" => Ok(Durability::Strict),
            "standard" => Ok(Durability::Standard),
            "dev" => Ok(Durability::Dev),
            _ => Err("unknown durability"),
        });
        read.finish(|| {
            Some(Self {
                public_url: public_url?,
                proxies: proxies?,
                session_url: session_url?,
                service_token: service_token?,
                nats_url: nats_url?,
                stream_mode: stream_mode?,
                profile: Profile { durability: durability?, replicas: replicas?, max_bytes: max_bytes? },
            })
        })
    }
}
