//! Checks `metadata`.

use std::borrow::Cow;

use chrono::{DateTime, Utc};

use super::place::{Faults, Place};
use super::value::Value;

const MAX_TEXT_BYTES: usize = 1024;
const MAX_DESCRIPTION_BYTES: usize = 8 * 1024;
const MAX_TYPE_BYTES: usize = 64;

/// What metadata says that routing needs.
#[derive(Default)]
pub(super) struct About<'a> {
    pub(super) event_type: Option<Cow<'a, str>>,
    pub(super) event_timestamp: Option<DateTime<Utc>>,
}

pub(super) fn check<'a>(metadata: Value<'a, '_>, faults: &mut Faults) -> About<'a> {
    let mut about = About::default();
    let Some(object) = metadata.object(faults) else {
        return about;
    };
    for (name, raw) in object.fields() {
        let value = Value { raw, at: &Place::Field(metadata.at, name) };
        if value.is_null() {
            continue;
        }
        match name {
            "event_type" => about.event_type = event_type(value, faults),
            "event_timestamp" => about.event_timestamp = event_timestamp(value, faults),
            "description" => drop(value.text_within(MAX_DESCRIPTION_BYTES, faults)),
            "vendor_name"
            | "product_name"
            | "product_version"
            | "product_event_type"
            | "product_log_id"
            | "product_deployment_id"
            | "url_back_to_product" => {
                drop(value.text_within(MAX_TEXT_BYTES, faults));
            }
            _ => {}
        }
    }
    about
}

fn event_type<'a>(value: Value<'a, '_>, faults: &mut Faults) -> Option<Cow<'a, str>> {
    let text = value.text(faults)?;
    let fits = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    if text.len() > MAX_TYPE_BYTES
        || !text.starts_with(|first: char| first.is_ascii_uppercase())
        || !text.bytes().all(fits)
    {
        faults.add(value.at, "invalid_value", "1 to 64 of A-Z, 0-9 and '_', a letter first");
        return None;
    }
    Some(text)
}

fn event_timestamp(value: Value<'_, '_>, faults: &mut Faults) -> Option<DateTime<Utc>> {
    let text = value.text(faults)?;
    let time = DateTime::parse_from_rfc3339(&text).ok();
    if time.is_none() {
        faults.add(value.at, "invalid_value", "expected a time as in RFC 3339, such as 2026-01-31T12:00:00Z");
    }
    time.map(|time| time.to_utc())
}
