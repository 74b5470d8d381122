//! The database of a service: its pools, their metrics and the probe.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use prometheus_client::metrics::gauge::Gauge;
use service::Tasks;
use service::config::Variable;
use service::telemetry::Metrics;
use sqlx::postgres::PgConnectOptions;
use tenancy::{Actor, TenantId};

use crate::access::DatabaseAccess;
use crate::audit::PiiPolicy;
use crate::outbox::Outbox;
use crate::pool::{Pool, Retired, Turns};
use crate::{Error, TenantCall, TenantTx};

/// Few connections are faster than many: a statement takes a fraction of a millisecond, and Postgres runs as many at once
/// as it has cores.
const DEFAULT_CONNECTIONS: usize = 6;

service::variables! {
    /// Connections of a service to Postgres.
    #[derive(Clone)]
    pub struct DatabaseSettings {
        access: DatabaseAccess,
        /// Maximum number of Postgres connections of a process. A third is for the relays of the outbox, the rest for requests.
        connections: usize =
            Variable::new("SVC_DATABASE_CONNECTIONS", "number, 4 to 100").default("6").between(4, 100),
        /// Maximum number of audit events of a tenant that wait to be published, for each kind of outbox message.
        max_waiting: i64 =
            Variable::new("SVC_AUDIT_MAX_WAITING", "number, 1000 to 1000000000").default("500000").between(1_000, 1_000_000_000),
    }
}

impl DatabaseSettings {
    /// Creates the pool of the service that owns `schema`, as [`Database::new`].
    ///
    /// # Errors
    /// The URL is malformed.
    pub fn pool(&self, schema: &'static str) -> Result<Database, Error> {
        let database = Database::with_connections(self.access.clone(), schema, self.connections)?;
        Ok(database.map_outbox(|outbox| outbox.bounded(self.max_waiting)))
    }
}

/// A request that gets no connection within this time fails with 503.
pub(crate) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);
/// A delivered message that is not settled is delivered again. Shorter than the margin of a lease.
const RELAY_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the options of a connection of the service that owns `schema`.
pub(crate) fn connect_options(
    access: &DatabaseAccess,
    schema: &str,
) -> Result<PgConnectOptions, sqlx::Error> {
    Ok(access.options()?.application_name(&format!("svc-{schema}")))
}

/// The database of a service: its pools, schema and outbox. Clones share them.
#[derive(Clone)]
pub struct Database {
    pool: Pool,
    /// The connections that each tenant may use and wait for.
    tenants: Arc<Turns>,
    /// The same connections, of which `pool` leaves one free.
    lookup_pool: Pool,
    /// Relays that wait for locks must not delay requests.
    relay_pool: Pool,
    outbox: Outbox,
    pii_policy: PiiPolicy,
    pub(crate) access: DatabaseAccess,
    pub(crate) retired: Retired,
}

impl Database {
    /// Creates the pool of the service that owns `schema`. Connections open on first use, so this succeeds while the database
    /// is down. The URL, else `PGSSLMODE` and `PGSSLROOTCERT`, determine how the certificate of the server is verified.
    ///
    /// # Errors
    /// The URL is malformed.
    pub fn new(url: &str, schema: &'static str) -> Result<Self, Error> {
        Self::connect(DatabaseAccess::fixed(url), schema)
    }

    /// Creates the pool of the service that owns `schema`, as [`Self::new`].
    ///
    /// # Errors
    /// The URL is malformed.
    pub fn connect(access: DatabaseAccess, schema: &'static str) -> Result<Self, Error> {
        Self::with_connections(access, schema, DEFAULT_CONNECTIONS)
    }

    fn with_connections(
        access: DatabaseAccess,
        schema: &'static str,
        connections: usize,
    ) -> Result<Self, Error> {
        let (options, retired) = (connect_options(&access, schema)?, Retired::default());
        // A relay settles messages during a claim.
        let for_relays = (connections / 3).max(2);
        let open = |connections, timeout, other| {
            Pool::new(options.clone(), retired.clone(), connections, timeout, other)
        };
        let lookup_pool = open(connections - for_relays, ACQUIRE_TIMEOUT, None)?;
        let relay_pool = open(for_relays, RELAY_ACQUIRE_TIMEOUT, Some(&lookup_pool))?;
        let pool = lookup_pool.with_reserve();
        let (outbox, pii_policy) = (Outbox::new(schema), PiiPolicy::default());
        Ok(Self {
            pool,
            tenants: Arc::default(),
            lookup_pool,
            relay_pool,
            outbox,
            pii_policy,
            access,
            retired,
        })
    }

    /// The pool of the requests, for statements that call a `security definer` function of the schema.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The connections of [`Self::pool`] with the one that it leaves free, for lookups of credentials: they continue while all writes
    /// wait, for example for a standby. A statement must neither write nor lock.
    pub fn lookup_pool(&self) -> &Pool {
        &self.lookup_pool
    }

    fn pool_of(&self, tenant_id: &TenantId) -> Pool {
        self.pool.for_tenant(&self.tenants, tenant_id)
    }

    /// The pool of the relays.
    pub(crate) fn relay_pool(&self) -> &Pool {
        &self.relay_pool
    }

    /// The schema that the service owns.
    pub fn schema(&self) -> &'static str {
        self.outbox.schema
    }

    pub(crate) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    pub(crate) fn map_outbox(self, map: impl FnOnce(Outbox) -> Outbox) -> Self {
        Self { outbox: map(self.outbox), ..self }
    }

    /// The same database, with the personal data that audit events keep: by default none.
    #[must_use]
    pub fn with_pii_policy(mut self, pii_policy: PiiPolicy) -> Self {
        self.pii_policy = pii_policy;
        self
    }

    /// Begins a unit of work, which sees the rows of one tenant only. The caller is responsible for the check that the actor may access
    /// the tenant.
    ///
    /// # Errors
    /// The database is not available.
    pub async fn begin(
        &self,
        tenant_id: &TenantId,
        actor: Actor,
        now: DateTime<Utc>,
    ) -> Result<TenantTx, Error> {
        // Local to the transaction: the next user of the connection starts without a tenant and sees no rows. A tenant id consists of
        // a-z, 0-9 and '-'.
        let statement = format!("set local svc.tenant_id = '{tenant_id}'");
        let connection = self.pool_of(tenant_id).begin(statement).await?;
        Ok(TenantTx::new(connection, self.outbox.clone(), self.pii_policy, tenant_id.clone(), actor, now))
    }

    /// Begins a unit of work of one statement. It needs no connection until it runs.
    pub fn call(&self, tenant_id: &TenantId, actor: Actor, now: DateTime<Utc>) -> TenantCall {
        let (pool, outbox) = (self.pool_of(tenant_id), self.outbox.clone());
        TenantCall::new(pool, outbox, self.pii_policy, tenant_id.clone(), actor, now)
    }
}

/// Interval between probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

impl Database {
    /// Registers the metrics of the connections and the outbox, and starts the availability probe.
    #[must_use]
    pub fn measured(self, metrics: &Metrics, tasks: &Tasks) -> Self {
        let service = ("service", self.schema());
        let help = "Whether Postgres accepted and completed writes at the last probe: 1 or 0";
        let available: Gauge = metrics.metric("database_available", help, &[service]);
        let database = self.clone();
        tasks.every("database probe", PROBE_INTERVAL, move || database.clone().probe(available.clone()));
        let (database, stopping) = (self.clone(), tasks.stopping().clone());
        tasks.spawn("database access", async move {
            stopping.run_until_cancelled(database.follow_access()).await;
        });
        for (name, pool) in [("requests", self.pool()), ("relays", self.relay_pool())] {
            measure(pool, metrics, service, ("pool", name));
        }
        self.map_outbox(|outbox| outbox.measured(metrics))
    }

    async fn probe(self, available: Gauge) {
        available.set(self.lookup_pool.probe().await.into());
        tokio::join!(self.pool.close_idle(), self.relay_pool.close_idle());
    }
}

fn measure(
    pool: &Pool,
    metrics: &Metrics,
    service: (&'static str, &'static str),
    name: (&'static str, &'static str),
) {
    let help = "Maximum number of Postgres connections of a pool: requests or relays";
    let max: Gauge = metrics.metric("database_connections_max", help, &[service, name]);
    max.set(i64::try_from(pool.max_size()).unwrap_or(i64::MAX));
    let connections = |state| -> Gauge {
        let help = "Postgres connections of a pool by state: idle or busy";
        metrics.metric("database_connections", help, &[service, name, ("state", state)])
    };
    let (idle, busy, pool) = (connections("idle"), connections("busy"), pool.clone());
    metrics.at_scrape(move || {
        let (idle_now, busy_now) = pool.usage();
        idle.set(i64::try_from(idle_now).unwrap_or(i64::MAX));
        busy.set(i64::try_from(busy_now).unwrap_or(i64::MAX));
    });
}
