//! Another start of a durable.

use std::collections::HashMap;

use async_nats::jetstream::consumer::{Config, IntoConsumerConfig as _};
use contract::consumers::ConsumerStart;
use serde_json::json;

use super::definition::policy;
use super::{DEFINITION, Durable, DurableError, Durables, failed, merge, pull_config};

impl Durables {
    /// Creates a durable again with the same login, so that it reads from another event. Its definition has the new start, unless it
    /// belongs to an owner, who compares it. Returns whether it exists.
    ///
    /// # Errors
    /// The broker did not answer: the durable may be deleted in a stream, until it is reset again.
    pub async fn reset(&self, name: &str, start: ConsumerStart) -> Result<bool, DurableError> {
        let found = self.find_all(name).await?;
        let Some(first) = found.iter().flatten().next() else { return Ok(false) };
        let mut metadata = first.config.metadata.clone();
        let Some(Durable { mut definition, owner, .. }) = merge(found.iter().flatten().cloned()).remove(name)
        else {
            return Ok(false);
        };
        if owner.is_none() {
            definition.start = start;
            metadata.insert(DEFINITION.to_owned(), json!(definition).to_string());
        }
        for ((stream, partitions), found) in self.streams.iter().zip(found) {
            let subjects = definition.filter.subjects(partitions);
            let deliver_policy = policy(start, &self.context, stream).await.map_err(failed(stream))?;
            let config = match found {
                Some(info) => {
                    self.context.delete_consumer_from_stream(name, stream).await.map_err(failed(stream))?;
                    info.config
                }
                None if subjects.is_empty() => continue,
                None => pull_config(name, &definition, subjects, HashMap::new()).into_consumer_config(),
            };
            let config = Config { deliver_policy, metadata: metadata.clone(), ..config };
            self.create_in(stream, config).await?;
        }
        Ok(true)
    }
}
