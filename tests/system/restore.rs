//! Backup and restore, with the commands of docs/operations.md: no earlier credential is active, and no event is lost or published
//! twice.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use async_nats::jetstream;
use contract::paths::Upstream;
use e2e::{
    ApiUser, EventStream, Service, Services, api_client, output_of, program_path, required_variable, tools,
};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use testkit::{Client, wait_until};
use url::Url;

/// The command of the document that starts with a word.
pub(super) fn documented(start: &str) -> &'static str {
    let document = include_str!("../../docs/operations.md");
    let mut commands = document.lines().map(str::trim).filter(|line| line.starts_with(start));
    commands.next().unwrap_or_else(|| panic!("docs/operations.md has no command {start}"))
}

/// Runs a command as an administrator of the database, with the variables of its service. Returns the output.
pub(super) async fn run(services: &Services, directory: &Path, command: &str) -> String {
    let url = services.superuser_url().parse().unwrap();
    run_with(services, &url, &[], directory, command).await
}

/// Runs a command as an administrator of a database, with other variables of its service.
pub(super) async fn run_with(
    services: &Services,
    database: &Url,
    variables: &[(&str, &str)],
    directory: &Path,
    command: &str,
) -> String {
    let is_identity = command.starts_with("svc-identity ");
    let service = services.command(if is_identity { Upstream::Identity } else { Upstream::Session });
    let mut shell = Command::new("sh");
    for (name, value) in service.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    let nats = tools()["nats_cli"].as_str().map(|nats| PathBuf::from(nats).parent().unwrap().to_owned());
    let programs = [
        PathBuf::from(required_variable("SVC_TEST_POSTGRES_BIN")),
        program_path("svc-session").parent().unwrap().to_owned(),
    ];
    let path = required_variable("PATH");
    let path = programs.into_iter().chain(nats).chain(std::env::split_paths(&path));
    shell.env("PATH", std::env::join_paths(path).unwrap()).env("HOME", directory);
    shell.env("PGHOST", database.host_str().unwrap());
    shell.env("PGPORT", database.port().unwrap_or(5432).to_string());
    shell.env("PGUSER", database.username()).env("PGPASSWORD", database.password().unwrap_or_default());
    shell.env("PGDATABASE", database.path().trim_start_matches('/'));
    shell.envs(variables.iter().copied()).args(["-c", command]).current_dir(directory);
    let output = output_of(shell).await;
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The ids of the audit events that wait in the outboxes.
async fn waiting(services: &Services) -> Vec<String> {
    let mut connection = PgConnection::connect(&services.superuser_url()).await.unwrap();
    // Mails and reports of API keys can wait too, and are never published.
    let ids = "select outbox_id::text
        from (select outbox_id, kind from identity.outbox union all select outbox_id, kind from session.outbox) as messages
        where kind in ('audit', 'audit_failure')";
    sqlx::query_scalar(ids).fetch_all(&mut connection).await.unwrap()
}

/// The ids of the events, each with the number of its copies.
async fn stored_events(services: &Services) -> BTreeSet<(String, usize)> {
    EventStream::connect(&services.nats.url).await.event_ids().await.into_iter().collect()
}

#[tokio::test]
async fn the_queries_for_watching_postgres_run() {
    let services = Services::prepare().await;
    let rows = include_str!("../../docs/postgres.md").lines().filter(|line| line.starts_with("| `select"));
    let queries: Vec<_> =
        rows.flat_map(|row| row.split('`')).filter(|text| text.starts_with("select")).collect();
    assert!(queries.len() > 5, "{queries:?}");
    for query in queries {
        run(&services, Path::new("."), &format!("psql --set=ON_ERROR_STOP=1 --command=\"{query}\"")).await;
    }
}

/// The ids of all audit events in the order of the stream, when none waits.
pub(super) async fn audit_ids(services: &Services) -> Vec<String> {
    wait_until("the outboxes are empty", async || waiting(services).await.is_empty().then_some(())).await;
    let client = services.nats.connect("audit-administrator").await.unwrap();
    let mut stream = jetstream::new(client).get_stream("AUDIT").await.unwrap();
    let mut ids = Vec::new();
    for sequence in 1..=stream.info().await.unwrap().state.last_sequence {
        let message = stream.get_raw_message(sequence).await.unwrap();
        let event: Value = serde_json::from_slice(&message.payload).unwrap();
        ids.push(event["id"].as_str().unwrap().to_owned());
    }
    ids
}

pub(super) fn client(service: &Service) -> Client {
    api_client(&format!("http://{}", service.address))
}

pub(super) async fn log_in(identity: &Service) -> ApiUser {
    ApiUser::log_in(&format!("http://{}", identity.address), "acme", "admin@acme.example").await
}

/// Creates an API key. Returns its id, and a client of session that sends the key.
pub(super) async fn create_key(session: &Service, admin: &ApiUser, name: &str) -> (String, Client) {
    let created = client(session).bearer(&admin.token).post("/api-keys", &json!({ "name": name })).await;
    let key: Value = created.expect(201);
    (key["id"].as_str().unwrap().to_owned(), client(session).bearer(key["key"].as_str().unwrap()))
}

async fn restart_broker(services: &mut Services, ingest: &Service) {
    services.nats.restart().await.unwrap();
    wait_until("events are accepted again", async || {
        (client(ingest).get("/health").await.status == 200).then_some(())
    })
    .await;
}

/// Restores the database. Returns identity and session, and the ids of the audit events that wait in the dump.
async fn restore(services: &Services, home: &Path, running: [Service; 2]) -> ([Service; 2], Vec<String>) {
    for service in running {
        service.stop_with_open_connection().await;
    }
    // A later release adds a table that refers to an earlier one, and the dump does not contain it.
    let later = "create table if not exists identity.later (user_id uuid references identity.users)";
    run(services, home, &format!("psql --command='{later}'")).await;
    run(services, home, documented("psql --quiet ")).await;
    run(services, home, documented("pg_restore ")).await;
    let waiting = waiting(services).await;
    let output = run(services, home, documented("svc-session invalidate-before ")).await;
    assert_eq!(output, "2 sessions and 2 API keys revoked\n");
    let mut started = [Upstream::Identity, Upstream::Session].map(|service| services.start(service));
    for service in &mut started {
        service.wait_until_ready().await;
    }
    (started, waiting)
}

#[tokio::test]
async fn after_a_restore_no_earlier_credential_is_active_and_no_event_is_lost_or_published_twice() {
    let mut services = Services::prepare().await;
    services.migrate_all().await;
    let [identity, session, ingest] = services.start_all(&[]).await;
    let base_url = format!("http://{}", identity.address);
    let first = ApiUser::create_acme(&base_url, &services.platform_token, "admin@acme.example").await;
    let (key_id, revoked_key) = create_key(&session, &first, "revoked after the backup").await;
    let (_, other_key) = create_key(&session, &first, "never revoked").await;
    let send = async |user: &ApiUser, id: &str| -> Value {
        let event = json!({ "source_id": "s", "event_id": id });
        client(&ingest).bearer(&user.token).post("/events", &event).await.expect(202)
    };
    send(&first, "before").await;

    // When the backup is made, audit events wait for the broker.
    services.nats.stop();
    let (streams, home) = (services.nats.data().display().to_string(), tempfile::tempdir().unwrap());
    run(&services, home.path(), &format!("cp -a {streams} older")).await;
    let second = log_in(&identity).await;
    run(&services, home.path(), documented("pg_dump ")).await;
    restart_broker(&mut services, &ingest).await;

    send(&first, "after").await;
    let log_out = client(&session).header("X-Session-ID", &second.token);
    log_out.post_bytes("/auth/sessions/logout", "", "").await.expect_empty(204);
    client(&session).bearer(&first.token).delete(&format!("/api-keys/{key_id}")).await.expect_empty(204);
    let published = audit_ids(&services).await;

    let ([identity, session], waited) = restore(&services, home.path(), [identity, session]).await;
    assert!(
        !waited.is_empty() && waited.iter().all(|id| published.contains(id)),
        "published events wait again"
    );
    let earlier = [
        client(&session).bearer(&first.token),
        client(&session).bearer(&second.token),
        revoked_key,
        other_key,
    ];
    for credential in &earlier {
        credential.get("/auth/session").await.expect_problem(401, "credential_invalid");
    }
    let third = log_in(&identity).await;
    assert_eq!(send(&third, "after").await["duplicate"], true);
    let expected = BTreeSet::from(["after", "before"].map(|id| (id.to_owned(), 1)));
    assert_eq!(stored_events(&services).await, expected);

    let ids = audit_ids(&services).await;
    assert_eq!(ids[..published.len()], published, "the events after the backup are still stored");
    assert!(ids.len() >= published.len() + 4, "each revocation is audited");
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "no event is stored twice");

    let audit_after = async |user: &ApiUser, position: &str| {
        client(&ingest).bearer(&user.token).get(&format!("/audit?after={position}")).await
    };
    let page: Value = client(&ingest).bearer(&third.token).get("/audit").await.expect(200);
    let position = page["items"].as_array().unwrap().last().unwrap()["position"].as_str().unwrap().to_owned();
    audit_after(&third, &position).await.expect::<Value>(200);

    // A time before the new credentials revokes none of them, and keys can be kept.
    let (_, new_key) = create_key(&session, &third, "after the restore").await;
    for (arguments, expected) in [
        ("2000-01-01T00:00:00Z", "0 sessions and 0 API keys revoked\n"),
        ("--keep-api-keys 2999-01-01T00:00:00Z", "1 sessions and 0 API keys revoked\n"),
    ] {
        let command = format!("svc-session invalidate-before {arguments}");
        assert_eq!(run(&services, home.path(), &command).await, expected);
    }
    let whoami = client(&session).bearer(&third.token).get("/auth/session").await;
    whoami.expect_problem(401, "credential_invalid");
    new_key.get("/auth/session").await.expect::<Value>(200);
    let invalid = run(&services, home.path(), "svc-session invalidate-before yesterday 2>&1 || true").await;
    assert!(invalid.contains("expected `now` or a time such as 2026-01-31T12:00:00Z"), "{invalid}");

    // The streams are restored too, to a time before the backup of the database.
    services.nats.stop();
    run(&services, home.path(), &format!("rm -r {streams} && cp -a older {streams}")).await;
    restart_broker(&mut services, &ingest).await;
    let ([identity, session], waited) = restore(&services, home.path(), [identity, session]).await;
    let later = [client(&session).bearer(&third.token), new_key];
    for credential in earlier.iter().chain(&later) {
        credential.get("/auth/session").await.expect_problem(401, "credential_invalid");
    }
    let fourth = log_in(&identity).await;
    audit_after(&fourth, &position).await.expect_problem(422, "validation_failed");
    assert_ne!(send(&fourth, "after").await["duplicate"], true, "the event was lost");
    assert_eq!(send(&fourth, "after").await["duplicate"], true);
    assert_eq!(stored_events(&services).await, expected);
    let older = audit_ids(&services).await;
    let unique: BTreeSet<_> = older.iter().collect();
    assert_eq!(unique.len(), older.len(), "no event is stored twice");
    let missing: Vec<_> = waited.iter().filter(|id| !unique.contains(id)).collect();
    assert!(missing.is_empty(), "events that waited in the backup are published: {missing:?}");
}
