//! Errors of deserializers in the terms of the API: a JSON Pointer, a code, and a message without names of Rust types.

use contract::{FieldError, escape_pointer_token};
use serde_path_to_error::{Path, Segment};

/// Describes the error that a deserializer reported at a path.
pub(super) fn field_error(path: &Path, message: &str) -> FieldError {
    // serde_json appends line and column, which do not help clients that serialize with a library.
    let message = message.split(" at line ").next().unwrap_or(message);
    let mut pointer = pointer(path);
    let (code, message) = match named_field(message) {
        Some((name, code, text)) => {
            let token = format!("/{}", escape_pointer_token(name));
            if !pointer.ends_with(&token) {
                pointer.push_str(&token);
            }
            (code, text.to_owned())
        }
        None => describe(message),
    };
    FieldError { pointer, code: code.into(), message }
}

/// Returns field, code and text of an error that names a field of the object at the path.
fn named_field(message: &str) -> Option<(&str, &'static str, &'static str)> {
    [
        ("missing field `", "required", "is required"),
        ("duplicate field `", "duplicate_field", "must occur only once"),
    ]
    .into_iter()
    .find_map(|(prefix, code, text)| Some((message.strip_prefix(prefix)?.strip_suffix('`')?, code, text)))
}

/// Returns code and text of an error of a value.
fn describe(message: &str) -> (&'static str, String) {
    // The rejected value precedes the expectation and can contain any text.
    let expected = message.rsplit_once(", expected ").map(|(_, expected)| expected);
    match (message, expected) {
        (_, Some(expected)) if message.starts_with("unknown variant ") => {
            let values: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
            ("invalid_value", format!("must be one of: {}", values.join(", ")))
        }
        (_, Some(expected)) if message.starts_with("invalid value: ") => ("invalid_value", must_be(expected)),
        (_, Some(expected)) if message.starts_with("invalid ") => ("invalid_type", must_be(expected)),
        ("expected value", _) => ("invalid_type", "has the wrong type".to_owned()),
        ("number out of range", _) => ("invalid_value", "exceeds the range of a 64-bit float".to_owned()),
        ("recursion limit exceeded", _) => ("invalid_value", "is nested too deep".to_owned()),
        ("lone leading surrogate in hex escape" | "unexpected end of hex escape", _) => {
            ("invalid_value", "contains an escape sequence of an unpaired surrogate".to_owned())
        }
        // Errors of query parameters: a value with several parameters, a number and a boolean.
        ("unsupported value", _) => ("duplicate", "must occur only once".to_owned()),
        ("invalid digit found in string" | "cannot parse integer from empty string", _) => {
            ("invalid_type", "must be a non-negative integer".to_owned())
        }
        ("number too large to fit in target type", _) => ("invalid_value", "is too large".to_owned()),
        ("provided string was not `true` or `false`", _) => {
            ("invalid_type", "must be true or false".to_owned())
        }
        // Types of this project have texts of the API.
        _ => ("invalid_value", message.to_owned()),
    }
}

/// Returns the requirement for a type that serde names.
fn must_be(expected: &str) -> String {
    let text = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "must be a non-negative integer",
        "i8" | "i16" | "i32" | "i64" | "isize" => "must be an integer",
        "a string" | "string or map" | "variant identifier" => "must be a string",
        "a boolean" => "must be true or false",
        "a sequence" => "must be a list",
        "a map" | "an object" => "must be an object",
        _ => "has the wrong type",
    };
    text.to_owned()
}

/// Describes a field that the type of a request does not have.
pub(super) fn unknown_field(path: &serde_ignored::Path<'_>) -> FieldError {
    let message = "is not a field of this request: correct its name or omit it".to_owned();
    FieldError { pointer: ignored_pointer(path), code: "unknown_field".into(), message }
}

fn ignored_pointer(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}/{index}", ignored_pointer(parent)),
        Path::Map { parent, key } => format!("{}/{}", ignored_pointer(parent), escape_pointer_token(key)),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            ignored_pointer(parent)
        }
    }
}

/// Returns the path as a JSON Pointer (RFC 6901).
fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        let token = match segment {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } => escape_pointer_token(key),
            Segment::Enum { variant } => variant.clone(),
            Segment::Unknown => continue,
        };
        pointer.push('/');
        pointer.push_str(&token);
    }
    pointer
}
