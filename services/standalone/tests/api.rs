//! The public API as a whole, held against what it says of itself.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without, it may fail on, in shared code too")]

mod api {
    mod authorization;
    mod routes;
    mod schemathesis;
}
