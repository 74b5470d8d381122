//! `svc-identity outbox`: lists undelivered messages and retries dead-lettered ones.

use std::process::ExitCode;

use database::{Database, DatabaseAccess, outbox};
use service::Clock as _;
use service::clock::SystemClock;
use service::config::{Environment, Variables as _};
use service::process::{CommandResult, print_line};
use tenancy::OutboxId;

/// Subcommands of `svc-identity outbox`. They require the variables of the database only.
#[derive(Debug, clap::Subcommand)]
pub enum OutboxCommand {
    /// List undelivered messages as JSON, one per line: dead-lettered ones first, then the others, oldest first
    ///
    /// States: `dead_lettered` after a permanent error or the last attempt, until `outbox retry`; `pending` until the next attempt;
    /// `held` for the mail of an invite while its tenant is suspended.
    List {
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

impl OutboxCommand {
    /// Runs the subcommand.
    pub async fn execute(self, environment: &Environment) -> CommandResult {
        let database = Database::connect(DatabaseAccess::load(environment)?, "identity")?;
        let now = SystemClock.now();
        match self {
            Self::List { limit } => {
                for message in outbox::list(&database, limit).await? {
                    print_line(&serde_json::to_string(&message)?)?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Self::Retry { all: true, .. } => {
                let count = outbox::retry(&database, None, now).await?;
                print_line(&format!("{count} messages scheduled for retry"))?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Retry { ids, .. } => {
                let mut code = ExitCode::SUCCESS;
                for id in ids {
                    if outbox::retry(&database, Some(id), now).await? == 0 {
                        eprintln!("svc-identity: no dead-lettered message has the id {id}");
                        code = ExitCode::FAILURE;
                    } else {
                        print_line(&format!("Message {id} scheduled for retry"))?;
                    }
                }
                Ok(code)
            }
        }
    }
}
