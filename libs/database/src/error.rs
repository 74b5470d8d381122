//! What can go wrong with the database, as far as a caller can act on it.

use contract::ProblemKind;
use service::Problem;

/// A failed statement.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be reached, is starting or stopping, or has no room now: it passes.
    #[error("the database is not available")]
    Unavailable(#[source] sqlx::Error),
    /// A named constraint refused a row.
    #[error("the constraint {0} refused a row")]
    Constraint(Constraint),
    /// A defect: of a statement, of the schema, or of the data.
    #[error("a statement failed")]
    Defect(#[source] sqlx::Error),
}

/// The name of a constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint(String);

impl Constraint {
    /// Whether it is the one with this name.
    pub fn is(&self, name: &str) -> bool {
        self.0 == name
    }
}

impl std::fmt::Display for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error {
    /// Whether the constraint with this name refused a row.
    pub fn is_refused_by(&self, name: &str) -> bool {
        matches!(self, Self::Constraint(constraint) if constraint.is(name))
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed => Self::Unavailable(error),
            sqlx::Error::Database(refusal) => match (refusal.constraint(), refusal.code()) {
                (Some(constraint), _) => Self::Constraint(Constraint(constraint.to_owned())),
                (None, Some(code)) if passes(&code) => Self::Unavailable(error),
                _ => Self::Defect(error),
            },
            _ => Self::Defect(error),
        }
    }
}

/// SQLSTATE classes and codes of faults that pass by themselves (PostgreSQL, appendix A).
fn passes(code: &str) -> bool {
    // 08 connection, 53 resources, 57P operator intervention (shutdown, start-up), 57014 statement time-out,
    // 40001 serialisation, 40P01 deadlock, 55P03 lock time-out, 25P03 idle transaction, 25006 read-only (a failover).
    code.starts_with("08")
        || code.starts_with("53")
        || code.starts_with("57P")
        || matches!(code, "57014" | "40001" | "40P01" | "55P03" | "25P03" | "25006")
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Unavailable(_) => ProblemKind::DependencyUnavailable,
            Error::Constraint(_) | Error::Defect(_) => ProblemKind::Internal,
        };
        Self::new(kind).caused_by(error)
    }
}
