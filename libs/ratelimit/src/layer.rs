//! The default rate limit as a layer of a router, per client address.

use std::net::{IpAddr, Ipv6Addr};

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use contract::routes::{self, RateLimit};
use service::Problem;
use service::http::ClientAddress;

use crate::{Limit, Limiter, RateLimitError};

#[derive(Clone)]
struct Layer {
    limiter: Limiter,
    limit: Limit,
}

impl Limiter {
    /// Counts the requests of a router per client address, except for routes with another class than
    /// [`RateLimit::Default`] in the route table: their handlers count them. Unknown paths and methods count too. If the counter is
    /// unavailable, requests are accepted, because these routes verify no passwords or single-use tokens.
    pub fn wrap(&self, limit: Limit, router: Router) -> Router {
        if limit.rate.is_none() {
            return router;
        }
        router.layer(from_fn_with_state(Layer { limiter: self.clone(), limit }, count))
    }
}

/// Returns the class of a request by its route.
pub fn class_of(request: &Request) -> RateLimit {
    let path = request.extensions().get().map_or("", MatchedPath::as_str);
    routes::find(request.method().as_str(), path).map_or(RateLimit::Default, |route| route.rate_limit)
}

/// Returns the subject of a client address: an IPv4 address, or the /64 network that an IPv6 customer has at least. An
/// IPv4-mapped IPv6 address counts as its IPv4 address.
pub fn source(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

async fn count(
    State(Layer { limiter, limit }): State<Layer>,
    ClientAddress(address): ClientAddress,
    request: Request,
    next: Next,
) -> Response {
    if class_of(&request) != RateLimit::Default {
        return next.run(request).await;
    }
    match limiter.count(&limit, &source(address)).await {
        Ok(()) => next.run(request).await,
        Err(error @ RateLimitError::Limited { .. }) => Problem::from(error).into_response(),
        Err(RateLimitError::Unavailable(error)) => {
            limiter.log_unavailable(&error);
            next.run(request).await
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
        fn the_addresses_of_an_ipv6_network_share_one_source(network in any::<u64>(), host in any::<u64>()) {
            let at = |network: u64, host: u64| {
                source(Ipv6Addr::from(u128::from(network) << 64 | u128::from(host)).into())
            };
            // These networks contain the IPv4-mapped addresses.
            prop_assume!(network > 1);
            prop_assert_eq!(at(network, host), at(network, 0));
            prop_assert_ne!(at(network, host), at(network ^ 1, host));
        }
    }
}
