//! Upgrade and rollback over several migrations on a real Postgres.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use database::DatabaseAccess;
use database::migrations::{Migrations, Version};
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
