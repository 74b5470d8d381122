//! Exit statuses of `svc`.

use contract::ProblemKind;

macro_rules! exits {
    ($($variant:ident = $code:literal, $meaning:literal;)+) => {
        /// An exit status of `svc`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Exit { $($variant),+ }

        impl Exit {
            /// All statuses, in ascending order.
            #[cfg(test)]
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
    Defect = 70, "internal error of svc";
    Interrupted = 130, "interrupted";
    BrokenPipe = 141, "broken pipe";
    Terminated = 143, "terminated";
}

impl Exit {
    /// Status for a problem of the API.
    pub(crate) const fn from_problem(kind: ProblemKind) -> Self {
        match kind {
            ProblemKind::ReauthenticationRequired => Self::Authentication,
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
