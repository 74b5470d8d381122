//! The system under test: three processes of ingest, two each of identity and session behind a load balancer, a cluster of three
//! nats-servers, and Postgres. It executes faults.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context as _;
use contract::paths::Upstream;
use e2e::{
    ALL_SERVICES, Broker, Instance, Proxy, ReplicatedPostgres, Service, Services, StoppedProcesses,
    WrongClock, descendants, free_address, kill,
};
use rustix::process::Signal;
use testkit::{Disturbance, Forwarder, NatsCluster};
use tokio::sync::Mutex;
use tokio::time::sleep;
use url::Url;

use crate::factors::ORIGIN;
use crate::faults::{Fault, Kind, NODES, Path, Target, processes};
use crate::mails::Mails;
use crate::resources::{Values, add_disk, add_process};

/// Settings of identity and ingest. The stream holds the events of a round.
const STREAMS: [(&str, &str); 2] = [("SVC_STREAM_REPLICAS", "3"), ("SVC_STREAM_MAX_BYTES", "4GiB")];
/// Settings of ingest.
const INGEST: [(&str, &str); 2] = [("SVC_NATS_DURABILITY", "standard"), ("SVC_TENANT_STREAM_SHARE", "100")];

const DATABASE_PATHS: [Path; 2] = [Path::IdentityDatabase, Path::SessionDatabase];

/// A cluster that several tasks use.
pub(crate) struct Cluster {
    /// The addresses of the forwarders before the servers.
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
    variables: Vec<(&'static str, String)>,
    process: Mutex<Service>,
}

/// The running system.
pub(crate) struct System {
    services: Services<Cluster>,
    identity: Vec<Slot>,
    session: Vec<Slot>,
    ingest: Vec<Slot>,
    clock: WrongClock,
    network: HashMap<Path, Forwarder>,
    database: Mutex<ReplicatedPostgres>,
    _proxy: Proxy,
}

impl System {
    /// Starts all processes and waits until they are ready.
    pub(crate) async fn start(mails: &Mails) -> anyhow::Result<Self> {
        let cluster = NatsCluster::start_with_accounts("").await?;
        let mut network = HashMap::new();
        let mut urls = Vec::new();
        for (number, url) in cluster.url.split(',').enumerate() {
            let forwarder = forward_to(Url::parse(url)?.port()).await?;
            urls.push(format!("nats://{}", forwarder.address));
            network.insert(Path::Node(number), forwarder);
        }
        let cluster = Cluster { url: urls.join(","), nodes: Mutex::new(cluster) };
        let database = ReplicatedPostgres::start().await;
        let services = Services::prepare_in(cluster, database.create_database().await).await;
        services.migrate_all().await;
        let database = Mutex::new(database);
        let instances = |service| -> Vec<Instance> {
            (0..processes(service)).map(|number| services.instance(service, number)).collect()
        };
        let [identity, session, ingest] = ALL_SERVICES.map(instances);
        for (number, instance) in ingest.iter().enumerate() {
            network.insert(Path::Ingest(number), forward_to(Some(instance.address().port())).await?);
        }
        let all: Vec<_> = identity.iter().chain(&session).chain(&ingest).collect();
        let proxy = services.balance(&all).await;
        let owned = |(name, value): (&'static str, &str)| (name, value.to_owned());
        let ingest_variables = STREAMS.into_iter().chain(INGEST).map(owned).collect();
        let start = |instances: Vec<Instance>, variables: Vec<(&'static str, String)>| -> Vec<Slot> {
            let start = |instance| {
                let process = Mutex::new(start_process(&services, &instance, &variables, &[]));
                Slot { instance, process, variables: variables.clone() }
            };
            instances.into_iter().map(start).collect()
        };
        let mut identity_variables =
            database_variables(&services, Upstream::Identity, Path::IdentityDatabase, &mut network).await?;
        identity_variables.extend(mails.variables());
        identity_variables.extend(STREAMS.map(owned));
        identity_variables.push(("SVC_PUBLIC_URL", ORIGIN.to_owned()));
        let (identity, session, ingest) = (
            start(identity, identity_variables),
            start(
                session,
                database_variables(&services, Upstream::Session, Path::SessionDatabase, &mut network).await?,
            ),
            start(ingest, ingest_variables),
        );
        let clock = WrongClock::compile();
        let system = Self { services, identity, session, ingest, clock, network, database, _proxy: proxy };
        system.wait_until_ready().await;
        Ok(system)
    }

    /// The origin of the public API.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.services.address)
    }

    /// The origins of the processes of ingest, through the forwarders.
    pub(crate) fn ingest_urls(&self) -> Vec<String> {
        let paths = (0..self.ingest.len()).map(Path::Ingest);
        paths.map(|path| format!("http://{}", self.network[&path].address)).collect()
    }

    pub(crate) fn platform_token(&self) -> &str {
        &self.services.platform_token
    }

    /// The addresses of the broker for a user.
    pub(crate) fn nats_url(&self, user: &str) -> String {
        self.services.nats.url_of(user)
    }

    /// Copies the output of all services.
    pub(crate) fn copy_output(&self, directory: &std::path::Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(directory)?;
        for file in std::fs::read_dir(self.services.output())? {
            let file = file?;
            std::fs::copy(file.path(), directory.join(file.file_name()))?;
        }
        Ok(())
    }

    /// Measures the services, the nodes of the broker, and the primary of Postgres.
    pub(crate) async fn resources(&self) -> anyhow::Result<Values> {
        let mut values = Values::new();
        for (name, slots) in
            [("identity", &self.identity), ("session", &self.session), ("ingest", &self.ingest)]
        {
            for (number, slot) in slots.iter().enumerate() {
                add_process(
                    &mut values,
                    &format!("{name} {number}"),
                    slot.process.lock().await.process.pid(),
                );
            }
        }
        let mut nodes = self.services.nats.nodes.lock().await;
        for number in 0..NODES {
            let (name, node) = (format!("nats {number}"), nodes.node(number));
            add_process(&mut values, &name, node.pid()?);
            add_disk(&mut values, &name, &node.data());
        }
        let database = self.database.lock().await;
        add_process(&mut values, "postgres", database.primary.pid());
        add_disk(&mut values, "postgres", database.primary.data());
        Ok(values)
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
            Target::Database => return self.disturb_database(fault).await,
            Target::Network(path) => return self.disturb_network(path, fault).await,
        };
        self.disturb_process(slot, fault).await
    }

    async fn disturb_process(&self, slot: &Slot, fault: &Fault) -> anyhow::Result<()> {
        let mut process = slot.process.lock().await;
        let start =
            |more: &[(&str, &str)]| start_process(&self.services, &slot.instance, &slot.variables, more);
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
            Kind::Kill => {
                stop(&mut process).await;
                sleep(fault.duration()).await;
                *process = start(&[]);
            }
            _ => return fault.invalid(),
        }
        Ok(())
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
            Kind::FullDisk(node) => {
                nodes.node(node % NODES).fail_writes(true)?;
                sleep(fault.duration()).await;
                nodes.node(node % NODES).fail_writes(false)?;
                nodes.restart(node % NODES).await?;
            }
            _ => return fault.invalid(),
        }
        Ok(())
    }

    async fn disturb_network(&self, path: Path, fault: &Fault) -> anyhow::Result<()> {
        let forwarder = &self.network[&path];
        forwarder.disturb(match fault.kind {
            Kind::Delay(milliseconds) => Disturbance::Delayed(Duration::from_millis(milliseconds)),
            Kind::LoseResponses => Disturbance::LostResponses,
            Kind::Interrupt => Disturbance::Interrupted,
            _ => return fault.invalid(),
        });
        sleep(fault.duration()).await;
        forwarder.disturb(Disturbance::None);
        Ok(())
    }

    async fn disturb_database(&self, fault: &Fault) -> anyhow::Result<()> {
        let mut database = self.database.lock().await;
        match fault.kind {
            Kind::PauseDatabase => {
                let stopped = StoppedProcesses::stop_tree(database.primary.pid());
                sleep(fault.duration()).await;
                drop(stopped);
            }
            Kind::PromoteStandby => {
                database.fail_over().await;
                for path in DATABASE_PATHS {
                    self.network[&path].set_target(database.primary.port());
                }
                database.start_standby(free_address().port()).await;
            }
            Kind::SwapServers => {
                let port = database.fail_over().await;
                database.start_standby(port).await;
                sleep(fault.duration()).await;
                for path in DATABASE_PATHS {
                    self.network[&path].redirect(database.primary.port());
                }
            }
            Kind::CrashDatabase => {
                if let Some(backend) = descendants(database.primary.pid()).last() {
                    kill(*backend, Signal::KILL);
                    sleep(Duration::from_secs(1)).await;
                }
            }
            _ => return fault.invalid(),
        }
        Ok(())
    }
}

fn start_process(
    services: &Services<Cluster>,
    instance: &Instance,
    variables: &[(&'static str, String)],
    more: &[(&str, &str)],
) -> Service {
    let variables = variables.iter().map(|(name, value)| (*name, value.as_str()));
    services.start_instance(instance, &variables.chain(more.iter().copied()).collect::<Vec<_>>())
}

/// Starts a forwarder to a port on loopback.
async fn forward_to(port: Option<u16>) -> anyhow::Result<Forwarder> {
    let forwarder = Forwarder::start().await?;
    forwarder.set_target(port.context("an address without a port")?);
    Ok(forwarder)
}

/// Starts a forwarder between a service and Postgres. Returns the variables of the service.
async fn database_variables(
    services: &Services<Cluster>,
    service: Upstream,
    path: Path,
    network: &mut HashMap<Path, Forwarder>,
) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut url = Url::parse(&services.database_url(service))?;
    let forwarder = forward_to(url.port()).await?;
    let _ = url.set_port(Some(forwarder.address.port()));
    network.insert(path, forwarder);
    Ok(vec![("SVC_DATABASE_URL", url.into())])
}

async fn stop(service: &mut Service) {
    service.process.signal(Signal::KILL);
    service.process.wait().await;
}
