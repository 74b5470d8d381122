//! One route: callers, rate limit and problems. Its operation: schemas of parameters, bodies and responses.

use std::fmt::{self, Write as _};

use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema};
use tenancy::{FactorId, InviteId, KeyId, SessionId, TenantId, UserId};

use super::{Access, GROUPS, Header, RateLimit};
use crate::consumers::ConsumerName;
use crate::paths::{Upstream, upstream_below};
use crate::{API_PREFIX, ProblemKind};

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "RFC 9110 and RFC 5789 define the methods")]
pub enum Method {
    Get,
    Post,
    Patch,
    Delete,
}

impl Method {
    /// Returns the method as sent on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

impl From<Method> for http::Method {
    fn from(method: Method) -> Self {
        match method {
            Method::Get => Self::GET,
            Method::Post => Self::POST,
            Method::Patch => Self::PATCH,
            Method::Delete => Self::DELETE,
        }
    }
}

/// A route of the public API.
///
/// It has no schemas, which are in its [`Operation`]: a program that only serves or calls routes does not contain them.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a route")]
pub struct Route {
    /// Title of its group.
    pub group: &'static str,
    /// Name of its constant, such as `CREATE_TENANT`.
    name: &'static str,
    /// Lines of its documentation.
    doc: &'static [&'static str],
    /// HTTP method.
    pub method: Method,
    /// Path below [`API_PREFIX`], with parameters in braces.
    pub path: &'static str,
    /// Accepted callers; one is sufficient.
    pub access: &'static [Access],
    /// Rate limit per client address.
    pub rate_limit: RateLimit,
    /// Headers that the route reads in addition to `Authorization` and `X-Request-Id`.
    pub headers: &'static [Header],
    /// Whether the route reads query parameters.
    pub has_query: bool,
    /// Request body.
    pub body: Option<RequestBody>,
    /// Whether the body contains a new password, which the password policy may reject.
    sets_password: bool,
    /// Whether repeated requests lead to the state that one leads to, although the method does not imply it.
    declared_idempotent: bool,
    /// Whether the response is the same for every request, so that it discloses nothing.
    uniform_response: bool,
    /// Problems that cannot be derived from the other fields.
    own_problems: &'static [ProblemKind],
}

/// A route with the schemas of its parameters, request body and responses.
#[derive(Clone, Copy)]
pub struct Operation {
    /// The route.
    pub route: Route,
    /// Types with the query parameters as fields.
    pub query: &'static [SchemaRef],
    /// Type of a body that is JSON or a form.
    pub body: Option<SchemaRef>,
    /// Responses that are not problem documents; the first is the usual success.
    pub responses: &'static [RouteResponse],
}

impl Operation {
    pub(super) const fn new(method: Method, path: &'static str) -> Self {
        let route = Route {
            group: "",
            name: "",
            doc: &[],
            method,
            path,
            access: &[],
            rate_limit: RateLimit::Default,
            headers: &[],
            has_query: false,
            body: None,
            sets_password: false,
            declared_idempotent: false,
            uniform_response: false,
            own_problems: &[],
        };
        Self { route, query: &[], body: None, responses: &[] }
    }

    pub(super) const fn get(path: &'static str) -> Self {
        Self::new(Method::Get, path)
    }

    pub(super) const fn post(path: &'static str) -> Self {
        Self::new(Method::Post, path)
    }

    pub(super) const fn patch(path: &'static str) -> Self {
        Self::new(Method::Patch, path)
    }

    pub(super) const fn delete(path: &'static str) -> Self {
        Self::new(Method::Delete, path)
    }

    pub(super) const fn named(
        mut self,
        group: &'static str,
        name: &'static str,
        doc: &'static [&'static str],
    ) -> Self {
        (self.route.group, self.route.name, self.route.doc) = (group, name, doc);
        self
    }

    pub(super) const fn access(mut self, access: &'static [Access]) -> Self {
        self.route.access = access;
        self
    }

    pub(super) const fn rate_limit(mut self, rate_limit: RateLimit) -> Self {
        self.route.rate_limit = rate_limit;
        self
    }

    /// Accepts only the platform administrator, without a rate limit.
    pub(super) const fn only_platform_admin(self) -> Self {
        self.access(&[Access::PlatformAdmin]).rate_limit(RateLimit::Unlimited)
    }

    pub(super) const fn headers(mut self, headers: &'static [Header]) -> Self {
        self.route.headers = headers;
        self
    }

    pub(super) const fn query(mut self, query: &'static [SchemaRef]) -> Self {
        self.route.has_query = true;
        Self { query, ..self }
    }

    pub(super) const fn json<T: JsonSchema>(self) -> Self {
        Self { body: Some(SchemaRef::new::<T>()), ..self.body(RequestBody::Json) }
    }

    pub(super) const fn form<T: JsonSchema>(self) -> Self {
        Self { body: Some(SchemaRef::new::<T>()), ..self.body(RequestBody::Form) }
    }

    pub(super) const fn body(mut self, body: RequestBody) -> Self {
        self.route.body = Some(body);
        self
    }

    pub(super) const fn responses(self, responses: &'static [RouteResponse]) -> Self {
        Self { responses, ..self }
    }

    pub(super) const fn sets_password(mut self) -> Self {
        self.route.sets_password = true;
        self
    }

    pub(super) const fn idempotent(mut self) -> Self {
        self.route.declared_idempotent = true;
        self
    }

    pub(super) const fn uniform_response(mut self) -> Self {
        self.route.uniform_response = true;
        self
    }

    pub(super) const fn problems(mut self, own_problems: &'static [ProblemKind]) -> Self {
        self.route.own_problems = own_problems;
        self
    }

    /// Returns the path parameters with their types.
    pub fn path_parameters(&self) -> impl Iterator<Item = (&'static str, SchemaRef)> {
        self.route.path_parameters().map(|name| (name, parameter(name)))
    }
}

impl Route {
    /// Returns the operation: the route with its schemas.
    ///
    /// # Panics
    /// The route is not one of [`super::all`].
    pub fn operation(&self) -> &'static Operation {
        let mut operations = GROUPS.iter().flat_map(|group| group.operations);
        let Some(operation) = operations.find(|operation| operation.route.name == self.name) else {
            panic!("{} has no operation", self.path)
        };
        operation
    }

    /// Returns the `operationId` of the OpenAPI document, such as `create_tenant`.
    pub fn operation_id(&self) -> String {
        self.name.to_ascii_lowercase()
    }

    /// Returns the one-line summary.
    pub fn summary(&self) -> &'static str {
        self.doc.first().map_or("", |line| line.trim()).trim_end_matches('.')
    }

    /// Returns the description below the summary as Markdown, possibly empty.
    pub fn description(&self) -> String {
        let lines: Vec<_> = self.doc.iter().skip(1).map(|line| line.trim()).collect();
        lines.join("\n").trim().to_owned()
    }

    /// Returns the full path template, such as `/api/v1/users/{user_id}`.
    pub fn full_path(&self) -> String {
        format!("{API_PREFIX}{}", self.path)
    }

    /// Returns the path below [`API_PREFIX`] with its parameters replaced, in order, by percent-encoded values.
    pub fn path_with(&self, values: &[&dyn fmt::Display]) -> String {
        debug_assert_eq!(self.path_parameters().count(), values.len(), "{}", self.path);
        let mut values = values.iter();
        let mut path = String::new();
        for segment in self.path.split('/').skip(1) {
            path.push('/');
            match values.as_slice().first().filter(|_| segment.starts_with('{')) {
                Some(value) => {
                    push_encoded(&mut path, &value.to_string());
                    values.next();
                }
                None => path.push_str(segment),
            }
        }
        path
    }

    /// Returns the service that serves the route.
    pub fn upstream(&self) -> Upstream {
        upstream_below(self.path)
    }

    /// Returns the names of the path parameters.
    pub fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
    }

    /// Returns the accepted callers as Markdown, separated by semicolons.
    pub fn callers(&self) -> String {
        let callers: Vec<_> = self.access.iter().map(ToString::to_string).collect();
        callers.join("; ")
    }

    /// Returns whether repeated requests lead to the state that one leads to (RFC 9110, section 9.2.2). After a lost response, only
    /// such a request can be repeated without a check.
    pub const fn is_idempotent(&self) -> bool {
        self.declared_idempotent || matches!(self.method, Method::Get | Method::Delete)
    }

    /// Returns whether every error of the route is an OAuth error (RFC 6749, section 5.2) instead of a problem document.
    pub fn has_oauth_errors(&self) -> bool {
        self.body == Some(RequestBody::Form)
    }

    /// Returns whether a path below [`API_PREFIX`], without a query, is a path of this route.
    pub(super) fn matches(&self, path: &str) -> bool {
        let same = |(own, other): (&str, &str)| own == other || own.starts_with('{') && !other.is_empty();
        self.path.split('/').count() == path.split('/').count()
            && self.path.split('/').zip(path.split('/')).all(same)
    }

    /// Returns whether some caller sends a bearer credential.
    pub fn takes_bearer(&self) -> bool {
        self.access.iter().any(|access| access.is_bearer())
    }

    /// Returns every problem that the route can respond with, ordered by status.
    pub fn all_problems(&self) -> Vec<ProblemKind> {
        let possible = |kind: &ProblemKind| self.own_problems.contains(kind) || self.implies(*kind);
        ProblemKind::ALL.iter().copied().filter(possible).collect()
    }

    /// Returns whether a problem follows from what the route reads.
    fn implies(&self, kind: ProblemKind) -> bool {
        use ProblemKind as P;
        if self.has_oauth_errors() {
            return false;
        }
        if self.uniform_response {
            return kind == P::Internal;
        }
        let (bearer, body) = (self.takes_bearer(), self.body.is_some());
        let by = |access| self.access.contains(&access);
        let only_platform_admin = self.access == [Access::PlatformAdmin];
        match kind {
            P::HeaderMissing => !self.headers.is_empty(),
            P::HeaderInvalid => {
                let parsed = self.headers.iter().any(|header| *header != Header::Session);
                bearer && !only_platform_admin || parsed
            }
            P::Unauthenticated => bearer && !by(Access::RequestSecret),
            P::CredentialInvalid => bearer,
            // Routes that do not accept the platform token reject it without checking it.
            P::Forbidden => {
                bearer && !by(Access::PlatformAdmin)
                    || only_platform_admin
                    || (by(Access::Admin) || by(Access::RecentAdmin)) && !by(Access::Owner)
            }
            P::ReauthenticationRequired => by(Access::RecentAdmin) || by(Access::RecentMember),
            P::TenantMismatch => bearer && !only_platform_admin,
            P::InsufficientScope => self.access.iter().any(|access| matches!(access, Access::Key(_))),
            P::NotFound => self.path_parameters().next().is_some(),
            P::BodyTimeout | P::ContentEncoding | P::TransferEncoding | P::MalformedJson | P::MediaType => {
                body
            }
            P::BodyTooLarge => self.body == Some(RequestBody::Json),
            P::MalformedEncoding => matches!(self.body, Some(RequestBody::Event | RequestBody::Events)),
            P::ValidationFailed => body || self.has_query,
            P::PasswordTooShort
            | P::PasswordTooLong
            | P::PasswordCommon
            | P::PasswordBreached
            | P::PasswordContext
            | P::PasswordInvalid => self.sets_password,
            P::RateLimited => self.rate_limit != RateLimit::Unlimited,
            P::DependencyUnavailable => self.access != [Access::Public],
            P::Internal => true,
            _ => false,
        }
    }
}

/// Returns the type of a path parameter.
fn parameter(name: &str) -> SchemaRef {
    match name {
        "tenant_id" => SchemaRef::new::<TenantId>(),
        "user_id" => SchemaRef::new::<UserId>(),
        "invite_id" => SchemaRef::new::<InviteId>(),
        "session_id" => SchemaRef::new::<SessionId>(),
        "key_id" => SchemaRef::new::<KeyId>(),
        "factor_id" => SchemaRef::new::<FactorId>(),
        "consumer_name" => SchemaRef::new::<ConsumerName>(),
        "sequence" => SchemaRef::new::<u64>(),
        _ => SchemaRef::new::<String>(),
    }
}

/// Appends a path segment; everything but the unreserved characters of RFC 3986 is percent-encoded.
fn push_encoded(path: &mut String, segment: &str) {
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
}

/// A wire type, referenced by its JSON Schema.
#[derive(Clone, Copy)]
pub struct SchemaRef(fn(&mut SchemaGenerator) -> Schema);

impl SchemaRef {
    /// Returns a reference to the schema of `T`.
    pub const fn new<T: JsonSchema>() -> Self {
        Self(SchemaGenerator::subschema_for::<T>)
    }

    /// Adds the schema to the generator and returns a reference to it.
    pub fn schema(self, generator: &mut SchemaGenerator) -> Schema {
        (self.0)(generator)
    }
}

/// The body of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RequestBody {
    /// `application/json`.
    Json,
    /// `application/x-www-form-urlencoded` or `application/json`. An invalid body gets 400 with an OAuth error.
    Form,
    /// One UDM event as `application/json`. The type is defined in the `udm` crate.
    Event,
    /// Several UDM events: a list as `application/json`, or one event per line as `application/x-ndjson`.
    Events,
}

/// The body of a response.
#[derive(Clone, Copy)]
pub enum ResponseBody {
    /// No body.
    Empty,
    /// `application/json` of this type.
    Json(SchemaRef),
    /// `text/event-stream` (HTML standard, server-sent events). The data of its events is JSON of this type.
    EventStream(SchemaRef),
    /// A JSON document that is its own description, such as a JSON Schema.
    Document,
    /// HTML.
    Page,
    /// A style sheet, a script, or a PNG or SVG image.
    File,
}

/// A response that is not a problem document.
#[derive(Clone, Copy)]
pub struct RouteResponse {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: ResponseBody,
    /// Description for the OpenAPI document.
    pub description: &'static str,
}

impl RouteResponse {
    /// A status without a body.
    pub const fn empty(status: u16, description: &'static str) -> Self {
        Self { status, body: ResponseBody::Empty, description }
    }

    /// A status with a JSON body.
    pub const fn json<T: JsonSchema>(status: u16, description: &'static str) -> Self {
        Self { status, body: ResponseBody::Json(SchemaRef::new::<T>()), description }
    }

    /// 200 with server-sent events that contain this type.
    pub const fn event_stream<T: JsonSchema>(description: &'static str) -> Self {
        Self { status: 200, body: ResponseBody::EventStream(SchemaRef::new::<T>()), description }
    }

    /// 200 with a JSON document.
    pub const fn document(description: &'static str) -> Self {
        Self { status: 200, body: ResponseBody::Document, description }
    }

    /// 200 with a page.
    pub const fn page(description: &'static str) -> Self {
        Self { status: 200, body: ResponseBody::Page, description }
    }

    /// 200 with a file of a page.
    pub const fn file(description: &'static str) -> Self {
        Self { status: 200, body: ResponseBody::File, description }
    }
}
