//! Messages that the logins of consumers send to a server, as its monitoring port counts them. nats-server does not limit their rate.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use super::Durable;
use super::accounts::ACCOUNT;
use super::login::by_account;

/// Messages that a login may send for each event that it reads: a request for it, a progress acknowledgement, a dead letter, and the
/// acknowledgement.
const MESSAGES_PER_EVENT: u64 = 4;
/// Consecutive readings above the limit.
const READINGS: u8 = 2;
/// Less than the interval of readings would be too little for a server under load.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Messages that a server has received from the connections of each account of a consumer.
pub(super) type Received = HashMap<u16, u64>;

/// The monitoring port of a server.
pub(super) struct Monitor {
    http: reqwest::Client,
    url: String,
}

impl Monitor {
    /// Uses the port at an `http` URL.
    pub(super) fn new(url: &str) -> reqwest::Result<Self> {
        let url = format!("{}/accstatz", url.trim_end_matches('/'));
        // Plain HTTP of the same machine needs no certificates.
        let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).tls_certs_only([]).build()?;
        Ok(Self { http, url })
    }

    /// Returns the messages that the server has received from the connections of each consumer, since its start or the creation of the
    /// account. Accounts without a connection are absent.
    pub(super) async fn received(&self) -> reqwest::Result<Received> {
        let response = self.http.get(&self.url).send().await?.error_for_status()?;
        let statistics: Statistics = response.json().await?;
        Ok(statistics.of_consumers())
    }
}

#[derive(Deserialize)]
struct Statistics {
    #[serde(rename = "account_statz")]
    accounts: Vec<Account>,
}

impl Statistics {
    fn of_consumers(&self) -> Received {
        let number = |account: &Account| account.name.strip_prefix(ACCOUNT)?.parse().ok();
        let accounts = self.accounts.iter();
        accounts.filter_map(|account| Some((number(account)?, account.received.of_clients()))).collect()
    }
}

#[derive(Deserialize)]
struct Account {
    #[serde(rename = "acc")]
    name: String,
    received: Counts,
}

#[derive(Deserialize)]
struct Counts {
    msgs: u64,
    routes: Option<Count>,
    gateways: Option<Count>,
}

#[derive(Deserialize)]
struct Count {
    msgs: u64,
}

impl Counts {
    /// Other servers count what they forward.
    fn of_clients(&self) -> u64 {
        let forwarded = [&self.routes, &self.gateways].into_iter().flatten().map(|count| count.msgs).sum();
        self.msgs.saturating_sub(forwarded)
    }
}

/// How far a durable has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    deliveries: u64,
    delivered_to: u64,
}

impl Progress {
    fn of(durable: &Durable) -> Self {
        Self { deliveries: durable.deliveries, delivered_to: durable.delivered_to }
    }

    /// Returns at least the number of events that were delivered since an earlier progress. Repeated deliveries do not count: a login
    /// can cause any number with negative acknowledgements.
    fn events_since(self, earlier: Self) -> u64 {
        let deliveries = self.deliveries.saturating_sub(earlier.deliveries);
        deliveries.min(self.delivered_to.saturating_sub(earlier.delivered_to))
    }
}

/// The last reading of an account.
struct Reading {
    at: Instant,
    received: u64,
    /// Of an account above the limit.
    progress: Option<Progress>,
    /// Consecutive readings above the limit.
    above: u8,
}

/// The last readings.
pub(super) struct MessageRates {
    /// Messages per second, in addition to those for the events that the login reads.
    limit: u64,
    readings: HashMap<u16, Reading>,
}

impl MessageRates {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, readings: HashMap::new() }
    }

    /// Returns the durables that have sent more than the limit since the last reading, for whatever reason.
    pub(super) fn suspects<'a>(
        &self,
        received: &Received,
        durables: &'a [Durable],
        at: Instant,
    ) -> Vec<&'a str> {
        let counted = by_account(durables).into_iter().filter_map(|(account, durable)| {
            let rate = self.readings.get(&account)?.rate(*received.get(&account)?, 0, at);
            (rate > self.limit).then_some(durable.name.as_str())
        });
        counted.collect()
    }

    /// Returns the durables that have sent more than the limit in two consecutive readings, with their messages per second.
    /// `suspects` are read from the broker after this reading.
    pub(super) fn above_limit(
        &mut self,
        received: &Received,
        durables: &[Durable],
        suspects: &HashMap<String, Durable>,
        at: Instant,
    ) -> Vec<(String, u64)> {
        let accounts = by_account(durables);
        self.readings.retain(|account, _| accounts.contains_key(account));
        let mut found = Vec::new();
        for (account, durable) in accounts {
            let Some(received) = received.get(&account).copied() else { continue };
            let progress = suspects.get(&durable.name).map(Progress::of);
            let last = self.readings.get(&account);
            let rate = last.map_or(0, |last| last.rate(received, 0, at));
            if rate > self.limit && progress.is_none() {
                // The next reading is compared with the last one.
                continue;
            }
            let above = last.map_or(0, |last| last.above_after(received, progress, at, self.limit));
            if above >= READINGS {
                found.push((durable.name.clone(), rate));
            }
            self.readings.insert(account, Reading { at, received, progress, above });
        }
        found
    }
}

impl Reading {
    /// Returns the messages per second since this reading, without a number of them. The counter starts again with the server.
    fn rate(&self, received: u64, without: u64, at: Instant) -> u64 {
        let messages = received.saturating_sub(self.received).saturating_sub(without);
        let millis = at.duration_since(self.at).as_millis().max(1);
        u64::try_from(u128::from(messages) * 1000 / millis).unwrap_or(u64::MAX)
    }

    /// Returns how many consecutive readings are above the limit with the next one.
    fn above_after(&self, received: u64, progress: Option<Progress>, at: Instant, limit: u64) -> u8 {
        let (Some(before), Some(progress)) = (self.progress, progress) else { return 0 };
        let allowed = MESSAGES_PER_EVENT.saturating_mul(progress.events_since(before));
        if self.rate(received, allowed, at) > limit { self.above.saturating_add(1) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::durables::{DurableFilter, Login};

    const NEVER: [usize; 0] = [];

    fn durable(deliveries: u64, delivered_to: u64) -> Durable {
        Durable {
            name: "siem".to_owned(),
            definition: DurableFilter::default().into(),
            login: Some(Login { account: 7, hash: String::new(), digest: None }),
            suspension: None,
            owner: None,
            streams: Vec::new(),
            filter_subjects: Vec::new(),
            ack_floors: Vec::new(),
            deliveries,
            delivered_to,
            created_at: DateTime::UNIX_EPOCH,
            pending: 0,
            ack_pending: 0,
            redelivered: 0,
            last_delivered_at: None,
            last_acknowledged_at: None,
            is_paused: false,
        }
    }

    /// The messages since the last reading, and the deliveries with the numbers of the stream that the durable has passed. `None` for an
    /// account without connections, or without an answer of the broker.
    type Sample = (Option<u64>, Option<(u64, u64)>);

    /// The numbers of the readings, one per second, after which the login is suspended.
    fn suspended_after(readings: &[Sample]) -> Vec<usize> {
        let (mut rates, start) = (MessageRates::new(10_000), Instant::now());
        let (mut total, mut known) = (0, (0, 0));
        let mut suspended = Vec::new();
        for (number, (messages, delivered)) in readings.iter().enumerate() {
            let at = start + Duration::from_secs(number as u64);
            total += messages.unwrap_or_default();
            let (deliveries, passed) = delivered.unwrap_or_default();
            known = (known.0 + deliveries, known.1 + passed);
            let received = messages.map(|_| (7, total)).into_iter().collect();
            let listed = [durable(0, 0)];
            let suspects = rates.suspects(&received, &listed, at).into_iter();
            let answered = suspects.filter(|_| delivered.is_some());
            let read = answered.map(|name| (name.to_owned(), durable(known.0, known.1))).collect();
            let found = rates.above_limit(&received, &listed, &read, at);
            suspended.extend(found.into_iter().map(|_| number));
        }
        suspended
    }

    #[test]
    fn a_login_above_the_limit_in_consecutive_readings_is_suspended() {
        let (flood, calm) = ((Some(20_000), Some((0, 0))), (Some(10), Some((0, 0))));
        // The first reading has no rate, and the second one no progress.
        assert_eq!(suspended_after(&[flood, flood, flood, flood]), [3]);
        assert_eq!(suspended_after(&[calm, flood, flood, calm, flood, flood, calm]), NEVER);
        assert_eq!(suspended_after(&[(Some(10_000), Some((0, 0))); 9]), NEVER);
        // The events that were read do not suffice, or were delivered again and again.
        assert_eq!(suspended_after(&[(Some(20_000), Some((2_000, 2_000))); 4]), [3]);
        assert_eq!(suspended_after(&[(Some(40_000), Some((20_000, 5))); 4]), [3]);
    }

    #[test]
    fn a_login_that_reads_is_not_suspended_for_its_requests_and_acknowledgements() {
        // Fetches of one event with a progress acknowledgement, and batches. Between the events are those of others.
        for (messages, delivered) in
            [(120_000, (40_000, 40_000)), (40_000, (40_000, 90_000)), (16_000, (4_000, 4_000))]
        {
            assert_eq!(suspended_after(&[(Some(messages), Some(delivered)); 9]), NEVER, "{messages}");
        }
    }

    #[test]
    fn a_login_is_compared_with_the_last_reading_if_one_is_missing() {
        let (flood, absent, unknown) =
            ((Some(50_000), Some((0, 0))), (None, Some((0, 0))), (Some(50_000), None));
        assert_eq!(suspended_after(&[flood, flood, absent, flood, flood]), [4]);
        assert_eq!(suspended_after(&[flood, flood, flood, unknown, flood]), [4]);
    }

    #[test]
    fn messages_of_other_servers_do_not_count() {
        let text = r#"{"account_statz": [
            {"acc": "CONSUMER_3", "received": {"msgs": 100, "gateways": {"msgs": 7}, "routes": {"msgs": 30}, "leafs": {"msgs": 0}}},
            {"acc": "UDM", "received": {"msgs": 5}}
        ]}"#;
        let statistics: Statistics = serde_json::from_str(text).unwrap();
        assert_eq!(statistics.of_consumers(), HashMap::from([(3, 63)]));
    }
}
