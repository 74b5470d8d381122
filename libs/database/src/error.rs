//! Database errors, classified by what a caller can do.

use std::error::Error as StdError;

use contract::ProblemKind;
use service::Problem;

/// A failed statement.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database is unreachable, starting, stopping or overloaded, or rejects the credential. A later attempt can succeed.
    #[error("the database is not available")]
    Unavailable(#[source] sqlx::Error),
    /// A named constraint rejected a row.
    #[error("the constraint {0} rejected a row")]
    Constraint(String),
    /// Too many messages of the tenant wait in the outbox: [`WhenFull::Reject`](crate::outbox::WhenFull).
    #[error("too many messages of the tenant wait in the outbox")]
    OutboxFull(#[source] sqlx::Error),
    /// A defect of a statement, of the schema or of the data.
    #[error("failed to execute a statement")]
    Defect(#[source] sqlx::Error),
}

impl Error {
    /// Returns whether the constraint with the given name rejected a row.
    pub fn violates(&self, name: &str) -> bool {
        matches!(self, Self::Constraint(constraint) if constraint == name)
    }

    /// Returns whether the database rejected the user or the password.
    pub(crate) fn rejects_credential(&self) -> bool {
        let Self::Unavailable(sqlx::Error::Database(reported)) = self else { return false };
        reported.code().is_some_and(|code| code.starts_with(CREDENTIAL))
    }

    /// A value in the database that this binary cannot decode. `column` is `table.column`.
    pub fn corrupt(column: &str, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Defect(sqlx::Error::ColumnDecode { index: column.to_owned(), source: source.into() })
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            // A server that stops closes a connection before its first response.
            | sqlx::Error::Protocol(_) => Self::Unavailable(error),
            sqlx::Error::Database(reported) => match (reported.constraint(), reported.code()) {
                (Some("outbox_full"), _) => Self::OutboxFull(error),
                (Some(constraint), _) => Self::Constraint(constraint.to_owned()),
                (None, Some(code)) if is_transient(&code) => Self::Unavailable(error),
                _ => Self::Defect(error),
            },
            _ => Self::Defect(error),
        }
    }
}

/// Class of the SQLSTATEs of a rejected user or password.
const CREDENTIAL: &str = "28";

/// Returns whether a statement with this SQLSTATE can succeed later (PostgreSQL, appendix A).
fn is_transient(code: &str) -> bool {
    // 08 connection, 28 credential (during a rotation, one side does not know the new one yet), 53 resources, 57P operator intervention
    // (shutdown, start-up), 57014 statement timeout, 40001 serialization, 40P01 deadlock, 55P03 lock timeout, 25P03 idle transaction,
    // 25006 read-only (failover).
    code.starts_with("08")
        || code.starts_with(CREDENTIAL)
        || code.starts_with("53")
        || code.starts_with("57P")
        || matches!(code, "57014" | "40001" | "40P01" | "55P03" | "25P03" | "25006")
}

/// Why a change of a tenant is rejected while its audit events wait.
const OUTBOX_FULL: &str = "Too many audit events of the tenant wait for the audit stream. Requests that only revoke, disable or delete \
    still work. The platform administrator must make space in the stream.";

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let problem: Self = match error {
            Error::Unavailable(_) => ProblemKind::DependencyUnavailable.into(),
            Error::OutboxFull(_) => Self::new(ProblemKind::DependencyUnavailable).detail(OUTBOX_FULL),
            Error::Constraint(_) | Error::Defect(_) => ProblemKind::Internal.into(),
        };
        problem.caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, PgConnection};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_server_that_closes_new_connections_is_not_available() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://svc@{}/svc", listener.local_addr().unwrap());
        let server = async {
            loop {
                drop(listener.accept().await.unwrap());
            }
        };
        let error = tokio::select! {
            never = server => never,
            result = PgConnection::connect(&url) => Error::from(result.unwrap_err()),
        };
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
        let protocol =
            Error::from(sqlx::Error::Protocol("unexpected response from SSLRequest: 0x00".to_owned()));
        assert!(matches!(protocol, Error::Unavailable(_)), "{protocol:?}");
    }
}
