//! The use cases, one file per noun.

mod account_status;
pub(crate) mod api_keys;
mod changes;
pub(crate) mod credential_uses;
pub(crate) mod device_grants;
pub(crate) mod expiry;
pub(crate) mod introspection;
mod producers;
pub(crate) mod sessions;

use std::ops::Deref;
use std::sync::Arc;

use audit::Actor;
use authn::IntrospectionBatcher;
use bus::{Invalidation, InvalidationPublisher};
use database::{Database, TenantTx};
use hashing::Entropy;
use ratelimit::Limiter;
use service::Clock;
use tenancy::TenantId;

use crate::config::Config;

/// The use cases. A clone for each request shares the dependencies.
#[derive(Clone)]
pub(crate) struct App(Arc<Dependencies>);

/// The dependencies of the use cases.
pub(crate) struct Dependencies {
    pub(crate) database: Database,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) config: Config,
    pub(crate) limiter: Limiter,
    pub(crate) introspection: IntrospectionBatcher,
    pub(crate) invalidations: InvalidationPublisher,
    /// The public origin, without a trailing slash.
    pub(crate) public_url: Arc<str>,
    /// Address of the page of device login.
    pub(crate) device_url: Arc<str>,
}

impl Deref for App {
    type Target = Dependencies;

    fn deref(&self) -> &Dependencies {
        &self.0
    }
}

impl App {
    pub(crate) fn new(dependencies: Dependencies) -> Self {
        Self(Arc::new(dependencies))
    }

    /// Begins the unit of work of a use case.
    async fn begin(&self, tenant_id: &TenantId, actor: Actor) -> Result<TenantTx, database::Error> {
        self.database.begin(tenant_id, actor, self.clock.now()).await
    }

    /// Publishes an invalidation once the transaction has committed.
    fn invalidate(&self, tx: &mut TenantTx, invalidation: Invalidation) {
        let publisher = self.invalidations.clone();
        tx.after_commit(async move { publisher.publish([invalidation]) });
    }
}
