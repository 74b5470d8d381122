//! The connections of a listener. It limits their number, per client address and in total, and the memory of request heads.
//! A new connection replaces the one that has been idle for the longest time. Connections that wait too long for their
//! client are closed.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{io, mem};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connection_metrics::{ConnectionMetrics, Reason};
use crate::LogThrottle;

/// Timeout of a connection without a request. It exceeds the 90 s of common proxies, so that the proxy closes an idle
/// connection and the service never closes one on which a request is in flight.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);
/// Time from the first to the last byte of a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a response of which the client reads nothing. Each byte that the connection accepts starts it again.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time in which a client can still send a request that is rejected already.
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an unfinished request head that need no reservation: each connection has a buffer of this size.
const FREE_HEAD: usize = 8 * 1024;
/// Number of connections that one search for idle connections selects. A search visits all connections.
const CANDIDATES: usize = 128;

/// Limits of a listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections in total.
    pub(super) connections: usize,
    /// Connections per client address. Trusted proxies have no such limit.
    pub(super) per_address: usize,
    /// Bytes of unfinished request heads in total, beyond [`FREE_HEAD`] of each connection.
    pub(super) head_memory: usize,
    /// Requests that wait for the next part of their body.
    pub(super) awaited_bodies: usize,
}

impl Limits {
    /// Limits of a listener for other services.
    pub(super) const INTERNAL: Self = Self::public(usize::MAX);

    pub(super) const fn public(per_address: usize) -> Self {
        Self { connections: 10_000, per_address, head_memory: 24 * 1024 * 1024, awaited_bodies: 1024 }
    }
}

/// State of one connection.
#[derive(Debug)]
pub(super) struct Connection {
    id: u64,
    network: IpAddr,
    pub(super) is_proxy: bool,
    activity: Mutex<Activity>,
    shared: Arc<Shared>,
    task: OnceLock<AbortHandle>,
}

/// What the connections of a listener share.
#[derive(Debug)]
struct Shared {
    limits: Limits,
    head_memory: Arc<Semaphore>,
    awaited_bodies: AtomicUsize,
    too_many_bodies: Notify,
    metrics: ConnectionMetrics,
}

#[derive(Debug)]
struct Activity {
    phase: Phase,
    since: Instant,
    /// Since when the response waits for the client to read.
    write_blocked: Option<Instant>,
    /// Since when the handler waits for the request body.
    body_awaited: Option<Instant>,
    body: BodyState,
}

/// How far the body of the last request is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyState {
    /// Read to its end, or still being read.
    Read,
    /// Not read, and so short that it usually arrives with the head: the server discards it and keeps the connection.
    UnreadShort,
    /// Not read to its end. The server closes the connection after the response.
    Unread,
}

#[derive(Debug)]
enum Phase {
    /// Waits for a request.
    Idle,
    /// A part of a request head was received.
    Head { received: usize, reserved: Option<OwnedSemaphorePermit> },
    /// A request is in flight.
    Request,
    /// The response is sent, and the rest of the request is discarded.
    Closing,
}

/// Order in which connections are closed for new ones: connections of proxies last, because they serve many clients;
/// requests in flight after idle connections; then the longest wait first.
type Rank = (bool, bool, Instant);

impl Connection {
    /// Records received bytes.
    ///
    /// # Errors
    /// The memory of request heads is used up.
    pub(super) fn received(&self, count: usize) -> io::Result<()> {
        let mut activity = self.activity();
        if matches!(activity.phase, Phase::Idle) {
            activity.enter(Phase::Head { received: 0, reserved: None });
        }
        let Phase::Head { received, reserved } = &mut activity.phase else { return Ok(()) };
        let beyond = |received: usize| received.saturating_sub(FREE_HEAD);
        let more = beyond(*received + count) - beyond(*received);
        *received += count;
        if more > 0 {
            let more = u32::try_from(more).map_err(io::Error::other)?;
            let permit = Arc::clone(&self.shared.head_memory).try_acquire_many_owned(more);
            let permit = permit.map_err(|_| {
                self.shared.metrics.closed(Reason::HeadMemory);
                io::Error::other("memory of request heads is used up")
            })?;
            match reserved {
                Some(reserved) => reserved.merge(permit),
                None => *reserved = Some(permit),
            }
        }
        Ok(())
    }

    /// Records that a request head is complete.
    pub(super) fn request_started(&self) {
        let mut activity = self.activity();
        activity.enter(Phase::Request);
        activity.body = BodyState::Read;
    }

    /// Records that a response is complete, or that it is dropped.
    pub(super) fn response_ended(&self) {
        self.activity().enter(Phase::Idle);
    }

    /// Records whether the connection accepts no data of the response.
    pub(super) fn write_blocked(&self, is_blocked: bool) {
        let mut activity = self.activity();
        activity.write_blocked = is_blocked.then(|| activity.write_blocked.unwrap_or_else(Instant::now));
    }

    /// Records whether the handler waits for the request body.
    pub(super) fn body_awaited(&self, is_awaited: bool) {
        let mut activity = self.activity();
        let was_awaited = activity.body_awaited.is_some();
        if is_awaited && !was_awaited {
            activity.body_awaited = Some(Instant::now());
            let awaited = self.shared.awaited_bodies.fetch_add(1, Ordering::Relaxed);
            if awaited >= self.shared.limits.awaited_bodies {
                self.shared.too_many_bodies.notify_one();
            }
            // Bounds the memory while the search for the slowest ones has not finished.
            if awaited >= 2 * self.shared.limits.awaited_bodies {
                self.abort(Reason::BodyLimit);
            }
        }
        if was_awaited && !is_awaited {
            activity.body_awaited = None;
            self.shared.awaited_bodies.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Records that the request body ended or is dropped.
    pub(super) fn body_ended(&self, state: BodyState) {
        self.body_awaited(false);
        self.activity().body = state;
    }

    /// Returns whether the server closes the connection after the response because a part of the request is unread.
    pub(super) fn closes_after_response(&self) -> bool {
        self.activity().body == BodyState::Unread
    }

    /// Records that the server closes the connection. Returns whether the client can still be sending a request.
    pub(super) fn closing(&self) -> bool {
        let mut activity = self.activity();
        let is_incomplete = activity.body != BodyState::Read || matches!(activity.phase, Phase::Head { .. });
        activity.enter(Phase::Closing);
        is_incomplete
    }

    /// Returns whether the client exceeded a timeout.
    fn is_expired(&self, now: Instant) -> bool {
        let activity = self.activity();
        let timeout = match activity.phase {
            Phase::Idle => Some(IDLE_TIMEOUT),
            Phase::Head { .. } => Some(HEAD_TIMEOUT),
            Phase::Request => None,
            Phase::Closing => Some(LINGER_TIMEOUT),
        };
        // A response that is still being sent is measured by its progress only.
        match activity.write_blocked {
            Some(since) => now.duration_since(since) >= WRITE_TIMEOUT,
            None => timeout.is_some_and(|timeout| now.duration_since(activity.since) >= timeout),
        }
    }

    /// Returns the rank of a connection that waits for its client, or `None` if it waits for the service.
    fn rank(&self) -> Option<Rank> {
        let activity = self.activity();
        let blocked = activity.write_blocked.or(activity.body_awaited);
        match (blocked, &activity.phase) {
            (Some(since), _) => Some((self.is_proxy, true, since)),
            (None, Phase::Request) => None,
            (None, _) => Some((self.is_proxy, false, activity.since)),
        }
    }

    /// Sets the task that serves the connection. Closing the connection aborts the task.
    pub(super) fn set_task(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }

    fn abort(&self, reason: Reason) {
        self.shared.metrics.closed(reason);
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Activity {
    fn new() -> Self {
        Self {
            phase: Phase::Idle,
            since: Instant::now(),
            write_blocked: None,
            body_awaited: None,
            body: BodyState::Read,
        }
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.since) = (phase, Instant::now());
    }
}

/// The connections of a listener.
#[derive(Debug)]
pub(super) struct Connections {
    shared: Arc<Shared>,
    table: Mutex<Table>,
    limit_reached: LogThrottle,
}

#[derive(Debug, Default)]
struct Table {
    networks: HashMap<IpAddr, HashMap<u64, Arc<Connection>>>,
    count: usize,
    last_id: u64,
    /// Connections to close for new ones, the next one last.
    candidates: Vec<(Rank, Arc<Connection>)>,
}

/// No connection can be closed for a new one: all wait for the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// All connections of the client address are in use.
    Address,
    /// All connections of the listener are in use.
    Listener,
}

impl Connections {
    pub(super) fn new(limits: Limits, metrics: ConnectionMetrics) -> Arc<Self> {
        let shared = Shared {
            limits,
            head_memory: Arc::new(Semaphore::new(limits.head_memory)),
            awaited_bodies: AtomicUsize::new(0),
            too_many_bodies: Notify::new(),
            metrics,
        };
        Arc::new(Self {
            shared: Arc::new(shared),
            table: Mutex::default(),
            limit_reached: LogThrottle::default(),
        })
    }

    /// Adds a connection. If a limit is reached, closes the connection that has been idle for the longest time.
    ///
    /// # Errors
    /// No connection is idle.
    pub(super) fn add(self: &Arc<Self>, peer: IpAddr, is_proxy: bool) -> Result<Registration, Full> {
        let (mut table, network, limits) = (self.table(), network(peer), &self.shared.limits);
        let count = table.networks.get(&network).map_or(0, HashMap::len);
        if !is_proxy && count >= limits.per_address {
            self.log_limit(
                "connection limit of a client address reached; longest idle connection closed",
                peer,
            );
            table.close_idle_of(network).ok_or_else(|| {
                self.shared.metrics.closed(Reason::Rejected);
                Full::Address
            })?;
        }
        if table.count >= limits.connections {
            self.log_limit("connection limit reached; longest idle connection closed", peer);
            table.close_idle().ok_or(Full::Listener)?;
        }
        let connection = Arc::new(Connection {
            id: table.next_id(),
            network,
            is_proxy,
            activity: Mutex::new(Activity::new()),
            shared: Arc::clone(&self.shared),
            task: OnceLock::new(),
        });
        table.insert(Arc::clone(&connection));
        Ok(Registration { connections: Arc::clone(self), connection })
    }

    /// Closes the connection that has been idle for the longest time, if there is one.
    pub(super) fn close_idle(&self) {
        let _ = self.table().close_idle();
    }

    /// Closes all connections that exceeded a timeout.
    pub(super) fn close_expired(&self) {
        let now = Instant::now();
        let mut table = self.table();
        let all = table.networks.values().flat_map(HashMap::values);
        let expired: Vec<_> = all.filter(|connection| connection.is_expired(now)).cloned().collect();
        for connection in expired {
            table.close(&connection, Reason::Timeout);
        }
    }

    #[cfg(test)]
    pub(super) fn metrics(&self) -> &ConnectionMetrics {
        &self.shared.metrics
    }

    /// Waits until too many requests wait for their bodies.
    pub(super) async fn too_many_bodies(&self) {
        self.shared.too_many_bodies.notified().await;
    }

    /// Closes connections that wait for a part of their body: those of the networks with the most of them first, and of one network
    /// those that have waited for the longest time. Closes more than necessary, because a search visits all connections.
    pub(super) fn close_slow_bodies(&self) {
        let limit = self.shared.limits.awaited_bodies;
        let mut table = self.table();
        let all = table.networks.values().flat_map(HashMap::values);
        let since = |connection: &Connection| connection.activity().body_awaited;
        let mut slow: Vec<_> = all.filter_map(|c| Some((since(c)?, Arc::clone(c)))).collect();
        if slow.len() > limit {
            slow.sort_unstable_by_key(|(since, _)| Reverse(*since));
            let mut counts = HashMap::new();
            // Each with the number of connections of its network that have waited as long or less.
            let mut ranked: Vec<_> = slow
                .iter()
                .map(|(since, connection)| {
                    let count = counts.entry(connection.network).or_insert(0_usize);
                    *count += 1;
                    (Reverse(*count), *since, connection)
                })
                .collect();
            ranked.sort_unstable_by_key(|(count, since, _)| (*count, *since));
            for (_, _, connection) in &ranked[..ranked.len() - limit * 7 / 8] {
                table.close(connection, Reason::BodyLimit);
            }
        }
    }

    fn log_limit(&self, message: &'static str, peer: IpAddr) {
        if self.limit_reached.is_due() {
            tracing::warn!(%peer, "{message}");
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn insert(&mut self, connection: Arc<Connection>) {
        connection.shared.metrics.open.inc();
        self.networks.entry(connection.network).or_default().insert(connection.id, connection);
        self.count += 1;
    }

    fn remove(&mut self, connection: &Connection) -> bool {
        let Some(network) = self.networks.get_mut(&connection.network) else { return false };
        let is_removed = network.remove(&connection.id).is_some();
        if network.is_empty() {
            self.networks.remove(&connection.network);
        }
        if is_removed {
            self.count -= 1;
            connection.shared.metrics.open.dec();
        }
        is_removed
    }

    fn close(&mut self, connection: &Connection, reason: Reason) {
        self.remove(connection);
        connection.abort(reason);
    }

    fn close_idle_of(&mut self, network: IpAddr) -> Option<()> {
        let own = self.networks.get(&network)?.values();
        let ranked = own.filter_map(|connection| Some((connection.rank()?, connection)));
        let (_, connection) = ranked.min_by_key(|(rank, _)| *rank)?;
        let connection = Arc::clone(connection);
        self.close(&connection, Reason::AddressLimit);
        Some(())
    }

    /// A search visits all connections, so one search serves many calls. A candidate that was used since is skipped.
    fn close_idle(&mut self) -> Option<()> {
        for _ in 0..2 {
            while let Some((rank, connection)) = self.candidates.pop() {
                if connection.rank() == Some(rank) && self.remove(&connection) {
                    connection.abort(Reason::Limit);
                    return Some(());
                }
            }
            self.find_candidates();
        }
        None
    }

    fn find_candidates(&mut self) {
        let all = self.networks.values().flat_map(HashMap::values);
        let mut ranked: Vec<_> = all.filter_map(|c| Some((c.rank()?, Arc::clone(c)))).collect();
        if ranked.len() > CANDIDATES {
            ranked.select_nth_unstable_by_key(CANDIDATES, |(rank, _)| *rank);
            ranked.truncate(CANDIDATES);
        }
        ranked.sort_unstable_by_key(|(rank, _)| std::cmp::Reverse(*rank));
        self.candidates = ranked;
    }
}

/// Keeps a connection in the table until it is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    connections: Arc<Connections>,
    pub(super) connection: Arc<Connection>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.connections.table().remove(&self.connection);
        // A reservation ends with the connection, even if a list of candidates still contains it.
        drop(mem::replace(&mut self.connection.activity().phase, Phase::Closing));
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
    fn documented_limits_of_connections_are_those_of_the_public_listener() {
        let limits = Limits::public(256);
        let mebibytes = |bytes: usize| bytes / (1024 * 1024);
        for (limit, value) in [
            ("connections in total", limits.connections.to_string()),
            ("connection without a request", format!("{} min", IDLE_TIMEOUT.as_secs() / 60)),
            (
                "time from the first to the last byte of a request head",
                format!("{} s", HEAD_TIMEOUT.as_secs()),
            ),
            (
                &*format!("memory of unfinished request heads beyond {} KiB each", FREE_HEAD / 1024),
                format!("{} MiB in total", mebibytes(limits.head_memory)),
            ),
            ("requests that wait for a part of their body", limits.awaited_bodies.to_string()),
            ("response of which the client reads nothing", format!("{} s", WRITE_TIMEOUT.as_secs())),
        ] {
            assert_eq!(documented(limit), value, "{limit}");
        }
        assert_eq!(limits.per_address, 256);
    }
}
