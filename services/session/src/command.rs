//! Subcommands of `svc-session`. `invalidate-before` runs after a restore of the database: credentials that were revoked since the
//! restore point are active again, and the database does not know which ones.

use std::process::ExitCode;

use audit::Actor;
use chrono::{DateTime, Utc};
use database::migrations;
use database::{Database, DatabaseAccess, Error};
use service::clock::SystemClock;
use service::config::{Environment, Variables as _};
use service::process::{CommandResult, print_line};
use service::{Clock as _, chain};
use tenancy::TenantId;

use crate::app::{api_keys, sessions};
use crate::store::{MIGRATIONS, account_status, api_key, device_grant, session};

/// Sessions and keys of one transaction. Small, so that requests do not wait for locks.
const BATCH: i64 = 500;

/// Subcommands of `svc-session`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Migrate the schema `session`
    #[command(subcommand)]
    Migrate(migrations::Command),
    /// Revoke the sessions and API keys that were created before a time; run it after a restore of the database
    InvalidateBefore(InvalidateBefore),
}

/// Options of `svc-session invalidate-before`. It requires the variables of the database only.
#[derive(Debug, clap::Args)]
pub struct InvalidateBefore {
    /// `now`, or a time in the form YYYY-MM-DDTHH:MM:SSZ (RFC 3339): before the restored system accepted its first login
    #[arg(value_parser = parse_time)]
    time: DateTime<Utc>,
    /// Keep the API keys, because you revoke those that were revoked since the restore point yourself
    #[arg(long)]
    keep_api_keys: bool,
}

fn parse_time(text: &str) -> Result<DateTime<Utc>, String> {
    if text == "now" {
        return Ok(SystemClock.now());
    }
    let time = DateTime::parse_from_rfc3339(text);
    time.map(|time| time.to_utc())
        .map_err(|_| "expected `now` or a time such as 2026-01-31T12:00:00Z".to_owned())
}

impl Command {
    pub(crate) async fn execute(self, environment: &Environment) -> CommandResult {
        match self {
            Self::Migrate(command) => MIGRATIONS.execute(command, environment).await,
            Self::InvalidateBefore(options) => options.execute(environment).await,
        }
    }
}

impl InvalidateBefore {
    async fn execute(self, environment: &Environment) -> CommandResult {
        let revoked = self.revoke_all(DatabaseAccess::load(environment)?).await;
        let Revoked { sessions, api_keys } =
            revoked.map_err(|error| format!("{}; run the command again", chain(&error)))?;
        print_line(&format!("{sessions} sessions and {api_keys} API keys revoked"))?;
        Ok(ExitCode::SUCCESS)
    }

    async fn revoke_all(&self, access: DatabaseAccess) -> Result<Revoked, Error> {
        let database = Database::connect(access, "session")?;
        let mut all = Revoked::default();
        for tenant_id in account_status::list_tenants(&database).await? {
            loop {
                let revoked = self.revoke_batch(&database, tenant_id.clone()).await?;
                all.sessions += revoked.sessions;
                all.api_keys += revoked.api_keys;
                if revoked == Revoked::default() {
                    break;
                }
            }
        }
        Ok(all)
    }

    /// Revokes credentials of one tenant, with their audit events, which contain ids only. ingest rejects them when its cached
    /// results expire.
    async fn revoke_batch(&self, database: &Database, tenant_id: TenantId) -> Result<Revoked, Error> {
        let mut tx = database.begin(&tenant_id, Actor::System, SystemClock.now()).await?;
        device_grant::deny_created_before(&mut tx, self.time).await?;
        let revoked = session::mark_revoked_before(&mut tx, self.time, BATCH).await?;
        let api_keys = if self.keep_api_keys {
            Vec::new()
        } else {
            api_key::mark_created_before_revoked(&mut tx, self.time, BATCH).await?
        };
        for session in &revoked {
            tx.audit(sessions::revoked(session));
        }
        for key_id in &api_keys {
            tx.audit(api_keys::revoked(*key_id));
        }
        tx.commit().await?;
        Ok(Revoked { sessions: revoked.len(), api_keys: api_keys.len() })
    }
}

/// Numbers of revoked credentials.
#[derive(Default, PartialEq, Eq)]
struct Revoked {
    sessions: usize,
    api_keys: usize,
}
