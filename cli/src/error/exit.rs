//! Exit statuses: a small fixed vocabulary that scripts can branch on.

use contract::ProblemKind;

macro_rules! exits {
    ($($variant:ident = $code:literal, $meaning:literal;)+) => {
        /// An exit status of `svc`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Exit { $($variant),+ }

        impl Exit {
            /// Every status, in order of its number.
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),+];

            /// The number that the process ends with.
            pub(crate) const fn code(self) -> u8 {
                match self { $(Self::$variant => $code),+ }
            }

            /// What the number says, in a few words.
            pub(crate) const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning),+ }
            }
        }
    };
}

exits! {
    Done = 0, "done";
    Failed = 1, "failed otherwise";
    Usage = 2, "the command line is not understood";
    NotFound = 3, "not found";
    Authentication = 4, "authentication required or failed";
    Permission = 5, "permission denied";
    Conflict = 6, "conflict with what exists";
    InvalidInput = 7, "invalid input";
    Pending = 8, "pending: nobody has decided in time";
    Unavailable = 9, "unavailable: network, too many requests, or a fault of the service";
    Partial = 10, "partial success";
    Configuration = 11, "configuration or stored credentials cannot be used";
    InputNeeded = 12, "input is needed, but nobody can be asked";
    Defect = 70, "a defect of this program";
    Interrupted = 130, "interrupted";
    BrokenPipe = 141, "the reader of the output went away";
    Terminated = 143, "terminated";
}

impl Exit {
    /// The status for a problem that the API answered.
    pub(crate) const fn of_problem(kind: ProblemKind) -> Self {
        match kind {
            ProblemKind::ReauthenticationRequired => Self::Authentication,
            other => Self::of_status(other.status()),
        }
    }

    /// The status for an HTTP status.
    pub(crate) const fn of_status(status: u16) -> Self {
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
    fn numbers_rise_so_no_two_are_equal() {
        assert!(Exit::ALL.windows(2).all(|pair| pair[0].code() < pair[1].code()));
    }

    #[test]
    fn every_problem_of_the_api_has_a_status_that_says_more_than_failed() {
        for kind in ProblemKind::ALL {
            assert!(!matches!(Exit::of_problem(*kind), Exit::Failed | Exit::Done), "{}", kind.code());
        }
    }
}
