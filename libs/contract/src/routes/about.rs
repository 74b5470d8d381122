//! Version, documentation and pages.

use super::{Access, Route, RouteResponse, routes};
use crate::identity::Version;

routes! {
    ABOUT = "About the API", "Version, documentation and web pages.":

    /// Get the version of the server
    GET_VERSION = Route::get("/version")
        .access(&[Access::Public])
        .responses(&[RouteResponse::json::<Version>(200, "The version.")]);

    /// Get the OpenAPI document of the API
    GET_OPENAPI = Route::get("/openapi.json")
        .access(&[Access::Public])
        .responses(&[
            RouteResponse::document("This document: OpenAPI 3.1."),
            RouteResponse::empty(304, "The document named in `If-None-Match` is current."),
        ]);

    /// Read the documentation of the API
    READ_DOCS = Route::get("/docs")
        .access(&[Access::Public])
        .responses(&[RouteResponse::page("A page that renders the OpenAPI document.")]);

    /// Read the description of a problem
    ///
    /// The `type` of every problem document links to this page.
    READ_PROBLEM = Route::get("/problems/{code}")
        .access(&[Access::Public])
        .responses(&[RouteResponse::page("Cause and remedy of the problem.")]);

    /// Open a page, or load one of its style sheets and scripts
    ///
    /// The pages `accept-invite`, `reset-password` and `device` read a token or a code from the fragment of the URL.
    OPEN_PAGE = Route::get("/pages/{name}")
        .access(&[Access::Public])
        .responses(&[RouteResponse::page("The page.")]);
}
