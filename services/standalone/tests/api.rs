//! The public API as a whole, held against what it says of itself.

mod api {
    mod routes;
}
