//! Replica announcements over a real nats-server: replicas count each other, and keep the number while the server is down.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::sync::Arc;

use bus::{Config, InvalidationKeys, REPLICA_SUBJECT, Replicas};
use hashing::TokenDigest;
use service::Tasks;
use service::clock::SystemClock;
use testkit::nats::NatsServer;
use testkit::wait_until;

fn start(server: &NatsServer, token: &str) -> (Replicas, Tasks) {
    let tasks = Tasks::default();
    let keys = InvalidationKeys::new([&TokenDigest::of_text(token)]);
    let config = Config::new(&server.url, "test");
    (Replicas::start(config, keys, Arc::new(SystemClock), &tasks).unwrap(), tasks)
}

async fn wait_for_count(replicas: &Replicas, count: u32) {
    wait_until("the number of replicas changes", async || (replicas.count() == count).then_some(())).await;
}

#[tokio::test]
async fn replicas_count_each_other_until_one_stops() {
    let server = NatsServer::start().await.unwrap();
    let (first, first_tasks) = start(&server, "token");
    let (second, second_tasks) = start(&server, "token");
    for replicas in [&first, &second] {
        wait_for_count(replicas, 2).await;
    }
    second_tasks.stopping().cancel();
    wait_for_count(&first, 1).await;
    first_tasks.stopping().cancel();
}

#[tokio::test]
async fn the_number_is_kept_while_the_server_is_down() {
    let mut server = NatsServer::start().await.unwrap();
    let replicas = [start(&server, "token"), start(&server, "token")];
    for (replicas, _) in &replicas {
        wait_for_count(replicas, 2).await;
    }
    server.stop();
    // A third replica that starts during the outage is counted afterwards, and no other number is seen before.
    let (third, third_tasks) = start(&server, "token");
    server.restart().await.unwrap();
    wait_until("the third replica is counted", async || {
        let count = replicas[0].0.count();
        assert!(count >= 2, "{count}");
        (count == 3 && third.count() == 3).then_some(())
    })
    .await;
    for tasks in replicas.iter().map(|(_, tasks)| tasks).chain([&third_tasks]) {
        tasks.stopping().cancel();
    }
}

#[tokio::test]
async fn an_announcement_without_a_valid_signature_does_not_count() {
    let server = NatsServer::start().await.unwrap();
    let client = async_nats::connect(&server.url).await.unwrap();
    let mut announcements = client.subscribe(REPLICA_SUBJECT).await.unwrap();
    let (replicas, tasks) = start(&server, "token");
    let (_, other_tasks) = start(&server, "another token");
    for _ in 0..6 {
        futures::StreamExt::next(&mut announcements).await.unwrap();
    }
    assert_eq!(replicas.count(), 1);
    for tasks in [tasks, other_tasks] {
        tasks.stopping().cancel();
    }
}
