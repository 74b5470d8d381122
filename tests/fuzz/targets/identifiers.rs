//! Identifiers, subjects and values of the configuration: each has one spelling, except ids and rates.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fmt::Display;
use std::str::FromStr;

use bus::{AuditSubject, EventSubject};
use contract::consumers::ConsumerName;
use contract::managed::ServiceAccount;
use contract::{Role, TraceContext};
use ratelimit::Rate;
use service::config::{parse_bytes, parse_duration};
use service::process::parse_origin;
use tenancy::{TenantId, UserId};

/// Parses a text, and the text of the result again.
fn check<T: FromStr + Display>(text: &str) {
    let Ok(value) = text.parse::<T>() else { return };
    assert_eq!(value.to_string(), text);
}

fuzz_target!(|text: &str| {
    check::<TenantId>(text);
    check::<ConsumerName>(text);
    check::<ServiceAccount>(text);
    check::<EventSubject>(text);
    check::<AuditSubject>(text);
    check::<Role>(text);
    if let Ok(id) = text.parse::<UserId>() {
        assert_eq!(id.to_string().parse::<UserId>().ok(), Some(id));
    }
    if let Some(trace) = TraceContext::parse(text) {
        assert_eq!(TraceContext::parse(&trace.to_string()), Some(trace));
    }
    if let Ok(rate) = text.parse::<Rate>() {
        assert!(!rate.interval().is_zero() && rate.burst_tolerance() >= rate.interval());
    }
    let _ = parse_duration(text);
    let _ = parse_bytes(text);
    let _ = parse_origin::<String>(text);
});
