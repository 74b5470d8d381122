//! Requests to the API server, and the cached resources.

mod logins;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use contract::managed::IssuedInvite;
use futures::future::{BoxFuture, Shared, join_all};
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, ObjectReference, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::{self, Store, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;
use service::Tasks;
use tokio::sync::Notify;
use url::Url;
use uuid::Uuid;

use crate::login_secret::{self, LoginSecret};
use crate::plan;
use crate::resources::{FINALIZER, GROUP, SvcConsumer, SvcProducer, SvcTenant};
use crate::status::{Progress, State, Subject};

/// The manager of the fields that the operator applies.
const MANAGER: &str = "svc-operator";
/// Label of the Secrets with invites.
const INVITE_LABEL: &str = "svc.internal/invite";
/// Annotation with the expiry time of an invite.
const EXPIRES_AT: &str = "svc.internal/expires-at";

/// Annotation with a copy of the object, of `kubectl apply`.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The cached resources. A change wakes the controller.
#[derive(Clone)]
pub(crate) struct Caches {
    tenants: Store<SvcTenant>,
    producers: Store<SvcProducer>,
    namespaces: Store<PartialObjectMeta<Namespace>>,
    secrets: Store<PartialObjectMeta<Secret>>,
    /// The consumers, and the Secrets with their logins.
    consumers: Option<(Store<SvcConsumer>, Store<Secret>)>,
    changed: Arc<Notify>,
    ready: Shared<BoxFuture<'static, ()>>,
}

impl Caches {
    /// Starts the watches.
    pub(crate) fn start(client: &Client, namespace: &str, has_consumers: bool, tasks: &Tasks) -> Self {
        let (all, labelled) = (watcher::Config::default, |label| watcher::Config::default().labels(label));
        let mut watches = Watches { changed: Arc::default(), lists: Vec::new(), tasks };
        let tenants = Api::<SvcTenant>::all(client.clone());
        let producers = Api::<SvcProducer>::all(client.clone());
        let namespaces = Api::<PartialObjectMeta<Namespace>>::all(client.clone());
        let secrets = Api::<PartialObjectMeta<Secret>>::namespaced(client.clone(), namespace);
        let tenants = watches.cache("tenants", watcher(tenants, all()));
        let producers = watches.cache("producers", watcher(producers, all()));
        let namespaces = watches.cache("namespaces", watcher(namespaces, all()));
        let secrets = watches.cache("secrets", watcher(secrets, labelled(INVITE_LABEL)));
        let consumers = has_consumers.then(|| {
            let consumers = Api::<SvcConsumer>::all(client.clone());
            let logins = Api::<Secret>::all(client.clone());
            let logins = watcher(logins, labelled(login_secret::LABEL)).modify(login_secret::trim);
            (watches.cache("consumers", watcher(consumers, all())), watches.cache("logins", logins))
        });
        let Watches { changed, lists, .. } = watches;
        // Shared, because a list wakes only one of the tasks that wait for it.
        let ready = join_all(lists).map(drop).boxed().shared();
        Self { tenants, producers, namespaces, secrets, consumers, changed, ready }
    }

    /// Waits until all lists are complete.
    pub(crate) async fn ready(&self) {
        self.ready.clone().await;
    }

    /// Waits until all lists are complete. Returns the uid of the namespace `kube-system`, which identifies the cluster.
    pub(crate) async fn cluster(&self) -> Uuid {
        self.ready().await;
        loop {
            let namespaces = self.namespaces.state();
            let system = namespaces.iter().find(|namespace| namespace.name_any() == "kube-system");
            if let Some(uid) = system.and_then(|namespace| plan::uid(&**namespace)) {
                return uid;
            }
            tracing::error!("failed to identify the cluster: there is no namespace kube-system");
            self.changed().await;
        }
    }

    /// Waits until a resource changes.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn tenants(&self) -> Vec<Arc<SvcTenant>> {
        self.tenants.state()
    }

    pub(crate) fn producers(&self) -> Vec<Arc<SvcProducer>> {
        self.producers.state()
    }

    pub(crate) fn consumers(&self) -> Vec<Arc<SvcConsumer>> {
        self.consumers.as_ref().map(|(consumers, _)| consumers.state()).unwrap_or_default()
    }

    /// The logins of consumers in Secrets, by the key of the consumer.
    pub(crate) fn logins(&self) -> HashMap<String, LoginSecret> {
        let logins = self.consumers.as_ref().map(|(_, logins)| logins.state()).unwrap_or_default();
        logins.iter().filter_map(|secret| LoginSecret::read(secret)).collect()
    }

    /// The labels of each namespace.
    pub(crate) fn namespaces(&self) -> HashMap<String, BTreeMap<String, String>> {
        self.namespaces
            .state()
            .iter()
            .map(|namespace| (namespace.name_any(), namespace.labels().clone()))
            .collect()
    }

    /// The expiry times of the invites in Secrets, by tenant.
    pub(crate) fn secrets(&self) -> HashMap<String, DateTime<Utc>> {
        let secrets = self.secrets.state();
        let terms = secrets.iter().filter_map(|secret| {
            let tenant = secret.labels().get(INVITE_LABEL)?.clone();
            // A Secret with another value is replaced.
            Some((tenant, expiry(&**secret).unwrap_or_default()))
        });
        terms.collect()
    }
}

/// The expiry time of the invite in a Secret.
fn expiry(secret: &impl kube::ResourceExt) -> Option<DateTime<Utc>> {
    secret.annotations().get(EXPIRES_AT)?.parse().ok()
}

/// The watches that were started.
struct Watches<'a> {
    changed: Arc<Notify>,
    /// Each ends when a list is complete.
    lists: Vec<BoxFuture<'static, ()>>,
    tasks: &'a Tasks,
}

impl Watches<'_> {
    /// Follows a watch. A watch that fails is started again with back-off; meanwhile the cache keeps its content.
    fn cache<K>(
        &mut self,
        name: &'static str,
        watch: impl futures::Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    ) -> Store<K>
    where
        K: reflector::Lookup + Resource + Clone + DeserializeOwned + Send + Sync + std::fmt::Debug + 'static,
        <K as reflector::Lookup>::DynamicType: Eq + std::hash::Hash + Clone + Default + Send + Sync,
    {
        let (reader, writer) = store();
        let (changed, stop) = (Arc::clone(&self.changed), self.tasks.stopping().clone());
        self.tasks.spawn(name, async move {
            // These fields are half of the size of an object, and the operator does not use them.
            let smaller = watch.default_backoff().modify(|object| {
                object.managed_fields_mut().clear();
                object.annotations_mut().remove(LAST_APPLIED);
            });
            let events = reflector::reflector(writer, smaller);
            let follow = events.for_each(|event| {
                match event {
                    Ok(_) => changed.notify_one(),
                    Err(error) => tracing::warn!(
                        error = service::chain(&error),
                        watch = name,
                        "failed to watch resources; retrying"
                    ),
                }
                std::future::ready(())
            });
            stop.run_until_cancelled(follow).await;
        });
        let list = reader.clone();
        // A writer is dropped only when the process stops.
        let ready = async move {
            let _ = list.wait_until_ready().await;
        };
        self.lists.push(ready.boxed());
        reader
    }
}

/// Writes to the API server. Clones share the connections.
#[derive(Clone)]
pub(crate) struct Kubernetes {
    client: Client,
    namespace: String,
    public_url: Url,
    recorder: Recorder,
}

impl Kubernetes {
    pub(crate) fn new(client: Client, namespace: &str, public_url: &Url, pod: &str) -> Self {
        let reporter = Reporter { controller: format!("{GROUP}/operator"), instance: Some(pod.to_owned()) };
        let recorder = Recorder::new(client.clone(), reporter);
        Self { client, namespace: namespace.to_owned(), public_url: public_url.clone(), recorder }
    }

    /// Writes the status of a resource in a state.
    pub(crate) async fn write_status(&self, subject: &Subject, state: &State) -> Result<(), kube::Error> {
        let (resource, metadata) = (subject.api_resource(), subject.metadata());
        let name = metadata.name.as_deref().unwrap_or_default();
        let client = self.client.clone();
        let api: Api<DynamicObject> = match &metadata.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let applied = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": { "name": name, "namespace": metadata.namespace, "uid": metadata.uid },
            "status": subject.status_in(state),
        });
        api.patch_status(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&applied)).await.map(drop)
    }

    /// Adds or removes the finalizer of a tenant.
    pub(crate) async fn set_finalizer(&self, tenant: &SvcTenant, present: bool) -> Result<(), kube::Error> {
        let mut finalizers = tenant.finalizers().to_vec();
        finalizers.retain(|name| name != FINALIZER);
        if present {
            finalizers.push(FINALIZER.to_owned());
        }
        // The resource version makes the patch fail if someone else changed the list.
        let metadata = json!({ "finalizers": finalizers, "resourceVersion": tenant.resource_version() });
        let api = Api::<SvcTenant>::all(self.client.clone());
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let patched = api.patch_metadata(&tenant.name_any(), &PatchParams::default(), &patch).await;
        if present { patched.map(drop) } else { unless_absent(patched) }
    }

    /// Writes the Secret with the invite of the first administrator. It is deleted with the resource.
    pub(crate) async fn write_invite(
        &self,
        tenant: &SvcTenant,
        invite: &IssuedInvite,
    ) -> Result<(), kube::Error> {
        let (tenant_id, name) = (tenant.name_any(), secret_name(&tenant.name_any()));
        let url = self.public_url.as_str().trim_end_matches('/');
        let text = |text: &str| ByteString(text.as_bytes().to_vec());
        let mut metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
        metadata.labels = Some([(INVITE_LABEL.to_owned(), tenant_id.clone())].into());
        metadata.annotations = Some([(EXPIRES_AT.to_owned(), invite.expires_at.to_rfc3339())].into());
        metadata.owner_references = Some(tenant.owner_ref(&()).into_iter().collect());
        let data = [
            ("tenant", text(&tenant_id)),
            ("email", text(&invite.email)),
            ("url", text(url)),
            ("token", text(invite.token.expose())),
        ];
        let data = data.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        self.apply_secret(&api, metadata, data).await
    }

    /// Writes a Secret.
    async fn apply_secret(
        &self,
        api: &Api<Secret>,
        metadata: ObjectMeta,
        data: BTreeMap<String, ByteString>,
    ) -> Result<(), kube::Error> {
        let name = metadata.name.clone().unwrap_or_default();
        let secret = Secret { metadata, data: Some(data), ..Secret::default() };
        api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&secret)).await.map(drop)
    }

    /// Reads the expiry time of the invite in the Secret of a tenant from the API server.
    pub(crate) async fn invite_expiry(&self, tenant: &str) -> Result<Option<DateTime<Utc>>, kube::Error> {
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let secret = api.get_metadata_opt(&secret_name(tenant)).await?;
        // The watch reports only Secrets with the label, and a Secret that is being deleted will be missing.
        let is_kept = |secret: &PartialObjectMeta<Secret>| {
            secret.metadata.deletion_timestamp.is_none()
                && secret.labels().get(INVITE_LABEL).is_some_and(|of| of == tenant)
        };
        Ok(secret.filter(is_kept).as_ref().and_then(expiry))
    }

    /// Deletes the Secret with the invite of a tenant.
    pub(crate) async fn delete_invite(&self, tenant: &str) -> Result<(), kube::Error> {
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        unless_absent(api.delete(&secret_name(tenant), &DeleteParams::default()).await)
    }

    /// Publishes an event about a resource. A failure is only logged: the status has the same content.
    pub(crate) async fn publish(
        &self,
        resource: &ObjectReference,
        reason: &str,
        state: Option<&State>,
        note: &str,
    ) {
        let is_warning = state.is_some_and(|state| state.progress == Progress::Stalled);
        let event = Event {
            type_: if is_warning { EventType::Warning } else { EventType::Normal },
            reason: reason.to_owned(),
            note: Some(note.to_owned()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, resource).await {
            tracing::warn!(error = service::chain(&error), "failed to publish an event");
        }
    }
}

/// Accepts that the object does not exist any more.
fn unless_absent<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop),
    }
}

fn secret_name(tenant: &str) -> String {
    format!("svc-invite-{tenant}")
}
