//! Errors that the client itself detects, in one table: code, exit status, title and remediation.

use super::{CliError, Exit};

macro_rules! error_kinds {
    ($($variant:ident = $code:literal, $exit:ident, $title:literal, $remediation:literal;)+) => {
        /// A kind of error that the client itself detects.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum ErrorKind { $($variant),+ }

        impl ErrorKind {
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),+];

            /// Stable code for scripts.
            pub(crate) const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            /// Exit status of a command that fails with this error.
            pub(crate) const fn exit(self) -> Exit {
                match self { $(Self::$variant => Exit::$exit),+ }
            }

            /// What happened, in a few words.
            pub(crate) const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),+ }
            }

            /// What the user can do about it.
            pub(crate) const fn remediation(self) -> &'static str {
                match self { $(Self::$variant => $remediation),+ }
            }
        }
    };
}

error_kinds! {
    Usage = "usage", Usage, "Invalid command line",
        "Correct what the message names. `svc catalog show <command>` and --help describe the command.";
    NotLoggedIn = "not_logged_in", Authentication, "Not logged in",
        "Run `svc auth login` (without a terminal: with --email, --tenant and --password-stdin), or set SVC_TOKEN or SVC_API_KEY.";
    PlatformTokenMissing = "platform_token_missing", Authentication, "Platform token required",
        "Set SVC_PLATFORM_TOKEN_FILE to the file with the token, or SVC_PLATFORM_TOKEN to the token. `svc-standalone up` prints the path; \
            an installation has it in a Secret.";
    DevicePending = "device_pending", Pending, "Device authorization was not approved before the code expired",
        "Run the command again and approve the new code before it expires.";
    DeviceDenied = "device_denied", Permission, "Device authorization was denied", "Run the command again and approve the new code.";
    ScopeMissing = "scope_missing", Permission, "The credential lacks a scope",
        "Set SVC_API_KEY to a key with the scope. An administrator creates it: `svc api-keys create --scope`.";
    Unreachable = "unreachable", Unavailable, "Cannot connect to the service, or the connection broke",
        "Check --base-url (SVC_BASE_URL) and the network, and that the service is running.";
    TimedOut = "timed_out", Unavailable, "Request timed out", "Set a longer --timeout, or try again.";
    ResponseLost = "response_lost", Uncertain, "The response or the output was lost; the command may have had its effect",
        "Check whether the command had its effect before you run it again.";
    UnexpectedResponse = "unexpected_response", Failed, "Unexpected response",
        "Check that --base-url (SVC_BASE_URL) is the address of the service and that no proxy responds in its place.";
    ConfigurationInvalid = "configuration_invalid", Configuration, "Invalid configuration", "Correct the setting that the message names.";
    CredentialsExposed = "credentials_exposed", Configuration, "Stored credentials are accessible to other users",
        "Set the mode of the credentials file to 600. If another user may have read it, log out and log in again.";
    CredentialsUnusable = "credentials_unusable", Configuration, "Cannot read or write the stored credentials",
        "Correct or remove the file that the message names, then run `svc auth login`.";
    InputNeeded = "input_needed", InputNeeded, "Input required, but prompting is not possible", "Pass the option that the message names.";
    Declined = "declined", Failed, "Not confirmed; nothing was changed", "Run the command again and answer y, or pass --yes.";
    InputUnreadable = "input_unreadable", InvalidInput, "Cannot read the input",
        "Check the path that the message names, and its permissions.";
    InputInvalid = "input_invalid", InvalidInput, "Invalid input", "Correct the input that the message names.";
    EventsInvalid = "events_invalid", InvalidInput, "No event was accepted",
        "Correct the events in the rejects file that the summary names, and send this file.";
    PartialSuccess = "partial_success", Partial, "Only some events were accepted",
        "Do not send the input again. Correct the events in the rejects file that the summary names, and send only this file.";
    OutputFailed = "output_failed", Failed, "Cannot write the output", "Check free space and permissions of the destination.";
    Defect = "defect", Defect, "Internal error of svc", "Report the message and the command that you ran.";
    HungUp = "hung_up", HungUp, "The terminal was closed",
        "Run the command again. If it is not read-only, first check whether it had its effect.";
    Interrupted = "interrupted", Interrupted, "Interrupted",
        "Run the command again. If it is not read-only, first check whether it had its effect.";
    Quit = "quit", Quit, "Quit", "Run the command again. If it is not read-only, first check whether it had its effect.";
    BrokenPipe = "broken_pipe", BrokenPipe, "The reader closed the output", "No action is needed.";
    Terminated = "terminated", Terminated, "Terminated",
        "Run the command again. If it is not read-only, first check whether it had its effect.";
}

impl ErrorKind {
    /// Errors of commands that prompt for input.
    pub(crate) const PROMPT: &[Self] = &[Self::InputNeeded, Self::InputInvalid, Self::InputUnreadable];
    /// Errors of commands that ask for confirmation.
    pub(crate) const CONFIRMATION: &[Self] =
        &[Self::InputNeeded, Self::InputInvalid, Self::InputUnreadable, Self::Declined];

    /// Returns whether the same command can succeed later, unchanged. It never creates a second object.
    pub(crate) const fn is_retryable(self) -> bool {
        matches!(self.exit(), Exit::Unavailable)
    }

    /// Error of this kind with a message about this occurrence.
    pub(crate) fn with_message(self, message: impl Into<String>) -> CliError {
        CliError {
            code: self.code().to_owned(),
            message: message.into(),
            remediation: self.remediation().to_owned(),
            exit: self.exit(),
            retryable: self.is_retryable(),
            request_id: None,
        }
    }
}

/// The message of the error is the title of its kind.
impl From<ErrorKind> for CliError {
    fn from(kind: ErrorKind) -> Self {
        kind.with_message(kind.title())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_differ_from_those_of_the_api() {
        for (index, kind) in ErrorKind::ALL.iter().enumerate() {
            let mut later = ErrorKind::ALL.iter().skip(index + 1);
            assert!(later.all(|other| other.code() != kind.code()), "{}", kind.code());
            assert!(contract::ProblemKind::from_code(kind.code()).is_none(), "{}", kind.code());
        }
    }
}
