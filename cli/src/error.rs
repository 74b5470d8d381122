//! What a command can fail with. An error knows its code, its words, what to do about it and the exit status.

mod exit;
mod fault;

use contract::{Problem, ProblemKind};

pub(crate) use exit::Exit;
pub(crate) use fault::Fault;

/// What came of a command.
pub(crate) type Result<T> = std::result::Result<T, CliError>;

/// A failure as the caller sees it, in words or as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CliError {
    /// What scripts key on: the code of a [`Fault`], or that of the API's problem.
    pub(crate) code: String,
    /// What happened, in a sentence.
    pub(crate) message: String,
    /// What the caller can do about it.
    pub(crate) remediation: String,
    /// The exit status that it ends the process with.
    pub(crate) exit: Exit,
    /// Whether the same command can succeed later, unchanged.
    pub(crate) retryable: bool,
    /// Finds the request in the service's logs.
    pub(crate) request_id: Option<String>,
}

impl CliError {
    /// The error for a problem document that the API answered.
    pub(crate) fn from_problem(problem: Problem) -> Self {
        let kind = ProblemKind::from_code(&problem.code);
        // A problem of which there is nothing more to say has its remedy as its detail, which is told anyway.
        let says_nothing =
            |detail: &str| detail.is_empty() || kind.is_some_and(|kind| kind.remedy() == detail);
        let happened = if says_nothing(&problem.detail) { problem.title } else { problem.detail };
        let faults = problem.errors.iter().map(|fault| format!("  {}: {}", fault.pointer, fault.message));
        let message = std::iter::once(happened).chain(faults).collect::<Vec<_>>().join("\n");
        Self {
            code: problem.code,
            message,
            remediation: kind
                .map_or_else(|| format!("See {}", problem.type_uri), |kind| kind.remedy().to_owned()),
            exit: kind.map_or_else(|| Exit::of_status(problem.status), Exit::of_problem),
            retryable: kind.map_or(problem.status == 429 || problem.status >= 500, ProblemKind::is_retryable),
            request_id: Some(problem.request_id).filter(|id| !id.is_empty()),
        }
    }

    /// The same error with other advice.
    pub(crate) fn advising(mut self, remediation: impl Into<String>) -> Self {
        self.remediation = remediation.into();
        self
    }

    /// The same error, tied to a request.
    pub(crate) fn of_request(mut self, request_id: &str) -> Self {
        self.request_id.get_or_insert_with(|| request_id.to_owned());
        self
    }

    /// The error as one JSON object, `{"error": …}`.
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
        }
    }

    #[test]
    fn a_known_problem_brings_its_remedy_and_its_exit_status() {
        let error = CliError::from_problem(problem("user_exists", 409));
        assert_eq!(error.exit, Exit::Conflict);
        assert_eq!(error.remediation, ProblemKind::UserExists.remedy());
        assert_eq!(error.request_id.as_deref(), Some("r-1"));
    }

    #[test]
    fn a_remedy_is_not_told_twice() {
        let mut bare = problem("login_failed", 401);
        bare.detail = ProblemKind::LoginFailed.remedy().into();
        let error = CliError::from_problem(bare);
        assert_eq!(
            (error.message.as_str(), &*error.remediation),
            ("Title", ProblemKind::LoginFailed.remedy())
        );
    }

    #[test]
    fn a_problem_of_a_newer_service_is_judged_by_its_status() {
        let error = CliError::from_problem(problem("not_invented_yet", 404));
        assert_eq!((error.exit, error.code.as_str()), (Exit::NotFound, "not_invented_yet"));
        assert_eq!(error.remediation, "See http://x/api/v1/problems/y");
    }

    #[test]
    fn faults_of_fields_are_part_of_the_message() {
        let mut with_fields = problem("validation_failed", 422);
        with_fields.errors = vec![contract::FieldError {
            pointer: "/email".into(),
            code: "format".into(),
            message: "no address".into(),
        }];
        assert_eq!(CliError::from_problem(with_fields).message, "Detail.\n  /email: no address");
    }
}
