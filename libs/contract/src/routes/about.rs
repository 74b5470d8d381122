//! What the API says of itself, and its pages for people.

use super::{Access, Answer, Route, routes};
use crate::identity::Version;

routes! {
    "About the API", "Its version, its description, and its pages for people.":

    /// Ask which version answers
    GET_VERSION = Route::get("/version")
        .access(&[Access::Anybody])
        .answers(&[Answer::json::<Version>(200, "The version.")]);

    /// Read the OpenAPI document of the API
    GET_OPENAPI = Route::get("/openapi.json")
        .access(&[Access::Anybody])
        .answers(&[
            Answer::document("This document: OpenAPI 3.1."),
            Answer::empty(304, "It is still the one that `If-None-Match` names."),
        ]);

    /// Read the documentation of the API
    READ_DOCS = Route::get("/docs")
        .access(&[Access::Anybody])
        .answers(&[Answer::page("Every route on one page.")]);

    /// Read about a kind of problem
    ///
    /// The `type` of every problem document leads here.
    READ_PROBLEM = Route::get("/problems/{code}")
        .access(&[Access::Anybody])
        .answers(&[Answer::page("What went wrong, and what to do.")]);

    /// Open a page, or load a part of one
    ///
    /// The pages `accept-invite`, `reset-password` and `device` take a token or a code from the fragment of the address.
    OPEN_PAGE = Route::get("/pages/{name}")
        .access(&[Access::Anybody])
        .answers(&[Answer::page("The page.")]);
}
