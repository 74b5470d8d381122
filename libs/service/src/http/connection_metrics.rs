//! Metrics of the connections of the public listener.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::telemetry::{Labels, Metrics};

/// Metrics of the connections of a listener. The default is not exposed.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionMetrics {
    pub(super) open: Gauge,
    closed: Family<Labels, Counter>,
}

/// Why the service closes a connection before its client does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// A new connection of the same client address replaced it.
    AddressLimit,
    /// A new connection replaced it, because the listener or the process had too many.
    Limit,
    /// It is new, and all connections of its client address are in use.
    Rejected,
    /// It waited too long for its client.
    Timeout,
    /// Too many requests waited for their bodies.
    BodyLimit,
    /// The memory of request heads was used up.
    HeadMemory,
}

impl Reason {
    const ALL: [Self; 6] =
        [Self::AddressLimit, Self::Limit, Self::Rejected, Self::Timeout, Self::BodyLimit, Self::HeadMemory];

    const fn as_str(self) -> &'static str {
        match self {
            Self::AddressLimit => "address_limit",
            Self::Limit => "limit",
            Self::Rejected => "rejected",
            Self::Timeout => "timeout",
            Self::BodyLimit => "body_limit",
            Self::HeadMemory => "head_memory",
        }
    }
}

impl ConnectionMetrics {
    /// Registers the metrics.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let open = metrics.metric("connections_open", "Open connections of clients", &[]);
        let help = "Connections of clients that the service closed or rejected, by reason";
        let these = Self { open, closed: metrics.family("connections_closed", help) };
        for reason in Reason::ALL {
            drop(these.closed.get_or_create(&labels(reason)));
        }
        these
    }

    pub(super) fn closed(&self, reason: Reason) {
        self.closed.get_or_create(&labels(reason)).inc();
    }

    /// The number of connections that were closed for a reason.
    #[cfg(test)]
    pub(super) fn closed_for(&self, reason: Reason) -> u64 {
        self.closed.get_or_create(&labels(reason)).get()
    }
}

fn labels(reason: Reason) -> Labels {
    vec![("reason", reason.as_str().into())]
}
