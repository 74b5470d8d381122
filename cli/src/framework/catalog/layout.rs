//! Layout of JSON documents that are long and reviewed as differences: what fits on a line is on one line.

/// Longest line of an object or array that is not broken, in bytes.
const MAX_LINE_BYTES: usize = 240;

/// Breaks compact JSON into lines.
pub(super) fn layout(compact: &str) -> String {
    let mut text = String::with_capacity(compact.len() * 5 / 4);
    write(compact, 0, &mut text);
    text.push('\n');
    text
}

fn write(json: &str, indent: usize, text: &mut String) {
    let body = json
        .strip_prefix(['{', '['])
        .and_then(|rest| rest.strip_suffix(['}', ']']))
        .filter(|_| json.len() + indent > MAX_LINE_BYTES);
    let Some(body) = body else {
        text.push_str(json);
        return;
    };
    let is_object = json.starts_with('{');
    text.push_str(if is_object { "{" } else { "[" });
    for (place, element) in split(body, ',').into_iter().enumerate() {
        text.push_str(if place > 0 { ",\n" } else { "\n" });
        text.extend(std::iter::repeat_n(' ', indent + 1));
        match split(element, ':').as_slice() {
            [key, value] if is_object => {
                text.push_str(key);
                text.push(':');
                write(value, indent + 1, text);
            }
            _ => write(element, indent + 1, text),
        }
    }
    text.push('\n');
    text.extend(std::iter::repeat_n(' ', indent));
    text.push_str(if is_object { "}" } else { "]" });
}

/// Splits JSON at a separator outside of strings, objects and arrays.
fn split(json: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in json.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            c if c == separator && depth == 0 => {
                parts.push(&json[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&json[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn breaks_only_what_does_not_fit_on_a_line() {
        let long = "x".repeat(MAX_LINE_BYTES);
        let document = json!({"a": [1, {"b": ","}], "c": [long, {"d": "}\":\\"}]});
        let expected = format!(
            "{{\n \"a\":[1,{{\"b\":\",\"}}],\n \"c\":[\n  \"{long}\",\n  {{\"d\":\"}}\\\":\\\\\"}}\n ]\n}}\n"
        );
        assert_eq!(layout(&document.to_string()), expected);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), ".{0,90}".prop_map(Value::from)];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(".{0,9}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn layout_keeps_the_document(document in any_json()) {
            let text = layout(&document.to_string());
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), document);
        }
    }
}
