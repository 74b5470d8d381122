//! A changed file of a secret takes effect without a restart.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use contract::paths::Upstream::{self, Identity, Ingest, Session};
use e2e::{ALL_SERVICES, ApiUser, EventStream, Producers, Service, Services, api_client, output_of};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tempfile::TempDir;
use testkit::{Client, NatsServer, wait_until};
use tokio::task::JoinSet;
use url::Url;

const LOG: &str = "secret changed";

/// The file of a secret that a process mounts.
struct Mounted(TempDir);

impl Mounted {
    fn new(lines: &str) -> Self {
        let mounted = Self(tempfile::tempdir().unwrap());
        mounted.write(lines);
        mounted
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("secret")
    }

    /// Replaces the file at once, as Kubernetes does.
    fn write(&self, lines: &str) {
        let new = self.0.path().join("new");
        std::fs::write(&new, lines).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    fn start(&self, services: &Services, service: Upstream, variable: &str) -> Service {
        services.start_with(service, &[(variable, self.file().to_str().unwrap())])
    }
}

/// All services, each with its own file of a secret.
struct System {
    services: Services,
    running: Vec<(Upstream, Service, Mounted)>,
}

impl System {
    async fn start(services: Services, variable: &str, secret: impl Fn(Upstream) -> String) -> Self {
        services.migrate_all().await;
        let start = |service| {
            let mounted = Mounted::new(&secret(service));
            (service, mounted.start(&services, service, variable), mounted)
        };
        let mut running: Vec<_> = ALL_SERVICES.map(start).into();
        for (_, service, _) in &mut running {
            service.wait_until_ready().await;
        }
        Self { services, running }
    }

    fn of(&self, service: Upstream) -> &(Upstream, Service, Mounted) {
        self.running.iter().find(|(name, ..)| *name == service).unwrap()
    }

    fn url(&self, service: Upstream) -> String {
        format!("http://{}", self.of(service).1.address)
    }

    /// Replaces the token of a service, and sends requests until the service has read it.
    async fn rotate(&self, service: Upstream, lines: &str) {
        let (_, process, mounted) = self.of(service);
        let before = process.process.output().matches(LOG).count();
        mounted.write(lines);
        wait_until("the service reads the new token", async || {
            self.expect_requests_between_all_services().await;
            (process.process.output().matches(LOG).count() > before).then_some(())
        })
        .await;
        self.expect_requests_between_all_services().await;
    }

    /// identity issues a session and verifies it at session. ingest verifies it too: its cache does not know it.
    async fn expect_requests_between_all_services(&self) {
        let user = ApiUser::log_in(&self.url(Identity), "acme", "ada@acme.example").await;
        user.client.get("/users").await.expect::<Value>(200);
        let ingest = api_client(&self.url(Ingest)).bearer(&user.token);
        ingest.post("/events", &json!({ "source_id": "s" })).await.expect::<Value>(202);
        // The number of sessions is limited.
        let session = api_client(&self.url(Session)).header("X-Session-ID", &user.token);
        session.post_bytes("/auth/sessions/logout", "", "").await.expect_empty(204);
    }

    /// The status of a request to the internal API of session.
    async fn internal_status(&self, token: &str) -> u16 {
        let url = format!("{}/internal/v1/introspect", self.services.session_url());
        let request = testkit::client::plain_http().post(url).bearer_auth(token);
        request.json(&json!({ "digests": [] })).send().await.unwrap().status().as_u16()
    }
}

#[tokio::test]
async fn no_request_fails_while_the_services_read_a_new_service_token_in_any_order() {
    let [first, second, third] = ["1", "2", "3"].map(|digit| digit.repeat(32));
    let services = Services::prepare().await;
    let system = System::start(services, "SVC_SERVICE_TOKEN_FILE", |_| first.clone()).await;
    let admin = &system.services.platform_token;
    let user = ApiUser::create_acme(&system.url(Identity), admin, "ada@acme.example").await;
    let mut producers = Producers::start(&api_client(&system.url(Ingest)).bearer(&user.token));
    producers.wait_for_acknowledged(30).await;

    // session reads a token after its clients, then before them.
    for (current, previous, order) in
        [(&second, &first, [Identity, Ingest, Session]), (&third, &second, [Session, Ingest, Identity])]
    {
        for lines in [&format!("{current}\n{previous}\n"), current] {
            for service in order {
                system.rotate(service, lines).await;
                // session reports the key to identity.
                let session = api_client(&system.url(Session)).bearer(&user.token);
                session.post("/api-keys", &json!({ "name": "firewalls" })).await.expect::<Value>(201);
            }
        }
        assert_eq!(system.internal_status(previous).await, 401);
        assert_eq!(system.internal_status(current).await, 200);
    }
    producers.wait_for_acknowledged(30).await;
    assert_eq!(producers.rejected(), 0);
    let series = |outcome| {
        format!(
            r#"svc_outbox_deliveries_total{{schema="session",kind="api_key_report",outcome="{outcome}"}}"#
        )
    };
    let session = &system.of(Session).1;
    wait_until("the keys are reported", async || {
        (session.metric(&series("delivered")).await >= 12.0).then_some(())
    })
    .await;
    assert!(session.metric(&series("retried")).await < 1.0);
}

#[tokio::test]
async fn a_new_platform_token_is_accepted_without_a_restart_and_the_old_one_until_it_is_removed() {
    let services = Services::prepare().await;
    services.migrate_all().await;
    let old = &services.platform_token;
    let mut command = services.command(Identity);
    command.arg("platform-token");
    let new = String::from_utf8(output_of(command).await.stdout).unwrap();
    let mounted = Mounted::new(old);
    let mut identity = mounted.start(&services, Identity, "SVC_PLATFORM_TOKEN_FILE");
    identity.wait_until_ready().await;
    let url = format!("http://{}", identity.address);
    let status = async |token: &str| api_client(&url).bearer(token.trim()).get("/tenants").await.status;

    for (invalid, message) in
        [("too-short", "the changed secret is invalid"), ("", "failed to read the secret")]
    {
        mounted.write(invalid);
        wait_until("the invalid token is ignored", async || {
            assert_eq!(status(old).await, 200);
            identity.process.output().contains(message).then_some(())
        })
        .await;
    }
    mounted.write(&format!("{new}{old}"));
    wait_until("the new token is accepted", async || {
        assert_eq!(status(old).await, 200);
        (status(&new).await == 200).then_some(())
    })
    .await;
    assert_eq!(status(old).await, 200, "the second line is accepted too");
    mounted.write(&new);
    wait_until("the old token is rejected", async || {
        assert_eq!(status(&new).await, 200);
        (status(old).await == 401).then_some(())
    })
    .await;
    assert!(!identity.process.output().contains(new.trim()), "{}", identity.process.output());
}

/// Requests of several clients, each after the response to the last one. A response must be 200, or 503 with `Retry-After`.
struct Load {
    counts: Arc<Counts>,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Counts {
    succeeded: AtomicUsize,
    failed: AtomicUsize,
}

impl Load {
    fn start(client: &Client, path: &'static str) -> Self {
        let counts = Arc::new(Counts::default());
        let send = |_| {
            let (client, counts) = (client.clone(), Arc::clone(&counts));
            async move {
                loop {
                    let response = client.get(path).await;
                    if response.status == 200 {
                        counts.succeeded.fetch_add(1, Relaxed);
                    } else {
                        assert_eq!(response.status, 503, "{response}");
                        assert!(response.headers.contains_key("retry-after"), "{response}");
                        counts.failed.fetch_add(1, Relaxed);
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        let tasks = (0..4).map(send).collect();
        Self { counts, tasks }
    }

    fn failed(&self) -> usize {
        self.counts.failed.load(Relaxed)
    }

    /// Waits for 50 more successful requests.
    async fn succeeds(&mut self) {
        self.wait(|counts| &counts.succeeded).await;
    }

    /// Waits for 50 more failed requests.
    async fn fails(&mut self) {
        self.wait(|counts| &counts.failed).await;
    }

    async fn wait(&mut self, count: fn(&Counts) -> &AtomicUsize) {
        let target = count(&self.counts).load(Relaxed) + 50;
        wait_until("the requests have this result", async || {
            // A task ends only by a panic.
            if let Some(ended) = self.tasks.try_join_next() {
                ended.unwrap();
            }
            (count(&self.counts).load(Relaxed) >= target).then_some(())
        })
        .await;
    }
}

/// The administrator of the database, and the URL of session.
struct Postgres {
    superuser: PgConnection,
    url: Url,
}

impl Postgres {
    async fn of(services: &Services) -> Self {
        let command = services.command(Session);
        let (_, url) = command.get_envs().find(|(name, _)| *name == "SVC_DATABASE_URL").unwrap();
        let url = url.unwrap().to_str().unwrap().parse().unwrap();
        Self { superuser: PgConnection::connect(&services.superuser_url()).await.unwrap(), url }
    }

    async fn execute(&mut self, statements: &str) {
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut self.superuser).await.unwrap();
    }

    /// Creates a login role with the statements of docs/kubernetes.md. Roles belong to the server, which all tests share.
    async fn create_role(&mut self, password: &str) -> String {
        let (_, statements) =
            include_str!("../../docs/kubernetes.md").split_once("create role svc_session_2").unwrap();
        let (statements, _) = statements.split_once("```").unwrap();
        let role = format!("svc_session_{}", uuid::Uuid::now_v7().simple());
        let statements = format!("create role svc_session_2{statements}");
        self.execute(&statements.replace("svc_session_2", &role).replace('…', password)).await;
        let settings = "select array_to_string(rolconfig, ' ') from pg_roles where rolname = $1";
        let settings = |role: &str| sqlx::query_scalar::<_, String>(settings).bind(role.to_owned());
        let expected = settings("svc_session").fetch_one(&mut self.superuser).await.unwrap();
        assert_eq!(settings(&role).fetch_one(&mut self.superuser).await.unwrap(), expected);
        role
    }

    fn url(&self, role: &str, password: &str) -> String {
        let mut url = self.url.clone();
        url.set_username(role).unwrap();
        url.set_password(Some(password)).unwrap();
        url.into()
    }

    async fn connections(&mut self, role: &str) -> i64 {
        let count = "select count(*) from pg_stat_activity where usename = $1";
        sqlx::query_scalar(count).bind(role).fetch_one(&mut self.superuser).await.unwrap()
    }

    async fn terminate_connections(&mut self, role: &str) {
        let terminate =
            format!("select pg_terminate_backend(pid) from pg_stat_activity where usename = '{role}'");
        self.execute(&terminate).await;
    }
}

#[tokio::test]
async fn connections_follow_the_database_url_and_no_request_fails_with_a_second_role() {
    let services = Services::prepare().await;
    services.migrate_all().await;
    let mut postgres = Postgres::of(&services).await;
    let first = postgres.create_role("one").await;
    let mounted = Mounted::new(&postgres.url(&first, "one"));
    let mut session = mounted.start(&services, Session, "SVC_DATABASE_URL_FILE");
    let mut identity = services.start(Identity);
    session.wait_until_ready().await;
    identity.wait_until_ready().await;
    let identity_url = format!("http://{}", identity.address);
    let user = ApiUser::create_acme(&identity_url, &services.platform_token, "ada@acme.example").await;
    let session_client = api_client(&format!("http://{}", session.address)).bearer(&user.token);
    let mut load = Load::start(&session_client, "/auth/session");
    load.succeeds().await;
    let switched =
        |times: usize| session.process.output().matches("use the changed credential").count() == times;

    let second = postgres.create_role("two").await;
    mounted.write(&postgres.url(&second, "two"));
    wait_until("the first role has no connection", async || {
        (postgres.connections(&first).await == 0).then_some(())
    })
    .await;
    postgres.execute(&format!("drop role {first}")).await;
    load.succeeds().await;
    assert_eq!(load.failed(), 0, "{}", session.process.output());

    // A URL that Postgres does not accept yet is not used.
    mounted.write(&postgres.url(&second, "three"));
    wait_until("the new password is rejected", async || {
        session
            .process
            .output()
            .contains("failed to connect with the changed database credential")
            .then_some(())
    })
    .await;
    postgres.terminate_connections(&second).await;
    load.succeeds().await;
    assert!(switched(1), "{}", session.process.output());
    postgres.execute(&format!("alter role {second} password 'three'")).await;
    wait_until("the new password is used", async || switched(2).then_some(())).await;
    postgres.terminate_connections(&second).await;
    load.succeeds().await;

    // Nor is a role to which row-level security does not apply.
    mounted.write(&services.superuser_url());
    wait_until("the superuser is rejected", async || {
        session.process.output().contains("is a superuser, so row-level security").then_some(())
    })
    .await;
    postgres.terminate_connections(&second).await;
    load.succeeds().await;
    assert!(switched(2), "{}", session.process.output());

    // A password that was changed before the file.
    postgres.execute(&format!("alter role {second} password 'four'")).await;
    postgres.terminate_connections(&second).await;
    load.fails().await;
    mounted.write(&postgres.url(&second, "four"));
    load.succeeds().await;
    assert!(!session.process.output().contains(&postgres.url(&second, "four")));
    drop((load, session));
    postgres.execute(&format!("drop role {second}")).await;
}

/// Configuration of a NATS server with this password of each service.
fn nats_users(password: &str) -> String {
    let is_service = |user: &str| ALL_SERVICES.iter().any(|service| service.name() == user);
    testkit::nats::accounts(|user| if is_service(user) { password } else { "a" }.to_owned())
}

#[tokio::test]
async fn a_service_that_nats_rejects_logs_the_server_and_the_cause_and_not_each_attempt() {
    let nats = NatsServer::start_with(&nats_users("one")).await.unwrap();
    let url = nats.url.clone();
    let services = Services::prepare_with(nats).await;
    let mounted = Mounted::new(&url.replace("//", "//ingest:two@"));
    let ingest = mounted.start(&services, Ingest, "SVC_NATS_URL_FILE");
    let server = format!(r#""server":"{}"#, url.trim_start_matches("nats://"));
    let line = wait_until("the rejection is logged", async || {
        let output = ingest.process.output();
        output.lines().find(|line| line.contains(&server)).map(str::to_owned)
    })
    .await;
    assert!(line.contains("failed to connect to NATS; retrying"), "{line}");
    assert!(line.contains("authorization violation"), "{line}");
    let output = ingest.process.output();
    assert!(!output.contains("event: client error"), "{output}");
}

#[tokio::test]
async fn the_services_use_changed_nats_passwords_after_a_reload_and_no_event_is_lost() {
    let nats = NatsServer::start_with(&nats_users("one")).await.unwrap();
    let url = nats.url.clone();
    let url_of = |user: &str, password: &str| url.replace("//", &format!("//{user}:{password}@"));
    let services = Services::prepare_with(nats).await;
    let system = System::start(services, "SVC_NATS_URL_FILE", |service| url_of(service.name(), "one")).await;
    let admin = &system.services.platform_token;
    let user = ApiUser::create_acme(&system.url(Identity), admin, "ada@acme.example").await;
    let ingest = api_client(&system.url(Ingest)).bearer(&user.token);
    let mut producers = Producers::start(&ingest);
    producers.wait_for_acknowledged(30).await;

    for (service, _, mounted) in &system.running {
        mounted.write(&url_of(service.name(), "two"));
    }
    let nats = &system.services.nats;
    nats.reload(&nats_users("two")).unwrap();
    wait_until("the server knows only the new passwords", async || {
        nats.log().contains("Reloaded server configuration").then_some(())
    })
    .await;
    assert!(bus::connect(&bus::Config::new(url_of("ingest", "one"), "test")).await.is_err());
    // Events in flight got 503, and the producers sent them again.
    producers.wait_for_acknowledged(50).await;

    // All other connections: audit events of identity and session, invalidations, and reads of ingest.
    let lag = "svc_invalidation_lag_seconds_count";
    let applied = system.of(Ingest).1.metric(lag).await;
    wait_until("an invalidation is applied", async || {
        system.expect_requests_between_all_services().await;
        (system.of(Ingest).1.metric(lag).await > applied).then_some(())
    })
    .await;
    let invite = json!({ "email": "bob@acme.example", "delivery": "response" });
    let invite: Value = user.client.post("/users/invite", &invite).await.expect(201);
    let session = api_client(&system.url(Session)).bearer(&user.token);
    let key: Value = session.post("/api-keys", &json!({ "name": "after the rotation" })).await.expect(201);
    wait_until("the audit events are stored", async || {
        let audit: Value = ingest.get("/audit?limit=200").await.expect(200);
        let stored = |name: &str, id: &Value| {
            audit["items"].as_array().unwrap().iter().any(|event| event[name] == *id)
        };
        (stored("invite_id", &invite["invite_id"]) && stored("key_id", &key["id"])).then_some(())
    })
    .await;
    let acknowledged = producers.stop().await;
    EventStream::connect(&url_of("administrator", "a")).await.expect_each_once(&acknowledged).await;
}
