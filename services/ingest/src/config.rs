//! Configuration of the ingest service.

use std::time::Duration;

use authn::{OperatorSettings, PlatformSecret, ServiceSecret};
use bus::{Durability, EventStreams, NatsSettings, Profile, StreamMode, StreamSettings, retention};
use contract::identity::{MAX_QUOTA, Quota};
use ratelimit::Limit;
use service::config::{ConfigErrors, Environment, Variable, Variables as _, parse_bytes, parse_http_url};
use service::http::ConnectionSettings;
use service::process::{PUBLIC_URL, SESSION_URL, parse_origin};
use url::Url;

service::variables! {
    /// Configuration of the ingest service.
    #[derive(Clone)]
    pub struct Config {
        pub(crate) public_url: Url = PUBLIC_URL.required_with(parse_origin),
        pub(crate) connections: ConnectionSettings,
        pub(crate) session_url: Url = SESSION_URL.required_with(parse_http_url),
        pub(crate) service_secret: ServiceSecret,
        pub(crate) platform_secret: PlatformSecret,
        pub(crate) nats: NatsSettings,
        pub(crate) stream: EventStreamSettings,
        /// Quota of each tenant that has no own quota of events per second.
        pub(crate) default_events_per_second: Option<u32> =
            Variable::new("SVC_DEFAULT_EVENTS_PER_SECOND", "number, 1 to 2147483647, or `off`").default("off").required_with(parse_events),
        /// Quota of each tenant that has no own quota of bytes per second.
        pub(crate) default_bytes_per_second: Option<u32> =
            Variable::new("SVC_DEFAULT_BYTES_PER_SECOND", "size, 1B to 2047MiB, or `off`").default("off").required_with(parse_rate),
        /// Share of the event stream that one tenant can fill; 100 disables the limit.
        pub(crate) tenant_stream_share: u8 =
            Variable::new("SVC_TENANT_STREAM_SHARE", "percentage, 1 to 100").default("25").between(1, 100),
        pub(crate) quarantine: QuarantineSettings,
        /// Whether Kubernetes pods can send events with the tokens of their service accounts (audience `svc-ingest`).
        pub(crate) workload_identity: bool = Variable::new("SVC_WORKLOAD_IDENTITY", "`on` or `off`")
            .default("off")
            .one_of([("on", true), ("off", false)]),
        /// Access of the Kubernetes operator to the internal API.
        pub(crate) operator: OperatorSettings,
        pub(crate) failed_credentials: Limit = Limit::setting(ratelimit::CREDENTIAL, "credential"),
        pub(crate) event_streams: Limit = Limit::setting(ratelimit::EVENT_STREAM, "event_stream"),
        pub(crate) audit_requests: Limit = Limit::setting(ratelimit::AUDIT, "audit"),
    }
}

service::variables! {
    /// Bounds of the quarantine of one tenant.
    #[derive(Clone, Copy)]
    pub(crate) struct QuarantineSettings {
        /// Maximum number of quarantined items of a tenant; 0 disables the quarantine. Above it, invalid items are rejected.
        pub(crate) max_items: u64 = Variable::new("SVC_QUARANTINE_MAX_ITEMS", "number, 0 to 10000").default("10000").between(0, 10_000),
        /// Maximum size of the quarantined items of a tenant. Above it, invalid items are rejected.
        pub(crate) max_bytes: u64 =
            Variable::new("SVC_QUARANTINE_MAX_BYTES", "size, 64KiB to 1TiB").default("64MiB").bytes(64 << 10, 1 << 40),
    }
}

service::variables! {
    /// Division of the events into streams.
    #[derive(Clone, Copy)]
    pub(crate) struct Division {
        /// Number of streams that hold the events, each with an equal range of partitions. It cannot be changed while streams with
        /// another range exist.
        pub(crate) streams: EventStreams = Variable::new("SVC_STREAMS", "1, 2, 4, 8, 16, 32 or 64")
            .default("1")
            .required_with(parse_streams),
    }
}

service::variables! {
    /// Settings of the streams of events and dead letters.
    #[derive(Clone, Copy)]
    pub(crate) struct EventStreamSettings {
        common: StreamSettings,
        pub(crate) division: Division,
        /// Retention of events. Shorter retention deletes older events.
        max_age: Duration = retention("SVC_STREAM_MAX_AGE", "72h"),
        /// Retention of events that a consumer failed to process (`UDM_DLQ`).
        dead_letter_max_age: Duration = retention("SVC_DLQ_MAX_AGE", "14d"),
        /// Guarantee of a 202 response: `strict` is synced to disk by every replica (set `sync_interval: always` on the servers),
        /// `standard` is written by a majority, `dev` is written by one server.
        durability: Durability = Variable::new("SVC_NATS_DURABILITY", "`strict`, `standard` or `dev`")
            .default("standard")
            .one_of([
                ("strict", Durability::Strict),
                ("standard", Durability::Standard),
                ("dev", Durability::Dev),
            ]),
    }
}

fn parse_streams(text: &str) -> Result<EventStreams, String> {
    text.parse().ok().and_then(EventStreams::new).ok_or_else(|| "must be 1, 2, 4, 8, 16, 32 or 64".to_owned())
}

impl Config {
    /// The quota of a tenant that has no own one.
    pub(crate) fn default_quota(&self) -> Quota {
        Quota {
            events_per_second: self.default_events_per_second,
            bytes_per_second: self.default_bytes_per_second,
        }
    }
}

/// Returns the streams of events that the environment configures.
///
/// # Errors
/// Errors of the variables of streams.
pub fn event_streams(environment: &Environment) -> Result<EventStreams, ConfigErrors> {
    Ok(Division::load(environment)?.streams)
}

impl EventStreamSettings {
    pub(crate) fn mode(&self) -> StreamMode {
        self.common.mode
    }

    pub(crate) fn profile(&self) -> Profile {
        let StreamSettings { replicas, max_bytes, compression, .. } = self.common;
        Profile {
            durability: self.durability,
            replicas,
            streams: self.division.streams,
            max_bytes,
            max_age: self.max_age,
            dead_letter_max_age: self.dead_letter_max_age,
            compression,
        }
    }
}

fn parse_events(text: &str) -> Result<Option<u32>, String> {
    parse_quota(text, str::parse)
}

fn parse_rate(text: &str) -> Result<Option<u32>, String> {
    parse_quota(text, parse_bytes)
}

/// Parses `off`, or a number within the limits of the quota of a tenant.
fn parse_quota<E: ToString>(
    text: &str,
    parse: impl Fn(&str) -> Result<u64, E>,
) -> Result<Option<u32>, String> {
    if text == "off" {
        return Ok(None);
    }
    let number = parse(text).map_err(|error| error.to_string())?;
    match u32::try_from(number) {
        Ok(number @ 1..=MAX_QUOTA) => Ok(Some(number)),
        _ => Err(format!("must be 1 to {MAX_QUOTA}, or off")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_quota_is_a_positive_number_or_off() {
        assert_eq!(parse_events("off"), Ok(None));
        assert_eq!(parse_events("500"), Ok(Some(500)));
        assert_eq!(parse_rate("10MiB"), Ok(Some(10 * 1024 * 1024)));
        for invalid in ["0", "-1", "1.5", "", "none", "4294967296", "2147483648"] {
            assert!(parse_events(invalid).is_err(), "{invalid}");
        }
        assert!(parse_rate("2GiB").is_err());
    }
}
