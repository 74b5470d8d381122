//! Errors that the client itself detects, in one table: code, exit status, title and remediation. For problems of the API,
//! remediations in terms of the command line: the API's own remedies name headers and fields.

use contract::ProblemKind as P;

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
    Usage = "usage", Usage, "Invalid command line", "Run the command with --help.";
    NotLoggedIn = "not_logged_in", Authentication, "Not logged in", "Run `svc auth login`, or set SVC_TOKEN or SVC_API_KEY.";
    PlatformTokenMissing = "platform_token_missing", Authentication, "Platform token required", "Set SVC_PLATFORM_TOKEN, or set SVC_PLATFORM_TOKEN_FILE to the path of the token file.";
    DevicePending = "device_pending", Pending, "Device authorization was not approved before the code expired", "Run the command again and approve the new code before it expires.";
    DeviceDenied = "device_denied", Permission, "Device authorization was denied", "Run the command again and approve the new code.";
    Unreachable = "unreachable", Unavailable, "Cannot connect to the service", "Check --base-url (SVC_BASE_URL) and the network, and that the service is running.";
    TimedOut = "timed_out", Unavailable, "Request timed out", "Try again, or set a longer --timeout.";
    UnexpectedResponse = "unexpected_response", Failed, "Unexpected response", "Check that --base-url (SVC_BASE_URL) is the address of the service and that no proxy responds in its place.";
    ConfigurationInvalid = "configuration_invalid", Configuration, "Invalid configuration", "Correct the setting that the message names.";
    CredentialsExposed = "credentials_exposed", Configuration, "Stored credentials are accessible to other users", "Set the mode of the credentials file to 600. If another user may have read it, log out and log in again.";
    CredentialsUnusable = "credentials_unusable", Configuration, "Cannot read or write the stored credentials", "Correct or remove the file that the message names, then run `svc auth login`.";
    InputNeeded = "input_needed", InputNeeded, "Input required, but prompting is not possible", "Pass the option that the message names.";
    Declined = "declined", Failed, "Not confirmed; nothing was changed", "Run the command again and answer y, or pass --yes.";
    InputUnreadable = "input_unreadable", InvalidInput, "Cannot read the input", "Check the path and its permissions.";
    InputInvalid = "input_invalid", InvalidInput, "Invalid input", "Correct the input that the message names.";
    EventsInvalid = "events_invalid", InvalidInput, "No event was accepted", "Correct the events in the --rejects file and send them again.";
    PartialSuccess = "partial_success", Partial, "Some events were rejected", "Correct the events in the --rejects file and send only those. Do not send accepted events again.";
    OutputFailed = "output_failed", Failed, "Cannot write the output", "Check free space and permissions of the destination.";
    Defect = "defect", Defect, "Internal error of svc", "Report the message and the command that you ran.";
    Interrupted = "interrupted", Interrupted, "Interrupted", "Run the command again.";
    BrokenPipe = "broken_pipe", BrokenPipe, "The reader closed the output", "No action is needed.";
    Terminated = "terminated", Terminated, "Terminated", "Run the command again.";
}

impl ErrorKind {
    /// Errors of commands that prompt for input.
    pub(crate) const PROMPT: &[Self] = &[Self::InputNeeded, Self::InputInvalid, Self::InputUnreadable];
    /// Errors of commands that ask for confirmation.
    pub(crate) const CONFIRMATION: &[Self] =
        &[Self::InputNeeded, Self::InputInvalid, Self::InputUnreadable, Self::Declined];

    /// Returns whether the same command can succeed later, unchanged.
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

/// What a user of `svc` can do about a problem of the API.
pub(crate) const fn remediation_for(kind: P) -> &'static str {
    match kind {
        P::Unauthenticated => "Run `svc auth login`, or set SVC_TOKEN or SVC_API_KEY.",
        P::CredentialInvalid => {
            "Run `svc auth login`. If SVC_TOKEN, SVC_API_KEY or SVC_PLATFORM_TOKEN is set, replace or unset it."
        }
        P::LoginFailed => {
            "Check the password, --email and --tenant. After several failures, wait a few minutes or run `svc auth password reset`."
        }
        P::TokenInvalid => "The token was used, replaced, revoked or has expired. Request a new one.",
        P::Forbidden => {
            "Use the credential of an allowed caller: `svc auth login`, SVC_API_KEY or SVC_PLATFORM_TOKEN. Or ask an administrator of the tenant."
        }
        P::InsufficientScope => "Set SVC_API_KEY to a key with the scope that the message names.",
        P::TenantMismatch => "Change or omit --tenant (SVC_TENANT), or use a credential of that tenant.",
        P::SourceNotAllowed => "Set SVC_API_KEY to a key that allows the source.",
        P::ReauthenticationRequired => "Run `svc auth login` with the password, then run the command again.",
        P::NotFound => "Check the id with the `list` command of the same group.",
        P::SessionNotFound => "Pass the raw session token, or an id that `svc auth sessions list` shows.",
        P::MethodNotAllowed => "Use another method for this path.",
        P::HeaderMissing | P::HeaderInvalid => "Pass --tenant (SVC_TENANT).",
        P::TenantExists => "Choose another tenant id.",
        P::UserExists => "No invite is needed: the user can log in, or run `svc auth password reset`.",
        P::UserInvited => "Wait until the invite is accepted, or run `svc invites revoke`.",
        P::InvitePending => {
            "Run `svc invites list --status pending`, then `svc invites resend` or `svc invites revoke`."
        }
        P::LastAdmin => "Make another user an administrator first: `svc users set-role`.",
        P::TooManyApiKeys => "Revoke an unused key with `svc api-keys revoke`.",
        P::TooManyInvites => "Revoke pending invites with `svc invites revoke`.",
        P::TooManyUsers => "Ask the platform administrator to invite the person or to raise the limit.",
        P::MailUnavailable => "Pass `--delivery response` to get the token in the output.",
        P::ValidationFailed => "Correct the fields that the message names.",
        P::EventIdConflict => "Give each event of a source its own event_id.",
        P::RateLimited | P::Overloaded | P::DependencyUnavailable => "Wait, then run the command again.",
        P::QuotaExceeded => {
            "Wait, then send the rejected events again. The platform administrator can raise the quota."
        }
        P::TooManyStreams => "Stop another `svc events tail` of the tenant, then run the command again.",
        P::StreamFull => {
            "Keep the events and send them again later. The platform administrator must free space."
        }
        P::AckTimeout => "Send the rejected events again with the same event_id.",
        P::Internal => "Try again later. If the error persists, report the request id.",
        other => other.remedy(),
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

    #[test]
    fn remediations_name_no_http_headers() {
        for kind in P::ALL {
            let text = remediation_for(*kind);
            let request_format = matches!(kind, P::MalformedEncoding | P::MediaType | P::ContentEncoding);
            for header in
                ["Authorization", "X-Tenant-ID", "X-User-ID", "X-Session-ID", "Retry-After", "Allow "]
            {
                assert!(request_format || !text.contains(header), "{}: {text}", kind.code());
            }
        }
    }
}
