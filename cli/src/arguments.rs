//! Arguments that several commands share.

use std::error::Error;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use contract::Role;
use contract::identity::Delivery;

use crate::api::ListLimit;

/// Options of commands that print long lists.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Paging {
    /// Maximum number of items [default: one page].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// List all items.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

impl From<Paging> for ListLimit {
    fn from(paging: Paging) -> Self {
        match paging.limit {
            Some(limit) => Self::AtMost(limit),
            None if paging.all => Self::All,
            None => Self::OnePage,
        }
    }
}

/// Value of `--role` and `ROLE`.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum RoleArgument {
    /// Own profile, sessions and password; sends events.
    Member,
    /// Full access to the tenant.
    Admin,
}

impl From<RoleArgument> for Role {
    fn from(role: RoleArgument) -> Self {
        match role {
            RoleArgument::Member => Self::Member,
            RoleArgument::Admin => Self::Admin,
        }
    }
}

/// Value of `--delivery`.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum DeliveryArgument {
    /// Send a mail; the output contains no token.
    Email,
    /// Print the token; no mail is sent.
    Response,
}

impl From<DeliveryArgument> for Delivery {
    fn from(delivery: DeliveryArgument) -> Self {
        match delivery {
            DeliveryArgument::Email => Self::Email,
            DeliveryArgument::Response => Self::Response,
        }
    }
}

/// Parser of an option that takes a value of an enumeration of the API.
pub(crate) fn enum_parser<T>(
    values: impl IntoIterator<Item = &'static str>,
) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(values).try_map(|value| value.parse())
}
