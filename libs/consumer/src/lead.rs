//! Which process of a consumer reads: one at a time, because two would break the order of a source. The others wait until it has
//! stopped, so that a rolling update needs no pause, and a second process can take over.
//!
//! The process that reads answers requests on a subject of the account of the consumer, with the id of its claim. Without an answer,
//! another process claims the lead, and asks again: of several that claim at the same time, that with the smallest id reads.

use std::future::pending;
use std::time::Duration;

use async_nats::{Client, Request, SubscribeError, Subscriber};
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::time::sleep;
use uuid::Uuid;

/// Time between two requests of a process that waits.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time for an answer. A process on a failed machine is still subscribed for a while, and does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The lead of this process. Dropping it lets another process read. The connection must have the option `no_echo`.
pub(crate) struct Lead {
    client: Client,
    subject: String,
    id: Uuid,
    requests: Subscriber,
}

impl Lead {
    /// Waits until no other process reads.
    pub(crate) async fn take(client: &Client, consumer: &str) -> Result<Self, SubscribeError> {
        let subject = format!("svc.reader.{consumer}");
        let mut is_waiting = false;
        loop {
            if ask(client, &subject).await.is_none() {
                let requests = client.subscribe(subject.clone()).await?;
                let (client, subject) = (client.clone(), subject.clone());
                let mut lead = Self { client, subject, id: Uuid::now_v7(), requests };
                if lead.is_first().await {
                    return Ok(lead);
                }
            }
            if !is_waiting {
                tracing::info!(consumer, "waiting until another process of the consumer stops");
            }
            is_waiting = true;
            sleep(INTERVAL).await;
        }
    }

    /// Answers the requests of other processes. Never returns.
    pub(crate) async fn answer(&mut self) {
        while let Some(request) = self.requests.next().await {
            if let Some(reply) = request.reply {
                let id = Bytes::copy_from_slice(self.id.as_bytes());
                #[expect(clippy::disallowed_methods, reason = "not an event")]
                let sent = self.client.publish(reply, id).await;
                if let Err(error) = sent {
                    tracing::debug!(%error, "failed to answer another process");
                }
            }
        }
        pending::<()>().await;
    }

    /// Whether no other process has claimed the lead before this one.
    pub(crate) async fn is_first(&mut self) -> bool {
        let (client, subject, id) = (self.client.clone(), self.subject.clone(), self.id);
        tokio::select! {
            other = ask(&client, &subject) => other.is_none_or(|other| id < other),
            () = self.answer() => false,
        }
    }
}

/// Returns the claim of the process that reads.
async fn ask(client: &Client, subject: &str) -> Option<Uuid> {
    let request = Request::new().timeout(Some(ANSWER_TIMEOUT));
    let answer = client.send_request(subject.to_owned(), request).await.ok()?;
    Uuid::from_slice(&answer.payload).ok()
}
