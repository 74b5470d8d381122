//! The rotation of `SVC_FACTOR_KEY`: secrets of authenticator apps under the previous key are encrypted under the current one, and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use database::{Database, Error};
use hashing::Entropy;
use prometheus_client::metrics::gauge::Gauge;
use service::Clock;
use service::telemetry::Metrics;
use tenancy::{Actor, FactorId, TenantId};
use uuid::Uuid;

use super::App;
use crate::domain::factor::{FactorKeyId, FactorKeys};
use crate::store::factor::{self, OutdatedSecret};

/// Secrets that are read at once.
const BATCH: i32 = 500;

/// Counts and encrypts the secrets of all tenants.
pub(crate) struct FactorRotation {
    database: Database,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    /// The current key at the last call; 0 for none.
    seen: AtomicU64,
    current: Gauge,
    previous: Gauge,
    unknown: Gauge,
}

impl FactorRotation {
    /// Registers the metrics.
    pub(crate) fn new(app: &App, metrics: &Metrics) -> Self {
        Self::with(app.database.clone(), Arc::clone(&app.clock), Arc::clone(&app.entropy), metrics)
    }

    fn with(database: Database, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>, metrics: &Metrics) -> Self {
        let gauge = |key| {
            metrics.metric(
                "factor_secrets",
                "Secrets of authenticator apps by the key that encrypts them",
                &[("key", key)],
            )
        };
        let (current, previous, unknown) = (gauge("current"), gauge("previous"), gauge("unknown"));
        Self { database, clock, entropy, seen: AtomicU64::default(), current, previous, unknown }
    }

    /// Encrypts the secrets under the previous key, if the current one has not changed since the last call: until then, another replica
    /// may not have read it. Then counts all secrets.
    pub(crate) async fn run(&self, keys: Option<&FactorKeys>) -> Result<(), Error> {
        let (current, previous) = keys.map(FactorKeys::ids).unzip();
        let previous = previous.flatten();
        let id = current.map_or(0, u64::from_be_bytes);
        let is_unchanged = self.seen.swap(id, Ordering::Relaxed) == id;
        if let (true, Some(keys), Some(previous)) = (is_unchanged, keys, previous) {
            self.renew(keys, previous).await?;
        }
        let counts = factor::count_by_key(&self.database).await?;
        let of = |is_counted: &dyn Fn(&[u8]) -> bool| {
            counts.iter().filter(|(key, _)| is_counted(key)).map(|(_, count)| count).sum::<i64>()
        };
        let (is_current, is_previous) = (
            |key: &[u8]| current.is_some_and(|current| current == *key),
            |key: &[u8]| previous.is_some_and(|previous| previous == *key),
        );
        self.current.set(of(&is_current));
        self.previous.set(of(&|key| !is_current(key) && is_previous(key)));
        self.unknown.set(of(&|key| !is_current(key) && !is_previous(key)));
        Ok(())
    }

    async fn renew(&self, keys: &FactorKeys, previous: FactorKeyId) -> Result<(), Error> {
        let mut after = FactorId(Uuid::nil());
        loop {
            let batch = factor::list_of_key(&self.database, previous, after, BATCH).await?;
            let Some(last) = batch.last() else { return Ok(()) };
            after = last.factor_id;
            for stored in &batch {
                self.renew_one(keys, stored).await?;
            }
        }
    }

    /// Encrypts a secret under the current key. One that cannot be decrypted stays.
    async fn renew_one(&self, keys: &FactorKeys, stored: &OutdatedSecret) -> Result<(), Error> {
        let Ok(tenant_id) = stored.tenant_id.parse::<TenantId>() else { return Ok(()) };
        let owner = (&tenant_id, stored.user_id);
        let opened = keys.open(&stored.secret, owner);
        let renewed = opened.and_then(|secret| keys.renew(&secret, &stored.secret, owner, &*self.entropy));
        let Some(renewed) = renewed else {
            return Ok(());
        };
        let mut tx = self.database.begin(&tenant_id, Actor::System, self.clock.now()).await?;
        factor::replace_secret(&mut tx, stored.factor_id, &stored.secret, &renewed).await?;
        tx.commit().await
    }
}

#[cfg(test)]
mod tests {
    use hashing::SeededEntropy;
    use service::clock::SystemClock;
    use tenancy::UserId;
    use testkit::TestDatabase;

    use super::*;
    use crate::domain::factor::TotpSecret;

    fn keys(text: &str) -> FactorKeys {
        let lines: Vec<_> = text.split(' ').map(|line| line.repeat(32)).collect();
        FactorKeys::parse(&lines.join("\n")).unwrap()
    }

    #[tokio::test]
    async fn secrets_under_the_previous_key_are_encrypted_under_the_current_one_when_it_was_seen_twice() {
        let test = TestDatabase::create().await.unwrap();
        let entropy = Arc::new(SeededEntropy::new(1));
        let database = test.pool("svc_identity").unwrap();
        let metrics = Metrics::new("test");
        let rotation =
            FactorRotation::with(database.clone(), Arc::new(SystemClock), entropy.clone(), &metrics);
        let tenants: [TenantId; 2] = ["acme", "globex"].map(|id| id.parse().unwrap());
        let mut superuser = test.superuser().await.unwrap();
        let mut owners = Vec::new();
        for tenant_id in &tenants {
            sqlx::query(
                "insert into identity.tenants (tenant_id, display_name, status, created_at, updated_at)
                values ($1, 'Acme', 'active', now(), now())",
            )
            .bind(tenant_id.as_str())
            .execute(&mut superuser)
            .await
            .unwrap();
            for key in ["a", "c"] {
                let user_id = UserId::generate();
                sqlx::query(
                    "insert into identity.users (user_id, tenant_id, email, email_key, email_skeleton, role, status, created_at, updated_at)
                    values ($1, $2, $3, $3, $3, 'member', 'invited', now(), now())",
                )
                .bind(user_id.0)
                .bind(tenant_id.as_str())
                .bind(format!("{key}@acme.example"))
                .execute(&mut superuser)
                .await
                .unwrap();
                let secret = TotpSecret::generate(&*entropy);
                let sealed = keys(key).seal(&secret, (tenant_id, user_id), &*entropy).unwrap();
                let mut tx = database.begin(tenant_id, Actor::System, SystemClock.now()).await.unwrap();
                let factor_id = FactorId::generate();
                factor::insert_totp(&mut tx, user_id, factor_id, &sealed).await.unwrap();
                factor::confirm_totp(&mut tx, factor_id, 0).await.unwrap();
                tx.commit().await.unwrap();
                owners.push((tenant_id, user_id, key, secret.text()));
            }
        }
        let rotating = keys("b a");
        for (expected, with) in [
            ([0, 2, 2], Some(&rotating)),
            ([2, 0, 2], Some(&rotating)),
            ([2, 0, 2], Some(&keys("b"))),
            ([0, 0, 4], None),
        ] {
            rotation.run(with).await.unwrap();
            let exposed = metrics.text();
            for (key, count) in ["current", "previous", "unknown"].iter().zip(expected) {
                let line = format!("svc_factor_secrets{{key=\"{key}\"}} {count}\n");
                assert!(exposed.contains(&line), "{line}{exposed}");
            }
        }
        for (tenant_id, user_id, key, secret) in owners {
            let mut tx = database.begin(tenant_id, Actor::System, SystemClock.now()).await.unwrap();
            let stored = factor::find_totp(&mut tx, user_id).await.unwrap().unwrap();
            let key = if key == "a" { "b" } else { key };
            assert_eq!(keys(key).open(&stored.secret, (tenant_id, user_id)).unwrap().text(), secret);
        }
    }
}
