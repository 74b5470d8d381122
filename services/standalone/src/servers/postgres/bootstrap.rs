//! What no migration makes: roles with their passwords, the database, the schemas.

use std::io;
use std::path::Path;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::{Durability, Postgres};
use crate::secret;

/// The roles of the services, for a server.
const ROLES: &str = include_str!("../../../../../deploy/postgres/roles.sql");
/// Their schemas, for a database.
const SCHEMAS: &str = include_str!("../../../../../deploy/postgres/schemas.sql");
/// The database of the services.
const DATABASE: &str = "svc";

/// Who connects to Postgres.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one who may do anything; no service is it.
    Superuser,
    /// Changes the shape of schema `identity`.
    IdentityMigrator,
    /// Runs identity.
    Identity,
    /// Changes the shape of schema `session`.
    SessionMigrator,
    /// Runs session.
    Session,
}

impl Role {
    const SERVICES: [Self; 4] =
        [Self::IdentityMigrator, Self::Identity, Self::SessionMigrator, Self::Session];

    /// The role's name in Postgres.
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

/// The roles' passwords, hexadecimal: they need no quoting, neither in SQL nor in a URL.
pub(super) struct Passwords {
    superuser: String,
    services: [String; 4],
}

impl Passwords {
    /// Reads or makes them. A throwaway server has one for all, so that a test that has the superuser's address can
    /// make those of the others.
    pub(super) fn load(secrets: &Path, durability: Durability) -> io::Result<Self> {
        let kept = |role: Role| secret::kept(&secrets.join(format!("postgres-{}", role.name())));
        let superuser = kept(Role::Superuser)?;
        let mut services = [(); 4].map(|()| superuser.clone());
        if durability == Durability::Kept {
            for (role, password) in Role::SERVICES.into_iter().zip(&mut services) {
                *password = kept(role)?;
            }
        }
        Ok(Self { superuser, services })
    }

    /// A role's password.
    pub(super) fn of(&self, role: Role) -> &str {
        let services = Role::SERVICES.iter().zip(&self.services);
        services
            .into_iter()
            .find(|(service, _)| **service == role)
            .map_or(&self.superuser, |(_, password)| password)
    }
}

/// Everything of it can be done again without harm.
pub(super) async fn run(postgres: &Postgres) -> Result<(), sqlx::Error> {
    let mut server = PgConnection::connect(&postgres.url(Role::Superuser, "postgres")).await?;
    sqlx::raw_sql(ROLES).execute(&mut server).await?;
    for role in Role::SERVICES {
        let statement = format!("alter role {} password '{}'", role.name(), postgres.passwords.of(role));
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut server).await?;
    }
    let known: Option<i32> = sqlx::query_scalar("select 1 from pg_database where datname = $1")
        .bind(DATABASE)
        .fetch_optional(&mut server)
        .await?;
    if known.is_none() {
        sqlx::raw_sql(AssertSqlSafe(format!("create database {DATABASE}"))).execute(&mut server).await?;
    }
    server.close().await?;
    let mut database = PgConnection::connect(&postgres.url(Role::Superuser, DATABASE)).await?;
    sqlx::raw_sql(SCHEMAS).execute(&mut database).await?;
    database.close().await
}
