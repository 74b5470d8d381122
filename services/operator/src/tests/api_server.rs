//! A Kubernetes API server with the resources of the operator in memory: list, watch, apply, patch and delete.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use futures::{StreamExt as _, stream};
use http::{Method, StatusCode, Uri};
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use uuid::Uuid;

/// The server. It stops with the runtime of the test.
#[derive(Clone)]
pub(super) struct ApiServer(Arc<Inner>);

struct Inner {
    url: String,
    objects: Mutex<Objects>,
    changes: broadcast::Sender<(String, Value)>,
}

#[derive(Default)]
struct Objects {
    /// By path.
    by_path: BTreeMap<String, Value>,
    version: u64,
    /// The path and the event of each change, with its version.
    changes: Vec<(u64, String, Value)>,
    /// Method and path of each request that is not a watch.
    requests: Vec<String>,
}

impl ApiServer {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let inner = Inner { url, objects: Mutex::default(), changes: broadcast::channel(1024).0 };
        let server = Self(Arc::new(inner));
        let router = axum::Router::new().fallback(serve).with_state(server.clone());
        #[expect(clippy::disallowed_methods, reason = "ends with the runtime of the test")]
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    pub(super) fn client(&self) -> Client {
        Client::try_from(Config::new(self.0.url.parse().unwrap())).unwrap()
    }

    /// Creates an object, or changes its spec or labels as `kubectl apply` does.
    pub(super) fn apply(&self, path: &str, object: &Value) {
        let exists = self.0.objects.lock().by_path.contains_key(path);
        let change = |stored: &mut Value| {
            if !exists || stored.get("spec") != object.get("spec") {
                let generation = stored["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
                merge(stored, object);
                stored["metadata"]["generation"] = generation.into();
            }
            merge(stored, object);
        };
        self.change(path, change);
    }

    /// Deletes an object, or marks it as deleted while it has finalizers.
    pub(super) fn delete(&self, path: &str) {
        let has_finalizers =
            self.get(path).is_some_and(|object| object["metadata"]["finalizers"][0].is_string());
        if has_finalizers {
            self.change(path, |object| {
                let generation = object["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
                object["metadata"]["generation"] = generation.into();
                object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            });
        } else {
            let mut objects = self.0.objects.lock();
            objects.version += 1;
            let version = objects.version;
            let Some(mut object) = objects.by_path.remove(path) else { return };
            object["metadata"]["resourceVersion"] = version.to_string().into();
            self.publish(&mut objects, path, json!({ "type": "DELETED", "object": object }));
        }
    }

    fn publish(&self, objects: &mut Objects, path: &str, event: Value) {
        objects.changes.push((objects.version, path.to_owned(), event.clone()));
        let _ = self.0.changes.send((path.to_owned(), event));
    }

    /// Reports to the watches that an object was deleted, although it exists: they are behind.
    pub(super) fn hide(&self, path: &str) {
        let object = self.get(path).unwrap();
        let _ = self.0.changes.send((path.to_owned(), json!({ "type": "DELETED", "object": object })));
    }

    pub(super) fn get(&self, path: &str) -> Option<Value> {
        self.0.objects.lock().by_path.get(path).cloned()
    }

    /// The requests since the last call, without watches.
    pub(super) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.0.objects.lock().requests)
    }

    fn change(&self, path: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut objects = self.0.objects.lock();
        objects.version += 1;
        let version = objects.version;
        let is_new = !objects.by_path.contains_key(path);
        let object = objects.by_path.entry(path.to_owned()).or_insert_with(|| {
            let name = path.rsplit('/').next().unwrap();
            let namespace = path
                .split_once("/namespaces/")
                .and_then(|(_, rest)| rest.split_once('/'))
                .map(|(name, _)| name);
            let uid = Uuid::now_v7();
            json!({ "metadata": { "name": name, "namespace": namespace, "uid": uid, "generation": 0 } })
        });
        let before = object.clone();
        change(object);
        if *object == before && !is_new {
            return before;
        }
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let object = object.clone();
        let event = json!({ "type": if is_new { "ADDED" } else { "MODIFIED" }, "object": object });
        self.publish(&mut objects, path, event);
        // The last finalizer of a deleted object.
        if object["metadata"]["deletionTimestamp"].is_string()
            && !object["metadata"]["finalizers"][0].is_string()
        {
            drop(objects);
            self.delete(path);
        }
        object
    }

    fn list(&self, path: &str) -> Value {
        let objects = self.0.objects.lock();
        let items: Vec<_> = objects
            .by_path
            .iter()
            .filter(|(of, _)| is_in(of, path))
            .map(|(_, object)| object.clone())
            .collect();
        json!({ "metadata": { "resourceVersion": objects.version.to_string() }, "items": items })
    }

    /// The changes after a version.
    fn watch(&self, path: String, version: u64) -> Response {
        let objects = self.0.objects.lock();
        let receiver = self.0.changes.subscribe();
        let missed = objects.changes.iter().filter(|(of, _, _)| *of > version);
        let missed = missed.filter(|(_, of, _)| is_in(of, &path)).map(|(_, _, event)| line(event));
        let missed: Vec<_> = missed.collect();
        drop(objects);
        let lines = stream::unfold((receiver, path), |(mut receiver, path)| async move {
            loop {
                let (of, event) = receiver.recv().await.ok()?;
                if is_in(&of, &path) {
                    return Some((line(&event), (receiver, path)));
                }
            }
        });
        Body::from_stream(stream::iter(missed).chain(lines).map(Ok::<_, std::io::Error>)).into_response()
    }
}

fn line(event: &Value) -> Bytes {
    Bytes::from(format!("{event}\n"))
}

/// Returns whether a list of this path has an object. `/svcproducers` lists those of all namespaces.
fn is_in(object: &str, list: &str) -> bool {
    let (group, kind) = list.rsplit_once('/').unwrap();
    let Some((parent, _)) = object.rsplit_once('/') else { return false };
    parent == list
        || (parent.starts_with(group)
            && parent.ends_with(&format!("/{kind}"))
            && parent.contains("/namespaces/"))
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

async fn serve(State(server): State<ApiServer>, method: Method, uri: Uri, body: Bytes) -> Response {
    let path = uri.path().to_owned();
    if method == Method::GET && uri.query().is_some_and(|query| query.contains("watch=")) {
        let parameters = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        let version =
            parameters.filter(|(name, _)| name == "resourceVersion").find_map(|(_, it)| it.parse().ok());
        return server.watch(path, version.unwrap_or_default());
    }
    server.0.objects.lock().requests.push(format!("{method} {path}"));
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let not_found = || {
        (StatusCode::NOT_FOUND, Json(json!({ "kind": "Status", "code": 404, "reason": "NotFound" })))
            .into_response()
    };
    match method {
        Method::GET if path.contains("/secrets/") => {
            server.get(&path).map_or_else(not_found, |object| Json(object).into_response())
        }
        Method::GET => Json(server.list(&path)).into_response(),
        Method::PATCH => {
            let object = path.strip_suffix("/status").unwrap_or(&path);
            // Only a Secret is created by an apply.
            if server.get(object).is_none() && !path.contains("/secrets/") {
                return not_found();
            }
            Json(server.change(object, |stored| merge(stored, &body))).into_response()
        }
        Method::POST => Json(body).into_response(),
        Method::DELETE if server.get(&path).is_some() => {
            server.delete(&path);
            Json(json!({ "kind": "Status", "status": "Success" })).into_response()
        }
        _ => not_found(),
    }
}
