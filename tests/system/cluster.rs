//! A cluster of three nats-servers in which each stream has three replicas, with faults under load: no acknowledged event is lost,
//! no event is stored twice, and ingest accepts events again by itself.

use std::collections::HashSet;
use std::sync::Arc;

use async_nats::jetstream::{self, Context, consumer::PullConsumer};
use contract::paths::Upstream;
use e2e::{ApiUser, EventStream, Producers, Service, Services, api_client, expect_rejected_events};
use futures::StreamExt as _;
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::{Client, NatsCluster, wait_until};
use tokio::task::JoinSet;

const STREAM: &str = "UDM";

/// All services with a cluster, and a user.
struct System {
    services: Services<NatsCluster>,
    durability: &'static str,
    user: ApiUser,
    ingest: Service,
    others: Vec<Service>,
}

impl System {
    /// `configuration` is for each node.
    async fn start(durability: &'static str, configuration: &str) -> Self {
        let cluster = NatsCluster::start_with_accounts(configuration).await.unwrap();
        let services = Services::prepare_with(cluster).await;
        services.migrate_all().await;
        let variables = [("SVC_NATS_DURABILITY", durability), ("SVC_STREAM_REPLICAS", "3")];
        let [identity, session, ingest] = services.start_all(&variables).await;
        let base_url = format!("http://{}", identity.address);
        let user = ApiUser::create_acme(&base_url, &services.platform_token, "ada@acme.example").await;
        Self { services, durability, user, ingest, others: vec![identity, session] }
    }

    /// Starts another process of ingest, which uses only this node. Returns a client.
    async fn start_ingest_at(&mut self, node: usize) -> Client {
        let url = self.services.nats.node(node).url_of("ingest");
        let variables =
            [("SVC_NATS_DURABILITY", self.durability), ("SVC_STREAM_REPLICAS", "3"), ("SVC_NATS_URL", &url)];
        let mut ingest = self.services.start_second_with(Upstream::Ingest, &variables);
        ingest.wait_until_ready().await;
        let client = self.client(&ingest);
        self.others.push(ingest);
        client
    }

    fn client(&self, ingest: &Service) -> Client {
        api_client(&format!("http://{}", ingest.address)).bearer(&self.user.token)
    }

    /// The leader of the stream, as the node `asked` knows it.
    async fn leader(&self, asked: usize) -> usize {
        wait_until("the stream has a leader", || self.services.nats.leader(STREAM, asked)).await
    }

    /// Kills the leader of the stream and restarts it after another one was elected. Returns its number.
    async fn kill_the_leader(&mut self, producers: &mut Producers) -> usize {
        let killed = self.leader(0).await;
        self.services.nats.node(killed).stop();
        producers.wait_for_rejected(1).await;
        producers.wait_for_acknowledged(100).await;
        self.services.nats.restart(killed).await.unwrap();
        self.services.nats.wait_until_healthy().await;
        killed
    }

    /// Isolates the leader of the stream, and connects it again. One process of ingest uses only this node, and the other one all
    /// nodes. A producer sends an event that one of them rejects to the other one.
    async fn isolate_the_leader(&mut self) -> Producers {
        let leader = self.leader(0).await;
        let other = NatsCluster::others(leader).next().unwrap();
        let isolated = self.start_ingest_at(leader).await;
        let clients = [self.client(&self.ingest), isolated.clone()];
        let mut producers = Producers::start_with_batches(&clients);
        producers.wait_for_acknowledged(100).await;

        self.services.nats.isolate(leader);
        expect_rejected_events(&isolated, "first").await;
        wait_until("the majority has a leader", async || {
            self.services.nats.leader(STREAM, other).await.filter(|elected| *elected != leader)
        })
        .await;
        producers.wait_for_acknowledged(100).await;
        expect_rejected_events(&isolated, "second").await;

        self.services.nats.heal();
        for client in &clients {
            expect_accepted_again(client).await;
        }
        producers.wait_for_acknowledged(100).await;
        self.services.nats.wait_until_healthy().await;
        producers
    }

    async fn stop_and_check(&self, producers: Producers) {
        let acknowledged = producers.stop().await;
        self.services.nats.wait_until_healthy().await;
        EventStream::connect(&self.services.nats.url).await.expect_each_once(&acknowledged).await;
    }
}

async fn expect_accepted_again(client: &Client) {
    wait_until("an event is accepted", async || {
        let response = client.post("/events", &json!({ "source_id": "s" })).await;
        (response.status == 202).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_killed_leader_or_a_paused_follower_events_are_accepted_and_without_a_majority_rejected() {
    let mut system = System::start("standard", "").await;
    let mut producers = Producers::start_with_batches(&[system.client(&system.ingest)]);
    producers.wait_for_acknowledged(100).await;

    let follower = system.kill_the_leader(&mut producers).await;
    system.services.nats.node(follower).pause().unwrap();
    producers.wait_for_acknowledged(100).await;
    system.services.nats.node(follower).resume().unwrap();
    system.services.nats.wait_until_healthy().await;

    let leader = system.leader(0).await;
    for follower in NatsCluster::others(leader) {
        system.services.nats.node(follower).pause().unwrap();
    }
    expect_rejected_events(&system.client(&system.ingest), "no-majority").await;
    for follower in NatsCluster::others(leader) {
        system.services.nats.node(follower).resume().unwrap();
    }
    producers.wait_for_acknowledged(100).await;
    system.stop_and_check(producers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_leader_acknowledges_nothing_and_the_majority_continues() {
    let mut system = System::start("standard", "").await;
    let producers = system.isolate_the_leader().await;
    system.stop_and_check(producers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_event_of_an_atomic_batch_is_lost_or_stored_twice_with_an_isolated_or_killed_leader() {
    let mut system = System::start("strict", "jetstream { sync_interval: always }").await;
    let mut producers = system.isolate_the_leader().await;
    system.kill_the_leader(&mut producers).await;
    system.stop_and_check(producers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_read_through_another_node_while_one_is_isolated() {
    let system = System::start("standard", "").await;
    let client = system.client(&system.ingest);
    // The node that ingest reads from is not known.
    for isolated in 0..3 {
        system.services.nats.isolate(isolated);
        let other = NatsCluster::others(isolated).next().unwrap();
        wait_until("the majority has a leader", async || {
            system.services.nats.leader(STREAM, other).await.filter(|elected| *elected != isolated)
        })
        .await;
        wait_until("events can be read", async || {
            let response = client.request(Method::GET, "/events/stream").send().await;
            response.is_ok_and(|response| response.status() == 200).then_some(())
        })
        .await;
        system.services.nats.heal();
        system.services.nats.wait_until_healthy().await;
    }
}

/// Reads a durable with the default options of the client, and acknowledges each event. An error of the broker ends nothing.
async fn read(context: Context, name: &str, read: &Mutex<HashSet<String>>) {
    let durable: PullConsumer = context.get_consumer_from_stream(name, STREAM).await.unwrap();
    let mut messages = durable.messages().await.unwrap();
    while let Some(message) = messages.next().await {
        let Ok(message) = message else { continue };
        read.lock().insert(message.headers.as_ref().unwrap().get("ce-id").unwrap().to_string());
        // An acknowledgement that is lost causes another delivery.
        let _ = message.double_ack().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_reads_each_event_while_the_leaders_of_its_stream_and_of_its_durable_move() {
    let mut system = System::start("standard", "").await;
    let address = format!("http://{}", system.ingest.address);
    let platform = api_client(&address).bearer(&system.services.platform_token);
    let create = json!({ "name": "siem", "tenant_id": "acme" });
    platform.post("/consumers", &create).await.expect::<Value>(201);
    let client = bus::connect(&bus::Config::new(&system.services.nats.url, "e2e")).await.unwrap();
    let context = jetstream::new(client.clone());
    let (seen, mut reader) = (Arc::new(Mutex::new(HashSet::new())), JoinSet::new());
    reader.spawn({
        let (seen, context) = (Arc::clone(&seen), context.clone());
        async move { read(context, "siem", &seen).await }
    });
    let mut producers = Producers::start_with_batches(&[system.client(&system.ingest)]);
    producers.wait_for_acknowledged(100).await;
    let leader_of_durable = async || {
        let info = context.get_stream(STREAM).await.ok()?.consumer_info("siem").await.ok()?;
        info.cluster?.leader
    };
    for _ in 0..3 {
        let leader = system.leader(0).await;
        let moved: Value = context.request("STREAM.LEADER.STEPDOWN.UDM", &()).await.unwrap();
        assert_eq!(moved["success"], true, "{moved}");
        wait_until("the stream has another leader", async || {
            system.services.nats.leader(STREAM, 0).await.filter(|elected| *elected != leader)
        })
        .await;
        let leader = wait_until("the durable has a leader", &leader_of_durable).await;
        let moved: Value = context.request("CONSUMER.LEADER.STEPDOWN.UDM.siem", &()).await.unwrap();
        assert_eq!(moved["success"], true, "{moved}");
        wait_until("the durable has another leader", async || {
            leader_of_durable().await.filter(|elected| *elected != leader)
        })
        .await;
        producers.wait_for_acknowledged(100).await;
    }
    // The leader of the stream stops, so that the consumer connects to another node.
    system.kill_the_leader(&mut producers).await;
    let acknowledged = producers.stop().await;
    wait_until("every event is read", async || {
        let seen = seen.lock();
        acknowledged.iter().all(|id| seen.contains(id)).then_some(())
    })
    .await;
    reader.shutdown().await;
}
