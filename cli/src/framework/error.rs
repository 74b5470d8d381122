//! Errors of a command: code, message, remediation and exit status.

mod kind;
mod problem;

use std::io;

use contract::{API_PREFIX, FieldError, Problem, ProblemKind};

use problem::{option_of, texts};

pub(crate) use kind::ErrorKind;
pub(crate) use problem::{may_have_effect, remediation_for};

pub(crate) type Result<T> = std::result::Result<T, CliError>;

/// An error as the user sees it, as text or as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CliError {
    /// Stable code for scripts: that of an [`ErrorKind`], or that of the API's problem.
    pub(crate) code: String,
    /// What happened.
    pub(crate) message: String,
    /// What the user can do about it. Names options, variables and commands, never HTTP headers.
    pub(crate) remediation: String,
    pub(crate) exit: Exit,
    /// Whether the same command can succeed later, unchanged, and cannot create a second object.
    pub(crate) retryable: bool,
    /// Id of the request in the service's logs.
    pub(crate) request_id: Option<String>,
}

impl CliError {
    /// Converts a problem document of the API. Names fields as the command line does, or as the body that the user wrote.
    pub(crate) fn from_problem(problem: Problem, is_raw: bool) -> Self {
        let path = problem.instance.strip_prefix(API_PREFIX).unwrap_or_default();
        let kind = ProblemKind::from_code(&problem.code);
        // Without details, the service repeats its remedy as the detail. That of invalid fields names the response.
        let adds_nothing = |detail: &str| {
            detail.is_empty()
                || kind.is_some_and(|kind| kind == ProblemKind::ValidationFailed || kind.remedy() == detail)
        };
        // The error of the only field can repeat the title.
        let errors = problem.errors.iter().filter(|field| field.message != problem.title);
        let fields = errors.map(|FieldError { pointer, message, .. }| {
            let option = option_of(pointer, path).filter(|_| !is_raw);
            format!("\n  {}: {message}", option.as_deref().unwrap_or(pointer))
        });
        let fields: String = fields.collect();
        let error = match kind {
            Some(kind) => Self::from_kind(kind, path),
            None => Self {
                code: problem.code,
                message: problem.title,
                remediation: format!("See {}", problem.type_uri),
                exit: Exit::from_status(problem.status),
                retryable: problem.status == 429 || problem.status >= 500,
                request_id: None,
            },
        };
        let summary = if adds_nothing(&problem.detail) { error.message } else { problem.detail };
        Self {
            message: summary + &fields,
            remediation: with_wait(error.remediation, problem.retry_after_ms),
            request_id: Some(problem.request_id).filter(|id| !id.is_empty()),
            ..error
        }
    }

    /// Error with the texts of a problem of a request to this path.
    pub(crate) fn from_kind(kind: ProblemKind, path: &str) -> Self {
        let (title, remediation) = texts(kind, path);
        Self {
            code: kind.code().to_owned(),
            message: title.to_owned(),
            remediation: remediation.to_owned(),
            exit: Exit::from_problem(kind),
            retryable: kind.is_retryable(),
            request_id: None,
        }
    }

    /// Replaces the message.
    pub(crate) fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Error for a failed write. A closed pipe is not reported as a failed write.
    pub(crate) fn write_failed(error: &io::Error, destination: &str) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => ErrorKind::BrokenPipe.into(),
            _ => ErrorKind::OutputFailed.with_message(format!("cannot write to {destination}: {error}")),
        }
    }

    /// Replaces the remediation.
    pub(crate) fn with_remediation(mut self, remediation: impl Into<String>) -> Self {
        self.remediation = remediation.into();
        self
    }

    /// Sets the request id unless the error has one.
    pub(crate) fn with_request_id(mut self, request_id: &str) -> Self {
        self.request_id.get_or_insert_with(|| request_id.to_owned());
        self
    }

    /// Returns the error as `{"error": {...}}`.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({"error": {
            "code": self.code,
            "message": self.message,
            "remediation": self.remediation,
            "exit_code": self.exit.code(),
            "retryable": self.retryable,
            "request_id": self.request_id,
        }})
    }
}

/// Adds to "Wait" how long, if the service requests a time.
fn with_wait(remediation: String, retry_after_ms: Option<u64>) -> String {
    match (remediation.strip_prefix("Wait,"), retry_after_ms) {
        (Some(rest), Some(millis)) => format!("Wait {} s,{rest}", millis.div_ceil(1000)),
        _ => remediation,
    }
}

macro_rules! exits {
    ($($variant:ident = $code:literal, $meaning:literal;)+) => {
        /// An exit status of `svc`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Exit { $($variant),+ }

        impl Exit {
            /// All statuses, in ascending order.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),+];

            /// Number that the process exits with.
            pub(crate) const fn code(self) -> u8 {
                match self { $(Self::$variant => $code),+ }
            }

            /// Meaning of the status, for the catalog.
            pub(crate) const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning),+ }
            }
        }
    };
}

exits! {
    Success = 0, "success";
    Failed = 1, "other failure, or a question answered with no";
    Usage = 2, "invalid command line";
    NotFound = 3, "not found";
    Authentication = 4, "authentication required or failed";
    Permission = 5, "permission denied";
    Conflict = 6, "conflict";
    InvalidInput = 7, "invalid input";
    Pending = 8, "pending: the device login was not approved before the code expired";
    Unavailable = 9, "unavailable: network error, too many requests or server error";
    Partial = 10, "partial success";
    Configuration = 11, "invalid configuration or stored credentials";
    InputNeeded = 12, "input required, but prompting is not possible";
    Uncertain = 13, "no response to a request that is not idempotent, or no output: the command may have had its effect";
    Defect = 70, "internal error of svc";
    HungUp = 129, "ended by the signal SIGHUP, which a shell reports as 129";
    Interrupted = 130, "ended by the signal SIGINT, which a shell reports as 130";
    Quit = 131, "ended by the signal SIGQUIT, which a shell reports as 131";
    BrokenPipe = 141, "broken pipe";
    Terminated = 143, "ended by the signal SIGTERM, which a shell reports as 143";
}

impl Exit {
    /// Number of the signal that ends the process instead of this status; `None` if the process exits.
    pub(crate) const fn signal(self) -> Option<u8> {
        match self {
            Self::HungUp | Self::Interrupted | Self::Quit | Self::Terminated => Some(self.code() - 128),
            _ => None,
        }
    }

    /// Status for a problem of the API.
    pub(crate) const fn from_problem(kind: ProblemKind) -> Self {
        match kind {
            ProblemKind::ReauthenticationRequired
            | ProblemKind::SecondFactorRequired
            | ProblemKind::SecondFactorSetupRequired => Self::Authentication,
            other => Self::from_status(other.status()),
        }
    }

    /// Status for an HTTP status.
    pub(crate) const fn from_status(status: u16) -> Self {
        match status {
            401 => Self::Authentication,
            403 => Self::Permission,
            404 => Self::NotFound,
            409 => Self::Conflict,
            408 | 429 | 500..=599 => Self::Unavailable,
            400..=499 => Self::InvalidInput,
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(code: &str, status: u16) -> Problem {
        Problem {
            type_uri: "http://x/api/v1/problems/y".into(),
            title: "Title".into(),
            status,
            detail: "Detail.".into(),
            instance: "/api/v1/users".into(),
            code: code.into(),
            request_id: "r-1".into(),
            errors: Vec::new(),
            retry_after_ms: None,
            second_factor: None,
        }
    }

    #[test]
    fn known_problem_has_its_remediation_and_exit_status() {
        let error = CliError::from_problem(problem("user_exists", 409), false);
        assert_eq!(error.exit, Exit::Conflict);
        assert_eq!(error.remediation, remediation_for(ProblemKind::UserExists));
        assert_eq!(error.request_id.as_deref(), Some("r-1"));
    }

    #[test]
    fn detail_that_repeats_the_remedy_is_replaced_by_the_title() {
        let mut bare = problem("login_failed", 401);
        bare.detail = ProblemKind::LoginFailed.remedy().into();
        let error = CliError::from_problem(bare, false);
        assert_eq!(
            (error.message.as_str(), &*error.remediation),
            (ProblemKind::LoginFailed.title(), remediation_for(ProblemKind::LoginFailed))
        );
    }

    #[test]
    fn remediation_has_the_time_to_wait() {
        let limited = Problem { retry_after_ms: Some(36_100), ..problem("rate_limited", 429) };
        assert_eq!(
            CliError::from_problem(limited, false).remediation,
            "Wait 37 s, then run the command again."
        );
        let unknown = CliError::from_problem(problem("rate_limited", 429), false);
        assert_eq!(unknown.remediation, "Wait, then run the command again.");
    }

    #[test]
    fn missing_object_is_named() {
        let mut missing = Problem { instance: "/api/v1/users/01890a5d".into(), ..problem("not_found", 404) };
        missing.detail = ProblemKind::NotFound.remedy().into();
        let error = CliError::from_problem(missing, false);
        assert_eq!(error.message, "User not found");
        assert_eq!(error.remediation, "List the users of the tenant: `svc users list`.");
    }

    #[test]
    fn unknown_problem_gets_its_exit_status_from_the_http_status() {
        let error = CliError::from_problem(problem("not_invented_yet", 404), false);
        assert_eq!((error.exit, error.code.as_str()), (Exit::NotFound, "not_invented_yet"));
        assert_eq!(error.remediation, "See http://x/api/v1/problems/y");
    }

    #[test]
    fn message_contains_field_errors() {
        let mut with_fields = problem("validation_failed", 422);
        with_fields.errors = vec![FieldError {
            pointer: "/email".into(),
            code: "format".into(),
            message: "no address".into(),
        }];
        let title = ProblemKind::ValidationFailed.title();
        let raw = CliError::from_problem(with_fields.clone(), true).message;
        assert_eq!(raw, format!("{title}\n  /email: no address"));
        assert_eq!(
            CliError::from_problem(with_fields, false).message,
            format!("{title}\n  --email: no address")
        );
    }

    #[test]
    fn field_error_that_repeats_the_title_is_omitted() {
        let kind = ProblemKind::PasswordCommon;
        let mut common = problem(kind.code(), kind.status());
        common.title = kind.title().into();
        common.detail = kind.remedy().into();
        common.errors = vec![FieldError {
            pointer: "/password".into(),
            code: kind.code().into(),
            message: kind.title().into(),
        }];
        assert_eq!(CliError::from_problem(common, false).message, kind.title());
    }

    #[test]
    fn statuses_are_unique_and_ascending() {
        assert!(Exit::ALL.windows(2).all(|pair| pair[0].code() < pair[1].code()));
    }

    #[test]
    fn every_problem_of_the_api_has_a_specific_status() {
        for kind in ProblemKind::ALL {
            let exit = Exit::from_problem(*kind);
            assert!(!matches!(exit, Exit::Failed | Exit::Success), "{}", kind.code());
        }
    }
}
