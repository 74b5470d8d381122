//! Extractors: the headers `X-Tenant-ID`, `X-User-ID` and `X-Session-ID`, ids in paths, pagination of lists, and request
//! ids.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::{FromRequestParts, OptionalFromRequestParts, RawPathParams};
use axum::response::{IntoResponse, Response};
use contract::session::MAX_USER_AGENT;
use contract::{Page, PageQuery, ProblemKind};
use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use serde::de::{DeserializeOwned, Deserializer, Visitor};
use tenancy::{TenantId, UserId, X_SESSION_ID, X_TENANT_ID, X_USER_ID};

use super::problem::Problem;
use super::shape::field_error;
use crate::telemetry::RequestId;

/// A request header is missing or malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The route requires the header.
    #[error("Send the header {}.", documented_name(.0))]
    Missing(HeaderName),
    /// The header occurs more than once.
    #[error("The header {} was sent more than once. Send it once.", documented_name(.0))]
    Repeated(HeaderName),
    /// The value of the header is malformed.
    #[error("The header {} is malformed: {}.", documented_name(.0), .1)]
    Invalid(HeaderName, String),
}

/// Returns the name of a header as the documentation spells it. Names are case-insensitive.
fn documented_name(name: &HeaderName) -> &str {
    match name.as_str() {
        "x-tenant-id" => "X-Tenant-ID",
        "x-user-id" => "X-User-ID",
        "x-session-id" => "X-Session-ID",
        "authorization" => "Authorization",
        "content-type" => "Content-Type",
        "host" => "Host",
        "last-event-id" => "Last-Event-ID",
        other => other,
    }
}

impl From<HeaderError> for Problem {
    fn from(error: HeaderError) -> Self {
        let kind = match error {
            HeaderError::Missing(_) => ProblemKind::HeaderMissing,
            HeaderError::Repeated(_) | HeaderError::Invalid(..) => ProblemKind::HeaderInvalid,
        };
        Self::new(kind).detail(error.to_string())
    }
}

impl IntoResponse for HeaderError {
    fn into_response(self) -> Response {
        Problem::from(self).into_response()
    }
}

/// The tenant id in `X-Tenant-ID`.
#[derive(Clone, Debug)]
pub struct TenantHeader(pub TenantId);

/// The user id in `X-User-ID`.
#[derive(Clone, Copy, Debug)]
pub struct UserHeader(pub UserId);

/// The unparsed value of `X-Session-ID`. It is a credential, so the type does not implement `Debug`.
pub struct SessionHeader(pub String);

macro_rules! extractor {
    ($name:ident, $header:expr, $parse:expr) => {
        impl<S: Sync> FromRequestParts<S> for $name {
            type Rejection = HeaderError;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
                single(parts, &$header, $parse)?.map(Self).ok_or(HeaderError::Missing($header))
            }
        }

        impl<S: Sync> OptionalFromRequestParts<S> for $name {
            type Rejection = HeaderError;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
                Ok(single(parts, &$header, $parse)?.map(Self))
            }
        }
    };
}

extractor!(TenantHeader, X_TENANT_ID, |s| TenantId::from_str(s).map_err(|e| e.to_string()));
extractor!(UserHeader, X_USER_ID, |s| UserId::from_str(s)
    .map_err(|_| "a user id is a UUID with hyphens".to_owned()));

impl<S: Sync> FromRequestParts<S> for SessionHeader {
    type Rejection = HeaderError;

    /// Accepts every value: a malformed token gets the same response as an unknown one.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let value = parts.headers.get(X_SESSION_ID).ok_or(HeaderError::Missing(X_SESSION_ID))?;
        Ok(Self(String::from_utf8_lossy(value.as_bytes()).into_owned()))
    }
}

/// Returns `User-Agent` as sessions store it: cut off, with `?` for each byte that is not visible ASCII.
pub fn user_agent(headers: &HeaderMap) -> Option<String> {
    let visible = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '?' };
    Some(headers.get(USER_AGENT)?.as_bytes().iter().map(visible).take(MAX_USER_AGENT).collect())
}

/// Returns the value of a header that may occur at most once.
pub(super) fn single_value<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a HeaderValue>, HeaderError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() { Err(HeaderError::Repeated(name.clone())) } else { Ok(value) }
}

/// Parses a header that may occur at most once.
fn single<T>(
    parts: &Parts,
    name: &HeaderName,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, HeaderError> {
    let Some(value) = single_value(&parts.headers, name)? else { return Ok(None) };
    let invalid = |reason: String| HeaderError::Invalid(name.clone(), reason);
    let text = value.to_str().map_err(|_| invalid("it must be visible ASCII".to_owned()))?;
    parse(text).map(Some).map_err(invalid)
}

/// Last parameter of the path, parsed. An invalid id gets the same response as an unknown id: 404.
pub struct Id<T>(pub T);

impl<T: FromStr, S: Send + Sync> FromRequestParts<S> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let parameters = RawPathParams::from_request_parts(parts, state).await;
        let id = parameters.ok().and_then(|parameters| parameters.iter().last()?.1.parse().ok());
        id.map(Self).ok_or_else(|| ProblemKind::NotFound.into())
    }
}

/// The query parameters of a page or of an internal request, as the fields of a type. A list has one parameter per value. Other
/// parameters are ignored: links to pages get some from other programs.
pub struct QueryParameters<T>(pub T);

/// The query parameters of a route, as the fields of a type. Another parameter is 422: a misspelled filter would select everything.
pub struct Filters<T>(pub T);

/// The requested page of a list, and its filter. Other parameters are 422.
pub struct Filtered<K, T> {
    /// The page.
    pub paging: Paging<K>,
    /// The filter.
    pub filter: T,
}

impl<T: DeserializeOwned> QueryParameters<T> {
    fn read(uri: &Uri) -> Result<Self, Problem> {
        let query = uri.query().unwrap_or_default();
        check_encoding(query, field_names::<T>())?;
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        let parsed = serde_path_to_error::deserialize(serde_html_form::Deserializer::new(pairs));
        parsed.map(Self).map_err(|error| {
            invalid_parameters().fields([field_error(error.path(), &error.inner().to_string())])
        })
    }
}

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for QueryParameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::read(&parts.uri)
    }
}

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Filters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        check_names(&parts.uri, &[field_names::<T>()])?;
        QueryParameters::read(&parts.uri).map(|QueryParameters(filter)| Self(filter))
    }
}

impl<K: FromStr, T: DeserializeOwned, S: Sync> FromRequestParts<S> for Filtered<K, T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        check_names(&parts.uri, &[field_names::<T>(), field_names::<PageQuery>()])?;
        let paging = Paging::read(&parts.uri)?;
        QueryParameters::read(&parts.uri).map(|QueryParameters(filter)| Self { paging, filter })
    }
}

/// Checks that these parameters of a query are UTF-8. The parser replaces other bytes by U+FFFD, and so would select something else.
fn check_encoding(query: &str, names: &[&str]) -> Result<(), Problem> {
    // The parser passes over empty pairs too.
    let sent = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs = url::form_urlencoded::parse(query.as_bytes()).zip(sent);
    let invalid = pairs.find(|((name, _), sent)| {
        names.contains(&name.as_ref()) && percent_decode_str(sent).decode_utf8().is_err()
    });
    let Some(((name, _), _)) = invalid else { return Ok(()) };
    Err(invalid_parameters().field(format!("/{name}"), "invalid_value", "must be UTF-8"))
}

/// Checks that a query has only these parameters.
fn check_names(uri: &Uri, known: &[&[&str]]) -> Result<(), Problem> {
    let known = known.concat();
    let unknown = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
        .find(|(name, _)| !known.contains(&name.as_ref()));
    let Some((name, _)) = unknown else { return Ok(()) };
    let name = name.replace('~', "~0").replace('/', "~1");
    let message = format!("is not a parameter of this route, which are: {}", known.join(", "));
    Err(invalid_parameters().field(format!("/{name}"), "unknown_parameter", message))
}

/// Returns the names of the fields of a struct: its deserialization asks for them.
fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    struct Names<'a>(&'a mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for Names<'_> {
        type Error = serde::de::value::Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(serde::de::Error::custom("only the names are needed"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            names: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Self::Error> {
            *self.0 = names;
            self.deserialize_any(visitor)
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq
            tuple tuple_struct map enum identifier ignored_any
        }
    }

    let mut names: &'static [&'static str] = &[];
    let _ = T::deserialize(Names(&mut names));
    names
}

fn invalid_parameters() -> Problem {
    Problem::new(ProblemKind::ValidationFailed).detail("Correct the query parameters listed in `errors`.")
}

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 200;

/// Requested page: `limit` (default 50, at most 200) and an opaque `cursor`. The cursor is the name of the list and the key of the last
/// item of the previous page, so that the cursor of another kind of list is rejected.
#[derive(Clone, Debug)]
pub struct Paging<K> {
    /// List the items after this key.
    pub after: Option<K>,
    limit: u32,
    /// The last segment of the path.
    list: String,
}

impl<K: FromStr, S: Send + Sync> FromRequestParts<S> for Paging<K> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        check_names(&parts.uri, &[field_names::<PageQuery>()])?;
        Self::read(&parts.uri)
    }
}

impl<K: FromStr> Paging<K> {
    fn read(uri: &Uri) -> Result<Self, Problem> {
        let QueryParameters(PageQuery { limit, cursor }) = QueryParameters::read(uri)?;
        let limit = limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(invalid_parameters().field(
                "/limit",
                "invalid_value",
                format!("must be 1 to {MAX_LIMIT}"),
            ));
        }
        let list = uri.path().rsplit('/').next().unwrap_or_default().to_owned();
        let key = |text: String| text.strip_prefix(&*list)?.strip_prefix('.')?.parse().ok();
        let after = cursor.map(|text| key(text).ok_or(())).transpose().map_err(|()| {
            let message = "must be a `next_cursor` of an earlier response of this list";
            invalid_parameters().field("/cursor", "invalid_value", message)
        })?;
        Ok(Self { after, limit, list })
    }
}

impl<K: Display> Paging<K> {
    /// Returns the largest number of items of the page.
    pub fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Returns the number of rows to read: one more than the page, to detect a next page.
    pub fn rows(&self) -> i64 {
        i64::from(self.limit) + 1
    }

    /// Returns the cursor of the items after a key.
    pub fn cursor(&self, key: impl Display) -> String {
        format!("{}.{key}", self.list)
    }

    /// Creates the page from the rows.
    pub fn page<T>(&self, mut items: Vec<T>, key: impl Fn(&T) -> K) -> Page<T> {
        let limit = self.limit as usize;
        let more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = items.last().filter(|_| more).map(|item| self.cursor(key(item)));
        Page { items, next_cursor }
    }
}

impl<S: Sync> FromRequestParts<S> for RequestId {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get().cloned().unwrap_or_else(|| Self::from_headers(&parts.headers)))
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    async fn tenant(headers: &[&str]) -> Result<TenantId, HeaderError> {
        let mut request = Request::builder();
        for value in headers {
            request = request.header(X_TENANT_ID, *value);
        }
        let mut parts = request.body(()).unwrap().into_parts().0;
        <TenantHeader as FromRequestParts<()>>::from_request_parts(&mut parts, &()).await.map(|h| h.0)
    }

    #[tokio::test]
    async fn rejects_missing_malformed_and_repeated_headers() {
        assert_eq!(tenant(&["acme"]).await.unwrap().as_str(), "acme");
        let missing = tenant(&[]).await.unwrap_err();
        assert_eq!(missing, HeaderError::Missing(X_TENANT_ID));
        assert_eq!(missing.to_string(), "Send the header X-Tenant-ID.");
        assert!(matches!(tenant(&["Not a label"]).await, Err(HeaderError::Invalid(..))));
        let repeated = tenant(&["acme", "acme"]).await.unwrap_err();
        assert_eq!(repeated.to_string(), "The header X-Tenant-ID was sent more than once. Send it once.");
    }

    #[test]
    fn a_user_agent_is_kept_also_with_bytes_that_are_not_ascii() {
        let agent = HeaderValue::from_bytes(b"M\xfcller/1.0 (X11)").unwrap();
        let headers = HeaderMap::from_iter([(USER_AGENT, agent)]);
        assert_eq!(user_agent(&headers).unwrap(), "M?ller/1.0 (X11)");
        assert_eq!(user_agent(&HeaderMap::new()), None);
    }

    async fn paging(uri: &str) -> Result<Paging<u32>, Problem> {
        let mut parts = Request::builder().uri(uri).body(()).unwrap().into_parts().0;
        Paging::from_request_parts(&mut parts, &()).await
    }

    #[tokio::test]
    async fn only_a_page_with_a_successor_has_a_next_cursor() {
        let two = paging("/x?limit=2").await.unwrap();
        assert_eq!(two.rows(), 3);
        assert_eq!(two.page(vec![1, 2, 3], |i| *i).next_cursor.as_deref(), Some("x.2"));
        assert_eq!(two.page(vec![1, 2], |i| *i).next_cursor, None);
        assert_eq!(paging("/a/x?cursor=x.2").await.unwrap().after, Some(2));
    }

    #[tokio::test]
    async fn rejects_invalid_parameters() {
        for (uri, pointer, message) in [
            ("/x?limit=0", "/limit", "must be 1 to 200"),
            ("/x?limit=201", "/limit", "must be 1 to 200"),
            ("/x?limit=many", "/limit", "must be a non-negative integer"),
            ("/x?limit=1&limit=2", "/limit", "must occur only once"),
            ("/x?cursor=x.abc", "/cursor", "must be a `next_cursor` of an earlier response of this list"),
            ("/x?cursor=2", "/cursor", "must be a `next_cursor` of an earlier response of this list"),
            ("/x?cursor=y.2", "/cursor", "must be a `next_cursor` of an earlier response of this list"),
            ("/x?limit=2&&cursor=%E4", "/cursor", "must be UTF-8"),
        ] {
            let problem = paging(uri).await.unwrap_err();
            assert_eq!(problem.kind(), ProblemKind::ValidationFailed, "{uri}");
            let error = &problem.errors[0];
            assert_eq!((&*error.pointer, &*error.message), (pointer, message), "{uri}");
        }
    }

    #[derive(Debug, serde::Deserialize)]
    struct Filter {
        kind: Option<String>,
        #[serde(default, rename = "type")]
        types: Vec<String>,
    }

    #[tokio::test]
    async fn only_a_parameter_of_the_route_must_be_utf_8() {
        for (query, pointer) in [
            ("?kind=%E4", Some("/kind")),
            ("?type=a&&%74ype=%EF%BF%BD%E4&kind=b", Some("/type")),
            ("?kind=%C3+%A4", Some("/kind")),
            ("?kind=a&other=%E4", None),
            ("?kind=a&%E4", None),
        ] {
            let mut parts = Request::builder().uri(format!("/{query}")).body(()).unwrap().into_parts().0;
            let result = QueryParameters::<Filter>::from_request_parts(&mut parts, &()).await;
            let error = result.map(drop).err().map(|problem| problem.errors[0].clone());
            assert_eq!(error.as_ref().map(|error| &*error.pointer), pointer, "{query}");
            assert!(error.is_none_or(|error| error.message == "must be UTF-8"), "{query}");
        }
    }

    #[tokio::test]
    async fn a_misspelled_filter_is_rejected_with_the_right_names() {
        let parts =
            |query: &str| Request::builder().uri(format!("/{query}")).body(()).unwrap().into_parts().0;
        for (query, pointer) in [
            ("?kind=a&type=b&type=c", None),
            ("?kind=%C3%A4&type=%EF%BF%BD", None),
            ("", None),
            ("?kinds=a", Some("/kinds")),
            ("?Kind=a", Some("/Kind")),
            ("?kind=a&limit=5", Some("/limit")),
            ("?a%2Fb", Some("/a~1b")),
        ] {
            let result = Filters::<Filter>::from_request_parts(&mut parts(query), &()).await;
            let error = result.map(drop).err().map(|problem| problem.errors[0].clone());
            assert_eq!(error.as_ref().map(|error| &*error.pointer), pointer, "{query}");
            let message = "is not a parameter of this route, which are: kind, type";
            assert!(error.is_none_or(|error| error.message == message && error.code == "unknown_parameter"));
        }
        let page = Filtered::<u64, Filter>::from_request_parts(
            &mut parts("users?limit=7&cursor=users.3&kind=a"),
            &(),
        )
        .await;
        let Filtered { paging, filter } = page.ok().unwrap();
        assert_eq!(
            (paging.limit(), paging.after, filter.kind.as_deref(), filter.types.len()),
            (7, Some(3), Some("a"), 0)
        );
        let problem =
            Filtered::<u64, Filter>::from_request_parts(&mut parts("?since=1"), &()).await.err().unwrap();
        assert!(problem.errors[0].message.ends_with("kind, type, limit, cursor"), "{problem:?}");
        let problem = Paging::<u64>::from_request_parts(&mut parts("?page=2"), &()).await.unwrap_err();
        assert!(problem.errors[0].message.ends_with("limit, cursor"), "{problem:?}");
    }
}
