//! Replica announcements over a real nats-server: replicas count each other, and keep the number while the server is down.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use bus::{Config, Connection, Replicas};
use service::Tasks;
use testkit::nats::NatsServer;
use testkit::wait_until;

async fn start(server: &NatsServer) -> (Replicas, Tasks) {
    let tasks = Tasks::default();
    let connection = Connection::open(&Config::new(&server.url, "test")).await.unwrap();
    (Replicas::start(connection, &tasks), tasks)
}

async fn wait_for_count(replicas: &Replicas, count: u32) {
    wait_until("the number of replicas changes", async || (replicas.count() == count).then_some(())).await;
}

#[tokio::test]
async fn replicas_count_each_other_until_one_stops() {
    let server = NatsServer::start().await.unwrap();
    let (first, first_tasks) = start(&server).await;
    let (second, second_tasks) = start(&server).await;
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
    let replicas = [start(&server).await, start(&server).await];
    for (replicas, _) in &replicas {
        wait_for_count(replicas, 2).await;
    }
    server.stop();
    // A third replica that starts during the outage is counted afterwards, and no other number is seen before.
    let (third, third_tasks) = start(&server).await;
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
