//! Requests of clients that create the consumer before they read, for example `CreateOrUpdateConsumer` of nats.go. The accounts of
//! consumers map them to ingest: it answers with the existing durable if it matches, and creates nothing.

use async_nats::Message;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::RequestError;
use futures::StreamExt as _;
use serde_json::{Value, json};
use service::Tasks;

use crate::connect::Connection;

/// Subject of the requests: `<prefix>.<stream>.<name>`, with further tokens for a filter.
pub(super) const CREATE_PREFIX: &str = "svc.consumers.create.v1";
/// Each request is answered by one replica.
const QUEUE: &str = "ingest";
/// Settings that must be those of the durable. A client that sends none of them accepts any.
const COMPARED: [&str; 5] =
    ["ack_policy", "deliver_policy", "deliver_subject", "filter_subject", "filter_subjects"];
/// Code of the broker for a consumer that exists with another configuration.
const ERROR_CODE: u64 = 10_148;

/// Starts the task that answers the requests.
pub fn answer_create_requests(connection: Connection, tasks: &Tasks) {
    let stop = tasks.stopping().clone();
    tasks.spawn("create requests of consumers", async move {
        stop.run_until_cancelled(async {
            let subject = format!("{CREATE_PREFIX}.>");
            let Ok(mut requests) = connection.client.queue_subscribe(subject, QUEUE.to_owned()).await else {
                tracing::error!("failed to subscribe to create requests of consumers");
                return stop.cancelled().await;
            };
            while let Some(request) = requests.next().await {
                answer(&connection, &request).await;
            }
            stop.cancelled().await;
        })
        .await;
    });
}

#[expect(clippy::disallowed_methods, reason = "the client repeats a request without a response")]
async fn answer(connection: &Connection, request: &Message) {
    let Some(reply) = &request.reply else { return };
    let context = async_nats::jetstream::new(connection.client.clone());
    let response = match existing(&context, request).await {
        Ok(response) => response,
        // Without a response, the client tries again.
        Err(error) => return tracing::debug!(?error, "failed to answer a create request"),
    };
    let _ = connection.client.publish(reply.clone(), response.to_string().into()).await;
}

async fn existing(context: &Context, request: &Message) -> Result<Value, RequestError> {
    let mut tokens = request.subject.strip_prefix(CREATE_PREFIX).unwrap_or_default().split('.').skip(1);
    let (stream, name) = (tokens.next().unwrap_or_default(), tokens.next().unwrap_or_default());
    let mut info: Value = context.request(format!("CONSUMER.INFO.{stream}.{name}"), &json!({})).await?;
    let requested: Value = serde_json::from_slice(&request.payload).unwrap_or_default();
    info["type"] = "io.nats.jetstream.api.v1.consumer_create_response".into();
    if info.get("error").is_some() || matches(&requested["config"], &info["config"]) {
        return Ok(info);
    }
    let description = "consumer exists with another configuration: its filter and policies are those of `svc consumers create`";
    let error = json!({ "code": 400, "err_code": ERROR_CODE, "description": description });
    Ok(json!({ "type": info["type"], "error": error }))
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
