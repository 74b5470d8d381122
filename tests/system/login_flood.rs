//! Logins while an attack occupies the password hashes.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use testkit::PASSWORD;
use testsystem::TestSystem;

const ATTACKERS: u8 = 100;
const TRIES: usize = 20;
const LOGIN: &str = "/api/v1/auth/password/login";

/// Sends logins to a separate tenant from one address until the owner is done. Returns how many were shed.
async fn attack(system: &TestSystem, number: u8, is_done: &AtomicBool, sent: &AtomicUsize) -> usize {
    let address = IpAddr::V4(Ipv4Addr::new(127, 9, 9, number));
    let client =
        reqwest::Client::builder().no_proxy().tls_certs_only([]).local_address(address).build().unwrap();
    let body = json!({ "email": "owner@acme.example", "password": "wrong-password-altogether" });
    let mut shed = 0;
    while !is_done.load(Ordering::Relaxed) {
        let request = client.post(format!("{}{LOGIN}", system.base_url)).json(&body);
        let response = request.header("X-Tenant-ID", format!("unknown-{number}")).send().await.unwrap();
        sent.fetch_add(1, Ordering::Relaxed);
        shed += usize::from(response.status() == 503);
    }
    shed
}

#[tokio::test]
async fn during_a_flood_from_a_hundred_addresses_the_owner_logs_in_from_the_usual_address() {
    // One worker, and hashes that are slow enough that the flood fills the queue.
    let variables =
        [("SVC_HASH_WORKERS", "1"), ("SVC_ARGON2_MEMORY_COST", "8192"), ("SVC_ARGON2_TIME_COST", "2")];
    let system = TestSystem::start_with(&variables).await.unwrap();
    let _owner = system.create_tenant("acme").await;
    let (is_done, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (is_done, sent) = (&is_done, &sent);
    let owner = async {
        testkit::wait_until("the flood is at its height", async || {
            (sent.load(Ordering::Relaxed) > usize::from(ATTACKERS)).then_some(())
        })
        .await;
        let client = system.client().header("X-Tenant-ID", "acme");
        let body = json!({ "email": "admin@acme.example", "password": PASSWORD });
        let mut statuses = Vec::new();
        for _ in 0..TRIES {
            statuses.push(client.post("/auth/password/login", &body).await.status);
        }
        is_done.store(true, Ordering::Relaxed);
        statuses
    };
    let attacks = (1..=ATTACKERS).map(|number| attack(&system, number, is_done, sent));
    let (statuses, shed) = tokio::join!(owner, testkit::join_all(attacks));
    let succeeded = statuses.iter().filter(|status| **status == 200).count();
    assert!(succeeded >= TRIES - 1, "{statuses:?}");
    assert!(shed.iter().sum::<usize>() > 0, "the flood did not fill the queue");
}
