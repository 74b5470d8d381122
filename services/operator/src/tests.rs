//! The controller with the real identity and session, and an API server in memory.

#![expect(clippy::disallowed_methods, reason = "tasks end with the runtime of the test")]

mod api_server;
mod consumers;

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use contract::identity::Tenant;
use contract::managed::OperatorId;
use serde_json::{Value, json};
use service::Tasks;
use service::telemetry::Metrics;
use testkit::wait_until;
use testsystem::{BLUE, GREEN, SystemWithOperator};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::api_server::ApiServer;
use crate::controller::Controller;
use crate::kubernetes::{Caches, Kubernetes};
use crate::lease::Term;
use crate::metrics::OperatorMetrics;
use crate::services::ServiceClient;

const ACME: &str = "/apis/svc.internal/v1alpha1/svctenants/acme";
const COLLECTOR: &str = "/apis/svc.internal/v1alpha1/namespaces/apps/svcproducers/collector";
const SECRET: &str = "/api/v1/namespaces/svc/secrets/svc-invite-acme";
const APPS: &str = "/api/v1/namespaces/apps";

const SYSTEM: &str = "/api/v1/namespaces/kube-system";

struct Cluster {
    api: ApiServer,
    running: Arc<SystemWithOperator>,
    controller: Controller,
    tasks: Tasks,
    leader: Option<JoinHandle<()>>,
    tokens: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let running = SystemWithOperator::start().await.unwrap();
        Self::of(&Arc::new(running), BLUE, |controller| controller).await
    }

    /// Another cluster without resources, with an operator on the same database.
    async fn other(&self, operator: &str, change: impl FnOnce(Controller) -> Controller) -> Self {
        Self::of(&self.running, operator, change).await
    }

    async fn of(
        running: &Arc<SystemWithOperator>,
        operator: &str,
        change: impl FnOnce(Controller) -> Controller,
    ) -> Self {
        let running = Arc::clone(running);
        let operator: OperatorId = operator.parse().unwrap();
        let api = ApiServer::start().await;
        api.apply(SYSTEM, &json!({ "metadata": { "uid": operator.cluster } }));
        let tokens = tempfile::tempdir().unwrap();
        let token = |audience: &str| {
            let file = tokens.path().join(audience);
            std::fs::write(&file, running.token("svc/operator", audience)).unwrap();
            file
        };
        let urls = &running.system.internal_urls;
        let tasks = Tasks::default();
        let controller = Controller {
            caches: Caches::start(&api.client(), "svc", true, &tasks),
            kubernetes: Kubernetes::new(
                api.client(),
                "svc",
                &"https://svc.example".parse().unwrap(),
                "operator-1",
            ),
            identity: ServiceClient::new(urls.identity.parse().unwrap(), token("svc-identity")).unwrap(),
            session: ServiceClient::new(urls.session.parse().unwrap(), token("svc-session")).unwrap(),
            ingest: Some(ServiceClient::new(urls.ingest.parse().unwrap(), token("svc-ingest")).unwrap()),
            consumer_nats_url: "nats://nats.example".into(),
            metrics: OperatorMetrics::new(&Metrics::new("operator")),
            term: Term(watch::channel(Instant::now() + Duration::from_hours(1)).1),
            take_over_from: Arc::default(),
            confirmed_releases: 0,
        };
        assert_eq!(controller.caches.cluster().await, operator.cluster);
        let controller = change(controller.for_operator(&operator));
        let mut cluster = Self { api, running, controller, tasks, leader: None, tokens };
        cluster.lead();
        cluster
    }

    /// Starts the controller, as a replica that got the lease from the one before.
    fn lead(&mut self) {
        let controller = self.controller.clone();
        let leader = tokio::spawn(async move { controller.run().await });
        if let Some(former) = self.leader.replace(leader) {
            former.abort();
        }
    }

    fn apply_tenant(&self, spec: &Value) {
        let mut full = json!({ "displayName": "Acme", "adminEmail": "ada@acme.example",
            "allowedNamespaces": { "matchLabels": { "tenant": "acme" } } });
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.api.apply(ACME, &json!({ "spec": full }));
    }

    fn apply_producer(&self) {
        self.api.apply(APPS, &json!({ "metadata": { "labels": { "tenant": "acme" } } }));
        let spec = json!({ "tenant": "acme", "serviceAccount": "collector", "sourceIds": ["fw-1"] });
        self.api.apply(COLLECTOR, &json!({ "spec": spec }));
    }

    /// Waits until the condition `Ready` of an object has this status and reason for its present generation.
    async fn wait(&self, path: &str, status: &str, reason: &str) -> Value {
        wait_until("the condition of the resource", async || {
            let object = self.api.get(path)?;
            let conditions = object["status"]["conditions"].as_array()?;
            let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
            let is_current = object["status"]["observedGeneration"] == object["metadata"]["generation"];
            (is_current && ready["status"] == status && ready["reason"] == reason).then(|| object.clone())
        })
        .await
    }

    async fn secret(&self) -> Value {
        wait_until("the Secret exists", async || self.api.get(SECRET)).await
    }

    async fn tenant(&self) -> Tenant {
        self.running.system.platform_admin().get("/tenants/acme").await.expect(200)
    }

    async fn send(&self) -> u16 {
        let token = self.running.token("apps/collector", "svc-ingest");
        let client = self.running.system.client().bearer(&token);
        client.post("/events", &json!({ "source_id": "fw-1" })).await.status
    }

    async fn wait_for_status(&self, status: u16) {
        wait_until("the response has the status", async || (self.send().await == status).then_some(())).await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.tasks.stopping().cancel();
    }
}

fn token_of(secret: &Value) -> String {
    let data = secret["data"]["token"].as_str().unwrap();
    String::from_utf8(data_encoding::BASE64.decode(data.as_bytes()).unwrap()).unwrap()
}

async fn accept(cluster: &Cluster, token: &str) -> u16 {
    let body = json!({ "token": token, "password": testkit::PASSWORD });
    cluster.running.system.client().post("/users/accept-invite", &body).await.status
}

#[tokio::test]
async fn every_task_that_waits_for_the_lists_continues() {
    let (api, tasks) = (ApiServer::start().await, Tasks::default());
    let caches = Caches::start(&api.client(), "svc", true, &tasks);
    let waiting = [caches.clone(), caches].map(|caches| tokio::spawn(async move { caches.ready().await }));
    for task in waiting {
        wait_until("the task continues", async || task.is_finished().then_some(())).await;
    }
    tasks.stopping().cancel();
}

#[tokio::test]
async fn the_administrator_of_a_new_tenant_accepts_the_invite_of_the_secret_which_then_goes() {
    let cluster = Cluster::start().await;
    cluster.apply_tenant(&json!({
        "quota": { "eventsPerSecond": 5 }, "secondFactor": "Administrators", "passwordMinLength": 20,
        "passkeyLogin": false,
    }));
    cluster.wait(ACME, "True", "Provisioned").await;
    let tenant = cluster.tenant().await;
    assert_eq!(tenant.quota.events_per_second, Some(5));
    assert_eq!((tenant.second_factor.as_str(), tenant.password_min_length), ("administrators", 20));
    assert!(!tenant.passkey_login);
    let secret = cluster.secret().await;
    assert_eq!(secret["metadata"]["ownerReferences"][0]["kind"], "SvcTenant");
    let token = token_of(&secret);
    assert_eq!(accept(&cluster, &token).await, 201);
    wait_until("the Secret is deleted", async || cluster.api.get(SECRET).is_none().then_some(())).await;
    assert!(!cluster.api.get(ACME).unwrap().to_string().contains(&token));
}

#[tokio::test]
async fn a_pod_of_a_producer_sends_events_until_the_producer_or_the_label_of_its_namespace_is_removed() {
    let cluster = Cluster::start().await;
    cluster.apply_producer();
    cluster.wait(COLLECTOR, "False", "TenantNotFound").await;
    assert_eq!(cluster.send().await, 401);
    cluster.apply_tenant(&json!({}));
    cluster.wait(COLLECTOR, "True", "Provisioned").await;
    cluster.wait_for_status(202).await;
    cluster.api.apply(APPS, &json!({ "metadata": { "labels": { "tenant": "other" } } }));
    cluster.wait(COLLECTOR, "False", "NamespaceNotAllowed").await;
    cluster.wait_for_status(401).await;
    cluster.apply_producer();
    cluster.wait_for_status(202).await;
    cluster.api.delete(COLLECTOR);
    cluster.wait_for_status(401).await;
}

#[tokio::test]
async fn drift_is_corrected_and_a_new_spec_is_written() {
    let cluster = Cluster::start().await;
    cluster.apply_tenant(&json!({}));
    cluster.wait(ACME, "True", "Provisioned").await;
    let platform = cluster.running.system.platform_admin();
    let changed = json!({ "status": "suspended", "display_name": "Other" });
    platform.patch("/tenants/acme", &changed).await.expect::<Value>(200);
    wait_until("the drift is corrected", async || {
        let tenant = cluster.tenant().await;
        (tenant.display_name == "Acme" && tenant.status == contract::TenantStatus::Active).then_some(())
    })
    .await;
    cluster.apply_tenant(&json!({ "displayName": "Acme Inc.", "state": "Suspended" }));
    cluster.wait(ACME, "True", "Provisioned").await;
    let tenant = cluster.tenant().await;
    assert_eq!(
        (tenant.display_name.as_str(), tenant.status),
        ("Acme Inc.", contract::TenantStatus::Suspended)
    );
}

#[tokio::test]
async fn an_idle_controller_sends_no_request_to_the_api_server_except_events() {
    let cluster = Cluster::start().await;
    cluster.apply_tenant(&json!({}));
    cluster.apply_producer();
    cluster.wait(COLLECTOR, "True", "Provisioned").await;
    cluster.secret().await;
    cluster.api.take_requests();
    cluster.apply_tenant(&json!({}));
    // A correction shows that the stored state was read again.
    let platform = cluster.running.system.platform_admin();
    platform.patch("/tenants/acme", &json!({ "display_name": "Other" })).await.expect::<Value>(200);
    wait_until("the drift is corrected", async || {
        (cluster.tenant().await.display_name == "Acme").then_some(())
    })
    .await;
    let mut requests = cluster.api.take_requests();
    // A change of a state is an event.
    requests.retain(|request| !request.ends_with("/events"));
    assert_eq!(requests, Vec::<String>::new());
}

#[tokio::test]
async fn a_new_leader_writes_nothing_and_keeps_the_invite() {
    let mut cluster = Cluster::start().await;
    cluster.apply_tenant(&json!({}));
    cluster.wait(ACME, "True", "Provisioned").await;
    let (tenant, secret) = (cluster.api.get(ACME), cluster.secret().await);
    let caches = cluster.controller.caches.clone();
    wait_until("the watches report the status", async || caches.tenants().first()?.status.clone()).await;
    cluster.api.take_requests();
    cluster.lead();
    cluster.apply_producer();
    cluster.wait(COLLECTOR, "True", "Provisioned").await;
    assert_eq!((cluster.api.get(ACME), cluster.api.get(SECRET)), (tenant, Some(secret)));
    let requests = cluster.api.take_requests();
    assert!(requests.iter().all(|request| !request.contains("/svctenants/")), "{requests:?}");
}

#[tokio::test]
async fn a_secret_that_the_watch_does_not_report_keeps_its_token() {
    let cluster = Cluster::start().await;
    cluster.apply_tenant(&json!({}));
    cluster.wait(ACME, "True", "Provisioned").await;
    let (secret, caches) = (cluster.secret().await, &cluster.controller.caches);
    // The next plan then forgets the write.
    wait_until("the watch reports the Secret", async || (!caches.secrets().is_empty()).then_some(())).await;
    cluster.apply_producer();
    cluster.wait(COLLECTOR, "True", "Provisioned").await;
    cluster.api.take_requests();
    cluster.api.hide(SECRET);
    wait_until("the operator reads the Secret", async || {
        cluster.api.take_requests().contains(&format!("GET {SECRET}")).then_some(())
    })
    .await;
    cluster.apply_tenant(&json!({ "displayName": "Acme Inc." }));
    cluster.wait(ACME, "True", "Provisioned").await;
    assert_eq!(cluster.api.get(SECRET), Some(secret));
}

/// Polls a future this number of times and drops it, as a process that is killed at this point.
async fn poll_and_drop(polls: usize, future: impl Future<Output = ()>) {
    let (mut future, mut left) = (std::pin::pin!(future), polls);
    std::future::poll_fn(|context| {
        let result = future.as_mut().poll(context);
        left -= 1;
        if left == 0 { Poll::Ready(()) } else { result }
    })
    .await;
}

#[tokio::test]
async fn a_leader_that_is_killed_at_any_point_leaves_one_tenant_with_one_valid_invite_or_one_mail() {
    let mut cluster = Cluster::start().await;
    let mut mailed = Vec::new();
    for polls in 1.. {
        cluster.leader.take().unwrap().abort();
        let (name, is_mailed) = (format!("t-{polls}"), polls % 2 == 0);
        let path = ACME.replace("acme", &name);
        let delivery = if is_mailed { "Email" } else { "Secret" };
        let email = format!("ada@{name}.example");
        let spec = json!({ "displayName": "T", "adminEmail": email, "inviteDelivery": delivery });
        cluster.api.apply(&path, &json!({ "spec": spec }));
        poll_and_drop(polls, cluster.controller.run()).await;
        let was_ready = cluster.api.get(&path).unwrap()["status"]["conditions"][0]["status"] == "True";
        cluster.lead();
        cluster.wait(&path, "True", "Provisioned").await;

        let admin = cluster.running.system.platform_admin().header("X-Tenant-ID", &name);
        let invites: Value = admin.get("/users/invites").await.expect(200);
        assert_eq!(invites["items"].as_array().unwrap().len(), 1, "after {polls} polls");
        if is_mailed {
            mailed.push(format!("To: {email}"));
        } else {
            let secret = SECRET.replace("acme", &name);
            // A write of the leader that was killed can arrive later. The next plan replaces it.
            wait_until("the token of the Secret is accepted", async || {
                let token = token_of(&cluster.api.get(&secret)?);
                (accept(&cluster, &token).await == 201).then_some(())
            })
            .await;
        }
        if was_ready {
            break;
        }
    }
    cluster.running.system.wait_for_empty_outbox().await;
    let mails = cluster.running.system.wait_for_mails(mailed.len()).await;
    let recipients = mails.iter().filter_map(|mail| mail.lines().find(|line| line.starts_with("To: ")));
    assert_eq!(recipients.collect::<Vec<_>>(), mailed);
}

#[tokio::test]
async fn a_deleted_tenant_is_retained_or_suspended_by_its_policy() {
    let cluster = Cluster::start().await;
    cluster.apply_tenant(&json!({ "deletionPolicy": "Suspend" }));
    let finalizer = async || cluster.api.get(ACME)?["metadata"]["finalizers"][0].as_str().map(str::to_owned);
    wait_until("the finalizer is there", finalizer).await;
    cluster.wait(ACME, "True", "Provisioned").await;
    cluster.api.delete(ACME);
    wait_until("the resource is gone", async || cluster.api.get(ACME).is_none().then_some(())).await;
    assert_eq!(cluster.tenant().await.status, contract::TenantStatus::Suspended);

    cluster.apply_tenant(&json!({}));
    cluster.wait(ACME, "False", "TenantExists").await;
    cluster.apply_tenant(&json!({ "adoption": "IfUnowned" }));
    cluster.wait(ACME, "True", "Provisioned").await;
    assert_eq!(cluster.tenant().await.status, contract::TenantStatus::Active);
    cluster.api.delete(ACME);
    cluster.apply_tenant(&json!({ "adoption": "IfUnowned", "displayName": "Again" }));
    cluster.wait(ACME, "True", "Provisioned").await;
    assert_eq!(cluster.tenant().await.display_name, "Again");
}

#[tokio::test]
async fn only_a_release_that_identity_has_made_is_reported() {
    let blue = Cluster::start().await;
    blue.apply_tenant(&json!({ "deletionPolicy": "Suspend" }));
    blue.wait(ACME, "True", "Provisioned").await;
    let metrics = Metrics::new("operator");
    let counting = |controller| Controller { metrics: OperatorMetrics::new(&metrics), ..controller };
    let green = blue.other(GREEN, counting).await;
    // The second one is a tenant of this operator.
    for (name, reason) in [("acme", "ManagedElsewhere"), ("globex", "Provisioned")] {
        let path = ACME.replace("acme", name);
        let spec = json!({ "displayName": "Green", "deletionPolicy": "Suspend" });
        green.api.apply(&path, &json!({ "spec": spec }));
        let status = if reason == "Provisioned" { "True" } else { "False" };
        green.wait(&path, status, reason).await;
        green.api.delete(&path);
        wait_until("the resource is gone", async || green.api.get(&path).is_none().then_some(())).await;
    }
    assert_eq!(blue.tenant().await.status, contract::TenantStatus::Active);
    wait_until("the write of the second one is counted", async || {
        metrics.text().contains("svc_operator_releases_total{kind=\"SvcTenant\"}").then_some(())
    })
    .await;
    let text = metrics.text();
    assert!(text.contains("svc_operator_releases_total{kind=\"SvcTenant\"} 1\n"), "{text}");
}

#[tokio::test]
async fn a_lost_secret_gets_a_new_token() {
    let cluster = Cluster::start().await;
    cluster.apply_tenant(&json!({}));
    let first = token_of(&cluster.secret().await);
    cluster.wait(ACME, "True", "Provisioned").await;
    cluster.api.delete(SECRET);
    let second = wait_until("another Secret exists", async || {
        cluster.api.get(SECRET).map(|secret| token_of(&secret)).filter(|token| *token != first)
    })
    .await;
    assert_eq!((accept(&cluster, &first).await, accept(&cluster, &second).await), (400, 201));
}

#[tokio::test]
async fn an_invalid_value_and_an_unavailable_service_are_reported() {
    let cluster = Cluster::start().await;
    cluster.apply_tenant(&json!({ "adminEmail": "not an address@" }));
    let invalid = cluster.wait(ACME, "False", "Invalid").await;
    let stalled =
        invalid["status"]["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Stalled");
    assert_eq!(stalled.unwrap()["status"], "True");
    let file = cluster.tokens.path().join("svc-identity");
    let token = std::fs::read(&file).unwrap();
    std::fs::write(&file, "unknown").unwrap();
    let globex = ACME.replace("acme", "globex");
    cluster.api.apply(&globex, &json!({ "spec": { "displayName": "Globex" } }));
    cluster.wait(&globex, "False", "IdentityUnavailable").await;
    std::fs::write(&file, token).unwrap();
    cluster.wait(&globex, "True", "Provisioned").await;
}

/// Waits until the operator of a cluster has executed a plan with lists that it read after this call.
async fn wait_for_a_plan(cluster: &Cluster, name: &str) {
    let path = ACME.replace("acme", name);
    for display_name in ["First", "Second"] {
        cluster.api.apply(&path, &json!({ "spec": { "displayName": display_name } }));
        cluster.wait(&path, "True", "Provisioned").await;
        // The correction of a drift shows that the stored state was read again.
        let platform = cluster.running.system.platform_admin();
        let tenant = format!("/tenants/{name}");
        platform.patch(&tenant, &json!({ "display_name": "Drift" })).await.expect::<Value>(200);
        wait_until("the drift is corrected", async || {
            (platform.get(&tenant).await.expect::<Tenant>(200).display_name == display_name).then_some(())
        })
        .await;
    }
}

fn message(object: &Value) -> String {
    object["status"]["conditions"][0]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_operator_of_a_second_cluster_releases_nothing_of_the_first() {
    let blue = Cluster::start().await;
    blue.apply_tenant(&json!({}));
    blue.apply_producer();
    blue.wait(COLLECTOR, "True", "Provisioned").await;
    blue.wait_for_status(202).await;
    let green = blue.other(GREEN, |controller| controller).await;
    wait_for_a_plan(&green, "globex").await;
    assert_eq!(blue.send().await, 202);
    // The same manifests as in the first cluster.
    green.apply_tenant(&json!({ "adoption": "IfUnowned", "displayName": "Green" }));
    green.apply_producer();
    let elsewhere = green.wait(ACME, "False", "ManagedElsewhere").await;
    assert!(message(&elsewhere).contains(BLUE), "{elsewhere}");
    green.wait(COLLECTOR, "False", "TenantNotReady").await;
    green.api.delete(COLLECTOR);
    green.api.delete(ACME);
    wait_for_a_plan(&green, "initech").await;
    assert_eq!((blue.send().await, blue.tenant().await.display_name.as_str()), (202, "Acme"));
    blue.apply_tenant(&json!({ "displayName": "Acme Inc." }));
    blue.wait(ACME, "True", "Provisioned").await;
    blue.wait(COLLECTOR, "True", "Provisioned").await;
}

#[tokio::test]
async fn a_second_cluster_takes_over_tenants_and_producers_without_a_rejected_event() {
    let blue = Cluster::start().await;
    blue.apply_tenant(&json!({}));
    blue.apply_producer();
    blue.wait(COLLECTOR, "True", "Provisioned").await;
    blue.wait_for_status(202).await;
    let running = Arc::clone(&blue.running);
    let (stop, mut stopped) = watch::channel(());
    let sender = tokio::spawn(async move {
        let (mut statuses, mut ticks) = (Vec::new(), tokio::time::interval(Duration::from_millis(50)));
        let token = running.token("apps/collector", "svc-ingest");
        let client = running.system.client().bearer(&token);
        loop {
            tokio::select! {
                _ = stopped.changed() => return statuses,
                _ = ticks.tick() => {}
            }
            statuses.push(client.post("/events", &json!({ "source_id": "fw-1" })).await.status);
        }
    });
    let taking = |controller| Controller { take_over_from: Arc::new([BLUE.parse().unwrap()]), ..controller };
    let green = blue.other(GREEN, taking).await;
    green.apply_tenant(&json!({ "displayName": "Green" }));
    green.apply_producer();
    green.wait(COLLECTOR, "True", "Provisioned").await;
    let elsewhere = blue.wait(ACME, "False", "ManagedElsewhere").await;
    assert!(message(&elsewhere).contains(GREEN), "{elsewhere}");
    blue.wait(COLLECTOR, "False", "TenantNotReady").await;
    // The first cluster is removed.
    blue.api.delete(COLLECTOR);
    blue.api.delete(ACME);
    wait_for_a_plan(&blue, "globex").await;
    assert_eq!(green.tenant().await.display_name, "Green");
    stop.send(()).unwrap();
    let statuses = sender.await.unwrap();
    assert!(statuses.len() > 1 && statuses.iter().all(|status| *status == 202), "{statuses:?}");
    green.api.delete(COLLECTOR);
    green.wait_for_status(401).await;
}

#[tokio::test]
async fn a_producer_without_a_resource_in_the_second_cluster_is_removed_after_its_namespace_is_allowed() {
    let mut blue = Cluster::start().await;
    blue.apply_tenant(&json!({}));
    blue.apply_producer();
    blue.wait(COLLECTOR, "True", "Provisioned").await;
    blue.wait_for_status(202).await;
    blue.leader.take().unwrap().abort();
    let taking = |controller| Controller { take_over_from: Arc::new([BLUE.parse().unwrap()]), ..controller };
    let green = blue.other(GREEN, taking).await;
    green.apply_tenant(&json!({ "allowedNamespaces": null }));
    green.wait(ACME, "True", "Provisioned").await;
    green.apply_producer();
    green.wait(COLLECTOR, "False", "NamespaceNotAllowed").await;
    // The operator of the first cluster still has it.
    assert_eq!(green.send().await, 202);
    green.apply_tenant(&json!({}));
    green.wait(COLLECTOR, "True", "Provisioned").await;
    green.api.delete(COLLECTOR);
    green.wait_for_status(401).await;
}

#[tokio::test]
async fn after_a_wrong_release_a_change_of_the_resources_restores_tenant_and_producer() {
    let blue = Cluster::start().await;
    blue.apply_tenant(&json!({}));
    blue.apply_producer();
    blue.wait(COLLECTOR, "True", "Provisioned").await;
    blue.wait_for_status(202).await;
    // The same cluster without its resources, for example restored from an old backup.
    let mut wrong = blue.other(BLUE, |controller| controller).await;
    blue.wait_for_status(401).await;
    let released = blue.wait(ACME, "False", "Released").await;
    assert!(message(&released).contains("at once after a change of the spec"), "{released}");
    wrong.leader.take().unwrap().abort();
    blue.apply_tenant(&json!({ "displayName": "Acme Inc." }));
    blue.wait(ACME, "True", "Provisioned").await;
    let spec = json!({ "tenant": "acme", "serviceAccount": "collector", "sourceIds": ["fw-1", "fw-2"] });
    blue.api.apply(COLLECTOR, &json!({ "spec": spec }));
    blue.wait(COLLECTOR, "True", "Provisioned").await;
    blue.wait_for_status(202).await;
}

#[tokio::test]
async fn a_new_leader_holds_the_release_of_many_tenants_until_it_is_confirmed() {
    let mut blue = Cluster::start().await;
    let paths = ["a", "b", "c", "d", "e"].map(|name| ACME.replace("acme", name));
    for path in &paths {
        blue.api.apply(path, &json!({ "spec": { "displayName": "Many" } }));
    }
    for path in &paths {
        blue.wait(path, "True", "Provisioned").await;
    }
    blue.leader.take().unwrap().abort();
    let metrics = Metrics::new("operator");
    let observed = metrics.clone();
    let counting = |controller| Controller { metrics: OperatorMetrics::new(&observed), ..controller };
    let mut unconfirmed = blue.other(BLUE, counting).await;
    wait_for_a_plan(&unconfirmed, "globex").await;
    unconfirmed.leader.take().unwrap().abort();
    let text = metrics.text();
    assert!(text.contains("svc_operator_held_releases{kind=\"SvcTenant\"} 5"), "{text}");
    assert!(!text.contains("svc_operator_releases_total{"), "{text}");
    let owned = async || {
        let operator = blue.running.operator_at_identity();
        operator.get(contract::managed::TENANTS).await.expect::<Vec<Value>>(200).len()
    };
    assert_eq!(owned().await, 6);
    // The tenant of the replaced operator is missing too.
    let confirmed =
        blue.other(BLUE, |controller| Controller { confirmed_releases: 6, ..counting(controller) }).await;
    wait_until("the tenants are released", async || (owned().await == 0).then_some(())).await;
    wait_until("the releases are counted", async || {
        metrics.text().contains("svc_operator_releases_total{kind=\"SvcTenant\"} 6").then_some(())
    })
    .await;
    drop(confirmed);
}
