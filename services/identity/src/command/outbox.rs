//! `svc-identity outbox`: lists undelivered messages and retries dead-lettered ones.

use std::io::{self, Write as _};
use std::process::ExitCode;

use chrono::{DateTime, TimeDelta, Utc};
use database::outbox::{self, UndeliveredMessage};
use database::{Database, DatabaseAccess};
use serde_json::json;
use service::Clock as _;
use service::clock::SystemClock;
use service::config::{Environment, Variables as _};
use service::process::CommandResult;
use tenancy::OutboxId;

/// Subcommands of `svc-identity outbox`. They require the variables of the database only.
#[derive(Debug, clap::Subcommand)]
pub enum OutboxCommand {
    /// List undelivered messages: dead-lettered ones first, then the others, oldest first
    ///
    /// States: `dead_lettered` after a permanent error or the last attempt, until `outbox retry`; `pending` until the next attempt;
    /// `held` for the mail of an invite while its tenant is suspended.
    List {
        /// Output format
        #[arg(long, value_enum, default_value_t = Form::Table)]
        output: Form,
        /// Maximum number of messages
        #[arg(long, value_parser = clap::value_parser!(i32).range(1..), default_value_t = 1000)]
        limit: i32,
    },
    /// Retry dead-lettered messages; a running service delivers them within a second
    Retry {
        /// Message ids from `outbox list`
        #[arg(required_unless_present = "all")]
        ids: Vec<OutboxId>,
        /// Retry all dead-lettered messages
        #[arg(long, conflicts_with = "ids")]
        all: bool,
    },
}

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// Aligned text
    Table,
    /// A JSON object
    Json,
}

impl OutboxCommand {
    /// Runs the subcommand.
    pub async fn execute(self, environment: &Environment) -> CommandResult {
        let database = Database::connect(DatabaseAccess::load(environment)?, "identity")?;
        let now = SystemClock.now();
        match self {
            Self::List { output, limit } => {
                let rows = outbox::list(&database, limit).await?;
                // The reader can close the pipe.
                let _ = io::stdout().write_all(listing(&rows, output, now).as_bytes());
                Ok(ExitCode::SUCCESS)
            }
            Self::Retry { all: true, .. } => {
                let count = outbox::retry(&database, None, now).await?;
                println!("{count} messages scheduled for retry");
                Ok(ExitCode::SUCCESS)
            }
            Self::Retry { ids, .. } => {
                let mut code = ExitCode::SUCCESS;
                for id in ids {
                    if outbox::retry(&database, Some(id), now).await? == 0 {
                        eprintln!("svc-identity: no dead-lettered message has the id {id}");
                        code = ExitCode::FAILURE;
                    } else {
                        println!("Message {id} scheduled for retry");
                    }
                }
                Ok(code)
            }
        }
    }
}

fn listing(rows: &[UndeliveredMessage], form: Form, now: DateTime<Utc>) -> String {
    if form == Form::Json {
        return format!("{:#}\n", json!({ "items": rows }));
    }
    if rows.is_empty() {
        return "No undelivered messages\n".to_owned();
    }
    let headings = ["ID", "TENANT", "KIND", "STATE", "AGE", "ATTEMPTS", "LAST ERROR"].map(str::to_owned);
    let lines: Vec<_> = std::iter::once(headings).chain(rows.iter().map(|row| cells(row, now))).collect();
    let width = |column: usize| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let padded = |cells: &[String; 7]| {
        let cells =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect::<Vec<_>>();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(padded).collect()
}

fn cells(row: &UndeliveredMessage, now: DateTime<Utc>) -> [String; 7] {
    let error = row.last_error.as_deref().unwrap_or_default();
    // The text can come from another server and must not control the terminal.
    let error = error.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let (id, age, attempts) =
        (row.outbox_id.to_string(), age(now - row.created_at), row.attempts.to_string());
    [id, row.tenant_id.clone(), row.kind.clone(), row.state.clone(), age, attempts, error]
}

/// Formats an age in its largest whole unit.
fn age(age: TimeDelta) -> String {
    match (age.num_days(), age.num_hours(), age.num_minutes()) {
        (days @ 1.., ..) => format!("{days}d"),
        (_, hours @ 1.., _) => format!("{hours}h"),
        (_, _, minutes @ 1..) => format!("{minutes}m"),
        _ => format!("{}s", age.num_seconds().max(0)),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_row_has_age_attempts_and_error_on_one_line() {
        let row = UndeliveredMessage {
            outbox_id: OutboxId(Uuid::nil()),
            tenant_id: "acme".to_owned(),
            kind: "mail_invite".to_owned(),
            state: "dead_lettered".to_owned(),
            created_at: DateTime::UNIX_EPOCH,
            due_at: DateTime::UNIX_EPOCH,
            attempts: 5,
            last_error: Some("no\u{1b}[2J\nway".to_owned()),
        };
        let now = DateTime::UNIX_EPOCH + TimeDelta::minutes(150);
        assert_eq!(
            listing(&[row], Form::Table, now),
            "ID                                    TENANT  KIND         STATE          AGE  ATTEMPTS  LAST ERROR\n\
             00000000-0000-0000-0000-000000000000  acme    mail_invite  dead_lettered  2h   5         no [2J way\n"
        );
        assert_eq!(listing(&[], Form::Table, now), "No undelivered messages\n");
        assert_eq!(listing(&[], Form::Json, now), "{\n  \"items\": []\n}\n");
    }

    #[test]
    fn an_age_has_its_largest_unit() {
        let ages = [59, 60, 3599, 3600, 86_399, 86_400, -5].map(|seconds| age(TimeDelta::seconds(seconds)));
        assert_eq!(ages, ["59s", "1m", "59m", "1h", "23h", "1d", "0s"]);
    }
}
