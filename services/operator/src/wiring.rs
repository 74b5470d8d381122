//! The composition root.

use std::error::Error;

use contract::managed::OperatorId;
use kube::Client;
use service::Tasks;
use service::config::Environment;
use service::health::Readiness;
use service::operator::{self, Config};
use service::process::{CommandResult, Program, Routers};
use service::telemetry::Telemetry;

use crate::command::Command;
use crate::controller::Controller;
use crate::kubernetes::{Caches, Kubernetes};
use crate::lease::Candidate;
use crate::metrics::OperatorMetrics;
use crate::services::ServiceClient;

/// The operator.
pub struct Operator;

impl Program for Operator {
    const NAME: &'static str = operator::NAME;
    const ABOUT: &'static str =
        "The Kubernetes operator: tenants, producers and consumers as Kubernetes resources.";
    const HAS_API: bool = false;
    type Config = Config;
    type Api = Option<Routers>;
    type Command = Command;

    async fn execute(command: Command, _: &Environment) -> CommandResult {
        command.execute()
    }

    async fn start(
        config: Config,
        tasks: &Tasks,
        readiness: &Readiness,
        telemetry: &Telemetry,
    ) -> Result<Option<Routers>, Box<dyn Error + Send + Sync>> {
        let client = Client::try_default().await?;
        let caches = Caches::start(&client, &config.namespace, config.ingest_url.is_some(), tasks);
        let gate = readiness.gate("watches");
        let (waiting, stop) = (caches.clone(), tasks.stopping().clone());
        tasks.spawn_short(async move {
            if stop.run_until_cancelled(waiting.ready()).await.is_some() {
                gate.open();
            }
        });
        let candidate = Candidate::new(client.clone(), &config.namespace, &config.lease, &config.pod_name);
        let controller = Controller {
            caches,
            kubernetes: Kubernetes::new(client, &config.namespace, &config.public_url, &config.pod_name),
            identity: ServiceClient::new(config.identity_url, config.identity_token)?,
            session: ServiceClient::new(config.session_url, config.session_token)?,
            ingest: config.ingest_url.map(|url| ServiceClient::new(url, config.ingest_token)).transpose()?,
            consumer_nats_url: config.consumer_nats_url.unwrap_or_default().into(),
            metrics: OperatorMetrics::new(telemetry.metrics()),
            term: candidate.term(),
            take_over_from: config.take_over_from.unwrap_or_default().into(),
            confirmed_releases: config.confirmed_releases,
        };
        let (namespace, release) = (config.namespace, config.release);
        let tasks = tasks.clone();
        tasks.clone().spawn("controller", async move {
            let stop = tasks.draining().clone();
            // The lists of resources are those of this cluster.
            let Some(cluster) = stop.run_until_cancelled(controller.caches.cluster()).await else { return };
            let controller = controller.for_operator(&OperatorId { cluster, namespace, release });
            lead(candidate, controller, tasks).await;
        });
        Ok(None)
    }
}

/// Runs the controller whenever this replica holds the lease.
async fn lead(mut candidate: Candidate, controller: Controller, tasks: Tasks) {
    let stop = tasks.draining().clone();
    controller.metrics.clear();
    while stop.run_until_cancelled(candidate.acquire()).await.is_some() {
        tracing::info!("this replica holds the lease");
        controller.metrics.is_leader.set(1);
        tokio::select! {
            () = stop.cancelled() => {}
            () = candidate.hold() => tracing::warn!("this replica lost the lease"),
            () = controller.run() => {}
        }
        controller.metrics.clear();
    }
    candidate.release().await;
}
