//! The roles with their passwords, the database and the schemas, which no migration creates.

use std::io;
use std::path::Path;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::{Durability, Postgres};
use crate::secret;

const ROLES: &str = include_str!("../../../../deploy/postgres/roles.sql");
const SCHEMAS: &str = include_str!("../../../../deploy/postgres/schemas.sql");
/// The database of the services.
const DATABASE: &str = "svc";

/// A role of Postgres.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostgresRole {
    /// The superuser. No service uses it.
    Superuser,
    /// Migrates the schema `identity`.
    IdentityMigrator,
    /// The runtime role of identity.
    Identity,
    /// Migrates the schema `session`.
    SessionMigrator,
    /// The runtime role of session.
    Session,
}

impl PostgresRole {
    const SERVICES: [Self; 4] =
        [Self::IdentityMigrator, Self::Identity, Self::SessionMigrator, Self::Session];

    /// The name of the role.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Superuser => "postgres",
            Self::IdentityMigrator => "svc_identity_migrator",
            Self::Identity => "svc_identity",
            Self::SessionMigrator => "svc_session_migrator",
            Self::Session => "svc_session",
        }
    }
}

/// The passwords of the roles, in hexadecimal, so that neither SQL nor a URL needs quoting.
pub(super) struct Passwords {
    superuser: String,
    services: [String; 4],
}

impl Passwords {
    /// Reads or generates the passwords. All roles of a temporary cluster have the same password: tests derive the URLs of
    /// the other roles from that of the superuser.
    pub(super) fn load(secrets: &Path, durability: Durability) -> io::Result<Self> {
        let load =
            |role: PostgresRole| secret::load_or_generate(&secrets.join(format!("postgres-{}", role.name())));
        let superuser = load(PostgresRole::Superuser)?;
        let mut services = [(); 4].map(|()| superuser.clone());
        if durability == Durability::Persistent {
            for (role, password) in PostgresRole::SERVICES.into_iter().zip(&mut services) {
                *password = load(role)?;
            }
        }
        Ok(Self { superuser, services })
    }

    /// The password of a role.
    pub(super) fn of(&self, role: PostgresRole) -> &str {
        let mut services = PostgresRole::SERVICES.iter().zip(&self.services);
        services.find(|(service, _)| **service == role).map_or(&self.superuser, |(_, password)| password)
    }
}

/// Creates the roles, the database and the schemas. Idempotent.
pub(super) async fn create(postgres: &Postgres) -> Result<(), sqlx::Error> {
    let mut server = PgConnection::connect(&postgres.url(PostgresRole::Superuser, "postgres")).await?;
    sqlx::raw_sql(ROLES).execute(&mut server).await?;
    for role in PostgresRole::SERVICES {
        let statement = format!("alter role {} password '{}'", role.name(), postgres.passwords.of(role));
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut server).await?;
    }
    let existing: Option<i32> = sqlx::query_scalar("select 1 from pg_database where datname = $1")
        .bind(DATABASE)
        .fetch_optional(&mut server)
        .await?;
    if existing.is_none() {
        sqlx::raw_sql(AssertSqlSafe(format!("create database {DATABASE}"))).execute(&mut server).await?;
    }
    server.close().await?;
    let mut database = PgConnection::connect(&postgres.url(PostgresRole::Superuser, DATABASE)).await?;
    sqlx::raw_sql(SCHEMAS).execute(&mut database).await?;
    database.close().await
}
