//! The pool on a real Postgres.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails at once")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use chrono::{DateTime, Utc};
use database::{Connection, Database, TenantTx};
use futures::future::join_all;
use tenancy::Actor;
use testkit::TestDatabase;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

async fn start() -> (TestDatabase, Database) {
    let test = TestDatabase::create().await.unwrap();
    let database = test.pool("svc_identity").unwrap();
    (test, database)
}

async fn begin(database: &Database) -> TenantTx {
    let tenant_id = "acme".parse().unwrap();
    database.begin(&tenant_id, Actor::PlatformAdmin, NOW).await.unwrap()
}

async fn all_connections(database: &Database) -> Vec<Connection> {
    let pool = database.pool();
    join_all((0..pool.max_connections()).map(|_| async { pool.acquire().await.unwrap() })).await
}

/// Waits until no connection is being reset.
async fn assert_no_transaction(test: &TestDatabase, database: &Database) {
    let _connections = all_connections(database).await;
    let open: i64 = sqlx::query_scalar(
        "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'",
    )
    .fetch_one(&mut test.superuser().await.unwrap())
    .await
    .unwrap();
    assert_eq!(open, 0);
}

async fn process_id(database: &Database) -> i32 {
    sqlx::query_scalar("select pg_backend_pid()").fetch_one(database.pool()).await.unwrap()
}

/// Polls a future this number of times and drops it, as the request of a client that disconnects. Returns its result if it ends before.
async fn poll_and_drop<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (std::pin::pin!(future), polls);
    std::future::poll_fn(|context| {
        let result = future.as_mut().poll(context).map(Some);
        left -= 1;
        if left == 0 && result.is_pending() { Poll::Ready(None) } else { result }
    })
    .await
}

/// Without turns, the transaction of the other tenant would wait for all hundred.
#[tokio::test]
async fn a_burst_of_one_tenant_delays_another_by_two_rounds_of_the_connections() {
    let (_test, database) = start().await;
    let places = database.pool().max_connections();
    let (ended, mut burst) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    for _ in 0..100 {
        let (database, ended) = (database.clone(), Arc::clone(&ended));
        burst.spawn(async move {
            let mut tx = begin(&database).await;
            sqlx::query("select pg_sleep(0.01)").execute(tx.connection()).await.unwrap();
            tx.commit().await.unwrap();
            ended.fetch_add(1, Ordering::SeqCst);
        });
    }
    burst.join_next().await.unwrap().unwrap();
    let before = ended.load(Ordering::SeqCst);
    database.begin(&"globex".parse().unwrap(), Actor::PlatformAdmin, NOW).await.unwrap();
    let waited_for = ended.load(Ordering::SeqCst) - before;
    assert!(
        waited_for <= 3 * places,
        "{waited_for} transactions of the other tenant with {places} connections"
    );
    burst.join_all().await;
}

/// The runtime of the test has one thread, so a task that returned the connection would not have run before the next statement.
#[tokio::test]
async fn a_statement_returns_its_connection_at_once_and_the_next_statement_uses_the_same_one() {
    let (_test, database) = start().await;
    let at_once = join_all((0..database.pool().max_connections()).map(|_| process_id(&database))).await;
    assert_eq!(BTreeSet::from_iter(at_once).len(), database.pool().max_connections());
    let mut used = BTreeSet::new();
    for _ in 0..10 {
        used.insert(process_id(&database).await);
    }
    assert_eq!(used.len(), 1, "{used:?}");
}

#[tokio::test]
async fn a_statement_that_is_cancelled_at_any_point_leaves_no_response_for_the_next_one() {
    let (_test, database) = start().await;
    for polls in 1.. {
        let first = sqlx::query_scalar::<_, i32>("select 1").fetch_one(database.pool());
        let has_ended = poll_and_drop(polls, first).await.is_some();
        for connection in &mut all_connections(&database).await {
            let second: i32 = sqlx::query_scalar("select 2").fetch_one(&mut **connection).await.unwrap();
            assert_eq!(second, 2, "after {polls} polls");
        }
        if has_ended {
            break;
        }
    }
}

#[tokio::test]
async fn a_failed_statement_does_not_use_up_its_connection() {
    let (_test, database) = start().await;
    for _ in 0..=database.pool().max_connections() {
        let error = sqlx::query("select 1 / 0").execute(database.pool()).await.unwrap_err();
        assert!(error.to_string().contains("division by zero"), "{error}");
    }
    let connections = all_connections(&database).await;
    assert_eq!(connections.len(), database.pool().max_connections());
}

#[tokio::test]
async fn a_transaction_that_is_dropped_is_rolled_back_before_its_connection_is_used_again() {
    let (_test, database) = start().await;
    let mut tx = begin(&database).await;
    let locked: bool =
        sqlx::query_scalar("select pg_try_advisory_xact_lock(7)").fetch_one(tx.connection()).await.unwrap();
    assert!(locked);
    drop(tx);
    let mut connections = all_connections(&database).await;
    for connection in &mut connections {
        let locks: i64 = sqlx::query_scalar(
            "select count(*) from pg_locks where locktype = 'advisory' and objid = 7 and database = (select oid from pg_database where datname = current_database())",
        )
        .fetch_one(&mut **connection)
        .await
        .unwrap();
        assert_eq!(locks, 0);
    }
}

#[tokio::test]
async fn a_begin_that_is_cancelled_at_any_point_leaves_no_transaction_on_its_connection() {
    let (test, database) = start().await;
    for polls in 1.. {
        let has_begun = poll_and_drop(polls, begin(&database)).await.is_some();
        assert_no_transaction(&test, &database).await;
        if has_begun {
            break;
        }
    }
}

#[tokio::test]
async fn a_commit_that_is_cancelled_at_any_point_leaves_no_transaction_on_its_connection() {
    let (test, database) = start().await;
    for polls in 1.. {
        let tx = begin(&database).await;
        let has_committed = poll_and_drop(polls, tx.commit()).await.is_some();
        assert_no_transaction(&test, &database).await;
        if has_committed {
            break;
        }
    }
}

#[tokio::test]
async fn a_commit_that_fails_leaves_no_transaction_on_its_connection() {
    let (test, database) = start().await;
    let mut tx = begin(&database).await;
    // The response to this statement is an error, which the commit reads before it is sent.
    let failing = sqlx::raw_sql("select 1 / (select 0 from pg_sleep(0.01))").execute(tx.connection());
    assert!(poll_and_drop(1, failing).await.is_none());
    tx.commit().await.unwrap_err();
    assert_no_transaction(&test, &database).await;
}

#[tokio::test]
async fn a_server_that_is_read_only_is_not_used() {
    let (test, database) = start().await;
    let mut superuser = test.superuser().await.unwrap();
    let mut set = async |value: &str| {
        let set = format!(
            "do $$ begin execute format('alter database %I set default_transaction_read_only = {value}', current_database()); end $$"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(set)).execute(&mut superuser).await.unwrap();
    };
    set("on").await;
    let error = database.pool().acquire().await.err().unwrap();
    assert!(error.to_string().contains("the server is read-only"), "{error}");
    assert!(matches!(database::Error::from(error), database::Error::Unavailable(_)));
    set("off").await;
    database.pool().acquire().await.unwrap();
}

#[tokio::test]
async fn lookups_have_a_connection_while_all_others_are_in_use() {
    let (_test, database) = start().await;
    let _in_use = all_connections(&database).await;
    let error = sqlx::query("select 1").execute(database.pool()).await.unwrap_err();
    assert!(matches!(error, sqlx::Error::PoolTimedOut), "{error}");
    sqlx::query("select 1").execute(database.lookup_pool()).await.unwrap();
}

#[tokio::test]
async fn the_error_names_the_cause_if_no_database_listens() {
    // The port is free again after this statement.
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let database = Database::new(&format!("postgres://svc_identity@{address}/svc"), "identity").unwrap();
    let error = database.pool().acquire().await.err().unwrap();
    assert!(
        matches!(&error, sqlx::Error::Io(cause) if cause.kind() == ErrorKind::ConnectionRefused),
        "{error}"
    );
}

/// `PgBouncer` closes a connection with any other parameter, unless `ignore_startup_parameters` names it.
#[tokio::test]
async fn a_connection_starts_with_parameters_that_pgbouncer_knows() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://svc_identity@{}/svc?sslmode=disable", listener.local_addr().unwrap());
    let database = Database::new(&url, "identity").unwrap();
    let startup = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut message = vec![0; usize::try_from(stream.read_u32().await.unwrap()).unwrap() - 4];
        stream.read_exact(&mut message).await.unwrap();
        message
    };
    let message = tokio::select! {
        message = startup => message,
        _ = database.pool().acquire() => unreachable!("the server does not answer"),
    };
    // The version, then names and values (protocol 3.0, StartupMessage).
    let names = message[4..].split(|byte| *byte == 0).step_by(2).take_while(|name| !name.is_empty());
    let known = ["user", "database", "application_name", "client_encoding", "DateStyle", "TimeZone"];
    for name in names.map(|name| str::from_utf8(name).unwrap()) {
        assert!(known.contains(&name), "{name}");
    }
}
