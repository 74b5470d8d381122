//! The part of a catalog entry that clap cannot derive. The compiler requires it for each command.

use contract::ProblemKind;
use contract::routes::Route;
use schemars::JsonSchema;
use serde_json::Value;

use crate::commands::Command;
use crate::error::{ErrorKind, Exit, remediation_for};

/// Local errors.
pub(crate) type Errors = &'static [ErrorKind];
/// Descriptions and command lines.
pub(crate) type Examples = &'static [(&'static str, &'static str)];
/// Names of commands.
pub(crate) type Names = &'static [&'static str];
/// Returns a JSON Schema.
pub(crate) type SchemaOf = fn() -> Value;

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
        }
    }

    /// Errors of the command, each once: local errors, problems of the routes, errors of the prerequisites.
    pub(super) fn possible_errors(&self) -> Vec<PossibleError> {
        let own = self.errors.iter().copied().map(PossibleError::Local);
        let all = own.chain(self.routes.problems()).chain(self.requires.errors());
        all.fold(Vec::new(), |mut errors, error| {
            if !errors.contains(&error) {
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
            Some("api" | "catalog" | "config" | "completion" | "version") => Self::Tools,
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
        let kinds = match self {
            Self::Any => ProblemKind::ALL.to_vec(),
            Self::Only(routes) => {
                let problems = routes.iter().flat_map(|route| route.all_problems());
                problems.filter(|kind| !is_prevented(*kind)).collect()
            }
        };
        kinds.into_iter().map(PossibleError::Api).collect()
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
    /// Returned by the API.
    Api(ProblemKind),
}

impl PossibleError {
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::Local(kind) => kind.code(),
            Self::Api(kind) => kind.code(),
        }
    }

    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::Local(kind) => kind.title(),
            Self::Api(kind) => kind.title(),
        }
    }

    pub(super) const fn remediation(self) -> &'static str {
        match self {
            Self::Local(kind) => kind.remediation(),
            Self::Api(kind) => remediation_for(kind),
        }
    }

    pub(super) const fn exit(self) -> Exit {
        match self {
            Self::Local(kind) => kind.exit(),
            Self::Api(kind) => Exit::from_problem(kind),
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
    /// The service, and a session, an API key or the platform token.
    CredentialOrPlatformToken,
    /// The service and the platform token.
    PlatformToken,
}

/// Errors of every command.
const ANY_COMMAND: &[ErrorKind] = &[
    ErrorKind::Usage,
    ErrorKind::OutputFailed,
    ErrorKind::BrokenPipe,
    ErrorKind::Interrupted,
    ErrorKind::Terminated,
    ErrorKind::Defect,
];
const CONFIG_DIRECTORY: &[ErrorKind] = &[ErrorKind::ConfigurationInvalid];
const CREDENTIALS_FILE: &[ErrorKind] = &[ErrorKind::CredentialsExposed, ErrorKind::CredentialsUnusable];
/// Errors of every request.
const ANY_REQUEST: &[PossibleError] = &[
    PossibleError::Local(ErrorKind::Unreachable),
    PossibleError::Local(ErrorKind::TimedOut),
    PossibleError::Local(ErrorKind::UnexpectedResponse),
    PossibleError::Api(ProblemKind::RateLimited),
    PossibleError::Api(ProblemKind::Overloaded),
    PossibleError::Api(ProblemKind::DependencyUnavailable),
    PossibleError::Api(ProblemKind::Internal),
];

impl Requirement {
    fn errors(self) -> Vec<PossibleError> {
        let local = |kinds: &[ErrorKind]| kinds.iter().copied().map(PossibleError::Local).collect::<Vec<_>>();
        let mut errors = local(ANY_COMMAND);
        if self != Self::Nothing {
            errors.extend(local(CONFIG_DIRECTORY));
        }
        if !matches!(self, Self::Nothing | Self::ConfigDirectory) {
            errors.extend(local(CREDENTIALS_FILE));
        }
        let offline = [Self::Nothing, Self::ConfigDirectory, Self::CredentialsFile, Self::StoredSession];
        if !offline.contains(&self) {
            errors.extend(ANY_REQUEST);
        }
        errors.extend(match self {
            Self::Session | Self::Credential | Self::CredentialOrPlatformToken => vec![
                PossibleError::Api(ProblemKind::CredentialInvalid),
                PossibleError::Api(ProblemKind::TenantMismatch),
            ],
            Self::PlatformToken => vec![PossibleError::Api(ProblemKind::CredentialInvalid)],
            _ => Vec::new(),
        });
        errors.extend(match self {
            Self::StoredSession | Self::Session | Self::Credential | Self::CredentialOrPlatformToken => {
                local(&[ErrorKind::NotLoggedIn])
            }
            Self::PlatformToken => local(&[ErrorKind::PlatformTokenMissing]),
            _ => Vec::new(),
        });
        errors
    }
}

/// JSON Schema of a type that is printed or read.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    schemars::schema_for!(T).to_value()
}
