//! Client address of a request: the peer of the connection, or an entry of `X-Forwarded-For` from a trusted proxy. The
//! header of any other sender is ignored, so that a client cannot bypass rate limits with it.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use crate::LogThrottle;
use crate::config::{Reader, Variable, Variables};

/// Networks of the proxies.
const TRUSTED_PROXIES: Variable =
    Variable::new("SVC_TRUSTED_PROXIES", "addresses, or networks in CIDR notation, separated by commas")
        .meaning(
            "Reverse proxies in front of the services. The client address is the rightmost entry of \
            X-Forwarded-For that is not one of them. Without `SVC_TRUSTED_PROXIES` and \
            `SVC_TRUSTED_PROXY_HOPS`, the client address is the peer of the connection.",
        );
/// Number of the proxies.
const TRUSTED_PROXY_HOPS: Variable = Variable::new("SVC_TRUSTED_PROXY_HOPS", "number, 1 to 10").meaning(
    "Number of reverse proxies between clients and services, instead of `SVC_TRUSTED_PROXIES`. The client \
        address is this entry of X-Forwarded-For, counted from the right. Every sender is trusted, so only \
        the proxies may be able to connect.",
);

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Peer of the connection, as a request extension.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub SocketAddr);

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
pub struct TrustedProxies {
    trust: Arc<Trust>,
    ignored: Arc<LogThrottle>,
}

#[derive(Debug)]
enum Trust {
    /// Senders in these networks are proxies.
    Networks(Vec<IpNet>),
    /// Every sender is a proxy, and so are the senders of all but the first of this number of entries.
    Hops(usize),
}

impl Default for Trust {
    fn default() -> Self {
        Self::Networks(Vec::new())
    }
}

impl Trust {
    /// Returns whether a sender is a proxy. `entries` is the number of entries to its right.
    fn is_proxy(&self, sender: IpAddr, entries: usize) -> bool {
        match self {
            Self::Networks(networks) => networks.iter().any(|network| network.contains(&sender)),
            Self::Hops(hops) => entries < *hops,
        }
    }
}

impl From<Trust> for TrustedProxies {
    fn from(trust: Trust) -> Self {
        Self { trust: Arc::new(trust), ignored: Arc::default() }
    }
}

fn parse_networks(text: &str) -> Result<Trust, ipnet::AddrParseError> {
    // An address is a network of one.
    let parse = |network: &str| network.parse::<IpAddr>().map(IpNet::from).or_else(|_| network.parse());
    text.split(',').map(|network| parse(network.trim())).collect::<Result<_, _>>().map(Trust::Networks)
}

fn parse_hops(text: &str) -> Result<Trust, String> {
    match text.parse() {
        Ok(hops @ 1..=10) => Ok(Trust::Hops(hops)),
        _ => Err("must be 1 to 10".to_owned()),
    }
}

impl Variables for TrustedProxies {
    fn variables() -> Vec<Variable> {
        vec![TRUSTED_PROXIES, TRUSTED_PROXY_HOPS]
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let networks = reader.optional_with(&TRUSTED_PROXIES, parse_networks);
        let hops = reader.optional_with(&TRUSTED_PROXY_HOPS, parse_hops);
        match (networks?, hops?) {
            (Some(_), Some(_)) => {
                reader
                    .error("SVC_TRUSTED_PROXIES and SVC_TRUSTED_PROXY_HOPS are both set; remove one of them");
                None
            }
            (networks, hops) => Some(networks.or(hops).unwrap_or_default().into()),
        }
    }
}

impl TrustedProxies {
    /// Returns the client address: the rightmost entry of `X-Forwarded-For` that was sent by a trusted proxy, but is not
    /// one itself.
    pub(super) fn client(&self, peer: Option<&PeerAddress>, headers: &HeaderMap) -> ClientAddress {
        let mut client = peer.map_or(UNKNOWN, |PeerAddress(peer)| peer.ip().to_canonical());
        if !headers.contains_key(X_FORWARDED_FOR) {
            return ClientAddress(client);
        }
        if !self.is_proxy(client) {
            self.log_untrusted(client);
            return ClientAddress(client);
        }
        let values = headers.get_all(X_FORWARDED_FOR).iter().rev();
        let entries = values.flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','));
        for (index, entry) in entries.enumerate() {
            // An entry that is not an address ends the search. The trusted entries to its right remain valid.
            let Some(address) = address(entry) else { break };
            client = address;
            if !self.trust.is_proxy(client, index + 1) {
                break;
            }
        }
        ClientAddress(client)
    }

    /// Returns whether the peer of a connection is a trusted proxy.
    pub(super) fn is_proxy(&self, peer: IpAddr) -> bool {
        self.trust.is_proxy(peer.to_canonical(), 0)
    }

    fn log_untrusted(&self, peer: IpAddr) {
        if self.ignored.is_due() {
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

/// The client address of a connection from a trusted peer, with trusted networks or a number of hops; `None` if these are malformed.
#[cfg(fuzzing)]
pub fn fuzzed_client(trusted: &str, peer: SocketAddr, headers: &HeaderMap) -> Option<IpAddr> {
    let proxies: TrustedProxies = parse_hops(trusted).or_else(|_| parse_networks(trusted)).ok()?.into();
    Some(proxies.client(Some(&PeerAddress(peer)), headers).0)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;
    use crate::config::{ConfigErrors, Environment};

    /// The client address with trusted networks, or a number of hops.
    fn client(trusted: &str, peer: &str, values: &[impl AsRef<[u8]>]) -> String {
        let proxies: TrustedProxies =
            parse_hops(trusted).or_else(|_| parse_networks(trusted)).unwrap().into();
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
    fn takes_the_entry_of_the_outermost_proxy() {
        for (hops, values, expected) in [
            ("1", &[][..], "10.0.0.1"),
            ("1", &["203.0.113.9"], "203.0.113.9"),
            ("1", &["1.1.1.1, 10.0.0.7"], "10.0.0.7"),
            ("2", &["1.1.1.1, 203.0.113.9, 198.51.100.7"], "203.0.113.9"),
            ("2", &["1.1.1.1, 203.0.113.9", "198.51.100.7"], "203.0.113.9"),
            ("2", &["203.0.113.9"], "203.0.113.9"),
            ("2", &["nonsense, 198.51.100.7"], "198.51.100.7"),
            ("1", &["nonsense"], "10.0.0.1"),
        ] {
            assert_eq!(client(hops, "10.0.0.1", values), expected, "{hops} {values:?}");
        }
    }

    fn load(pairs: &[(&str, &str)]) -> Result<TrustedProxies, ConfigErrors> {
        TrustedProxies::load(&Environment::from_pairs(pairs.iter().copied()))
    }

    #[test]
    fn reads_networks_in_cidr_notation_or_a_number_of_hops() {
        let peer = IpAddr::from([10, 0, 0, 1]);
        assert!(!load(&[]).unwrap().is_proxy(peer));
        assert!(load(&[("SVC_TRUSTED_PROXIES", "10.0.0.0/8,fd00::/8")]).unwrap().is_proxy(peer));
        assert!(load(&[("SVC_TRUSTED_PROXIES", "fd00::1, 10.0.0.1")]).unwrap().is_proxy(peer));
        assert!(!load(&[("SVC_TRUSTED_PROXIES", "10.0.0.2")]).unwrap().is_proxy(peer));
        assert!(load(&[("SVC_TRUSTED_PROXY_HOPS", "1")]).unwrap().is_proxy(peer));
        for bad in ["10.0.0.0/8,", "10.0.0", "10.0.0.0/33", "proxy.example", "1"] {
            assert!(load(&[("SVC_TRUSTED_PROXIES", bad)]).is_err(), "{bad}");
        }
        for bad in ["0", "11", "-1", "one", "10.0.0.0/8"] {
            assert!(load(&[("SVC_TRUSTED_PROXY_HOPS", bad)]).is_err(), "{bad}");
        }
        let both = load(&[("SVC_TRUSTED_PROXIES", "10.0.0.0/8"), ("SVC_TRUSTED_PROXY_HOPS", "1")]);
        assert!(both.unwrap_err().0[0].contains("both set"));
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
            prop_assert_eq!(client("1", "10.0.0.1", &[said.as_str()]), peer.to_string());
        }
    }
}
