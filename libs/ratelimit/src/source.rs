//! What a limit counts: the networks of a client address, or another text.
//!
//! An IPv6 customer has at least a /64, often a /56 or a /48. A request from IPv6 therefore counts in all three networks. The
//! larger ones have wider limits, because they can contain many customers.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use crate::{Gcra, Rate};

/// Prefix lengths of IPv6 networks, with the number of limits of one source that each may use up.
const IPV6_NETWORKS: [(u32, u32); 3] = [(64, 1), (56, 4), (48, 16)];

/// A subject of a limit. It displays as its narrowest network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Never empty.
    networks: Vec<Network>,
}

/// A network, or another text that requests are counted by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// The name in the table `limits`.
    pub name: String,
    /// The limit of the network is that of one source, multiplied by this number.
    pub width: u32,
}

impl Network {
    /// Returns the time between two requests of this network at an even rate, in whole microseconds as in Postgres.
    pub fn interval(&self, rate: &Rate) -> Duration {
        let interval = rate.interval() / self.width;
        Duration::from_micros(u64::try_from(interval.as_micros()).unwrap_or(u64::MAX))
    }

    /// Returns the rule of this network.
    pub fn rule(&self, rate: &Rate) -> Gcra {
        Gcra::new(rate.burst_tolerance(), self.interval(rate))
    }
}

/// Returns the source of a client address: an IPv4 address, or the IPv6 networks that contain the address. An IPv4-mapped IPv6
/// address counts as its IPv4 address.
pub fn source(address: IpAddr) -> Source {
    match address.to_canonical() {
        IpAddr::V4(address) => Source::from(address.to_string().as_str()),
        IpAddr::V6(address) => {
            let network = |(prefix, width)| {
                let start = Ipv6Addr::from_bits(address.to_bits() & u128::MAX << (128 - prefix));
                Network { name: format!("{start}/{prefix}"), width }
            };
            Source { networks: IPV6_NETWORKS.map(network).into() }
        }
    }
}

impl Source {
    /// The requests of this source for one account. A source is allowed `accounts` times as many requests for all accounts
    /// together.
    #[must_use]
    pub fn for_account(self, account: &str, accounts: u32) -> Self {
        let one = Network { name: format!("{account} {self}"), width: 1 };
        let all =
            self.networks.into_iter().map(|network| Network { width: network.width * accounts, ..network });
        Self { networks: std::iter::once(one).chain(all).collect() }
    }

    /// Adds a subject that contains this source. Its limit is `width` times that of one source.
    #[must_use]
    pub fn within(mut self, name: String, width: u32) -> Self {
        self.networks.push(Network { name, width });
        self
    }

    /// Returns the networks, narrowest first.
    pub fn networks(&self) -> &[Network] {
        &self.networks
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.networks.first().map_or("", |network| &network.name))
    }
}

impl From<&str> for Source {
    /// A subject that is not an address.
    fn from(name: &str) -> Self {
        Self { networks: vec![Network { name: name.to_owned(), width: 1 }] }
    }
}

impl From<&Self> for Source {
    fn from(source: &Self) -> Self {
        source.clone()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(address: u128) -> Vec<String> {
        source(Ipv6Addr::from(address).into()).networks.into_iter().map(|network| network.name).collect()
    }

    #[test]
    fn an_account_is_the_narrowest_network_of_its_source() {
        let networks = source(Ipv6Addr::LOCALHOST.into()).for_account("ada", 12).networks;
        let known: Vec<_> = networks.iter().map(|network| (network.name.as_str(), network.width)).collect();
        assert_eq!(known, [("ada ::/64", 1), ("::/64", 12), ("::/56", 48), ("::/48", 192)]);
    }

    #[test]
    fn an_ipv6_address_belongs_to_three_networks() {
        let source = source("2001:db8:1:203:4:5:6:7".parse().unwrap());
        let networks: Vec<_> =
            source.networks().iter().map(|network| (&*network.name, network.width)).collect();
        assert_eq!(
            networks,
            [("2001:db8:1:203::/64", 1), ("2001:db8:1:200::/56", 4), ("2001:db8:1::/48", 16)]
        );
        assert_eq!(source.to_string(), "2001:db8:1:203::/64");
    }

    proptest! {
        #[test]
        fn an_ipv4_address_is_its_own_source_in_either_form(bits in any::<u32>()) {
            let address = std::net::Ipv4Addr::from(bits);
            prop_assert_eq!(source(address.into()), Source::from(&*address.to_string()));
            prop_assert_eq!(source(address.to_ipv6_mapped().into()), source(address.into()));
        }

        #[test]
        fn addresses_share_exactly_the_networks_that_contain_both(address in any::<u128>(), bit in 0..128_u32) {
            // These networks contain the IPv4-mapped addresses.
            prop_assume!(address >> 64 > 1 << 16);
            let (here, there) = (names(address), names(address ^ 1 << bit));
            for (index, (prefix, _)) in IPV6_NETWORKS.into_iter().enumerate() {
                prop_assert_eq!(here[index] == there[index], bit < 128 - prefix);
            }
        }
    }
}
