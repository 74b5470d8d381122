//! The clock of one process is wrong: no request fails, sessions move by the difference, and no login is blocked after the correction (docs/operations.md).

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use contract::paths::Upstream;
use e2e::{ALL_SERVICES, ApiUser, Proxy, Service, Services, WrongClock, api_client};
use serde_json::{Value, json};
use service::Clock as _;
use service::clock::SystemClock;
use testkit::{PASSWORD, wait_until};

/// The difference in seconds.
const DIFFERENCE: i64 = 5 * 60;
/// `SVC_SESSION_MAX` and `SVC_SESSION_IDLE` of the test, in seconds.
const LIFETIME: i64 = 12 * 60 * 60;
/// The test runs for less than this.
const MARGIN: TimeDelta = TimeDelta::minutes(1);
const EMAIL: &str = "ada@acme.example";

/// Running services with their clocks.
struct System {
    services: Services,
    clock: WrongClock,
    running: HashMap<&'static str, Service>,
}

impl System {
    async fn start() -> Self {
        let services = Services::prepare().await;
        services.migrate_all().await;
        let mut system = Self { services, clock: WrongClock::compile(), running: HashMap::new() };
        for service in ALL_SERVICES {
            system.set_clock(service, 0).await;
        }
        system
    }

    /// Starts a service again with a clock that is wrong by this number of seconds. All services are ready afterwards.
    async fn set_clock(&mut self, service: Upstream, seconds: i64) {
        drop(self.running.remove(service.name()));
        let mut variables = self.clock.variables(seconds).to_vec();
        if service == Upstream::Session {
            variables.push(("SVC_SESSION_IDLE", "12h".to_owned()));
        }
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.running.insert(service.name(), self.services.start_with(service, &variables));
        for running in self.running.values_mut() {
            running.wait_until_ready().await;
        }
    }
}

/// Logs in, sends an event and checks both credentials. Returns a session that stays active, and the time at which it expires.
async fn expect_requests(proxy: &Proxy, oldest: &ApiUser) -> (ApiUser, DateTime<Utc>) {
    let [kept, ended] = [log_in(proxy).await, log_in(proxy).await];
    for user in [oldest, &kept, &ended] {
        user.client.post("/events", &json!({ "source_id": "s" })).await.expect::<Value>(202);
    }
    let logout = api_client(&proxy.base_url).header("X-Session-ID", &ended.token);
    logout.post_bytes("/auth/sessions/logout", "", "").await.expect_empty(204);
    wait_until("ingest rejects the ended session", async || {
        let response = ended.client.post("/events", &json!({ "source_id": "s" })).await;
        (response.status == 401).then_some(())
    })
    .await;
    let session: Value = kept.client.get("/auth/session").await.expect(200);
    let expires_at = session["expires_at"].as_str().unwrap().parse().unwrap();
    (kept, expires_at)
}

async fn log_in(proxy: &Proxy) -> ApiUser {
    ApiUser::log_in(&proxy.base_url, "acme", EMAIL).await
}

#[tokio::test]
async fn a_clock_that_is_wrong_by_five_minutes_fails_no_request_and_moves_the_expiry_of_sessions_by_as_much()
{
    let mut system = System::start().await;
    let proxy = system.services.start_proxy().await;
    let ada = ApiUser::create_acme(&proxy.base_url, &system.services.platform_token, EMAIL).await;
    let invite = json!({ "email": "bob@acme.example", "delivery": "response" });
    ada.client.post("/users/invite", &invite).await.expect::<Value>(201);
    ada.client.post("/api-keys", &json!({ "name": "firewalls" })).await.expect::<Value>(201);

    let mut sessions = Vec::new();
    for service in ALL_SERVICES {
        for seconds in [DIFFERENCE, -DIFFERENCE] {
            system.set_clock(service, seconds).await;
            let (user, expires_at) = expect_requests(&proxy, &ada).await;
            let moved = if service == Upstream::Session { seconds } else { 0 };
            let expected = SystemClock.now() + TimeDelta::seconds(LIFETIME + moved);
            assert!((expires_at - expected).abs() < MARGIN, "{service:?} {seconds}: {expires_at}");
            sessions.push((user, moved));
        }
        system.set_clock(service, 0).await;
    }

    // Nothing was deleted.
    for (path, number) in [("/users/invites", 2), ("/api-keys", 1)] {
        let list: Value = ada.client.get(path).await.expect(200);
        assert_eq!(list["items"].as_array().unwrap().len(), number, "{path}: {list}");
    }
    // A session ends at its time, whatever the clock was when it was created.
    for later in [-DIFFERENCE, 0, DIFFERENCE] {
        for (seconds, before) in [(-60, true), (60, false)] {
            system.set_clock(Upstream::Session, LIFETIME + later + seconds).await;
            for (user, moved) in &sessions {
                let active = user.client.get("/auth/session").await.status == 200;
                let expected = *moved > later || *moved == later && before;
                assert_eq!(active, expected, "moved by {moved} s, at {later} s and {seconds} s");
            }
        }
    }
}

#[tokio::test]
async fn a_clock_that_was_an_hour_ahead_blocks_a_login_for_no_longer_than_the_back_off() {
    let mut system = System::start().await;
    let proxy = system.services.start_proxy().await;
    let _ada = ApiUser::create_acme(&proxy.base_url, &system.services.platform_token, EMAIL).await;
    let client = api_client(&proxy.base_url).header("X-Tenant-ID", "acme");
    let status = async |password: &str| {
        let login = json!({ "email": EMAIL, "password": password });
        client.post("/auth/password/login", &login).await.status
    };
    system.set_clock(Upstream::Identity, 60 * 60).await;
    for _ in 0..5 {
        assert_eq!(status("wrong-password-altogether").await, 401);
    }
    system.set_clock(Upstream::Identity, 0).await;
    // After five failures it lasts one second. It would otherwise end in an hour.
    wait_until("the password is accepted", async || (status(PASSWORD).await == 200).then_some(())).await;
}
