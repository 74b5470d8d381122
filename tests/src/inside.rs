//! What an answer must not tell.

use testkit::TestResponse;

/// Names of what lies below the API, and of what it is built with.
const WORDS: &[&str] =
    &["sqlx", "postgres", "nats", "panic", "serde", "hyper", "axum", "reqwest", "tcp", ".rs", "os error"];

/// Panics when the body shows a cause.
#[track_caller]
pub fn expect_nothing_of_the_inside(answer: &TestResponse) {
    let body = answer.body.to_lowercase();
    for word in WORDS {
        assert!(!body.contains(word), "{word}: {answer}");
    }
}
