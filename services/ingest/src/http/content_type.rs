//! `Content-Type` of events: whether a body is a list or lines. JSON is UTF-8 (RFC 8259, section 8.1).

use contract::ProblemKind;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use service::Problem;
use service::http::body::media_type;

use crate::app::Format;

/// Returns the format of a body.
///
/// # Errors
/// 415 for a type other than `application/json` and `application/x-ndjson`, with `expected` as detail, and for a charset other than UTF-8.
pub(super) fn format(headers: &HeaderMap, expected: &'static str) -> Result<Format, Problem> {
    let media_type = media_type(headers).unwrap_or_default();
    let format = if media_type.eq_ignore_ascii_case("application/json") {
        Format::List
    } else if media_type.eq_ignore_ascii_case("application/x-ndjson") {
        Format::Lines
    } else {
        return Err(Problem::new(ProblemKind::MediaType).detail(expected));
    };
    let is_utf8 = |charset: &str| {
        ["utf-8", "utf8", "us-ascii"].iter().any(|allowed| allowed.eq_ignore_ascii_case(charset))
    };
    if charset(headers).is_none_or(is_utf8) {
        return Ok(format);
    }
    let detail = "Send the body in UTF-8, and Content-Type without charset or with charset=utf-8.";
    Err(Problem::new(ProblemKind::MediaType).detail(detail))
}

/// Returns the charset that the sender declares.
fn charset(headers: &HeaderMap) -> Option<&str> {
    let parameters = headers.get(CONTENT_TYPE)?.to_str().ok()?.split(';').skip(1);
    let mut parameters = parameters.filter_map(|parameter| parameter.split_once('='));
    let (_, charset) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))?;
    Some(charset.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_type_decides_on_the_format_and_the_charset_is_utf_8() {
        for (value, expected) in [
            ("application/json", Some(Format::List)),
            ("Application/JSON; charset=UTF-8", Some(Format::List)),
            ("application/x-ndjson;charset=\"utf-8\"", Some(Format::Lines)),
            ("application/x-ndjson; profile=a; Charset = us-ascii", Some(Format::Lines)),
            ("application/json; charset=utf-16le", None),
            ("application/json; charset=\"ISO-8859-1\"", None),
            ("application/json; charset=", None),
            ("application/jsonl", None),
            ("text/plain; charset=utf-8", None),
            ("", None),
        ] {
            let headers = [(CONTENT_TYPE, HeaderValue::from_static(value))].into_iter().collect();
            assert_eq!(format(&headers, "").ok(), expected, "{value}");
        }
        assert!(format(&HeaderMap::new(), "").is_err());
    }
}
