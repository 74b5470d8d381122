//! How much a burst of one tenant delays another one, at a route of identity and at one of session. The control is the same burst at
//! `/health`, which takes processor time from both too, but needs no connection to Postgres.

use std::slice;
use std::time::Duration;

use anyhow::ensure;
use futures::future::try_join;

use super::{Bench, p99};
use crate::http::request;
use crate::load::{on_one_thread, send_repeatedly};
use crate::report::Comparison;
use crate::user::{BenchUser, tenant_admin};

const ROUNDS: usize = 5;
/// Concurrent requests of the burst.
const CONNECTIONS: usize = 256;
const TIME: Duration = Duration::from_secs(3);
/// The pause of the other tenant after each response.
const PAUSE: Duration = Duration::from_millis(5);

/// Returns a request of a user for a list.
type List = fn(&BenchUser) -> Vec<u8>;

impl Bench<'_> {
    pub(crate) async fn tenant_bursts(&mut self) -> anyhow::Result<()> {
        let bursting = tenant_admin(self.system, "bursting".to_owned()).await?;
        let health = request("GET", "/api/v1/health", &[], b"");
        let lists: [(_, List); 2] = [
            ("list of users during 256 such requests of another tenant, p99, ms", list_users),
            ("list of sessions during 256 such requests of another tenant, p99, ms", list_sessions),
        ];
        for (name, list) in lists {
            let mut rounds = Vec::new();
            for _ in 0..self.rounds(ROUNDS) {
                let control = self.latency_during_burst(list(&self.user), health.clone()).await?;
                rounds.push((self.latency_during_burst(list(&self.user), list(&bursting)).await?, control));
            }
            let (baseline, target) = ("the same during 256 requests of /health", Some("≤ 2.00"));
            self.report.add_comparison(Comparison { name, baseline, rounds, target });
        }
        Ok(())
    }

    /// Returns the p99 of a request while the request of the burst is repeated on many connections. A rejected request is an error.
    async fn latency_during_burst(&self, measured: Vec<u8>, burst: Vec<u8>) -> anyhow::Result<f64> {
        let (address, bursts) = (self.system.address, vec![burst; CONNECTIONS]);
        // On two threads, because the client of the burst would delay the other one.
        let burst =
            on_one_thread(async move || send_repeatedly(address, &bursts, 200, TIME, Duration::ZERO).await);
        let measured = on_one_thread(async move || {
            send_repeatedly(address, slice::from_ref(&measured), 200, TIME, PAUSE).await
        });
        let (measured, burst) = try_join(measured, burst).await?;
        for load in [&measured, &burst] {
            ensure!(load.rejected == 0, "{} requests were rejected", load.rejected);
        }
        p99(&measured)
    }
}

/// A request to identity.
fn list_users(user: &BenchUser) -> Vec<u8> {
    user.with_bearer("GET", "/api/v1/users", b"")
}

/// A request to session.
fn list_sessions(user: &BenchUser) -> Vec<u8> {
    let (bearer, user_id) = (format!("Bearer {}", user.token().expose()), user.user_id().to_string());
    request("GET", "/api/v1/auth/sessions", &[("Authorization", &bearer), ("X-User-ID", &user_id)], b"")
}
