//! Remediations of limits and quotas.

use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use testkit::wait_until;

use super::{Remediations, field};

/// Maximum of active API keys of a tenant.
const MAX_KEYS: usize = 1000;
/// Maximum of event streams of a tenant.
const MAX_STREAMS: usize = 20;

pub(super) async fn leads_to_the_repair(remediations: &Remediations<'_>) {
    api_keys(remediations).await;
    quota(remediations).await;
    streams(remediations).await;
}

async fn api_keys(remediations: &Remediations<'_>) {
    let (ada, api) = remediations.tenant("keys").await;
    for number in 0..MAX_KEYS {
        api.client.post("/api-keys", &json!({ "name": format!("k{number}") })).await.expect::<Value>(201);
    }
    let create = ["api-keys", "create", "--name", "one-more"];
    let failure = remediations.fail(&ada, &create, "", "too_many_api_keys").await;
    let listed = failure.json(&ada, "api-keys list", &["--limit", "1"]).await;
    failure.run(&ada, "api-keys revoke", &[field(&listed["items"][0], "id"), "--yes"], "").await;
    // All 1,000 keys that can be created at once are used: the next one would be possible only a minute after the first.
    let mut database = PgConnection::connect(&remediations.run.run_file.database_url).await.unwrap();
    sqlx::query("delete from session.limits").execute(&mut database).await.unwrap();
    failure.repeat(&ada).await;
}

async fn quota(remediations: &Remediations<'_>) {
    let (ada, _) = remediations.tenant("quota").await;
    let platform_admin = remediations.platform_admin();
    platform_admin.run_ok(&["tenants", "update", "quota", "--events-per-second", "1"], "").await;
    let events = json!([{ "source_id": "fw" }, { "source_id": "fw" }]).to_string();
    let post = ["api", "POST", "/events/batch", "--data", &events, "--timeout", "900ms"];
    wait_until("the quota is used", async || (ada.run(&post, "").await.code != Some(0)).then_some(())).await;
    let failure = remediations.fail(&ada, &post, "", "quota_exceeded").await;
    failure.run(&platform_admin, "tenants update", &["quota", "--events-per-second", "default"], "").await;
    wait_until("the quota is raised", async || (ada.run(&post, "").await.code == Some(0)).then_some(()))
        .await;
}

async fn streams(remediations: &Remediations<'_>) {
    let (ada, api) = remediations.tenant("streams").await;
    let url = format!("{}/api/v1/events/stream", remediations.run.run_file.base_url);
    let open = || testkit::client::plain_http().get(&url).bearer_auth(&api.token).send();
    let mut streams = Vec::new();
    for _ in 0..MAX_STREAMS {
        let stream = open().await.unwrap();
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    let tail = ["events", "tail", "--no-follow", "--timeout", "900ms"];
    let failure = remediations.fail(&ada, &tail, "", "too_many_streams").await;
    // The other program that the text names.
    streams.pop();
    let mut other = failure.start(&ada, "events tail", &[]);
    wait_until("the place is taken", async || (open().await.unwrap().status() == 429).then_some(())).await;
    other.kill().await.unwrap();
    wait_until("the place is free", async || (ada.run(&tail, "").await.code == Some(0)).then_some(())).await;
}
