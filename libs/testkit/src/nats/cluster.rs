//! Three nats-servers with `JetStream` as a cluster on loopback. Each route between two nodes runs through a separate forwarder, so
//! that a test can isolate a node.

use futures::future::{join_all, try_join_all};
use serde_json::Value;

use super::{NatsServer, accounts, accounts_with, configure, url_of};
use crate::client::plain_http;
use crate::forwarder::{Disturbance, Forwarder};
use crate::wait::wait_until;

const NODES: usize = 3;
/// The server chooses a free port.
const ANY_PORT: &str = "-1";

/// A running cluster. Dropping it stops the servers and deletes their data.
pub struct NatsCluster {
    /// The URLs of all nodes for clients, separated by commas; with accounts, for the administrator of the streams of events.
    pub url: String,
    nodes: Vec<Node>,
    routes: Vec<Route>,
    http: reqwest::Client,
}

struct Node {
    server: NatsServer,
    monitoring_port: u16,
    /// The configuration with fixed ports, for a restart.
    configuration: String,
}

/// The route that one node opens to another one.
struct Route {
    from: usize,
    to: usize,
    forwarder: Forwarder,
}

impl NatsCluster {
    /// Starts the nodes with additional configuration for each, and waits until they have elected a leader.
    pub async fn start_with(configuration: &str) -> anyhow::Result<Self> {
        let pairs = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
        let routes = pairs.filter(|(from, to)| from != to).map(async |(from, to)| {
            Ok::<_, anyhow::Error>(Route { from, to, forwarder: Forwarder::start().await? })
        });
        let routes = try_join_all(routes).await?;
        let nodes = (0..NODES).map(|number| Node::start(number, &routes, configuration));
        let nodes = try_join_all(nodes).await?;
        for Route { to, forwarder, .. } in &routes {
            if let Some(node) = nodes.get(*to) {
                forwarder.set_target(node.server.announced_port("cluster").await?);
            }
        }
        let urls: Vec<&str> = nodes.iter().map(|node| node.server.url.as_str()).collect();
        let cluster = Self { url: urls.join(","), nodes, routes, http: plain_http() };
        cluster.wait_until_healthy().await;
        Ok(cluster)
    }

    /// Starts the nodes with [`accounts`] and additional configuration. The password of each user is its name.
    pub async fn start_with_accounts(configuration: &str) -> anyhow::Result<Self> {
        Self::launch(&format!("{}\n{configuration}", accounts(str::to_owned))).await
    }

    /// Starts the nodes with [`accounts_with`]. The password of each user is its name.
    pub async fn start_with_consumers(consumers: &str) -> anyhow::Result<Self> {
        Self::launch(&accounts_with(consumers, str::to_owned)).await
    }

    async fn launch(configuration: &str) -> anyhow::Result<Self> {
        let mut cluster = Self::start_with(configuration).await?;
        cluster.url = url_of(&cluster.url, "administrator");
        for node in &mut cluster.nodes {
            node.server.url = node.server.url_of("administrator");
        }
        Ok(cluster)
    }

    /// A node, to stop, pause or resume it.
    pub fn node(&mut self, number: usize) -> &mut NatsServer {
        &mut self.nodes[number].server
    }

    /// The numbers of the other nodes.
    pub fn others(number: usize) -> impl Iterator<Item = usize> {
        (0..NODES).filter(move |other| *other != number)
    }

    /// Restarts a node on the same ports and data.
    pub async fn restart(&mut self, number: usize) -> anyhow::Result<()> {
        let Node { server, configuration, .. } = &mut self.nodes[number];
        configure(server.home.path(), configuration)?;
        server.restart().await
    }

    /// Interrupts all routes of a node. Clients can still reach it.
    pub fn isolate(&self, number: usize) {
        for Route { forwarder, .. } in
            self.routes.iter().filter(|route| [route.from, route.to].contains(&number))
        {
            forwarder.disturb(Disturbance::Interrupted);
        }
    }

    /// Continues all routes.
    pub fn heal(&self) {
        for Route { forwarder, .. } in &self.routes {
            forwarder.disturb(Disturbance::None);
        }
    }

    /// The leader of a stream, as the node `asked` knows it.
    pub async fn leader(&self, stream: &str, asked: usize) -> Option<usize> {
        let leader = self.stream(stream, asked).await?["cluster"]["leader"].as_str()?.to_owned();
        (0..NODES).find(|number| leader == name(*number))
    }

    /// Waits until all nodes are connected and each has all messages of all streams.
    pub async fn wait_until_healthy(&self) {
        wait_until("all nodes are healthy", async || {
            let statuses = self.nodes.iter().map(async |node| {
                let response = self.http.get(node.monitoring_url("healthz")).send().await;
                response.is_ok_and(|response| response.status() == 200)
            });
            join_all(statuses).await.into_iter().all(|healthy| healthy).then_some(())
        })
        .await;
    }

    /// Information of a node about a stream of an account with users. `FACADE` has streams of the same names.
    async fn stream(&self, stream: &str, asked: usize) -> Option<Value> {
        let url = self.nodes[asked].monitoring_url("jsz?streams=true");
        let information: Value = self.http.get(url).send().await.ok()?.json().await.ok()?;
        let accounts =
            information["account_details"].as_array()?.iter().filter(|account| account["name"] != "FACADE");
        let mut streams = accounts.filter_map(|account| account["stream_detail"].as_array()).flatten();
        streams.find(|found| found["name"] == stream).cloned()
    }
}

impl Node {
    async fn start(number: usize, routes: &[Route], configuration: &str) -> anyhow::Result<Self> {
        let complete = |monitoring_port: &str, cluster_port: &str| {
            let routes = routes.iter().filter(|route| route.from == number);
            let routes: Vec<_> =
                routes.map(|route| format!("\"nats-route://{}\"", route.forwarder.address)).collect();
            // A node sends the addresses of its routes to the others. No server listens on the advertised one, so that no
            // route bypasses the forwarders.
            format!(
                "server_name: {}\nhttp: \"127.0.0.1:{monitoring_port}\"\ncluster {{\n  name: test, pool_size: -1, no_advertise: true\n  \
                 listen: \"127.0.0.1:{cluster_port}\"\n  advertise: \"127.0.0.1:1\"\n  routes: [{}]\n}}\n{configuration}\n",
                name(number),
                routes.join(", "),
            )
        };
        let server = NatsServer::launch(&complete(ANY_PORT, ANY_PORT)).await?;
        let monitoring_port = server.announced_port("monitoring").await?;
        let cluster_port = server.announced_port("cluster").await?;
        let configuration = complete(&monitoring_port.to_string(), &cluster_port.to_string());
        Ok(Self { server, monitoring_port, configuration })
    }

    fn monitoring_url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.monitoring_port)
    }
}

fn name(number: usize) -> String {
    format!("node-{number}")
}
