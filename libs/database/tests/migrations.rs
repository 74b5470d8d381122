//! Upgrade and rollback over several migrations on a real Postgres.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use database::migrations::{Migrations, Version};
use database::{Database, DatabaseAccess};
use sqlx::Connection as _;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::PgConnection;
use testkit::TestDatabase;

/// A release with these migrations.
fn release_of(statements: &[String]) -> Migrations {
    let migration = |(version, sql): (i64, &String)| {
        let sql = sqlx::SqlSafeStr::into_sql_str(sqlx::AssertSqlSafe(sql.clone()));
        Migration::new(version, "test".into(), MigrationType::Simple, sql, false)
    };
    let migrator = Migrator::with_migrations((1..).zip(statements).map(migration).collect());
    Migrations { schema: "upgrade", migrator: Box::leak(Box::new(migrator)) }
}

/// Creates a table, and declares the oldest binary.
fn statements(oldest: &[i64]) -> Vec<String> {
    let table = |(number, oldest)| {
        format!("-- oldest-binary: {oldest}\ncreate table upgrade.table_{number} (id integer)")
    };
    (1..).zip(oldest).map(table).collect()
}

/// A release with migrations that create tables. Each declares its oldest binary.
fn release(oldest: &[i64]) -> Migrations {
    release_of(&statements(oldest))
}

struct Schema {
    _database: TestDatabase,
    access: DatabaseAccess,
    connection: PgConnection,
}

impl Schema {
    async fn create() -> Self {
        let database = TestDatabase::create().await.unwrap();
        let url = database.superuser_url();
        let mut connection = PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql("create schema upgrade").execute(&mut connection).await.unwrap();
        // As the migrator roles have.
        let access = DatabaseAccess::fixed(&format!("{url}?options[lock_timeout]=5s"));
        Self { access, _database: database, connection }
    }

    async fn version(&mut self, release: &Migrations) -> Version {
        release.version(&mut self.connection).await.unwrap()
    }
}

#[tokio::test]
async fn a_release_runs_missing_migrations_once() {
    let mut schema = Schema::create().await;
    assert_eq!(schema.version(&release(&[1])).await, Version::Behind { applied: 0, needed: 1 });
    assert_eq!(release(&[1]).up(&schema.access).await.unwrap(), Version::Accepted(1));
    let newer = [release(&[1, 1, 1]), release(&[1, 1, 1])];
    assert_eq!(schema.version(&newer[0]).await, Version::Behind { applied: 1, needed: 3 });
    // Also if two processes run them at the same time.
    let (first, second) = tokio::join!(newer[0].up(&schema.access), newer[1].up(&schema.access));
    assert_eq!([first.unwrap(), second.unwrap()], [Version::Accepted(3); 2]);
    let tables: i64 = sqlx::query_scalar(
        "select count(*) from information_schema.tables where table_schema = 'upgrade' and table_name like 'table_%'",
    )
    .fetch_one(&mut schema.connection)
    .await
    .unwrap();
    assert_eq!(tables, 3);
}

#[tokio::test]
async fn a_release_without_new_migrations_starts_during_a_backup() {
    let mut schema = Schema::create().await;
    release(&[1]).up(&schema.access).await.unwrap();
    // As pg_dump does with all tables.
    let backup = "begin; lock table upgrade.schema_migrations in access share mode";
    sqlx::raw_sql(backup).execute(&mut schema.connection).await.unwrap();
    assert_eq!(release(&[1]).up(&schema.access).await.unwrap(), Version::Accepted(1));
}

#[tokio::test]
async fn an_older_release_runs_on_each_newer_schema_that_declares_it() {
    let mut schema = Schema::create().await;
    let newest = [1, 1, 2, 1, 2];
    assert_eq!(release(&newest).up(&schema.access).await.unwrap(), Version::Accepted(5));
    // A rollback over three migrations.
    let declared = release(&newest[..2]);
    assert_eq!(schema.version(&declared).await, Version::Accepted(5));
    assert_eq!(declared.up(&schema.access).await.unwrap(), Version::Accepted(5));
    let refused = release(&newest[..1]);
    let ahead = Version::Ahead { applied: 5, oldest: 2, needed: 1 };
    assert_eq!(refused.up(&schema.access).await.unwrap(), ahead);
    assert_eq!(schema.version(&refused).await, ahead);
    assert_eq!(
        ahead.to_string(),
        "schema version 5 supports binaries of version 2 and later, but this binary was built for 1: use a newer binary"
    );
}

#[tokio::test]
async fn an_older_release_runs_on_the_migrations_before_a_failed_one() {
    let mut schema = Schema::create().await;
    let mut newest = statements(&[1, 1, 1]);
    newest.push("-- oldest-binary: 1\nselect 1/0".to_owned());
    assert!(release_of(&newest).up(&schema.access).await.is_err());
    assert_eq!(schema.version(&release(&[1])).await, Version::Accepted(3));
}

#[tokio::test]
async fn a_schema_without_declarations_supports_its_own_binaries() {
    let mut schema = Schema::create().await;
    release(&[1, 1]).up(&schema.access).await.unwrap();
    let drop = "alter table upgrade.schema_migrations drop column oldest_binary";
    sqlx::raw_sql(drop).execute(&mut schema.connection).await.unwrap();
    assert_eq!(schema.version(&release(&[1, 1])).await, Version::Accepted(2));
    assert_eq!(schema.version(&release(&[1])).await, Version::Ahead { applied: 2, oldest: 2, needed: 1 });
}

#[tokio::test]
async fn a_migration_without_a_valid_declaration_is_an_error_before_anything_runs() {
    let mut schema = Schema::create().await;
    let sql = "create table upgrade.table_2 (id integer)";
    for header in ["", "-- oldest-binary: 3\n", "-- oldest-binary: one\n", "\n-- oldest-binary: 1\n"] {
        let mut undeclared = statements(&[1]);
        undeclared.push(format!("{header}{sql}"));
        let error = release_of(&undeclared).up(&schema.access).await.unwrap_err();
        assert_eq!(error.to_string(), "migration 2 must begin with the line `-- oldest-binary: <version>`");
    }
    assert_eq!(schema.version(&release(&[1])).await, Version::Behind { applied: 0, needed: 1 });
}

#[tokio::test]
async fn only_the_owner_of_a_schema_migrates_it() {
    let mut schema = Schema::create().await;
    let owner = "alter schema upgrade owner to svc_session_migrator";
    sqlx::raw_sql(owner).execute(&mut schema.connection).await.unwrap();
    let error = release(&[1]).up(&schema.access).await.unwrap_err().to_string();
    let expected = "does not own the schema upgrade, svc_session_migrator does";
    assert!(error.contains(expected), "{error}");
    assert_eq!(schema.version(&release(&[1])).await, Version::Behind { applied: 0, needed: 1 });
}

/// Returns the first state that a service with this URL waits for, or `None` if it is ready.
async fn waits_for(release: &Migrations, url: &str) -> Option<String> {
    let database = Database::new(url, release.schema).unwrap();
    let (sender, mut states) = tokio::sync::mpsc::unbounded_channel();
    tokio::select! {
        () = release.wait(&database, |state| sender.send(state).unwrap()) => None,
        state = states.recv() => state,
    }
}

#[tokio::test]
async fn a_service_waits_as_long_as_row_level_security_does_not_apply_to_its_role() {
    let database = TestDatabase::create().await.unwrap();
    let mut superuser = database.superuser().await.unwrap();
    let release = Migrations { schema: "session", ..release(&[1]) };
    let bypasses = format!("test_{}", uuid::Uuid::now_v7().simple());
    let create = sqlx::AssertSqlSafe(format!("create role {bypasses} bypassrls"));
    sqlx::raw_sql(create).execute(&mut superuser).await.unwrap();
    for (url, privilege) in [
        (database.superuser_url(), "is a superuser"),
        (format!("{}?options[role]={bypasses}", database.superuser_url()), "has BYPASSRLS"),
        (database.url("svc_session_migrator"), "has the privileges of the migrator role"),
    ] {
        let state = waits_for(&release, &url).await.unwrap();
        assert!(state.contains(privilege), "{privilege}: {state}");
        assert!(state.ends_with("must have the runtime role of the service, such as svc_session"), "{state}");
    }
    assert_eq!(waits_for(&release, &database.url("svc_session")).await, None);
    let drop = sqlx::AssertSqlSafe(format!("drop role {bypasses}"));
    sqlx::raw_sql(drop).execute(&mut superuser).await.unwrap();
}

#[test]
fn the_checksum_of_a_migration_covers_the_outbox_that_it_includes() {
    let release = release_of(&["-- oldest-binary: 1\n-- include: outbox_1.sql\n".to_owned()]);
    let ([written], [complete]) = (&*release.migrator.migrations, &*release.complete()) else { panic!() };
    let sql = complete.sql.as_str();
    assert!(sql.starts_with("-- oldest-binary: 1\n") && sql.contains("create table upgrade.outbox ("));
    assert!(!sql.contains("{schema}"));
    assert_ne!(complete.checksum, written.checksum);
    let [same] = &*release_of(&[sql.to_owned()]).complete() else { panic!() };
    assert_eq!(complete.checksum, same.checksum);
}
