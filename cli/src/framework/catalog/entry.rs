//! The part of a catalog entry that clap cannot derive. The compiler requires it for each command.

use std::fmt;

use contract::ProblemKind;
use contract::routes::{Access, Header, Method, Route};
use serde::Serialize;
use serde_json::Value;

use crate::framework::credential::{API_KEY, PLATFORM_TOKEN, TOKEN};
use crate::framework::error::{CliError, ErrorKind, may_have_effect};

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

/// The constants of a command.
#[derive(Clone)]
pub(crate) struct CatalogEntry {
    pub(crate) requires: Requirement,
    pub(crate) routes: Routes,
    pub(crate) errors: Errors,
    pub(crate) examples: Examples,
    pub(crate) agent_notes: &'static str,
    pub(crate) see_also: Names,
    pub(crate) input_schema: Option<SchemaOf>,
    pub(crate) output_schema: SchemaOf,
    pub(crate) option_schemas: OptionSchemas,
    pub(crate) after_lost_response: Option<&'static str>,
    pub(crate) after_lost_output: Option<&'static str>,
    pub(crate) changes_nothing: bool,
    pub(crate) writes_file: bool,
}

impl CatalogEntry {
    /// What the command changes. Follows from the routes of a command that calls any.
    pub(super) fn effect(&self) -> Effect {
        let reads = match self.routes {
            Routes::Only(routes) if !routes.is_empty() => {
                routes.iter().all(|route| route.method == Method::Get) && !self.writes_file
            }
            _ => self.changes_nothing,
        };
        match self.errors.contains(&ErrorKind::Declined) || matches!(self.routes, Routes::Any) {
            _ if reads => Effect::Reads,
            true => Effect::Destroys,
            false => Effect::Writes,
        }
    }

    /// Who may run the command: the callers of its first route that use one of its credentials.
    fn callers(&self) -> Vec<String> {
        let Routes::Only([route, ..]) = self.routes else { return Vec::new() };
        let uses = |access: &&Access| {
            let variable = match access {
                Access::Public | Access::RequestSecret => return false,
                Access::Key(_) | Access::AnyKey => &Variable::API_KEY,
                Access::PlatformAdmin => &Variable::PLATFORM_TOKEN,
                Access::Owner
                | Access::Member
                | Access::Admin
                | Access::RecentAdmin
                | Access::RecentMember => &Variable::TOKEN,
            };
            self.requires.variables().contains(variable)
        };
        route.access.iter().filter(uses).map(ToString::to_string).collect()
    }

    /// Notes for an agent, after the effect, the variables and the callers.
    pub(super) fn notes(&self) -> String {
        let variables: Vec<_> = self.requires.variables().iter().map(Variable::names).collect();
        let credential = match variables.as_slice() {
            [] => String::new(),
            variables => format!("Credential: {}. ", variables.join(", else ")),
        };
        let callers = match self.callers().as_slice() {
            [] => String::new(),
            callers => format!("Allowed callers: {}. ", callers.join("; ")),
        };
        let effect = match self.routes {
            Routes::Any => "Destroys with other methods than GET, without confirmation.",
            Routes::Only(_) => self.effect().phrase(),
        };
        format!("{effect} {credential}{callers}{}", self.agent_notes)
    }

    /// Adds how to check whether the command had its effect, to an error after which it must not be repeated without this check.
    pub(crate) fn explain(&self, error: CliError) -> CliError {
        // The catalog has one value for all requests of a command. The request of `svc api` can be one that may be repeated.
        let is_repeatable = matches!(self.routes, Routes::Any) && error.retryable;
        if is_repeatable { error } else { self.with_check(error) }
    }

    fn with_check(&self, error: CliError) -> CliError {
        let may_have_effect = ProblemKind::from_code(&error.code).is_some_and(may_have_effect);
        match self.after_lost_response {
            Some(check) if may_have_effect || error.code == ErrorKind::ResponseLost.code() => {
                CliError { retryable: false, ..error }.with_remediation(check)
            }
            _ => error,
        }
    }

    /// Error of a command that had its effect and could not write its output. `own` is the error of the command itself.
    pub(crate) fn lost_output(&self, error: CliError, own: Option<CliError>) -> CliError {
        let own = own.filter(|_| self.after_lost_response.is_none() && self.effect() != Effect::Reads);
        match (own, self.after_lost_output) {
            (Some(own), _) => CliError { message: format!("{}\n  {}", own.message, error.message), ..own },
            (None, Some(check)) => {
                let message =
                    format!("the command had its effect, and its output is lost: {}", error.message);
                ErrorKind::ResponseLost.with_message(message).with_remediation(check)
            }
            (None, None) => error,
        }
    }

    /// Errors of the command, each once: local errors, problems of the routes, errors of the prerequisites.
    pub(super) fn possible_errors(&self) -> Vec<CliError> {
        let own = self.errors.iter().copied().map(CliError::from);
        let check = self.after_lost_response.or(self.after_lost_output);
        let lost = check.map(|check| CliError::from(ErrorKind::ResponseLost).with_remediation(check));
        let all = own.chain(self.routes.problems()).chain(lost).chain(self.requires.errors());
        all.fold(Vec::new(), |mut errors, error| {
            if errors.iter().all(|other: &CliError| other.code != error.code) {
                errors.push(self.with_check(error));
            }
            errors
        })
    }
}

/// What a command changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effect {
    /// Nothing, neither in the service nor in files of the client.
    Reads,
    /// It can be changed back, or adds something.
    Writes,
    /// It ends access or deletes data, and asks for confirmation.
    Destroys,
}

impl Effect {
    /// Start of the notes for agents.
    pub(super) const fn phrase(self) -> &'static str {
        match self {
            Self::Reads => "Reads only.",
            Self::Writes => "Writes.",
            Self::Destroys => "Destroys, or interrupts people: can ask for confirmation, which --yes gives.",
        }
    }
}

/// Headings of the help, in order.
pub(crate) const HELP_GROUPS: [&str; 3] = ["Identity", "Events", "Tools"];

/// Heading of a command with this full name, and `group` in the catalog.
pub(crate) fn help_group(name: &str) -> &'static str {
    match name.split(' ').next() {
        Some("events" | "consumers") => "Events",
        Some("api" | "catalog" | "config" | "completion" | "doctor" | "man-pages" | "version" | "help") => {
            "Tools"
        }
        _ => "Identity",
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
    /// Returns what the first route accepts. A command without routes needs nothing, one with any route can need anything.
    pub(crate) const fn requirement(self) -> Requirement {
        let route = match self {
            Self::Only([route, ..]) => route,
            Self::Only([]) => return Requirement::Nothing,
            Self::Any => return Requirement::CredentialOrPlatformToken,
        };
        let accepted = route.access;
        let (mut user, mut key, mut platform, mut index) = (false, false, false, 0);
        while index < accepted.len() {
            match accepted[index] {
                Access::Owner
                | Access::Member
                | Access::Admin
                | Access::RecentAdmin
                | Access::RecentMember => user = true,
                Access::Key(_) | Access::AnyKey => key = true,
                Access::PlatformAdmin => platform = true,
                Access::Public | Access::RequestSecret => {}
            }
            index += 1;
        }
        match (user, key, platform) {
            (_, true, true) => Requirement::CredentialOrPlatformToken,
            (_, true, false) => Requirement::Credential,
            (true, false, true) if matches!(route.headers, [Header::TenantOfPlatformAdmin]) => {
                Requirement::SessionOrPlatformTokenOfTenant
            }
            (true, false, true) => Requirement::SessionOrPlatformToken,
            (true, false, false) => Requirement::Session,
            (false, false, true) => Requirement::PlatformToken,
            (false, false, false) => Requirement::Service,
        }
    }

    fn problems(self) -> Vec<CliError> {
        match self {
            Self::Any => ProblemKind::ALL.iter().map(|kind| CliError::from_kind(*kind, "")).collect(),
            Self::Only(routes) => {
                let problems = routes
                    .iter()
                    .flat_map(|route| route.all_problems().into_iter().map(|kind| (kind, route.path)));
                let possible = problems.filter(|(kind, _)| !is_prevented(*kind));
                possible.map(|(kind, path)| CliError::from_kind(kind, path)).collect()
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
            | ProblemKind::TransferEncoding
            | ProblemKind::BodyTimeout
            | ProblemKind::BodyTooLarge
            | ProblemKind::EmptyBatch
            | ProblemKind::BatchTooLarge
            | ProblemKind::Unauthenticated
    )
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
    /// The service, and a session, or the platform token and a tenant.
    SessionOrPlatformTokenOfTenant,
    /// The service, and a session, an API key or the platform token and a tenant.
    CredentialOrPlatformToken,
    /// The service and the platform token.
    PlatformToken,
}

impl Requirement {
    /// Errors of all commands with this requirement, which they do not list.
    fn errors(self) -> impl Iterator<Item = CliError> {
        use ErrorKind as E;
        use ProblemKind as P;

        let is_authenticated = self.takes_session() || self == Self::PlatformToken;
        let is_online = is_authenticated || self == Self::Service;
        let is_logged_in = self.takes_session() || self == Self::StoredSession;
        let is_stored = !matches!(self, Self::Nothing | Self::ConfigDirectory);
        let of_api = |kind| CliError::from_kind(kind, "");
        let errors: [(bool, CliError); 22] = [
            (true, E::Usage.into()),
            (is_logged_in, E::NotLoggedIn.into()),
            (self == Self::PlatformToken, E::PlatformTokenMissing.into()),
            (is_authenticated, of_api(P::CredentialInvalid)),
            (self.takes_session(), of_api(P::TenantMismatch)),
            (is_online, E::Unreachable.into()),
            (is_online, E::TimedOut.into()),
            (is_online, E::UnexpectedResponse.into()),
            (is_online, of_api(P::RateLimited)),
            (is_online, of_api(P::Overloaded)),
            (is_online, of_api(P::DependencyUnavailable)),
            (is_online, of_api(P::Internal)),
            (self != Self::Nothing, E::ConfigurationInvalid.into()),
            (is_stored, E::CredentialsExposed.into()),
            (is_stored, E::CredentialsUnusable.into()),
            (true, E::OutputFailed.into()),
            (true, E::BrokenPipe.into()),
            (true, E::HungUp.into()),
            (true, E::Interrupted.into()),
            (true, E::Quit.into()),
            (true, E::Terminated.into()),
            (true, E::Defect.into()),
        ];
        errors.into_iter().filter_map(|(applies, error)| applies.then_some(error))
    }

    const fn takes_session(self) -> bool {
        matches!(
            self,
            Self::Session
                | Self::SessionOrPlatformToken
                | Self::SessionOrPlatformTokenOfTenant
                | Self::Credential
                | Self::CredentialOrPlatformToken
        )
    }

    /// Variables with the credential, in order of precedence.
    pub(crate) const fn variables(self) -> &'static [Variable] {
        match self {
            Self::StoredSession | Self::Session => &[Variable::TOKEN],
            Self::Credential => &[Variable::TOKEN, Variable::API_KEY],
            Self::SessionOrPlatformToken | Self::SessionOrPlatformTokenOfTenant => {
                &[Variable::TOKEN, Variable::PLATFORM_TOKEN]
            }
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
pub(crate) struct Variable {
    /// Name.
    pub(crate) name: &'static str,
    /// Variable with the path of a file that contains the value; read if the first one is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'static str>,
    /// Meaning of the value.
    description: &'static str,
}

impl Variable {
    const TOKEN: Self = Self::secret(TOKEN, "SVC_TOKEN_FILE", "Session token, instead of the stored login");
    const API_KEY: Self = Self::secret(API_KEY, "SVC_API_KEY_FILE", "API key, instead of the stored login");
    const PLATFORM_TOKEN: Self =
        Self::secret(PLATFORM_TOKEN, "SVC_PLATFORM_TOKEN_FILE", "Token of the platform administrator");

    /// Variables that affect every command.
    pub(super) const COMMON: &[Self] = &[
        Self::setting("CI", "If set, no command prompts"),
        Self::setting("NO_COLOR", "If set, messages have no colors"),
        Self::setting(
            "HTTPS_PROXY",
            "Proxy for requests (http:// or https://), as are HTTP_PROXY, ALL_PROXY and NO_PROXY; not used for loopback",
        ),
        Self::setting("COLUMNS", "Width of tables, instead of that of the terminal"),
        Self::setting("TRACEPARENT", "Trace that the requests belong to (W3C Trace Context)"),
        Self::setting("DBUS_SESSION_BUS_ADDRESS", "D-Bus session with the keyring (Linux)"),
        Self::setting(
            "XDG_CONFIG_HOME",
            "Directory that contains the configuration directory `svc` [default: ~/.config]",
        ),
    ];

    const fn secret(name: &'static str, file: &'static str, description: &'static str) -> Self {
        Self { name, file: Some(file), description }
    }

    const fn setting(name: &'static str, description: &'static str) -> Self {
        Self { name, file: None, description }
    }

    /// The variable and that of the file, each with its meaning.
    pub(super) fn meanings(&self) -> Vec<(String, String)> {
        let file =
            |name: &str| (name.to_owned(), format!("File with this value, if {} is not set", self.name));
        let own = (self.name.to_owned(), self.description.to_owned());
        std::iter::once(own).chain(self.file.map(file)).collect()
    }

    /// `SVC_TOKEN or SVC_TOKEN_FILE`.
    pub(super) fn names(&self) -> String {
        self.file.map_or_else(|| self.name.to_owned(), |file| format!("{} or {file}", self.name))
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.names(), self.description)
    }
}
