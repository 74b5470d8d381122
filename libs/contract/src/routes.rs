//! The public routes as one table. The routers, the rate limits, the OpenAPI document, the path list of the chart, the
//! command-line client and the authorization tests all read it.
//!
//! The documentation of a route is published in the OpenAPI document: its first line is the summary.

mod access;
mod audit;
mod auth;
mod consumers;
mod events;
mod factors;
mod route;
mod tenants;

pub use access::{Access, Header, RateLimit};
pub use audit::*;
pub use auth::*;
pub use consumers::*;
pub use events::*;
pub use factors::*;
pub use route::{Method, Operation, RequestBody, ResponseBody, Route, RouteResponse, SchemaRef};
pub use tenants::*;

use crate::API_PREFIX;
use crate::identity::{PageLanguage, Version};

/// The query parameters of every list.
const PAGING: SchemaRef = SchemaRef::new::<crate::PageQuery>();

/// Related routes, shown together in the documentation.
pub struct RouteGroup {
    /// Title of the group.
    pub name: &'static str,
    /// One-sentence description.
    pub description: &'static str,
    /// The operations in reading order.
    pub operations: &'static [Operation],
    /// Their routes.
    routes: &'static [&'static Route],
}

/// All groups in reading order.
pub static GROUPS: &[RouteGroup] = ALL;

const ALL: &[RouteGroup] = &[
    auth::PASSWORDS,
    factors::SECOND_FACTORS,
    auth::SESSIONS,
    auth::DEVICE_LOGIN,
    tenants::USERS,
    tenants::INVITES,
    auth::API_KEYS,
    events::EVENTS,
    consumers::CONSUMERS,
    audit::AUDIT,
    tenants::TENANTS,
    tenants::MAILS,
    ABOUT,
];

/// The routes of the groups. Not through `GROUPS`, so that programs that need only routes contain no schemas.
static ROUTES: [&[&Route]; ALL.len()] = {
    let mut routes: [&[&Route]; ALL.len()] = [&[]; ALL.len()];
    let mut group = 0;
    while group < ALL.len() {
        routes[group] = ALL[group].routes;
        group += 1;
    }
    routes
};

/// Returns every public route.
pub fn all() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().copied().flatten().copied()
}

/// Finds a route by HTTP method and full path template, such as `/api/v1/users/{user_id}`.
pub fn find(method: &str, path_template: &str) -> Option<&'static Route> {
    let path = path_template.strip_prefix(API_PREFIX)?;
    all().find(|route| route.path == path && route.method.as_str() == method)
}

/// Finds the route of a request by HTTP method and path below [`API_PREFIX`], with or without a query.
pub fn match_request(method: &str, path: &str) -> Option<&'static Route> {
    let path = path.split('?').next()?;
    // A fixed segment has precedence over a parameter.
    all()
        .filter(|route| route.method.as_str() == method && route.matches(path))
        .min_by_key(|route| route.path_parameters().count())
}

/// Defines the routes of one group, and the group itself as a constant.
macro_rules! routes {
    ($group:ident = $title:literal, $description:literal: $($(#[doc = $doc:literal])+ $name:ident = $operation:expr;)+) => {
        $($(#[doc = $doc])+ pub static $name: Route = $operation.named($title, stringify!($name), &[$($doc),+]).route;)+

        pub(super) const $group: crate::routes::RouteGroup = crate::routes::RouteGroup {
            name: $title,
            description: $description,
            operations: &[$($operation.named($title, stringify!($name), &[$($doc),+])),+],
            routes: &[$(&$name),+],
        };
    };
}
use routes;

routes! {
    ABOUT = "About the API", "Version, documentation and web pages.":

    /// Get the version of the server
    GET_VERSION = Operation::get("/version")
        .access(&[Access::Public])
        .responses(&[RouteResponse::json::<Version>(200, "The version.")]);

    /// Get the OpenAPI document of the API
    GET_OPENAPI = Operation::get("/openapi.json")
        .access(&[Access::Public])
        .responses(&[
            RouteResponse::document("This document: OpenAPI 3.1."),
            RouteResponse::empty(304, "The document named in `If-None-Match` is current."),
        ]);

    /// Read the documentation of the API
    READ_DOCS = Operation::get("/docs")
        .access(&[Access::Public])
        .responses(&[RouteResponse::page("A page that renders the OpenAPI document.")]);

    /// Read the description of a problem
    ///
    /// The `type` of every problem document links to this page.
    READ_PROBLEM = Operation::get("/problems/{code}")
        .access(&[Access::Public])
        .responses(&[RouteResponse::page("Cause and remedy of the problem.")]);

    /// Open a page
    ///
    /// The pages `accept-invite`, `reset-password`, `request-reset`, `change-password`, `device` and `sessions` read a token, a
    /// code or an account from the fragment of the URL. They are in the language of `lang`, of the cookie that a request with
    /// `lang` sets, or of `Accept-Language`.
    OPEN_PAGE = Operation::get("/pages/{name}")
        .access(&[Access::Public])
        .query(&[SchemaRef::new::<PageLanguage>()])
        .responses(&[RouteResponse::page("The page.")]);

    /// Load a style sheet, a script or a logo of the pages
    ///
    /// `version` is a digest of all files. The response to the current one is immutable; another one gets the current file. The
    /// files have no rate limit: a page needs several of them, and many people can open pages from one address.
    LOAD_PAGE_FILE = Operation::get("/pages/files/{version}/{file}")
        .access(&[Access::Public])
        .rate_limit(RateLimit::Unlimited)
        .responses(&[RouteResponse::file("The file.")]);
}

#[cfg(test)]
mod tests;
