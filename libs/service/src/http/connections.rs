//! The connections of a listener. It limits their number, per client address and in total, and the number of requests that wait for
//! their body. At a limit, it closes the connections that have waited for their client for the longest time. It also closes those that
//! wait too long.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pace::BodyPace;
use crate::telemetry::{Labels, Metrics};

/// Timeout of a connection without a request. It exceeds the 90 s of common proxies, so that the proxy closes an idle
/// connection and the service never closes one on which a request is in flight.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);
/// Time from the first to the last byte of a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a response of which the client reads nothing. Each byte that the connection accepts starts it again.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time in which a client that has closed its side gets the next part of the response. A client that is gone looks the same.
const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(10);
/// Time in which a client can still send a request that is rejected already.
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the service closes a connection before its client does: a new connection of the same address, or of any, replaced it; it is new,
/// and no other one waits for its client; it waited too long for its client; the bodies of too many requests were being received.
const REASONS: [&str; 5] = ["address_limit", "limit", "rejected", "timeout", "body_limit"];

/// Metrics of the connections of a listener. The default is not exposed.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionMetrics {
    pub(super) open: Gauge,
    closed: Family<Labels, Counter>,
}

impl ConnectionMetrics {
    /// Registers the metrics.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let open = metrics.metric("connections_open", "Open connections of clients", &[]);
        let help = "Connections of clients that the service closed or rejected, by reason";
        let these = Self { open, closed: metrics.family("connections_closed", help) };
        for reason in REASONS {
            drop(these.closed(reason));
        }
        these
    }

    /// Returns the counter of connections that were closed for a reason.
    pub(super) fn closed(&self, reason: &'static str) -> Counter {
        self.closed.get_or_create_owned(&vec![("reason", reason.into())])
    }
}

/// Limits of a listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections in total.
    pub(super) connections: usize,
    /// Connections per client address. Trusted proxies have no such limit.
    pub(super) per_address: usize,
    /// Requests of which the body is being received.
    pub(super) bodies: usize,
    pub(super) pace: BodyPace,
}

impl Limits {
    pub(super) const fn new(per_address: usize, pace: BodyPace) -> Self {
        Self { connections: 10_000, per_address, bodies: 1024, pace }
    }
}

/// Activity of one connection.
#[derive(Debug)]
pub(super) struct Connection {
    network: IpAddr,
    id: u64,
    pub(super) is_proxy: bool,
    activity: Mutex<Activity>,
    connections: Arc<Connections>,
    /// Cancelled when the connection is closed for its client.
    pub(super) closed: CancellationToken,
    /// Notified when the connection has been idle for the time in which a request head must be complete.
    pub(super) check: Notify,
}

#[derive(Debug)]
struct Activity {
    phase: Phase,
    since: Instant,
    /// Since when the response waits for the client to read.
    write_blocked: Option<Instant>,
    /// Since when the client sends nothing more, or the last part of the response after that.
    half_closed: Option<Instant>,
    /// Reads the end of such a connection after the response.
    end_reader: Option<Waker>,
    /// Waits for more of the request body.
    body_reader: Option<Waker>,
    /// The response announces that the server closes the connection.
    is_last: bool,
    /// The connection is idle and was checked for the start of a request.
    is_checked: bool,
    /// Time in which the body of the request was received.
    body_time: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for a request.
    Idle,
    /// A part of a request head was received.
    Head,
    /// The request body is being received.
    Body,
    /// The service handles the request.
    Handling,
    /// The response is sent, and the rest of the request is discarded.
    Closing,
}

impl Connection {
    /// Records received bytes.
    pub(super) fn received(&self) {
        if self.activity().phase == Phase::Idle {
            drop(self.enter(Phase::Head));
        }
    }

    /// Records that the client has closed its side of the connection. Returns whether it waits for a response: the task is then woken
    /// when the connection has accepted the response.
    pub(super) fn half_closed(&self, cx: &Context<'_>) -> bool {
        let mut activity = self.activity();
        activity.half_closed.get_or_insert_with(Instant::now);
        let is_waiting =
            matches!(activity.phase, Phase::Body | Phase::Handling) || activity.write_blocked.is_some();
        activity.end_reader = is_waiting.then(|| cx.waker().clone());
        let body_reader = activity.body_reader.take();
        drop(activity);
        body_reader.iter().for_each(Waker::wake_by_ref);
        is_waiting
    }

    /// Records that a task waits for more of the request body. Returns whether the client sends nothing more.
    pub(super) fn waits_for_body(&self, cx: &Context<'_>) -> bool {
        let mut activity = self.activity();
        activity.body_reader = Some(cx.waker().clone());
        activity.half_closed.is_some()
    }

    /// Records that a request head is complete.
    pub(super) fn request_started(&self) {
        self.enter(Phase::Handling).body_time = Duration::ZERO;
    }

    /// Records that the service waits for the request body.
    pub(super) fn body_started(&self) {
        drop(self.enter(Phase::Body));
        self.connections.limit_bodies();
    }

    /// The slowest rate at which the client can send a body.
    pub(super) fn pace(&self) -> BodyPace {
        self.connections.limits.pace
    }

    /// Records that the client has sent so much of the body that its deadline has moved on.
    pub(super) fn body_progressed(&self) {
        self.activity().since = Instant::now();
    }

    /// Records that the service waits no longer for the request body, and for how long it has waited.
    pub(super) fn body_ended(&self, waited: Duration) {
        self.enter(Phase::Handling).body_time += waited;
    }

    /// Time in which the body of the request was received.
    pub(super) fn body_time(&self) -> Duration {
        self.activity().body_time
    }

    /// Returns since when the client waits for the service. While the service waits for the client, it is the current time.
    pub(super) fn handled_since(&self) -> Instant {
        let activity = self.activity();
        if activity.phase == Phase::Handling { activity.since } else { Instant::now() }
    }

    /// Records that a response is complete, or that it is dropped.
    pub(super) fn response_ended(&self) {
        let end_reader = self.enter(Phase::Idle).end_reader.take();
        end_reader.iter().for_each(Waker::wake_by_ref);
    }

    /// Records whether the connection accepts no data of the response.
    pub(super) fn write_blocked(&self, is_blocked: bool) {
        let mut activity = self.activity();
        activity.write_blocked = is_blocked.then(|| activity.write_blocked.unwrap_or_else(Instant::now));
        if !is_blocked {
            activity.half_closed = activity.half_closed.map(|_| Instant::now());
            let end_reader = activity.end_reader.take();
            drop(activity);
            end_reader.iter().for_each(Waker::wake_by_ref);
        }
    }

    /// Records that the server closes the connection after the response.
    pub(super) fn closes_after_response(&self) {
        self.activity().is_last = true;
    }

    /// Records that the server closes the connection. Returns whether the client can still be sending a request: always, except if a
    /// drain closes a connection that is idle.
    pub(super) fn closing(&self) -> bool {
        let is_idle = self.activity().phase == Phase::Idle && self.connections.draining.is_cancelled();
        self.enter(Phase::Closing).is_last || !is_idle
    }

    /// Returns whether the connection waits for a request, and its client has the previous response.
    pub(super) fn is_idle(&self) -> bool {
        let activity = self.activity();
        activity.phase == Phase::Idle && activity.write_blocked.is_none()
    }

    /// Requests a check of the connection, once while it is idle.
    fn check_if_idle(&self, now: Instant) {
        let mut activity = self.activity();
        if activity.phase == Phase::Idle
            && !activity.is_checked
            && now.duration_since(activity.since) >= HEAD_TIMEOUT
        {
            activity.is_checked = true;
            self.check.notify_one();
        }
    }

    /// Closes the connection, because the rest of a request head did not arrive in time.
    pub(super) fn timed_out(&self) {
        self.connections.close(&mut self.connections.open(), self, "timeout");
    }

    /// Returns whether the client exceeded a timeout.
    fn is_expired(&self, now: Instant) -> bool {
        let activity = self.activity();
        let is_over = |since: Instant| now.duration_since(since) >= HALF_CLOSED_TIMEOUT;
        if activity.half_closed.is_some_and(is_over) {
            return true;
        }
        // A response that is still being sent is measured by its progress only.
        let (since, timeout) = match (activity.write_blocked, activity.phase) {
            (Some(since), _) => (since, WRITE_TIMEOUT),
            (None, Phase::Idle) => (activity.since, IDLE_TIMEOUT),
            (None, Phase::Head) => (activity.since, HEAD_TIMEOUT),
            (None, Phase::Closing) => (activity.since, LINGER_TIMEOUT),
            (None, Phase::Body | Phase::Handling) => return false,
        };
        now.duration_since(since) >= timeout
    }

    /// Returns since when the connection waits for its client, or `None` if the client waits for the service.
    fn waits_since(&self) -> Option<Instant> {
        let activity = self.activity();
        activity.write_blocked.or((activity.phase != Phase::Handling).then_some(activity.since))
    }

    fn enter(&self, phase: Phase) -> MutexGuard<'_, Activity> {
        let (mut activity, bodies) = (self.activity(), &self.connections.bodies);
        if phase == Phase::Body {
            bodies.fetch_add(1, Ordering::Relaxed);
        }
        if activity.phase == Phase::Body {
            bodies.fetch_sub(1, Ordering::Relaxed);
        }
        (activity.phase, activity.since, activity.is_checked) = (phase, Instant::now(), false);
        activity
    }

    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock()
    }
}

/// By network and id.
type Open = BTreeMap<(IpAddr, u64), Arc<Connection>>;

/// The connections of a listener.
#[derive(Debug)]
pub(super) struct Connections {
    limits: Limits,
    pub(super) metrics: ConnectionMetrics,
    open: Mutex<Open>,
    last_id: AtomicU64,
    /// Requests of which the body is being received.
    bodies: AtomicUsize,
    /// Cancelled when the listener accepts no more connections.
    pub(super) draining: CancellationToken,
}

impl Connections {
    pub(super) fn new(limits: Limits, metrics: ConnectionMetrics) -> Arc<Self> {
        let (open, last_id, bodies) = (Mutex::default(), AtomicU64::default(), AtomicUsize::default());
        Arc::new(Self { limits, metrics, open, last_id, bodies, draining: CancellationToken::new() })
    }

    /// Adds a connection. At a limit, closes the connections that have waited for their client for the longest time. Returns `None` if
    /// all connections wait for the service.
    pub(super) fn add(self: &Arc<Self>, peer: IpAddr, is_proxy: bool) -> Option<Registration> {
        let (mut open, network) = (self.open(), network(peer));
        let own = || open.range((network, 0)..=(network, u64::MAX)).map(|(_, connection)| connection);
        let has_place = if !is_proxy && own().count() >= self.limits.per_address {
            let waiting = waiting(own());
            self.close_longest(&mut open, waiting, 1, "address_limit")
        } else {
            open.len() < self.limits.connections || self.close_waiting(&mut open)
        };
        if !has_place {
            self.metrics.closed("rejected").inc();
            return None;
        }
        let connection = Arc::new(Connection {
            network,
            id: self.last_id.fetch_add(1, Ordering::Relaxed),
            is_proxy,
            activity: Mutex::new(Activity {
                phase: Phase::Idle,
                since: Instant::now(),
                write_blocked: None,
                half_closed: None,
                end_reader: None,
                body_reader: None,
                is_last: false,
                is_checked: false,
                body_time: Duration::ZERO,
            }),
            connections: Arc::clone(self),
            closed: CancellationToken::new(),
            check: Notify::new(),
        });
        open.insert((network, connection.id), Arc::clone(&connection));
        self.metrics.open.inc();
        Some(Registration(connection))
    }

    /// Closes the connections that have waited for their client for the longest time. Returns whether there was one.
    pub(super) fn close_longest_waiting(&self) -> bool {
        self.close_waiting(&mut self.open())
    }

    /// Closes all connections that exceeded a timeout.
    pub(super) fn close_expired(&self) {
        let (mut open, now) = (self.open(), Instant::now());
        open.values().for_each(|connection| connection.check_if_idle(now));
        let expired: Vec<_> =
            open.values().filter(|connection| connection.is_expired(now)).cloned().collect();
        for connection in expired {
            self.close(&mut open, &connection, "timeout");
        }
    }

    fn limit_bodies(&self) {
        if self.bodies.load(Ordering::Relaxed) > self.limits.bodies {
            let (mut open, limit) = (self.open(), self.limits.bodies);
            let bodies =
                waiting(open.values().filter(|connection| connection.activity().phase == Phase::Body));
            // The counter can include connections that are closed already.
            if bodies.len() > limit {
                let count = bodies.len() - limit * 7 / 8;
                self.close_longest(&mut open, bodies, count, "body_limit");
            }
        }
    }

    /// Closes several of many, because a search visits all connections.
    fn close_waiting(&self, open: &mut Open) -> bool {
        let (waiting, count) = (waiting(open.values()), self.limits.connections.div_ceil(128));
        self.close_longest(open, waiting, count, "limit")
    }

    fn close_longest(
        &self,
        open: &mut Open,
        mut waiting: Vec<(Instant, Arc<Connection>)>,
        count: usize,
        reason: &'static str,
    ) -> bool {
        waiting.sort_unstable_by_key(|(since, _)| *since);
        for (_, connection) in waiting.iter().take(count) {
            self.close(open, connection, reason);
        }
        !waiting.is_empty()
    }

    fn close(&self, open: &mut Open, connection: &Connection, reason: &'static str) {
        self.metrics.closed(reason).inc();
        self.remove(open, connection);
        connection.closed.cancel();
    }

    fn remove(&self, open: &mut Open, connection: &Connection) {
        if open.remove(&(connection.network, connection.id)).is_some() {
            self.metrics.open.dec();
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock()
    }
}

fn waiting<'a>(connections: impl Iterator<Item = &'a Arc<Connection>>) -> Vec<(Instant, Arc<Connection>)> {
    connections.filter_map(|connection| Some((connection.waits_since()?, Arc::clone(connection)))).collect()
}

/// Keeps a connection in the table until it is dropped.
#[derive(Debug)]
pub(super) struct Registration(pub(super) Arc<Connection>);

impl Drop for Registration {
    fn drop(&mut self) {
        let connections = &self.0.connections;
        connections.remove(&mut connections.open(), &self.0);
        drop(self.0.enter(Phase::Closing));
    }
}

/// The unit of the limit per address: an IPv4 address, or the /64 network of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of a limit in the table of the documentation.
    fn documented(limit: &str) -> String {
        let document = include_str!("../../../../docs/limits.md");
        let start = format!("| {limit} | ");
        let row = document.lines().find_map(|line| line.strip_prefix(&start)).expect(limit);
        row.split_once(" | ").expect(limit).0.replace(',', "")
    }

    #[test]
    fn documented_limits_of_connections_are_those_of_the_listener() {
        let limits = Limits::new(256, BodyPace::DEFAULT);
        for (limit, value) in [
            ("connections in total", limits.connections.to_string()),
            ("connection without a request", format!("{} min", IDLE_TIMEOUT.as_secs() / 60)),
            (
                "time from the first to the last byte of a request head",
                format!("{} s", HEAD_TIMEOUT.as_secs()),
            ),
            ("requests of which the body is being received", limits.bodies.to_string()),
            (
                "pause of a response to a client that has closed its side of the connection",
                format!("{} s", HALF_CLOSED_TIMEOUT.as_secs()),
            ),
            ("response of which the client reads nothing", format!("{} s", WRITE_TIMEOUT.as_secs())),
        ] {
            assert_eq!(documented(limit), value, "{limit}");
        }
        assert_eq!(limits.per_address, 256);
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_bodies_those_without_progress_for_the_longest_time_are_closed() {
        let limits = Limits { bodies: 8, ..Limits::new(256, BodyPace::DEFAULT) };
        let connections = Connections::new(limits, ConnectionMetrics::default());
        let mut open = Vec::new();
        for host in 1..=9 {
            open.push(connections.add(IpAddr::from([192, 0, 2, host]), false).unwrap());
        }
        for connection in &open[..8] {
            connection.0.body_started();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        for uploading in &open[..2] {
            uploading.0.body_progressed();
        }
        open[8].0.body_started();
        let closed: Vec<_> = (0..9).filter(|at| open[*at].0.closed.is_cancelled()).collect();
        assert_eq!(closed, [2, 3]);
    }
}
