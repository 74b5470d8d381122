//! Upgrade and rollback over several migrations on a real Postgres.

use database::migrations::{Migrations, Version};
use sqlx::Connection as _;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::PgConnection;
use testkit::TestDatabase;

/// The migrations of a release with this schema version. Each migration creates a table.
fn release(version: i64) -> Migrations {
    let migration = |version: i64| {
        let sql = format!("create table upgrade.table_{version} (id integer)");
        let sql = sqlx::SqlSafeStr::into_sql_str(sqlx::AssertSqlSafe(sql));
        Migration::new(version, "test".into(), MigrationType::Simple, sql, false)
    };
    let migrator = Migrator::with_migrations((1..=version).map(migration).collect());
    Migrations { schema: "upgrade", migrator: Box::leak(Box::new(migrator)) }
}

#[tokio::test]
async fn a_release_runs_on_its_own_schema_version_and_the_next_one() {
    let database = TestDatabase::create().await.unwrap();
    let url = database.superuser_url();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("create schema upgrade").execute(&mut connection).await.unwrap();

    let behind = Version::Behind { applied: 0, needed: 1 };
    assert_eq!(release(1).version(&mut connection).await.unwrap(), behind);
    assert_eq!(release(1).up(&url).await.unwrap(), Version::Accepted(1));
    let behind = Version::Behind { applied: 1, needed: 3 };
    assert_eq!(release(3).version(&mut connection).await.unwrap(), behind);
    // Two missing migrations, also if two processes run them at the same time.
    let (release_3, also_3) = (release(3), release(3));
    let (first, second) = tokio::join!(release_3.up(&url), also_3.up(&url));
    assert_eq!([first.unwrap(), second.unwrap()], [Version::Accepted(3); 2]);
    let tables: i64 = sqlx::query_scalar(
        "select count(*) from information_schema.tables where table_schema = 'upgrade' and table_name like 'table_%'",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(tables, 3);
    // A rollback.
    assert_eq!(release(2).up(&url).await.unwrap(), Version::Accepted(3));
    assert_eq!(release(1).version(&mut connection).await.unwrap(), Version::Ahead { applied: 3, needed: 1 });
}
