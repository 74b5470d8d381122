//! What can go wrong on this side of the wire, in one table: code, exit status, title, and what to do about it.

use super::{CliError, Exit};

macro_rules! faults {
    ($($variant:ident = $code:literal, $exit:ident, $title:literal, $remedy:literal;)+) => {
        /// A kind of failure that the client itself finds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Fault { $($variant),+ }

        impl Fault {
            /// Every kind.
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),+];

            /// What scripts key on.
            pub(crate) const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            /// The exit status that it leads to.
            pub(crate) const fn exit(self) -> Exit {
                match self { $(Self::$variant => Exit::$exit),+ }
            }

            /// What went wrong, in a few words.
            pub(crate) const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),+ }
            }

            /// What the caller can do about it.
            pub(crate) const fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy),+ }
            }
        }
    };
}

faults! {
    Usage = "usage", Usage, "The command line is not understood", "Run the same command with --help.";
    NotLoggedIn = "not_logged_in", Authentication, "No credential is at hand", "Run `svc auth login`, or set SVC_TOKEN or SVC_API_KEY.";
    PlatformTokenMissing = "platform_token_missing", Authentication, "The operator's token is needed", "Set SVC_PLATFORM_TOKEN, or SVC_PLATFORM_TOKEN_FILE to the path of the file that holds it.";
    DevicePending = "device_pending", Pending, "Nobody has let this client in in time", "Run the command again, and approve the new code before it expires.";
    DeviceRefused = "device_refused", Permission, "This client was not let in", "Run the command again, and approve the new code if it is yours.";
    Unreachable = "unreachable", Unavailable, "The service cannot be reached", "Check --base-url (SVC_BASE_URL), the network and that the service runs.";
    TimedOut = "timed_out", Unavailable, "The service did not answer in time", "Try again, or allow more time with --timeout.";
    UnexpectedAnswer = "unexpected_answer", Failed, "The answer is not one of this API", "Check that --base-url (SVC_BASE_URL) names the service and nothing in between answers for it.";
    ConfigurationInvalid = "configuration_invalid", Configuration, "A setting cannot be used", "Correct the setting that the message names.";
    CredentialsExposed = "credentials_exposed", Configuration, "Other users of this machine can read the stored credentials", "Run the chmod command that the message names, then log in again.";
    CredentialsUnusable = "credentials_unusable", Configuration, "The file of stored credentials cannot be used", "Correct or remove the file that the message names, then log in again.";
    InputNeeded = "input_needed", InputNeeded, "Somebody would have to be asked, but nobody can be", "Pass the option that the message names.";
    Declined = "declined", Failed, "The answer was not yes, so nothing was done", "Answer y, or pass --yes.";
    InputUnreadable = "input_unreadable", InvalidInput, "The input cannot be read", "Check the path and its permissions.";
    InputInvalid = "input_invalid", InvalidInput, "The input is not valid", "Correct what the message names.";
    EventsInvalid = "events_invalid", InvalidInput, "No event was accepted", "Correct what --rejects recorded, then send it again.";
    PartialSuccess = "partial_success", Partial, "Some events were accepted, others were not", "Correct or repeat what --rejects recorded; accepted events need nothing more.";
    OutputFailed = "output_failed", Failed, "The output cannot be written", "Check the space and the permissions where the output goes.";
    Defect = "defect", Defect, "This program has a defect", "Report it with the message and the command that was run.";
    Interrupted = "interrupted", Interrupted, "Interrupted", "Run the command again when ready.";
    BrokenPipe = "broken_pipe", BrokenPipe, "The reader of the output went away", "Nothing needs to be done.";
    Terminated = "terminated", Terminated, "Terminated", "Run the command again when ready.";
}

impl Fault {
    /// Whether the same command can succeed later, unchanged.
    pub(crate) const fn is_retryable(self) -> bool {
        matches!(self.exit(), Exit::Unavailable)
    }

    /// The error of this kind, with what happened this time.
    pub(crate) fn because(self, message: impl Into<String>) -> CliError {
        CliError {
            code: self.code().to_owned(),
            message: message.into(),
            remediation: self.remedy().to_owned(),
            exit: self.exit(),
            retryable: self.is_retryable(),
            request_id: None,
        }
    }

    /// The error of this kind, with nothing to add.
    pub(crate) fn bare(self) -> CliError {
        self.because(self.title())
    }

    /// The error for a failed write of output: a reader that went away is no failure of the output.
    pub(crate) fn writing(error: &std::io::Error, to: &str) -> CliError {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::BrokenPipe.bare(),
            _ => Self::OutputFailed.because(format!("cannot write to {to}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_code_is_used_twice_or_taken_by_the_api() {
        for (place, fault) in Fault::ALL.iter().enumerate() {
            assert!(
                Fault::ALL.iter().skip(place + 1).all(|other| other.code() != fault.code()),
                "{}",
                fault.code()
            );
            assert!(contract::ProblemKind::from_code(fault.code()).is_none(), "{}", fault.code());
        }
    }
}
