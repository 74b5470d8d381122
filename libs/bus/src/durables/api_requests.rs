//! Requests of clients that list consumers, or create one before they read, for example `CreateOrUpdateConsumer` of nats.go.
//! The accounts of consumers map them to ingest: it answers with the durable of the login, and creates nothing.

use async_nats::Message;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::RequestError;
use futures::StreamExt as _;
use serde_json::{Value, json};
use service::Tasks;

use crate::connect::Connection;
use crate::streams::EventStreams;

/// Subject of the requests: `<prefix>.<name of the login>.<request>`. A request is the part of the subject after `$JS.API.CONSUMER.`.
pub(super) const API_REQUESTS: &str = "svc.consumers.api.v1";
/// What the accounts of consumers map.
pub(super) const MAPPED: [&str; 4] = ["CREATE.>", "DURABLE.CREATE.>", "NAMES.*", "LIST.*"];
/// Each request is answered by one replica.
const QUEUE: &str = "ingest";
/// Settings that must be those of the durable. A client that sends none of them accepts any.
const COMPARED: [&str; 5] =
    ["ack_policy", "deliver_policy", "deliver_subject", "filter_subject", "filter_subjects"];
/// Codes of the broker: a consumer exists with another configuration, a consumer was not created, a stream does not exist.
const EXISTS: u64 = 10_148;
const NOT_CREATED: u64 = 10_012;
const NO_STREAM: u64 = 10_059;

/// Starts the task that answers the requests.
pub fn answer_api_requests(connection: Connection, streams: EventStreams, tasks: &Tasks) {
    let stop = tasks.stopping().clone();
    tasks.spawn("API requests of consumers", async move {
        stop.run_until_cancelled(async {
            let subject = format!("{API_REQUESTS}.>");
            let Ok(mut requests) = connection.client.queue_subscribe(subject, QUEUE.to_owned()).await else {
                tracing::error!("failed to subscribe to API requests of consumers");
                return stop.cancelled().await;
            };
            while let Some(request) = requests.next().await {
                answer(&connection, &streams.names(), &request).await;
            }
            stop.cancelled().await;
        })
        .await;
    });
}

#[expect(clippy::disallowed_methods, reason = "the client repeats a request without a response")]
async fn answer(connection: &Connection, streams: &[String], message: &Message) {
    let Some(reply) = &message.reply else { return };
    let Some(request) = Request::parse(message) else { return };
    let context = async_nats::jetstream::new(connection.client.clone());
    let response = match request.response(&context, streams).await {
        Ok(response) => response,
        // Without a response, the client tries again.
        Err(error) => return tracing::debug!(?error, "failed to answer an API request"),
    };
    let _ = connection.client.publish(reply.clone(), response.to_string().into()).await;
}

/// A request of the login of a consumer.
#[derive(Debug, PartialEq)]
struct Request<'a> {
    login: &'a str,
    stream: &'a str,
    kind: Kind<'a>,
}

#[derive(Debug, PartialEq)]
enum Kind<'a> {
    Names,
    List,
    /// Name of the consumer, if the request has one, and its configuration.
    Create(Option<&'a str>, Value),
}

impl<'a> Request<'a> {
    fn parse(message: &'a Message) -> Option<Self> {
        let mut tokens = message.subject.strip_prefix(API_REQUESTS)?.split('.').skip(1);
        let (login, verb) = (tokens.next()?, tokens.next()?);
        let kind = match verb {
            "NAMES" => Kind::Names,
            "LIST" => Kind::List,
            "CREATE" => Kind::Create(None, Value::Null),
            "DURABLE" if tokens.next()? == "CREATE" => Kind::Create(None, Value::Null),
            _ => return None,
        };
        let stream = tokens.next()?;
        let kind = match kind {
            Kind::Create(..) => {
                let mut payload: Value = serde_json::from_slice(&message.payload).unwrap_or_default();
                Kind::Create(tokens.next(), payload["config"].take())
            }
            kind => kind,
        };
        Some(Self { login, stream, kind })
    }

    async fn response(&self, context: &Context, streams: &[String]) -> Result<Value, RequestError> {
        let mut info = if streams.iter().any(|stream| stream == self.stream) {
            context.request(format!("CONSUMER.INFO.{}.{}", self.stream, self.login), &json!({})).await?
        } else {
            error(404, NO_STREAM, "stream not found")
        };
        let kind = match &self.kind {
            Kind::Create(name, config) => {
                if info.get("error").is_none() {
                    info = self.created(*name, config, info);
                }
                "create"
            }
            Kind::Names => {
                info = list(&info, info["name"].clone());
                "names"
            }
            Kind::List => {
                info = list(&info, info.clone());
                "list"
            }
        };
        info["type"] = format!("io.nats.jetstream.api.v1.consumer_{kind}_response").into();
        Ok(info)
    }

    /// Returns the durable of the login, if it is the one that the client wants to create.
    fn created(&self, name: Option<&str>, config: &Value, info: Value) -> Value {
        let own = Some(self.login);
        if name != own && config["durable_name"].as_str() != own && config["name"].as_str() != own {
            let login = self.login;
            let description = format!(
                "login `{login}` cannot create a consumer: read its durable `{login}` of stream `{}` with pull requests",
                self.stream
            );
            return error(403, NOT_CREATED, &description);
        }
        if matches(config, &info["config"]) {
            return info;
        }
        let description = "consumer exists with another configuration: its filter and policies are those of `svc consumers create`";
        error(400, EXISTS, description)
    }
}

fn error(code: u64, err_code: u64, description: &str) -> Value {
    json!({ "error": { "code": code, "err_code": err_code, "description": description } })
}

/// Returns the list with the durable of the login, or without one if it does not exist.
fn list(info: &Value, item: Value) -> Value {
    let items = if info.get("error").is_some() { Vec::new() } else { vec![item] };
    json!({ "total": items.len(), "offset": 0, "limit": 256, "consumers": items })
}

/// Returns whether a durable has the settings of a request.
fn matches(requested: &Value, existing: &Value) -> bool {
    COMPARED.iter().all(|setting| {
        let is_empty = |value: &Value| {
            value.is_null() || value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty)
        };
        is_empty(&requested[setting]) || requested[setting] == existing[setting]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_matches_a_durable_with_the_same_filter_and_policies() {
        let existing =
            json!({ "ack_policy": "explicit", "deliver_policy": "all", "filter_subject": "udm.v1.*.acme.>" });
        for requested in [
            json!({}),
            json!({ "durable_name": "acme", "ack_policy": "explicit", "deliver_policy": "all", "max_deliver": 5 }),
            json!({ "filter_subject": "udm.v1.*.acme.>", "filter_subjects": [], "deliver_subject": "" }),
        ] {
            assert!(matches(&requested, &existing), "{requested}");
        }
        for requested in [
            json!({ "ack_policy": "none" }),
            json!({ "deliver_policy": "new" }),
            json!({ "filter_subject": "udm.v1.>" }),
            json!({ "filter_subjects": ["udm.v1.>"] }),
            json!({ "deliver_subject": "svc.invalidations.v1" }),
        ] {
            assert!(!matches(&requested, &existing), "{requested}");
        }
    }
}
