//! Row-level security of the runtime role.

use contract::identity::Invite;
use serde_json::json;
use service::Clock as _;
use service::clock::SystemClock;
use sqlx::Row as _;
use tenancy::Actor;
use testsystem::TestSystem;

#[tokio::test]
async fn the_runtime_role_reads_rows_of_one_tenant_only() {
    let system = TestSystem::start().await.unwrap();
    let (_acme, _other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let database = system.database.pool("svc_identity").unwrap();
    for table in ["tenants", "users", "invites"] {
        let select = format!("select tenant_id from identity.{table}");
        let unscoped =
            sqlx::query(sqlx::AssertSqlSafe(select.clone())).fetch_all(database.pool()).await.unwrap();
        assert_eq!(unscoped.len(), 0, "{table}");
        let tenant_id = "acme".parse().unwrap();
        let mut tx = database.begin(&tenant_id, Actor::System, SystemClock.now()).await.unwrap();
        let rows = sqlx::query(sqlx::AssertSqlSafe(select)).fetch_all(tx.connection()).await.unwrap();
        assert!(!rows.is_empty() && rows.iter().all(|row| row.get::<String, _>(0) == "acme"), "{table}");
    }
}

#[tokio::test]
async fn the_runtime_role_cannot_write_for_another_tenant_or_change_the_schema() {
    let system = TestSystem::start().await.unwrap();
    let _acme = system.create_tenant("acme").await;
    let database = system.database.pool("svc_identity").unwrap();
    for statement in [
        "insert into identity.tenants (tenant_id, display_name, status, created_at, updated_at)
            values ('other', 'Other', 'active', now(), now())",
        "insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
            values (gen_random_uuid(), 'other', 'x', '{}', now(), now())",
        "create table identity.mine (id int)",
        "alter table identity.users disable row level security",
        "set role svc_identity_migrator",
        "select * from session.sessions",
    ] {
        let tenant_id = "acme".parse().unwrap();
        let mut tx = database.begin(&tenant_id, Actor::System, SystemClock.now()).await.unwrap();
        let refused = sqlx::query(statement).execute(tx.connection()).await.unwrap_err();
        let code =
            refused.as_database_error().and_then(sqlx::error::DatabaseError::code).unwrap().into_owned();
        assert_eq!(code, "42501", "{statement}: {refused}");
    }
}

#[tokio::test]
async fn the_runtime_role_can_delete_invited_users_only() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let invite = json!({ "email": "ada@acme.example", "delivery": "response" });
    admin.client.post("/users/invite", &invite).await.expect::<Invite>(201);
    let database = system.database.pool("svc_identity").unwrap();
    let tenant_id = "acme".parse().unwrap();
    let mut tx = database.begin(&tenant_id, Actor::System, SystemClock.now()).await.unwrap();
    let deleted: Vec<String> = sqlx::query_scalar("delete from identity.users returning email")
        .fetch_all(tx.connection())
        .await
        .unwrap();
    assert_eq!(deleted, ["ada@acme.example"]);
}

/// A change of the locale data of the server changes the order of texts, and so breaks the indexes of all other collations.
#[tokio::test]
async fn texts_and_indexes_have_the_order_of_their_bytes_whatever_the_locale_of_the_database_is() {
    let system = TestSystem::start().await.unwrap();
    let mut connection = system.database.superuser().await.unwrap();
    let icu: bool = sqlx::query_scalar("select 'a' < 'B'").fetch_one(&mut connection).await.unwrap();
    assert!(icu, "the test runs in a database with the order of a language");
    let others: Vec<String> = sqlx::query_scalar(
        "select a.attrelid::regclass || '.' || a.attname
        from pg_attribute a
        join pg_class c on c.oid = a.attrelid and c.relkind in ('r', 'p', 'i')
        join pg_namespace n on n.oid = c.relnamespace and n.nspname in ('identity', 'session')
        join pg_collation l on l.oid = a.attcollation
        where a.attnum > 0 and not a.attisdropped and l.collname <> 'C' and c.relname not like 'schema_migrations%'",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(others, [] as [&str; 0]);
}

/// ARCHITECTURE.md lists the `security definer` functions with their reasons.
#[tokio::test]
async fn only_the_documented_functions_access_several_tenants() {
    let system = TestSystem::start().await.unwrap();
    let mut connection = system.database.superuser().await.unwrap();
    let functions: Vec<String> = sqlx::query_scalar(
        "select n.nspname || '.' || p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
            where p.prosecdef and n.nspname in ('identity', 'session') order by 1",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(
        functions,
        [
            "identity.count_active_users",
            "identity.count_factors_by_key",
            "identity.count_password_costs",
            "identity.erase_tenant",
            "identity.find_account",
            "identity.find_deleted_tenant",
            "identity.find_invite",
            "identity.find_passkey",
            "identity.find_reset",
            "identity.list_factors_of_key",
            "identity.list_mails",
            "identity.list_managed_tenants",
            "identity.list_tenants",
            "identity.outbox_claim",
            "identity.outbox_list",
            "identity.outbox_postpone",
            "identity.outbox_retry",
            "identity.outbox_settle",
            "identity.outbox_stats",
            "identity.purge_invites",
            "session.count_valid_sessions",
            "session.erase_tenants",
            "session.find_credentials",
            "session.find_session_by_digest",
            "session.list_expired_sessions",
            "session.list_producers",
            "session.list_tenants",
            "session.outbox_claim",
            "session.outbox_list",
            "session.outbox_postpone",
            "session.outbox_retry",
            "session.outbox_settle",
            "session.outbox_stats",
            "session.poll_device_grant",
            "session.purge",
            "session.save_uses",
            "session.start_device_grant",
        ]
    );
    let open: Vec<String> = sqlx::query_scalar(
        "select p.proname::text from pg_proc p join pg_namespace n on n.oid = p.pronamespace
            where n.nspname in ('identity', 'session') and has_function_privilege('public', p.oid, 'execute')",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(open, [] as [&str; 0]);
}
