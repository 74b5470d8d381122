//! One route: what is asked, who may ask, and what is answered.

use schemars::JsonSchema;
use tenancy::{InviteId, KeyId, SessionId, TenantId, UserId};

use super::{Access, Answer, Body, Header, Type};
use crate::ProblemKind;
use crate::paths::{Upstream, upstream_below};

/// The methods in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "RFC 9110 and RFC 5789 say what they are")]
pub enum Method {
    Get,
    Post,
    Patch,
    Delete,
}

impl Method {
    /// As it stands in a request.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// A route of the public API.
#[derive(Clone, Copy)]
pub struct Route {
    /// What it belongs to.
    pub group: &'static str,
    /// The name of its constant: `CREATE_TENANT`.
    name: &'static str,
    /// Its documentation, line by line.
    doc: &'static [&'static str],
    /// Its method.
    pub method: Method,
    /// Its path below [`API_PREFIX`](crate::API_PREFIX), with parameters in braces.
    pub path: &'static str,
    /// Who may call it; one of them suffices.
    pub access: &'static [Access],
    /// The headers that it reads beside `Authorization` and `X-Request-Id`.
    pub headers: &'static [Header],
    /// The types whose fields are its query parameters.
    pub query: &'static [Type],
    /// The body that it takes.
    pub body: Option<Body>,
    /// What it answers when all is well.
    pub answers: &'static [Answer],
    /// Whether the body holds a password to set, which the policy may refuse.
    sets_password: bool,
    /// Whether it answers the same whatever it is sent, so that nothing can be learned from it.
    uniform_response: bool,
    /// What of its own can go wrong, beside what follows from the rest.
    own_problems: &'static [ProblemKind],
}

impl Route {
    pub(super) const fn new(method: Method, path: &'static str) -> Self {
        Self {
            group: "",
            name: "",
            doc: &[],
            method,
            path,
            access: &[],
            headers: &[],
            query: &[],
            body: None,
            answers: &[],
            sets_password: false,
            uniform_response: false,
            own_problems: &[],
        }
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
        self,
        group: &'static str,
        name: &'static str,
        doc: &'static [&'static str],
    ) -> Self {
        Self { group, name, doc, ..self }
    }

    pub(super) const fn access(self, access: &'static [Access]) -> Self {
        Self { access, ..self }
    }

    pub(super) const fn headers(self, headers: &'static [Header]) -> Self {
        Self { headers, ..self }
    }

    pub(super) const fn query(self, query: &'static [Type]) -> Self {
        Self { query, ..self }
    }

    pub(super) const fn takes<T: JsonSchema>(self) -> Self {
        self.takes_body(Body::Json(Type::of::<T>()))
    }

    pub(super) const fn takes_form<T: JsonSchema>(self) -> Self {
        self.takes_body(Body::Form(Type::of::<T>()))
    }

    pub(super) const fn takes_body(self, body: Body) -> Self {
        Self { body: Some(body), ..self }
    }

    pub(super) const fn answers(self, answers: &'static [Answer]) -> Self {
        Self { answers, ..self }
    }

    pub(super) const fn sets_password(self) -> Self {
        Self { sets_password: true, ..self }
    }

    pub(super) const fn uniform_response(self) -> Self {
        Self { uniform_response: true, ..self }
    }

    pub(super) const fn problems(self, own_problems: &'static [ProblemKind]) -> Self {
        Self { own_problems, ..self }
    }
}

impl Route {
    /// The operation's name in the OpenAPI document and in clients made from it: `create_tenant`.
    pub fn operation_id(&self) -> String {
        self.name.to_ascii_lowercase()
    }

    /// What it does, in a few words.
    pub fn summary(&self) -> &'static str {
        self.doc.first().map_or("", |line| line.trim()).trim_end_matches('.')
    }

    /// What else there is to say, in Markdown; empty when there is nothing.
    pub fn description(&self) -> String {
        let lines: Vec<_> = self.doc.iter().skip(1).map(|line| line.trim()).collect();
        lines.join("\n").trim().to_owned()
    }

    /// The service that answers.
    pub fn upstream(&self) -> Upstream {
        upstream_below(self.path)
    }

    /// The parameters in its path, each with its type.
    pub fn path_parameters(&self) -> impl Iterator<Item = (&'static str, Type)> {
        let names = self.path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
        names.map(|name| (name, parameter(name)))
    }

    /// Whether a bearer credential is needed, or can be.
    pub fn takes_bearer(&self) -> bool {
        self.access.iter().any(|access| access.is_bearer())
    }

    /// Everything that it can answer when something is wrong, by status.
    pub fn all_problems(&self) -> Vec<ProblemKind> {
        let possible = |kind: &ProblemKind| self.own_problems.contains(kind) || self.implies(*kind);
        ProblemKind::ALL.iter().copied().filter(possible).collect()
    }

    /// Whether a problem follows from what the route takes.
    fn implies(&self, kind: ProblemKind) -> bool {
        use ProblemKind as P;
        if self.uniform_response {
            return kind == P::Internal;
        }
        let (bearer, body) = (self.takes_bearer(), self.body.is_some());
        // Their own answers tell what is wrong with the request itself.
        let problems = !matches!(self.body, Some(Body::Form(_)));
        let by = |access| self.access.contains(&access);
        let only_platform_admin = self.access == [Access::PlatformAdmin];
        match kind {
            P::HeaderMissing => problems && !self.headers.is_empty(),
            P::HeaderInvalid => {
                let names = self.headers.iter().any(|header| *header != Header::Session);
                problems && (bearer && !only_platform_admin || names)
            }
            P::Unauthenticated => bearer && !by(Access::Proof),
            P::CredentialInvalid => bearer,
            P::Forbidden => (only_platform_admin || by(Access::Admin)) && !by(Access::Owner),
            P::TenantMismatch => bearer && !only_platform_admin,
            P::InsufficientScope => self.access.iter().any(|access| matches!(access, Access::Key(_))),
            P::NotFound => self.path_parameters().next().is_some(),
            P::BodyTimeout => body,
            P::MalformedJson | P::MediaType => problems && body,
            P::BodyTooLarge => matches!(self.body, Some(Body::Json(_) | Body::Form(_))),
            P::MalformedEncoding | P::ContentEncoding => {
                matches!(self.body, Some(Body::Event | Body::Events))
            }
            P::ValidationFailed => problems && body || !self.query.is_empty(),
            P::PasswordTooShort
            | P::PasswordTooLong
            | P::PasswordCommon
            | P::PasswordBreached
            | P::PasswordContext
            | P::PasswordInvalid => self.sets_password,
            P::RateLimited => self.upstream() != Upstream::Ingest,
            P::DependencyUnavailable => self.access != [Access::Anybody],
            P::Internal => true,
            _ => false,
        }
    }
}

/// The type of a path's parameter, by its name.
fn parameter(name: &str) -> Type {
    match name {
        "tenant_id" => Type::of::<TenantId>(),
        "user_id" => Type::of::<UserId>(),
        "invite_id" => Type::of::<InviteId>(),
        "session_id" => Type::of::<SessionId>(),
        "key_id" => Type::of::<KeyId>(),
        _ => Type::of::<String>(),
    }
}
