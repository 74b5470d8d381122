//! Restore of the streams and of the database into new, empty servers, with the commands of docs/operations.md.

use std::collections::BTreeMap;
use std::path::Path;

use async_nats::jetstream::{self, consumer::pull, stream::Stream};
use contract::paths::Upstream;
use e2e::{ApiUser, PostgresServer, Service, Services, installed};
use futures::StreamExt as _;
use serde_json::{Value, json};
use testkit::{Client, NatsServer, PASSWORD, TestResponse, totp_after};
use url::Url;

use super::restore::{audit_ids, client, create_key, documented, log_in, run, run_with};

/// The accounts of NATS by their user, each with the directory of its backup.
const ACCOUNTS: [(&str, &str); 2] =
    [("administrator", "backup/udm"), ("audit-administrator", "backup/audit")];
const ROLES: [&str; 4] = ["svc_identity_migrator", "svc_identity", "svc_session_migrator", "svc_session"];
const ADMIN: &str = "admin@acme.example";

async fn create_acme(services: &Services, identity: &Service) -> ApiUser {
    let base_url = format!("http://{}", identity.address);
    ApiUser::create_acme(&base_url, &services.platform_token, ADMIN).await
}

/// Sends an event. Returns whether it was stored before.
async fn is_duplicate(ingest: &Service, user: &ApiUser, id: &str) -> bool {
    let event = json!({ "source_id": "s", "event_id": id });
    let accepted: Value = client(ingest).bearer(&user.token).post("/events", &event).await.expect(202);
    accepted["duplicate"] == true
}

/// Backs up or restores all accounts with the documented commands.
async fn run_for_each_account(services: &Services, home: &Path, verb: &str) {
    for (user, directory) in ACCOUNTS {
        let server = format!("nats://nats:4222 --user {user}");
        let command = documented(&format!("nats --server {server} account {verb} {directory}"));
        run(services, home, &command.replace(&server, &services.nats.url_of(user))).await;
    }
}

async fn event_stream(services: &Services) -> Stream {
    let client = services.nats.connect("administrator").await.unwrap();
    jetstream::new(client).get_stream("UDM").await.unwrap()
}

/// The ids of the stored events by their numbers.
async fn stored_events(services: &Services) -> BTreeMap<u64, String> {
    let mut stream = event_stream(services).await;
    let state = stream.info().await.unwrap().state.clone();
    let mut ids = BTreeMap::new();
    for number in state.first_sequence..=state.last_sequence {
        let message = stream.get_raw_message(number).await.unwrap();
        ids.insert(number, message.headers.get("ce-id").unwrap().to_string());
    }
    ids
}

/// The next event of a durable consumer, which acknowledges it.
async fn next_of_consumer(services: &Services) -> String {
    let durable = pull::Config { durable_name: Some("archive".into()), ..Default::default() };
    let stream = event_stream(services).await;
    let consumer = stream.get_or_create_consumer("archive", durable).await.unwrap();
    let message = consumer.fetch().max_messages(1).messages().await.unwrap().next().await.unwrap().unwrap();
    message.double_ack().await.unwrap();
    message.headers.as_ref().unwrap().get("ce-id").unwrap().to_string()
}

/// The kinds of the frames that a reader receives, with the ids of events, and the position after each.
async fn read(ingest: &Service, user: &ApiUser, start: &str) -> Vec<(String, String)> {
    let path = format!("/events/stream?follow=false&{start}");
    let response = client(ingest).bearer(&user.token).get(&path).await;
    assert_eq!(response.status, 200, "{response}");
    let field = |frame: &str, name: &str| {
        let value = frame.lines().find_map(|line| line.strip_prefix(name));
        value.map(|value| value.trim().to_owned())
    };
    let frames = response.body.split("\n\n").filter_map(|frame| {
        let data = field(frame, "data:").and_then(|data| serde_json::from_str::<Value>(&data).ok());
        let id = data.and_then(|data| Some(data["event_id"].as_str()?.to_owned()));
        let name = id.or_else(|| field(frame, "event:").filter(|event| event == "gap"))?;
        Some((name, field(frame, "id:").unwrap_or_default()))
    });
    frames.collect()
}

fn names(frames: &[(String, String)]) -> Vec<&str> {
    frames.iter().map(|(name, _)| name.as_str()).collect()
}

async fn audit_after(ingest: &Service, user: &ApiUser, position: &str) -> TestResponse {
    client(ingest).bearer(&user.token).get(&format!("/audit?after={position}")).await
}

#[tokio::test]
async fn the_streams_are_restored_into_an_empty_nats_server_and_readers_receive_a_gap() {
    if installed("nats_cli").is_none() {
        return;
    }
    let mut services = Services::prepare().await;
    services.migrate_all().await;
    let [identity, session, ingest] = services.start_all(&[]).await;
    let admin = create_acme(&services, &identity).await;
    for id in ["first", "second"] {
        assert!(!is_duplicate(&ingest, &admin, id).await);
    }
    assert_eq!(next_of_consumer(&services).await, "first");
    let (events, audit) = (stored_events(&services).await, audit_ids(&services).await);
    let home = tempfile::tempdir().unwrap();
    run_for_each_account(&services, home.path(), "backup").await;

    // Events after the backup.
    assert!(!is_duplicate(&ingest, &admin, "third").await);
    log_in(&identity).await;
    assert!(audit_ids(&services).await.len() > audit.len());
    let frames = read(&ingest, &admin, "since=2000-01-01T00:00:00Z").await;
    assert_eq!(names(&frames), ["first", "second", "third"]);
    let page: Value = client(&ingest).bearer(&admin.token).get("/audit").await.expect(200);
    let mut positions =
        page["items"].as_array().unwrap().iter().map(|item| item["position"].as_str().unwrap());
    let last_position = positions.next_back().unwrap();
    audit_after(&ingest, &admin, last_position).await.expect::<Value>(200);

    // All servers and their volumes are lost.
    for service in [identity, ingest] {
        service.stop_with_open_connection().await;
    }
    services.nats.stop();
    std::fs::remove_dir_all(services.nats.data()).unwrap();
    services.nats.restart().await.unwrap();
    run_for_each_account(&services, home.path(), "restore").await;
    assert_eq!(stored_events(&services).await, events, "ids and numbers are those of the backup");
    let [mut identity, mut ingest] =
        [Upstream::Identity, Upstream::Ingest].map(|service| services.start(service));
    for service in [&mut identity, &mut ingest] {
        service.wait_until_ready().await;
    }

    assert_eq!(next_of_consumer(&services).await, "second", "the consumer continues after its last event");
    for (_, position) in &frames {
        let frames = read(&ingest, &admin, &format!("after={position}")).await;
        assert_eq!(names(&frames), ["gap", "first", "second"]);
    }
    audit_after(&ingest, &admin, last_position).await.expect_problem(422, "validation_failed");
    assert!(!is_duplicate(&ingest, &admin, "third").await, "the event was lost");
    assert!(is_duplicate(&ingest, &admin, "third").await);
    let frames = read(&ingest, &admin, "since=2000-01-01T00:00:00Z").await;
    assert_eq!(names(&frames), ["first", "second", "third"]);
    log_in(&identity).await;
    let restored = audit_ids(&services).await;
    assert_eq!(restored[..audit.len()], audit, "the audit events of the backup are stored");
    assert!(restored.len() > audit.len(), "new audit events are published");
    drop(session);
}

/// The URL of the database `svc` on a new server for a role with its name as the password.
fn url_of(server: &PostgresServer, role: &str) -> Url {
    let mut url = server.url.clone();
    url.set_path("svc");
    if role != "postgres" {
        url.set_username(role).unwrap();
        url.set_password(Some(role)).unwrap();
    }
    url
}

/// Creates the database on a new server and restores the dump, with the commands of the document. Revokes the earlier credentials.
async fn restore_into(services: &Services, server: &PostgresServer, home: &Path) {
    let superuser = url_of(server, "postgres");
    let run =
        async |directory: &Path, command: &str| run_with(services, &superuser, &[], directory, command).await;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    run(root, documented("createdb ")).await;
    run(root, documented("psql --quiet --set=")).await;
    for role in ROLES {
        run(home, &format!("psql --command=\"alter role {role} password '{role}'\"")).await;
    }
    let is_public = "select has_database_privilege('public', current_database(), 'connect')";
    let output = run(home, &format!("psql --tuples-only --no-align --command=\"{is_public}\"")).await;
    assert_eq!(output, "f\n", "only the roles of the services can connect");
    run(home, documented("psql --quiet ")).await;
    run(home, documented("pg_restore ")).await;
    for (schema, table) in [("identity", "users"), ("session", "sessions")] {
        let url = url_of(server, &format!("svc_{schema}_migrator"));
        let migrator = [("SVC_MIGRATOR_DATABASE_URL", url.as_str())];
        for command in [
            format!("svc-{schema} migrate up"),
            format!("svc-{schema} migrate status"),
            // A later migration can change the restored tables.
            format!("psql --command='alter table {schema}.{table} add column later text'"),
        ] {
            run_with(services, &url, &migrator, home, &command).await;
        }
    }
    let session = url_of(server, "svc_session");
    let variables = [("SVC_DATABASE_URL", session.as_str())];
    let command = documented("svc-session invalidate-before ");
    let revoked = run_with(services, &superuser, &variables, home, command).await;
    assert_eq!(revoked, "2 sessions and 2 API keys revoked\n");
}

/// Sets up an authenticator app. Returns its secret.
async fn set_up_app(session: &Client) -> String {
    let app: Value = session.post("/auth/factors/totp", &Value::Null).await.expect(201);
    let secret = app["secret"].as_str().unwrap().to_owned();
    let code = json!({ "code": totp_after(&secret, 0) });
    session.post("/auth/factors/totp/confirm", &code).await.expect::<Value>(200);
    secret
}

#[tokio::test]
async fn a_new_server_has_the_passwords_and_apps_of_the_backup_and_no_earlier_credential() {
    let services = Services::prepare().await;
    services.migrate_all().await;
    let [identity, session, ingest] = services.start_all(&[]).await;
    let first = create_acme(&services, &identity).await;
    let second = log_in(&identity).await;
    let revoke = async |id: &str| {
        client(&session).bearer(&first.token).delete(&format!("/api-keys/{id}")).await.expect_empty(204);
    };
    let (earlier, revoked_before) = create_key(&session, &first, "revoked before the backup").await;
    let (later, revoked_after) = create_key(&session, &first, "revoked after the backup").await;
    let (_, active) = create_key(&session, &first, "never revoked").await;
    revoke(&earlier).await;
    let secret = set_up_app(&client(&identity).bearer(&first.token)).await;
    let home = tempfile::tempdir().unwrap();
    run(&services, home.path(), documented("pg_dump ")).await;
    revoke(&later).await;
    for service in [identity, session, ingest] {
        service.stop_with_open_connection().await;
    }

    // Another site: new servers, and new secrets except the factor key.
    let (server, nats) =
        (PostgresServer::create_empty().await, NatsServer::start_with_accounts().await.unwrap());
    restore_into(&services, &server, home.path()).await;
    let other_secret = "another-secret-for-tests-of-32-or-more";
    let [identity, session] = [Upstream::Identity, Upstream::Session].map(|service| {
        let (database, broker) =
            (url_of(&server, &format!("svc_{}", service.name())), nats.url_of(service.name()));
        let mut variables = vec![("SVC_DATABASE_URL", database.as_str()), ("SVC_NATS_URL", &broker)];
        variables.push(("SVC_SERVICE_TOKEN", other_secret));
        if service == Upstream::Identity {
            variables.push(("SVC_LIMITER_KEY", other_secret));
        }
        services.start_with(service, &variables)
    });
    let mut running = [identity, session];
    for service in &mut running {
        service.wait_until_ready().await;
    }
    let [identity, session] = running;

    let earlier = [&first, &second].map(|user| client(&session).bearer(&user.token));
    for credential in earlier.into_iter().chain([revoked_before, revoked_after, active]) {
        credential.get("/auth/session").await.expect_problem(401, "credential_invalid");
    }
    let client = client(&identity).header("X-Tenant-ID", "acme");
    let log_in = async |password: &str| {
        client.post("/auth/password/login", &json!({ "email": ADMIN, "password": password })).await
    };
    log_in("not the password").await.expect_problem(401, "login_failed");
    let required = log_in(PASSWORD).await;
    assert_eq!(required.status, 403, "{required}");
    let code = json!({ "challenge": required.json()["challenge"], "code": totp_after(&secret, 1) });
    let user: Value = client.post("/auth/second-factor", &code).await.expect(200);
    assert_eq!(user["user_id"], first.user_id.as_str());
}
