//! Checks a noun: `principal`, `src`, `target`, `observer`, and the items of `intermediary` and `about`.

use std::net::IpAddr;

use super::fields;
use super::place::{Faults, Place};
use super::value::Value;

pub(super) fn check(noun: Value<'_, '_>, faults: &mut Faults) {
    let Some(object) = noun.object(faults) else { return };
    for (name, raw) in object.fields() {
        let value = Value { raw, at: &Place::Field(noun.at, name) };
        if value.is_null() {
            continue;
        }
        match name {
            "hostname" | "asset_id" | "url" => drop(value.text(faults)),
            "ip" => value.each(usize::MAX, faults, ip),
            "mac" => value.each(usize::MAX, faults, mac),
            "port" => port(value, faults),
            "user" | "process" | "file" | "resource" => fields::open_object(value, faults),
            _ => {}
        }
    }
}

fn ip(value: Value<'_, '_>, faults: &mut Faults) {
    if let Some(text) = value.text(faults)
        && text.parse::<IpAddr>().is_err()
    {
        faults.add(value.at, "invalid_value", "expected an IPv4 or IPv6 address");
    }
}

fn mac(value: Value<'_, '_>, faults: &mut Faults) {
    if let Some(text) = value.text(faults)
        && !is_mac(text.as_bytes())
    {
        faults.add(value.at, "invalid_value", "expected six octets such as 00:1b:44:11:3a:b7");
    }
}

fn is_mac(text: &[u8]) -> bool {
    text.len() == 17
        && text.iter().enumerate().all(|(index, byte)| match index % 3 {
            2 => matches!(byte, b':' | b'-'),
            _ => byte.is_ascii_hexdigit(),
        })
}

fn port(value: Value<'_, '_>, faults: &mut Faults) {
    if serde_json::from_str::<u16>(value.raw.get()).is_err() {
        faults.add(value.at, "invalid_value", "expected a whole number from 0 to 65535");
    }
}
