//! Validates the sections of an event: metadata, nouns and open objects.

use std::borrow::Cow;
use std::net::IpAddr;

use chrono::{DateTime, Utc};

use super::value::{Errors, Location, Value};

const MAX_TEXT_BYTES: usize = 1024;
const MAX_DESCRIPTION_BYTES: usize = 8 * 1024;
const MAX_TYPE_BYTES: usize = 64;

/// The fields of metadata for routing.
#[derive(Default)]
pub(super) struct RoutingMetadata<'a> {
    pub(super) event_type: Option<Cow<'a, str>>,
    pub(super) event_timestamp: Option<DateTime<Utc>>,
}

/// Validates `metadata`.
pub(super) fn metadata<'a>(metadata: Value<'a, '_>, errors: &mut Errors) -> RoutingMetadata<'a> {
    let mut routing = RoutingMetadata::default();
    let Some(object) = metadata.object(errors) else {
        return routing;
    };
    for (name, raw) in object.fields() {
        let value = Value { raw, at: &Location::Field(metadata.at, name) };
        if value.is_null() {
            continue;
        }
        match name {
            "event_type" => routing.event_type = event_type(value, errors),
            "event_timestamp" => routing.event_timestamp = event_timestamp(value, errors),
            "description" => drop(value.text_within(MAX_DESCRIPTION_BYTES, errors)),
            "vendor_name"
            | "product_name"
            | "product_version"
            | "product_event_type"
            | "product_log_id"
            | "product_deployment_id"
            | "url_back_to_product" => {
                drop(value.text_within(MAX_TEXT_BYTES, errors));
            }
            _ => {}
        }
    }
    routing
}

fn event_type<'a>(value: Value<'a, '_>, errors: &mut Errors) -> Option<Cow<'a, str>> {
    let text = value.text(errors)?;
    let is_allowed = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    if text.len() > MAX_TYPE_BYTES
        || !text.starts_with(|first: char| first.is_ascii_uppercase())
        || !text.bytes().all(is_allowed)
    {
        errors.add(value.at, "invalid_value", "1 to 64 of A-Z, 0-9 and '_', starting with a letter");
        return None;
    }
    Some(text)
}

fn event_timestamp(value: Value<'_, '_>, errors: &mut Errors) -> Option<DateTime<Utc>> {
    let text = value.text(errors)?;
    let time = DateTime::parse_from_rfc3339(&text).ok();
    if time.is_none() {
        errors.add(value.at, "invalid_value", "expected an RFC 3339 time such as 2026-01-31T12:00:00Z");
    }
    time.map(|time| time.to_utc())
}

/// Validates `principal`, `src`, `target`, `observer`, or an item of `intermediary` or `about`.
pub(super) fn noun(noun: Value<'_, '_>, errors: &mut Errors) {
    let Some(object) = noun.object(errors) else { return };
    for (name, raw) in object.fields() {
        let value = Value { raw, at: &Location::Field(noun.at, name) };
        if value.is_null() {
            continue;
        }
        match name {
            "hostname" | "asset_id" | "url" => drop(value.text(errors)),
            "ip" => value.each(usize::MAX, errors, ip),
            "mac" => value.each(usize::MAX, errors, mac),
            "port" => port(value, errors),
            "user" | "process" | "file" | "resource" => open_object(value, errors),
            _ => {}
        }
    }
}

fn ip(value: Value<'_, '_>, errors: &mut Errors) {
    if let Some(text) = value.text(errors)
        && text.parse::<IpAddr>().is_err()
    {
        errors.add(value.at, "invalid_value", "expected an IPv4 or IPv6 address");
    }
}

fn mac(value: Value<'_, '_>, errors: &mut Errors) {
    if let Some(text) = value.text(errors)
        && !is_mac(text.as_bytes())
    {
        errors.add(value.at, "invalid_value", "expected six octets such as 00:1b:44:11:3a:b7");
    }
}

fn is_mac(text: &[u8]) -> bool {
    text.len() == 17
        && text.iter().enumerate().all(|(index, byte)| match index % 3 {
            2 => matches!(byte, b':' | b'-'),
            _ => byte.is_ascii_hexdigit(),
        })
}

fn port(value: Value<'_, '_>, errors: &mut Errors) {
    if serde_json::from_str::<u16>(value.raw.get()).is_err() {
        errors.add(value.at, "invalid_value", "expected an integer from 0 to 65535");
    }
}

/// Validates an object with unknown fields.
pub(super) fn open_object(value: Value<'_, '_>, errors: &mut Errors) {
    if !value.raw.get().starts_with('{') {
        errors.add(value.at, "invalid_type", "expected an object");
    }
}
