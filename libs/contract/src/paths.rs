//! The assignment of path prefixes to services. The router of the single process and the ingress rules of the chart use it.

use crate::API_PREFIX;

/// A service behind the ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Upstream {
    /// Tenants, users, invites, passwords, pages, and unknown paths.
    Identity,
    /// Sessions, device grants, API keys.
    Session,
    /// Events and their consumers, and audit events.
    Ingest,
}

impl Upstream {
    /// Returns the name of the service, as in its binary `svc-<name>`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Session => "session",
            Self::Ingest => "ingest",
        }
    }
}

/// Path prefixes below [`API_PREFIX`] and their services. A prefix matches whole path segments; the longest one applies.
pub const PREFIXES: &[(&str, Upstream)] = &[
    ("/tenants", Upstream::Identity),
    ("/users", Upstream::Identity),
    ("/auth/password", Upstream::Identity),
    ("/auth/second-factor", Upstream::Identity),
    ("/auth/factors", Upstream::Identity),
    ("/auth/passkey", Upstream::Identity),
    ("/mails", Upstream::Identity),
    ("/pages", Upstream::Identity),
    ("/problems", Upstream::Identity),
    ("/docs", Upstream::Identity),
    ("/openapi.json", Upstream::Identity),
    ("/version", Upstream::Identity),
    ("/auth/sessions", Upstream::Session),
    ("/auth/session", Upstream::Session),
    ("/auth/device", Upstream::Session),
    ("/api-keys", Upstream::Session),
    ("/events", Upstream::Ingest),
    ("/consumers", Upstream::Ingest),
    ("/audit", Upstream::Ingest),
    ("/health", Upstream::Ingest),
];

/// Returns the service for a full path (`/api/v1/…`). Identity responds to unknown paths with 404.
pub fn upstream_of(path: &str) -> Upstream {
    path.strip_prefix(API_PREFIX).map_or(Upstream::Identity, upstream_below)
}

/// Returns the service for a path below [`API_PREFIX`].
pub fn upstream_below(below: &str) -> Upstream {
    PREFIXES
        .iter()
        .filter(|(prefix, _)| {
            below.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
        .max_by_key(|(prefix, _)| prefix.len())
        .map_or(Upstream::Identity, |(_, upstream)| *upstream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_of_whole_segments_applies() {
        for (path, upstream) in [
            ("/api/v1/auth/password/login", Upstream::Identity),
            ("/api/v1/auth/session", Upstream::Session),
            ("/api/v1/auth/sessions/logout", Upstream::Session),
            ("/api/v1/auth/sessionsx", Upstream::Identity),
            ("/api/v1/events/batch", Upstream::Ingest),
            ("/api/v1/eventsource", Upstream::Identity),
            ("/api/v1/health", Upstream::Ingest),
            ("/api/v1", Upstream::Identity),
            ("/elsewhere", Upstream::Identity),
        ] {
            assert_eq!(upstream_of(path), upstream, "{path}");
        }
    }
}
