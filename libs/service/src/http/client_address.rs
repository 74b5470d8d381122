//! Client address of a request: the peer of the connection, or an entry of `X-Forwarded-For` from a trusted proxy. The
//! header of any other sender is ignored, so that a client cannot bypass rate limits with it.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use super::PeerAddress;
use crate::LogThrottle;
use crate::config::{Reader, Variable, Variables};

/// Senders of a trusted `X-Forwarded-For`.
const TRUSTED_PROXIES: Variable =
    Variable::new("SVC_TRUSTED_PROXIES", "networks in CIDR notation, separated by commas").meaning(
        "Reverse proxies in front of the services. The client address is the rightmost entry of X-Forwarded-For that is not one of them. Without it, the client address is the peer of the connection.",
    );

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Client address of a request, as a request extension. IPv4-mapped IPv6 addresses become IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// Address without a connection, when a router is called directly.
const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

impl<S: Sync> FromRequestParts<S> for ClientAddress {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or(Self(UNKNOWN)))
    }
}

/// Reverse proxies in front of the services. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Arc<Networks>);

#[derive(Debug, Default)]
struct Networks {
    networks: Vec<IpNet>,
    ignored: LogThrottle,
}

impl FromStr for TrustedProxies {
    type Err = ipnet::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let networks = text.split(',').map(|network| network.trim().parse()).collect::<Result<_, _>>()?;
        Ok(Self(Arc::new(Networks { networks, ignored: LogThrottle::default() })))
    }
}

impl Variables for TrustedProxies {
    fn variables() -> Vec<Variable> {
        vec![TRUSTED_PROXIES]
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        reader.optional(&TRUSTED_PROXIES).map(Option::unwrap_or_default)
    }
}

impl TrustedProxies {
    /// Returns the client address: the rightmost entry of `X-Forwarded-For` that is not a trusted proxy.
    pub(super) fn client(&self, peer: Option<&PeerAddress>, headers: &HeaderMap) -> ClientAddress {
        let mut client = peer.map_or(UNKNOWN, |PeerAddress(peer)| peer.ip().to_canonical());
        if !headers.contains_key(X_FORWARDED_FOR) {
            return ClientAddress(client);
        }
        if !self.contains(client) {
            self.log_untrusted(client);
            return ClientAddress(client);
        }
        let values = headers.get_all(X_FORWARDED_FOR).iter().rev();
        for entry in values.flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b',')) {
            // An entry that is not an address ends the search. The trusted entries to its right remain valid.
            let Some(address) = address(entry) else { break };
            client = address;
            if !self.contains(client) {
                break;
            }
        }
        ClientAddress(client)
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.0.networks.iter().any(|network| network.contains(&address))
    }

    fn log_untrusted(&self, peer: IpAddr) {
        if self.0.ignored.is_due() {
            tracing::warn!(%peer, "ignored X-Forwarded-For: sender is not in SVC_TRUSTED_PROXIES");
        }
    }
}

/// Parses one entry; some proxies add a port. Entries are parsed separately, so that invalid bytes of a client do not
/// invalidate the entries of proxies.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let entry = std::str::from_utf8(entry).ok()?.trim();
    let address = entry.parse().or_else(|_| entry.parse::<SocketAddr>().map(|socket| socket.ip()));
    Some(address.ok()?.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn client(trusted: &str, peer: &str, values: &[impl AsRef<[u8]>]) -> String {
        let proxies: TrustedProxies = trusted.parse().unwrap();
        let peer = PeerAddress(SocketAddr::new(peer.parse().unwrap(), 4000));
        let headers = values
            .iter()
            .map(|value| (X_FORWARDED_FOR, HeaderValue::from_bytes(value.as_ref()).unwrap()))
            .collect();
        proxies.client(Some(&peer), &headers).0.to_string()
    }

    #[test]
    fn takes_the_rightmost_address_that_is_not_a_trusted_proxy() {
        for (peer, said, expected) in [
            ("198.51.100.1", &[][..], "198.51.100.1"),
            ("198.51.100.1", &["203.0.113.9"], "198.51.100.1"),
            ("10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["1.1.1.1, 203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["1.1.1.1, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
            ("10.0.0.1", &["1.1.1.1", "203.0.113.9", "10.0.0.2"], "203.0.113.9"),
            ("10.0.0.1", &["nonsense"], "10.0.0.1"),
            ("10.0.0.1", &["größe, 203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["203.0.113.9, nonsense"], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9, nonsense, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("10.0.0.1", &["10.0.0.3"], "10.0.0.3"),
            ("::ffff:10.0.0.1", &["::ffff:203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["203.0.113.9:5123"], "203.0.113.9"),
            ("fd00::1", &["[2001:db8::7]:443"], "2001:db8::7"),
            ("fd00::1", &["2001:db8::7"], "2001:db8::7"),
        ] {
            assert_eq!(client("10.0.0.0/8, fd00::/8", peer, said), expected, "{peer} {said:?}");
        }
    }

    #[test]
    fn networks_use_cidr_notation() {
        assert!("10.0.0.0/8,fd00::/8".parse::<TrustedProxies>().is_ok());
        for bad in ["", "10.0.0.0/8,", "10.0.0.0", "10.0.0.0/33", "proxy.example"] {
            assert!(bad.parse::<TrustedProxies>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_client_cannot_choose_its_address(said in "[ -~]{0,60}|[ -~\u{80}-\u{2fff}]{0,60}", peer in any::<u32>()) {
            let peer = Ipv4Addr::from(peer);
            prop_assume!(peer.octets()[0] != 10);
            prop_assert_eq!(client("10.0.0.0/8", &peer.to_string(), &[said.as_str()]), peer.to_string());
            // Nor behind a proxy: the proxy appends the peer, and only that entry counts.
            let said = format!("{said}, {peer}");
            prop_assert_eq!(client("10.0.0.0/8", "10.0.0.1", &[said.as_str()]), peer.to_string());
        }
    }
}
