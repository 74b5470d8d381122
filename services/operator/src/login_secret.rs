//! The Secret with the login of a consumer, in the namespace of its resource.

use std::collections::BTreeMap;

use contract::consumers::ConsumerName;
use contract::managed::StoredConsumer;
use hashing::TokenDigest;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

/// Label of the Secrets: the name of the consumer.
pub(crate) const LABEL: &str = "svc.internal/consumer";
/// The keys of a Secret: the variables that clients read. `NATS_URL` is the address of NATS, if it is configured.
const KEYS: [&str; 5] = ["NATS_URL", "NATS_USER", "NATS_PASSWORD", "NATS_STREAM", "NATS_DURABLE"];

/// The values of a Secret by their keys.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct LoginSecret(pub(crate) BTreeMap<String, ByteString>);

/// Name of the Secret of a consumer.
pub(crate) fn name(consumer: &str) -> String {
    format!("svc-consumer-{consumer}")
}

/// Key of a consumer in the observed state.
pub(crate) fn key(namespace: &str, consumer: &str) -> String {
    format!("{namespace}/{consumer}")
}

impl LoginSecret {
    /// The Secret of a stored consumer. A consumer of several streams has their names with commas.
    pub(crate) fn new(stored: &StoredConsumer, password: &str, nats_url: &str) -> Self {
        let (name, streams) = (stored.consumer.name.as_str(), stored.streams.join(","));
        let values = [nats_url, name, password, &streams, name];
        let data = KEYS.into_iter().zip(values).filter(|(_, value)| !value.is_empty());
        Self(data.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec()))).collect())
    }

    /// Returns the values of a Secret, and the key of its consumer.
    pub(crate) fn read(secret: &Secret) -> Option<(String, Self)> {
        let consumer: ConsumerName = secret.labels().get(LABEL)?.parse().ok()?;
        let is_named = secret.name_any() == name(consumer.as_str());
        is_named.then(|| {
            (
                key(&secret.namespace().unwrap_or_default(), consumer.as_str()),
                Self(secret.data.clone().unwrap_or_default()),
            )
        })
    }

    /// Returns the password, if it is that of the stored login.
    pub(crate) fn password_of(&self, stored: &StoredConsumer) -> Option<&str> {
        let password = std::str::from_utf8(&self.0.get("NATS_PASSWORD")?.0).ok()?;
        let digest = TokenDigest::from_text(password).to_hex();
        (stored.login_digest.as_ref() == Some(&digest)).then_some(password)
    }
}

/// Removes what the operator does not use: anyone can create a large Secret with the label.
pub(crate) fn trim(secret: &mut Secret) {
    if let Some(data) = &mut secret.data {
        data.retain(|key, value| KEYS.contains(&key.as_str()) && value.0.len() <= 1024);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_that_the_library_and_the_examples_read_are_keys_of_the_secret() {
        for (name, program) in [
            ("Rust", include_str!("../../../libs/consumer/src/lib.rs")),
            ("Python", include_str!("../../../docs/consumers/read_events.py")),
            ("Go", include_str!("../../../docs/consumers/read_events.go")),
            ("JavaScript", include_str!("../../../docs/consumers/read_events.mjs")),
            ("Java", include_str!("../../../docs/consumers/ReadEvents.java")),
        ] {
            let words = program.split(|character: char| !character.is_ascii_uppercase() && character != '_');
            let mut read: Vec<_> = words.filter(|word| word.starts_with("NATS_")).collect();
            read.sort_unstable();
            read.dedup();
            assert_eq!(read, ["NATS_PASSWORD", "NATS_STREAM", "NATS_URL", "NATS_USER"], "{name}");
            assert!(read.iter().all(|variable| KEYS.contains(variable)), "{name}");
        }
    }
}
