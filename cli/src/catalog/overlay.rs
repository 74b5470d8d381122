//! What a command says of itself beyond its options. The compiler demands it of every command.

use contract::ProblemKind;
use schemars::JsonSchema;
use serde_json::Value;

use crate::error::{Exit, Fault};

/// The part of a catalog entry that clap cannot know.
#[derive(Clone)]
pub(crate) struct Overlay {
    /// What the command belongs to.
    pub(crate) group: Group,
    /// What it needs before it can begin; says which failures it shares with others of its kind.
    pub(crate) access: Access,
    /// What an example does, and its command line; at least one.
    pub(crate) examples: &'static [(&'static str, &'static str)],
    /// What an agent should know before it runs the command.
    pub(crate) agent_notes: &'static str,
    /// Names of related commands.
    pub(crate) see_also: &'static [&'static str],
    /// What it can fail with beyond what its access brings along.
    pub(crate) errors: &'static [Failure],
    /// JSON Schema of what it reads.
    pub(crate) input_schema: Option<fn() -> Value>,
    /// JSON Schema of what it prints.
    pub(crate) output_schema: Option<fn() -> Value>,
}

/// The headings of the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Tenants, users, sessions.
    Identity,
    /// Events.
    Events,
    /// The client itself, and what lies under it.
    Tools,
}

impl Group {
    /// Every heading, in order.
    pub(crate) const ALL: &[Self] = &[Self::Identity, Self::Events, Self::Tools];

    /// The heading, which is also the catalog's name of the group.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Identity => "Identity",
            Self::Events => "Events",
            Self::Tools => "Tools",
        }
    }
}

/// One way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Found on this side of the wire.
    Local(Fault),
    /// Answered by the API.
    Api(ProblemKind),
}

impl Failure {
    /// What scripts key on.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Local(fault) => fault.code(),
            Self::Api(kind) => kind.code(),
        }
    }

    /// What went wrong.
    pub(crate) const fn message(self) -> &'static str {
        match self {
            Self::Local(fault) => fault.title(),
            Self::Api(kind) => kind.title(),
        }
    }

    /// What to do about it.
    pub(crate) const fn remediation(self) -> &'static str {
        match self {
            Self::Local(fault) => fault.remedy(),
            Self::Api(kind) => kind.remedy(),
        }
    }

    /// The exit status that it leads to.
    pub(crate) const fn exit(self) -> Exit {
        match self {
            Self::Local(fault) => fault.exit(),
            Self::Api(kind) => Exit::of_problem(kind),
        }
    }
}

/// What a command needs before it can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing.
    Offline,
    /// To know where this client's files lie.
    Files,
    /// What is stored, without the service.
    Stored,
    /// A session, without the service.
    StoredSession,
    /// The service.
    Service,
    /// The service, and a session.
    Session,
    /// The service, and a session or an API key.
    Caller,
    /// The service, and a session, an API key or the operator's token.
    CallerOrPlatformAdmin,
    /// The service, and the operator's token.
    PlatformAdmin,
}

/// What any command can fail with.
const ANYWHERE: &[Fault] = &[
    Fault::Usage,
    Fault::OutputFailed,
    Fault::BrokenPipe,
    Fault::Interrupted,
    Fault::Terminated,
    Fault::Defect,
];
/// What looking at files and variables can fail with.
const FILES: &[Fault] = &[Fault::ConfigurationInvalid];
const STORED: &[Fault] = &[Fault::CredentialsExposed, Fault::CredentialsUnusable];
/// What asking a service can fail with, whatever is asked.
const SERVICE: &[Failure] = &[
    Failure::Local(Fault::Unreachable),
    Failure::Local(Fault::TimedOut),
    Failure::Local(Fault::UnexpectedAnswer),
    Failure::Api(ProblemKind::RateLimited),
    Failure::Api(ProblemKind::Overloaded),
    Failure::Api(ProblemKind::DependencyUnavailable),
    Failure::Api(ProblemKind::Internal),
];

impl Access {
    /// What commands of this kind can fail with.
    pub(crate) fn failures(self) -> Vec<Failure> {
        let local = |faults: &[Fault]| faults.iter().copied().map(Failure::Local).collect::<Vec<_>>();
        let mut failures = local(ANYWHERE);
        if self != Self::Offline {
            failures.extend(local(FILES));
        }
        if !matches!(self, Self::Offline | Self::Files) {
            failures.extend(local(STORED));
        }
        if !matches!(self, Self::Offline | Self::Files | Self::Stored | Self::StoredSession) {
            failures.extend(SERVICE);
        }
        failures.extend(match self {
            Self::Session | Self::Caller | Self::CallerOrPlatformAdmin => {
                [Failure::Api(ProblemKind::CredentialInvalid), Failure::Api(ProblemKind::TenantMismatch)]
                    .to_vec()
            }
            Self::PlatformAdmin => vec![Failure::Api(ProblemKind::CredentialInvalid)],
            _ => Vec::new(),
        });
        failures.extend(match self {
            Self::StoredSession | Self::Session | Self::Caller | Self::CallerOrPlatformAdmin => {
                local(&[Fault::NotLoggedIn])
            }
            Self::PlatformAdmin => local(&[Fault::PlatformTokenMissing]),
            _ => Vec::new(),
        });
        failures
    }
}

/// The JSON Schema of a type that is printed or read.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    schemars::schema_for!(T).to_value()
}
