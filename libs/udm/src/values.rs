//! The values of a field in the JSON of an event, whatever its spelling and form.

use serde_json::Value;

use crate::fields::json_name;

/// Returns the values of a field of an event, in order. The path has the original names, for example `principal.ip` or
/// `security_result.action`.
///
/// Each name is found in `snake_case` and in `lowerCamelCase`. A list contributes each of its items, and one value counts as a list of
/// one. An absent field and `null` have no values. Neither has text that is not JSON.
pub fn values_at(event: &[u8], path: &str) -> Vec<Value> {
    let mut values: Vec<Value> = serde_json::from_slice(event).into_iter().collect();
    for name in path.split('.') {
        let members = values.into_iter().filter_map(|value| match value {
            Value::Object(mut members) => members.remove(name).or_else(|| members.remove(&json_name(name))),
            _ => None,
        });
        let items = members.flat_map(|member| match member {
            Value::Array(items) => items,
            value => vec![value],
        });
        values = items.filter(|value| !value.is_null()).collect();
    }
    values
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_found_in_both_spellings_and_in_all_forms() {
        for event in [
            r#"{"security_result":[{"rule_name":"a","action":["ALLOW","BLOCK"]},{"rule_name":"b","action":"FAIL"}]}"#,
            r#"{"securityResult":[{"ruleName":"a","action":["ALLOW","BLOCK"]},{"ruleName":"b","action":["FAIL"]}]}"#,
        ] {
            assert_eq!(values_at(event.as_bytes(), "security_result.action"), ["ALLOW", "BLOCK", "FAIL"]);
            assert_eq!(values_at(event.as_bytes(), "security_result.rule_name"), ["a", "b"]);
        }
        let event = br#"{"sourceId":"fw","securityResult":{"action":"ALLOW"},"principal":{"ip":["::1"],"port":null,"assetId":7}}"#;
        for (path, expected) in [
            ("source_id", vec![json!("fw")]),
            ("security_result.action", vec![json!("ALLOW")]),
            ("principal.ip", vec![json!("::1")]),
            ("principal.asset_id", vec![json!(7)]),
            ("principal.port", vec![]),
            ("principal.hostname", vec![]),
            ("principal.ip.x", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(values_at(event, path), expected, "{path}");
        }
        assert_eq!(values_at(b"{", "source_id"), Vec::<Value>::new());
    }
}
