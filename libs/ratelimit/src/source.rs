//! What counts as one source: an IPv4 address, or the /64 that one IPv6 customer has at least.

use std::net::{IpAddr, Ipv6Addr};

/// The name under which an address is counted. IPv4 addresses in IPv6 form count as what they are.
pub fn source(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_ipv4_address_is_its_own_source_in_either_form(bits in any::<u32>()) {
            let address = std::net::Ipv4Addr::from(bits);
            prop_assert_eq!(source(address.into()), address.to_string());
            prop_assert_eq!(source(address.to_ipv6_mapped().into()), address.to_string());
        }

        #[test]
        fn all_of_a_64_is_one_source_and_its_neighbour_another(network in any::<u64>(), host in any::<u64>()) {
            let at = |network: u64, host: u64| {
                source(Ipv6Addr::from(u128::from(network) << 64 | u128::from(host)).into())
            };
            // Mapped addresses are no IPv6 addresses.
            prop_assume!(network > 1);
            prop_assert_eq!(at(network, host), at(network, 0));
            prop_assert_ne!(at(network, host), at(network ^ 1, host));
        }
    }
}
