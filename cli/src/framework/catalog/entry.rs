//! The part of a catalog entry that clap cannot derive. The compiler requires it for each command.

use contract::ProblemKind;
use contract::routes::{Method, Route};
use serde::Serialize;
use serde_json::Value;

use super::schema::schema_of;
use crate::commands::Command;
use crate::environment;
use crate::error::{CliError, ErrorKind, Exit, ProblemText, may_have_effect};

/// Local errors.
pub(crate) type Errors = &'static [ErrorKind];
/// Descriptions and command lines.
pub(crate) type Examples = &'static [(&'static str, &'static str)];
/// Names of commands.
pub(crate) type Names = &'static [&'static str];
/// Returns a JSON Schema.
pub(crate) type SchemaOf = fn() -> Value;
/// Names of options without hyphens, and the JSON Schema of a line of the file that each names.
pub(crate) type OptionSchemas = &'static [(&'static str, SchemaOf)];

/// The constants of a [`Command`].
#[derive(Clone)]
pub(crate) struct CatalogEntry {
    pub(super) requires: Requirement,
    pub(super) routes: Routes,
    pub(super) errors: Errors,
    pub(crate) examples: Examples,
    pub(super) agent_notes: &'static str,
    pub(super) see_also: Names,
    pub(super) input_schema: Option<SchemaOf>,
    pub(super) output_schema: SchemaOf,
    pub(super) option_schemas: OptionSchemas,
    pub(super) after_lost_response: Option<&'static str>,
    changes_nothing: bool,
}

impl CatalogEntry {
    pub(crate) fn of<C: Command>() -> Self {
        Self {
            requires: C::REQUIRES,
            routes: C::ROUTES,
            errors: C::ERRORS,
            examples: C::EXAMPLES,
            agent_notes: C::AGENT_NOTES,
            see_also: C::SEE_ALSO,
            input_schema: C::INPUT_SCHEMA,
            output_schema: schema_of::<C::Output>,
            option_schemas: C::OPTION_SCHEMAS,
            after_lost_response: C::AFTER_LOST_RESPONSE,
            changes_nothing: C::READ_ONLY,
        }
    }

    /// Returns whether the command only reads. Follows from the routes of a command that calls any.
    pub(super) fn is_read_only(&self) -> bool {
        match self.routes {
            Routes::Only(routes) if !routes.is_empty() => {
                routes.iter().all(|route| route.method == Method::Get)
            }
            _ => self.changes_nothing,
        }
    }

    pub(super) fn variables(&self) -> &'static [Variable] {
        if self.errors.contains(&ErrorKind::PlatformTokenMissing) {
            return Requirement::CredentialOrPlatformToken.variables();
        }
        self.requires.variables()
    }

    /// Adds how to check whether the command had its effect, to an error after which it must not be repeated without this check.
    pub(crate) fn explain(&self, error: CliError) -> CliError {
        let Some(check) = self.after_lost_response else { return error };
        let may_have_effect = ProblemKind::from_code(&error.code).is_some_and(may_have_effect);
        let is_uncertain = match self.routes {
            // The catalog has one value for all requests of a command.
            Routes::Only(_) => may_have_effect,
            Routes::Any => may_have_effect && !error.retryable,
        };
        if is_uncertain || error.code == ErrorKind::ResponseLost.code() {
            return CliError { retryable: false, ..error }.with_remediation(check);
        }
        error
    }

    /// Errors of the command, each once: local errors, problems of the routes, errors of the prerequisites.
    pub(super) fn possible_errors(&self) -> Vec<PossibleError> {
        let own = self.errors.iter().copied().map(PossibleError::Local);
        let lost = self.after_lost_response.map(PossibleError::ResponseLost);
        let all = own.chain(self.routes.problems()).chain(lost).chain(self.requires.errors());
        let all = all.map(|error| match (error, self.after_lost_response) {
            (PossibleError::Api(kind, _), Some(check)) if may_have_effect(kind) => {
                PossibleError::Uncertain(kind, check)
            }
            _ => error,
        });
        all.fold(Vec::new(), |mut errors, error| {
            if errors.iter().all(|other: &PossibleError| other.code() != error.code()) {
                errors.push(error);
            }
            errors
        })
    }
}

/// A heading of the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelpGroup {
    Identity,
    Events,
    Tools,
}

impl HelpGroup {
    /// All headings, in order.
    pub(crate) const ALL: &[Self] = &[Self::Identity, Self::Events, Self::Tools];

    /// Heading of a command with this full name.
    pub(crate) fn of(name: &str) -> Self {
        match name.split(' ').next() {
            Some("events" | "consumers") => Self::Events,
            Some(
                "api" | "catalog" | "config" | "completion" | "doctor" | "man-pages" | "version" | "help",
            ) => Self::Tools,
            _ => Self::Identity,
        }
    }

    /// Text of the heading, and `group` in the catalog.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Identity => "Identity",
            Self::Events => "Events",
            Self::Tools => "Tools",
        }
    }
}

/// Routes that a command calls.
#[derive(Clone, Copy)]
pub(crate) enum Routes {
    /// These routes.
    Only(&'static [&'static Route]),
    /// Any route, chosen by the user.
    Any,
}

impl Routes {
    fn problems(self) -> Vec<PossibleError> {
        match self {
            Self::Any => ProblemKind::ALL.iter().map(|kind| PossibleError::Api(*kind, "")).collect(),
            Self::Only(routes) => {
                let problems = routes.iter().flat_map(|route| {
                    route.all_problems().into_iter().map(|kind| PossibleError::Api(kind, route.path))
                });
                problems.filter(|error| !error.is_prevented()).collect()
            }
        }
    }
}

/// Returns whether the client itself prevents a problem, because it builds headers, encodings and batches.
const fn is_prevented(kind: ProblemKind) -> bool {
    matches!(
        kind,
        ProblemKind::HeaderMissing
            | ProblemKind::HeaderInvalid
            | ProblemKind::MalformedJson
            | ProblemKind::MalformedEncoding
            | ProblemKind::MediaType
            | ProblemKind::ContentEncoding
            | ProblemKind::BodyTimeout
            | ProblemKind::BodyTooLarge
            | ProblemKind::EmptyBatch
            | ProblemKind::BatchTooLarge
            | ProblemKind::Unauthenticated
    )
}

/// An error that a command can return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PossibleError {
    /// Detected by the client.
    Local(ErrorKind),
    /// Returned by the API for a route with this path template, or for any route.
    Api(ProblemKind, &'static str),
    /// The response to a request that is not idempotent was lost. The text describes how to check what happened.
    ResponseLost(&'static str),
    /// As the last one, but the API reports the problem.
    Uncertain(ProblemKind, &'static str),
}

impl PossibleError {
    const fn is_prevented(self) -> bool {
        matches!(self, Self::Api(kind, _) if is_prevented(kind))
    }

    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::Local(kind) => kind.code(),
            Self::ResponseLost(_) => ErrorKind::ResponseLost.code(),
            Self::Api(kind, _) | Self::Uncertain(kind, _) => kind.code(),
        }
    }

    pub(super) fn text(self) -> ProblemText {
        match self {
            Self::Local(kind) => ProblemText { title: kind.title(), remediation: kind.remediation() },
            Self::Api(kind, path) => ProblemText::of(kind, path),
            Self::ResponseLost(remediation) => {
                ProblemText { title: ErrorKind::ResponseLost.title(), remediation }
            }
            Self::Uncertain(kind, remediation) => ProblemText { title: kind.title(), remediation },
        }
    }

    /// Returns whether the common errors contain this one with the same text.
    pub(super) fn is_common(self) -> bool {
        let same = |other: &Self| other.code() == self.code() && other.text() == self.text();
        COMMON_ERRORS.iter().any(same)
    }

    pub(super) const fn exit(self) -> Exit {
        match self {
            Self::Local(kind) => kind.exit(),
            Self::ResponseLost(_) => ErrorKind::ResponseLost.exit(),
            Self::Api(kind, _) | Self::Uncertain(kind, _) => Exit::from_problem(kind),
        }
    }

    pub(super) const fn is_retryable(self) -> bool {
        match self {
            Self::Local(kind) => kind.is_retryable(),
            Self::Api(kind, _) => kind.is_retryable(),
            Self::ResponseLost(_) | Self::Uncertain(..) => false,
        }
    }
}

/// What a command needs before it can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    Nothing,
    /// The location of the client's files.
    ConfigDirectory,
    /// The credentials file.
    CredentialsFile,
    /// A session, without a request to the service.
    StoredSession,
    /// The service.
    Service,
    /// The service and a session.
    Session,
    /// The service, and a session or an API key.
    Credential,
    /// The service, and a session or the platform token.
    SessionOrPlatformToken,
    /// The service, and a session, an API key or the platform token.
    CredentialOrPlatformToken,
    /// The service and the platform token.
    PlatformToken,
}

/// Errors of every command.
const ANY_COMMAND: &[PossibleError] = &[
    PossibleError::Local(ErrorKind::Usage),
    PossibleError::Local(ErrorKind::OutputFailed),
    PossibleError::Local(ErrorKind::BrokenPipe),
    PossibleError::Local(ErrorKind::HungUp),
    PossibleError::Local(ErrorKind::Interrupted),
    PossibleError::Local(ErrorKind::Quit),
    PossibleError::Local(ErrorKind::Terminated),
    PossibleError::Local(ErrorKind::Defect),
];
const CONFIG_DIRECTORY: &[PossibleError] = &[PossibleError::Local(ErrorKind::ConfigurationInvalid)];
const CREDENTIALS_FILE: &[PossibleError] = &[
    PossibleError::Local(ErrorKind::CredentialsExposed),
    PossibleError::Local(ErrorKind::CredentialsUnusable),
];
/// Errors of every request.
const ANY_REQUEST: &[PossibleError] = &[
    PossibleError::Local(ErrorKind::Unreachable),
    PossibleError::Local(ErrorKind::TimedOut),
    PossibleError::Local(ErrorKind::UnexpectedResponse),
    PossibleError::Api(ProblemKind::RateLimited, ""),
    PossibleError::Api(ProblemKind::Overloaded, ""),
    PossibleError::Api(ProblemKind::DependencyUnavailable, ""),
    PossibleError::Api(ProblemKind::Internal, ""),
];
const NOT_LOGGED_IN: &[PossibleError] = &[PossibleError::Local(ErrorKind::NotLoggedIn)];
const PLATFORM_TOKEN_MISSING: &[PossibleError] = &[PossibleError::Local(ErrorKind::PlatformTokenMissing)];
const CREDENTIAL_INVALID: &[PossibleError] = &[PossibleError::Api(ProblemKind::CredentialInvalid, "")];
const TENANT_MISMATCH: &[PossibleError] = &[PossibleError::Api(ProblemKind::TenantMismatch, "")];

/// Errors that most commands share. The descriptor of `svc` lists them once.
pub(super) const COMMON_ERRORS: &[PossibleError] = &[
    PossibleError::Local(ErrorKind::Usage),
    PossibleError::Local(ErrorKind::InputNeeded),
    PossibleError::Local(ErrorKind::InputInvalid),
    PossibleError::Local(ErrorKind::InputUnreadable),
    PossibleError::Local(ErrorKind::Declined),
    PossibleError::Local(ErrorKind::AmbiguousId),
    PossibleError::Api(ProblemKind::ValidationFailed, ""),
    PossibleError::Local(ErrorKind::NotLoggedIn),
    PossibleError::Local(ErrorKind::PlatformTokenMissing),
    PossibleError::Api(ProblemKind::CredentialInvalid, ""),
    PossibleError::Api(ProblemKind::TenantMismatch, ""),
    PossibleError::Api(ProblemKind::Forbidden, ""),
    PossibleError::Api(ProblemKind::InsufficientScope, ""),
    PossibleError::Api(ProblemKind::ReauthenticationRequired, ""),
    PossibleError::Local(ErrorKind::Unreachable),
    PossibleError::Local(ErrorKind::TimedOut),
    PossibleError::Local(ErrorKind::UnexpectedResponse),
    PossibleError::Api(ProblemKind::RateLimited, ""),
    PossibleError::Api(ProblemKind::Overloaded, ""),
    PossibleError::Api(ProblemKind::DependencyUnavailable, ""),
    PossibleError::Api(ProblemKind::Internal, ""),
    PossibleError::Local(ErrorKind::ConfigurationInvalid),
    PossibleError::Local(ErrorKind::CredentialsExposed),
    PossibleError::Local(ErrorKind::CredentialsUnusable),
    PossibleError::Local(ErrorKind::OutputFailed),
    PossibleError::Local(ErrorKind::BrokenPipe),
    PossibleError::Local(ErrorKind::HungUp),
    PossibleError::Local(ErrorKind::Interrupted),
    PossibleError::Local(ErrorKind::Quit),
    PossibleError::Local(ErrorKind::Terminated),
    PossibleError::Local(ErrorKind::Defect),
];

impl Requirement {
    fn errors(self) -> Vec<PossibleError> {
        let offline = [Self::Nothing, Self::ConfigDirectory, Self::CredentialsFile, Self::StoredSession];
        let sets = [
            (true, ANY_COMMAND),
            (self != Self::Nothing, CONFIG_DIRECTORY),
            (!matches!(self, Self::Nothing | Self::ConfigDirectory), CREDENTIALS_FILE),
            (!offline.contains(&self), ANY_REQUEST),
            (self.takes_session() || self == Self::PlatformToken, CREDENTIAL_INVALID),
            (self.takes_session(), TENANT_MISMATCH),
            (self.takes_session() || self == Self::StoredSession, NOT_LOGGED_IN),
            (self == Self::PlatformToken, PLATFORM_TOKEN_MISSING),
        ];
        sets.into_iter().filter(|(applies, _)| *applies).flat_map(|(_, errors)| errors).copied().collect()
    }

    const fn takes_session(self) -> bool {
        matches!(
            self,
            Self::Session | Self::SessionOrPlatformToken | Self::Credential | Self::CredentialOrPlatformToken
        )
    }

    /// Variables with the credential, in order of precedence.
    const fn variables(self) -> &'static [Variable] {
        match self {
            Self::StoredSession | Self::Session => &[Variable::TOKEN],
            Self::Credential => &[Variable::TOKEN, Variable::API_KEY],
            Self::SessionOrPlatformToken => &[Variable::TOKEN, Variable::PLATFORM_TOKEN],
            Self::CredentialOrPlatformToken => {
                &[Variable::TOKEN, Variable::API_KEY, Variable::PLATFORM_TOKEN]
            }
            Self::PlatformToken => &[Variable::PLATFORM_TOKEN],
            Self::Nothing | Self::ConfigDirectory | Self::CredentialsFile | Self::Service => &[],
        }
    }
}

/// An environment variable that is not an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Variable {
    /// Name.
    name: &'static str,
    /// Variable with the path of a file that contains the value; read if the first one is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'static str>,
    /// Meaning of the value.
    description: &'static str,
}

impl Variable {
    const TOKEN: Self =
        Self::secret(environment::TOKEN, "SVC_TOKEN_FILE", "Session token, instead of the stored login");
    const API_KEY: Self = Self::secret(environment::API_KEY, "SVC_API_KEY_FILE", "API key");
    const PLATFORM_TOKEN: Self =
        Self::secret(environment::PLATFORM_TOKEN, "SVC_PLATFORM_TOKEN_FILE", "Platform token");

    /// Variables that affect every command.
    pub(super) const COMMON: &[Self] = &[
        Self::setting("CI", "If set, no command prompts"),
        Self::setting("NO_COLOR", "If set, messages have no colors"),
        Self::setting(
            "HTTPS_PROXY",
            "Proxy for requests, as are HTTP_PROXY, ALL_PROXY and NO_PROXY; not used for loopback",
        ),
        Self::setting("COLUMNS", "Width of tables, instead of that of the terminal"),
        Self::setting("TRACEPARENT", "Trace that the requests belong to (W3C Trace Context)"),
        Self::setting("DBUS_SESSION_BUS_ADDRESS", "D-Bus session with the keyring (Linux)"),
        Self::setting("XDG_CONFIG_HOME", "Directory of the configuration directory `svc`"),
    ];

    const fn secret(name: &'static str, file: &'static str, description: &'static str) -> Self {
        Self { name, file: Some(file), description }
    }

    const fn setting(name: &'static str, description: &'static str) -> Self {
        Self { name, file: None, description }
    }
}
