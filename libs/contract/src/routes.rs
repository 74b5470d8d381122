//! The public routes as data: what is asked, who may ask, and what is answered. The services' routers, the OpenAPI
//! document, the page that documents the API and the tests of who may do what are made from this one table.
//!
//! A route's documentation is also what users read: the first line is its summary.

mod about;
mod access;
mod api_keys;
mod body;
mod devices;
mod events;
mod invites;
mod passwords;
mod route;
mod sessions;
mod tenants;
mod users;

pub use about::*;
pub use access::{Access, Header};
pub use api_keys::*;
pub use body::{Answer, Body, Content, Type};
pub use devices::*;
pub use events::*;
pub use invites::*;
pub use passwords::*;
pub use route::{Method, Route};
pub use sessions::*;
pub use tenants::*;
pub use users::*;

/// The parameters of every list.
const PAGING: Type = Type::of::<crate::PageQuery>();

/// Routes that belong together.
pub struct Group {
    /// What they are about.
    pub name: &'static str,
    /// The same in a sentence.
    pub about: &'static str,
    /// The routes, in the order in which a reader wants them.
    pub routes: &'static [&'static Route],
}

/// Every group, in the order in which a reader wants them.
pub static GROUPS: &[Group] = &[
    passwords::GROUP,
    sessions::GROUP,
    devices::GROUP,
    users::GROUP,
    invites::GROUP,
    api_keys::GROUP,
    events::GROUP,
    tenants::GROUP,
    about::GROUP,
];

/// Every public route.
pub fn all() -> impl Iterator<Item = &'static Route> {
    GROUPS.iter().flat_map(|group| group.routes).copied()
}

/// Defines the routes of one group.
macro_rules! routes {
    ($group:literal, $about:literal: $($(#[doc = $doc:literal])+ $name:ident = $route:expr;)+) => {
        $($(#[doc = $doc])+ pub static $name: Route = $route.named($group, stringify!($name), &[$($doc),+]);)+

        /// This group.
        pub(super) const GROUP: super::Group =
            super::Group { name: $group, about: $about, routes: &[$(&$name),+] };
    };
}
use routes;

#[cfg(test)]
mod tests;
