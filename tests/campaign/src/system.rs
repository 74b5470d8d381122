//! The system under test: three processes of ingest, two each of identity and session behind a load balancer, a cluster of three
//! nats-servers, and Postgres. It executes faults.

use std::time::Duration;

use e2e::{
    ALL_SERVICES, Broker, Instance, Proxy, Service, Services, StoppedProcesses, WrongClock, descendants, kill,
};
use rustix::process::Signal;
use sqlx::Connection as _;
use testkit::NatsCluster;
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::faults::{Fault, Kind, NODES, Target, processes};

/// Settings of ingest. The stream holds the events of a round.
const INGEST: [(&str, &str); 4] = [
    ("SVC_NATS_DURABILITY", "standard"),
    ("SVC_STREAM_REPLICAS", "3"),
    ("SVC_STREAM_MAX_BYTES", "4GiB"),
    ("SVC_TENANT_STREAM_SHARE", "100"),
];

/// A cluster that several tasks use.
pub(crate) struct Cluster {
    url: String,
    nodes: Mutex<NatsCluster>,
}

impl Broker for Cluster {
    fn url(&self) -> &str {
        &self.url
    }
}

/// One process, which faults stop and start.
struct Slot {
    instance: Instance,
    process: Mutex<Service>,
}

/// The running system.
pub(crate) struct System {
    services: Services<Cluster>,
    identity: Vec<Slot>,
    session: Vec<Slot>,
    ingest: Vec<Slot>,
    clock: WrongClock,
    /// The process of Postgres that starts all others.
    database: i32,
    _proxy: Proxy,
}

impl System {
    /// Starts all processes and waits until they are ready.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let cluster = NatsCluster::start_with("").await?;
        let cluster = Cluster { url: cluster.url.clone(), nodes: Mutex::new(cluster) };
        let services = Services::prepare_with(cluster).await;
        services.migrate_all().await;
        let instances = |service| -> Vec<Instance> {
            (0..processes(service)).map(|number| services.instance(service, number)).collect()
        };
        let [identity, session, ingest] = ALL_SERVICES.map(instances);
        let all: Vec<_> = identity.iter().chain(&session).chain(&ingest).collect();
        let proxy = services.balance(&all).await;
        let start = |instances: Vec<Instance>, variables: &[(&str, &str)]| -> Vec<Slot> {
            let start = |instance| {
                let process = Mutex::new(services.start_instance(&instance, variables));
                Slot { instance, process }
            };
            instances.into_iter().map(start).collect()
        };
        let (identity, session, ingest) = (start(identity, &[]), start(session, &[]), start(ingest, &INGEST));
        let database = database_process(&services.superuser_url()).await?;
        let clock = WrongClock::compile();
        let system = Self { services, identity, session, ingest, clock, database, _proxy: proxy };
        system.wait_until_ready().await;
        Ok(system)
    }

    /// The origin of the public API.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.services.address)
    }

    /// The origins of the processes of ingest.
    pub(crate) fn ingest_urls(&self) -> Vec<String> {
        self.ingest.iter().map(|slot| format!("http://{}", slot.instance.address())).collect()
    }

    pub(crate) fn platform_token(&self) -> &str {
        &self.services.platform_token
    }

    /// The addresses of the broker.
    pub(crate) fn nats_url(&self) -> &str {
        &self.services.nats.url
    }

    /// Waits until the broker is healthy and each process is ready.
    pub(crate) async fn wait_until_ready(&self) {
        self.services.nats.nodes.lock().await.wait_until_healthy().await;
        for slot in self.identity.iter().chain(&self.session).chain(&self.ingest) {
            slot.process.lock().await.wait_until_ready().await;
        }
    }

    /// Executes a fault, and ends it after its duration.
    pub(crate) async fn apply(&self, fault: &Fault) -> anyhow::Result<()> {
        let slot = match fault.target {
            Target::Identity(number) => &self.identity[number],
            Target::Session(number) => &self.session[number],
            Target::Ingest(number) => &self.ingest[number],
            Target::Broker => return self.disturb_broker(fault).await,
            Target::Database => {
                self.disturb_database(fault).await;
                return Ok(());
            }
        };
        self.disturb_process(slot, fault).await;
        Ok(())
    }

    async fn disturb_process(&self, slot: &Slot, fault: &Fault) {
        let variables: &[_] = if matches!(fault.target, Target::Ingest(_)) { &INGEST } else { &[] };
        let mut process = slot.process.lock().await;
        let start =
            |more: &[(&str, &str)]| self.services.start_instance(&slot.instance, &[variables, more].concat());
        match fault.kind {
            Kind::Terminate => {
                process.process.signal(Signal::TERM);
                process.process.wait().await;
                *process = start(&[]);
            }
            Kind::WrongClock(seconds) => {
                stop(&mut process).await;
                let wrong = self.clock.variables(seconds);
                let wrong: Vec<_> = wrong.iter().map(|(name, value)| (*name, value.as_str())).collect();
                *process = start(&wrong);
                sleep(fault.duration()).await;
                stop(&mut process).await;
                *process = start(&[]);
            }
            Kind::Pause => {
                process.process.signal(Signal::STOP);
                sleep(fault.duration()).await;
                process.process.signal(Signal::CONT);
            }
            // The kinds of the other targets, in a file: the process is killed.
            _ => {
                stop(&mut process).await;
                sleep(fault.duration()).await;
                *process = start(&[]);
            }
        }
    }

    async fn disturb_broker(&self, fault: &Fault) -> anyhow::Result<()> {
        let mut nodes = self.services.nats.nodes.lock().await;
        match fault.kind {
            Kind::PauseNodes(first, second) => {
                let paused = [Some(first), second];
                for node in paused.iter().flatten() {
                    nodes.node(node % NODES).pause()?;
                }
                sleep(fault.duration()).await;
                for node in paused.iter().flatten() {
                    nodes.node(node % NODES).resume()?;
                }
            }
            Kind::IsolateNode(node) => {
                nodes.isolate(node % NODES);
                sleep(fault.duration()).await;
                nodes.heal();
            }
            Kind::KillNode(node) => {
                nodes.node(node % NODES).stop();
                sleep(fault.duration()).await;
                nodes.restart(node % NODES).await?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn disturb_database(&self, fault: &Fault) {
        if fault.kind == Kind::PauseDatabase {
            let stopped = StoppedProcesses::stop_tree(self.database);
            sleep(fault.duration()).await;
            drop(stopped);
        } else if let Some(backend) = descendants(self.database).last() {
            kill(*backend, Signal::KILL);
            sleep(Duration::from_secs(1)).await;
        }
    }
}

async fn stop(service: &mut Service) {
    service.process.signal(Signal::KILL);
    service.process.wait().await;
}

/// Returns the process id of the server, which is in the first line of a file in its data directory.
async fn database_process(url: &str) -> anyhow::Result<i32> {
    let mut connection = sqlx::PgConnection::connect(url).await?;
    let directory: String = sqlx::query_scalar("show data_directory").fetch_one(&mut connection).await?;
    connection.close().await?;
    let file = std::fs::read_to_string(format!("{directory}/postmaster.pid"))?;
    Ok(file.lines().next().unwrap_or_default().parse()?)
}
