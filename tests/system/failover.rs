//! Postgres with a standby: after a failover, no request uses the former primary, and while commits wait for a lost standby, credentials
//! are still checked.

use std::time::Duration;

use contract::paths::Upstream;
use database::Database;
use e2e::{ApiUser, Producers, ReplicatedPostgres, Service, Services, api_client, free_address};
use serde_json::{Value, json};
use service::Tasks;
use service::telemetry::{Telemetry, TraceSettings};
use testkit::{Client, Forwarder, PASSWORD, TestResponse, join_all, wait_until, within};
use url::Url;

/// The limit for each response: the deadline of a request, and some time for a busy machine.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
const AVAILABLE: [&str; 2] =
    [r#"svc_database_available{service="identity"}"#, r#"svc_database_available{service="session"}"#];

/// The services, of which identity and session use an endpoint that leads to one of the servers.
struct System {
    postgres: ReplicatedPostgres,
    endpoint: Forwarder,
    services: Services,
    identity: Service,
    session: Service,
    ingest: Service,
    user: ApiUser,
}

impl System {
    async fn start() -> Self {
        let postgres = ReplicatedPostgres::start().await;
        let services = Services::prepare_on(&postgres).await;
        services.migrate_all().await;
        let endpoint = endpoint_of(&postgres).await;
        let start = |service| {
            let url = through(&endpoint, &services.database_url(service));
            services.start_with(service, &[("SVC_DATABASE_URL", &url)])
        };
        let (mut identity, mut session) = (start(Upstream::Identity), start(Upstream::Session));
        let mut ingest = services.start(Upstream::Ingest);
        for service in [&mut identity, &mut session, &mut ingest] {
            service.wait_until_ready().await;
        }
        let base_url = format!("http://{}", identity.address);
        let user = ApiUser::create_acme(&base_url, &services.platform_token, "ada@acme.example").await;
        Self { postgres, endpoint, services, identity, session, ingest, user }
    }

    async fn log_in(&self) -> TestResponse {
        let client = client(&self.identity).header("X-Tenant-ID", "acme");
        let login = json!({ "email": "ada@acme.example", "password": PASSWORD });
        within(RESPONSE_TIMEOUT, "a login", client.post("/auth/password/login", &login)).await
    }

    async fn check(&self, session: &Service) -> TestResponse {
        let client = client(session).bearer(&self.user.token);
        within(RESPONSE_TIMEOUT, "a check", client.get("/auth/session")).await
    }

    async fn start_device_grant(&self) -> TestResponse {
        let client = client(&self.session).header("X-Tenant-ID", "acme");
        within(RESPONSE_TIMEOUT, "a device grant", client.post("/auth/device/code", &json!({}))).await
    }

    async fn request_reset(&self) -> TestResponse {
        let client = client(&self.identity).header("X-Tenant-ID", "acme");
        let reset = json!({ "email": "ada@acme.example" });
        within(RESPONSE_TIMEOUT, "a reset", client.post("/auth/password/reset", &reset)).await
    }

    /// Waits until the probes of identity and session have this result.
    async fn wait_for_availability(&self, available: bool) {
        wait_until("the probes have this result", async || {
            let values = [self.identity.metric(AVAILABLE[0]).await, self.session.metric(AVAILABLE[1]).await];
            values.iter().all(|value| (*value > 0.0) == available).then_some(())
        })
        .await;
    }

    async fn wait_for_login(&self) {
        wait_until("a login succeeds", async || {
            let response = self.log_in().await;
            if response.status != 200 {
                expect_unavailable(&response);
            }
            (response.status == 200).then_some(())
        })
        .await;
    }
}

fn client(service: &Service) -> Client {
    api_client(&format!("http://{}", service.address))
}

/// An endpoint that leads to the primary.
async fn endpoint_of(postgres: &ReplicatedPostgres) -> Forwarder {
    let endpoint = Forwarder::start().await.unwrap();
    endpoint.set_target(postgres.primary.port());
    endpoint
}

fn through(endpoint: &Forwarder, url: &str) -> String {
    let mut url: Url = url.parse().unwrap();
    url.set_port(Some(endpoint.address.port())).unwrap();
    url.into()
}

fn expect_unavailable(response: &TestResponse) {
    // Errors of device routes are OAuth errors, with the fields of a problem.
    assert_eq!(
        (response.status, &response.json()["code"]),
        (503, &json!("dependency_unavailable")),
        "{response}"
    );
    assert!(response.headers.contains_key("retry-after"), "{response}");
}

#[tokio::test]
async fn after_a_failover_no_connection_stays_on_the_former_primary() {
    let mut system = System::start().await;
    let port = system.postgres.fail_over().await;
    system.postgres.start_standby(port).await;
    // The endpoint still leads to the former primary, which is a standby now.
    system.wait_for_availability(false).await;
    for _ in 0..3 {
        expect_unavailable(&system.log_in().await);
        expect_unavailable(&system.check(&system.session).await);
    }
    // Connections that are open stay open.
    system.endpoint.redirect(system.postgres.primary.port());
    system.wait_for_login().await;
    for _ in 0..20 {
        system.log_in().await.expect::<Value>(200);
        system.check(&system.session).await.expect::<Value>(200);
    }
    system.wait_for_availability(true).await;
    let standby = system.postgres.standby.as_ref().unwrap();
    wait_until("no service is connected to the standby", async || {
        (standby.connections_of_services().await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_standby_that_does_not_follow_accepts_no_revoked_session() {
    let system = System::start().await;
    let standby = system.postgres.standby.as_ref().unwrap();
    let endpoint = endpoint_of(&system.postgres).await;
    let url = through(&endpoint, &system.services.database_url(Upstream::Session));
    let mut second = system.services.start_second_with(Upstream::Session, &[("SVC_DATABASE_URL", &url)]);
    second.wait_until_ready().await;
    system.check(&second).await.expect::<Value>(200);
    sqlx::raw_sql("select pg_wal_replay_pause()").execute(&mut standby.connect().await).await.unwrap();
    endpoint.set_target(standby.port());

    let logout = client(&system.session).header("X-Session-ID", &system.user.token);
    logout.post_bytes("/auth/sessions/logout", "", "").await.expect_empty(204);
    for _ in 0..5 {
        expect_unavailable(&system.check(&second).await);
    }
    endpoint.redirect(system.postgres.primary.port());
    let rejected = wait_until("the session is checked", async || {
        Some(system.check(&second).await).filter(|response| response.status != 503)
    });
    rejected.await.expect_problem(401, "credential_invalid");
}

#[tokio::test]
async fn while_commits_wait_for_a_lost_standby_sessions_are_checked_and_events_accepted() {
    let mut system = System::start().await;
    let mut producers = Producers::start(&client(&system.ingest).bearer(&system.user.token));
    producers.wait_for_acknowledged(20).await;
    system.postgres.standby.as_ref().unwrap().kill();
    // More writes than connections, several times: each connection that is given up would be replaced.
    let writes = async {
        for _ in 0..8 {
            let grants = join_all((0..8).map(|_| system.start_device_grant()));
            let logins = join_all((0..8).map(|_| system.log_in()));
            let (grants, logins) = tokio::join!(grants, logins);
            grants.iter().chain(&logins).for_each(expect_unavailable);
            system.request_reset().await.expect_empty(204);
        }
    };
    let checks = async {
        loop {
            system.check(&system.session).await.expect::<Value>(200);
        }
    };
    tokio::select! {
        () = writes => {}
        never = checks => never,
    }
    for (service, path) in [(&system.session, "/auth/sessions"), (&system.identity, "/users")] {
        let read = client(service).bearer(&system.user.token).header("X-User-ID", &system.user.user_id);
        expect_unavailable(&within(RESPONSE_TIMEOUT, "a read", read.get(path)).await);
    }
    producers.wait_for_acknowledged(20).await;
    assert_eq!(producers.rejected(), 0);
    let connections = system.postgres.primary.connections_of_services().await;
    assert!(connections <= 2 * 6, "{connections} connections of two processes with six");
    system.wait_for_availability(false).await;

    system.postgres.start_standby(free_address().port()).await;
    system.wait_for_login().await;
    system.start_device_grant().await.expect::<Value>(200);
    system.wait_for_availability(true).await;
    producers.stop().await;
}

#[tokio::test]
async fn a_connection_to_the_new_primary_retires_those_to_a_former_primary_that_still_runs() {
    let mut postgres = ReplicatedPostgres::start().await;
    let endpoint = endpoint_of(&postgres).await;
    let database = Database::new(&through(&endpoint, postgres.primary.url.as_str()), "session").unwrap();
    let pool = database.pool();
    let all = async || join_all((0..pool.max_connections()).map(|_| pool.acquire())).await;
    let first = pool.acquire().await.unwrap();
    let former = postgres.promote().await;
    endpoint.redirect(postgres.primary.port());
    // While that connection is in use, another one opens. Then all are returned and used again.
    drop((pool.acquire().await.unwrap(), first));
    for connection in &mut all().await {
        let port = sqlx::query_scalar::<_, String>("select current_setting('port')");
        let port = port.fetch_one(&mut **connection.as_mut().unwrap()).await.unwrap();
        assert_eq!(port, postgres.primary.port().to_string());
    }
    wait_until("no connection to the former primary is left", async || {
        (former.connections_of_services().await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_primary_that_becomes_read_only_is_not_used_until_it_accepts_writes() {
    let postgres = ReplicatedPostgres::start().await;
    let (telemetry, tasks) = (Telemetry::start("test", &TraceSettings::default()).unwrap(), Tasks::default());
    let database = Database::new(postgres.primary.url.as_str(), "session").unwrap();
    let database = database.measured(telemetry.metrics(), &tasks);
    let wait_for = async |value: &str| {
        wait_until("the probe has this result", async || {
            telemetry.metrics().text().contains(&format!("{} {value}\n", AVAILABLE[1])).then_some(())
        })
        .await;
    };
    wait_for("1").await;
    postgres.primary.set("default_transaction_read_only", "on").await;
    wait_for("0").await;
    let error = sqlx::query("select 1").execute(database.lookup_pool()).await.unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    postgres.primary.set("default_transaction_read_only", "off").await;
    wait_for("1").await;
    tasks.stopping().cancel();
}
