//! Attempts at passwords: the context alone, on a clock that the test moves. A file a matter.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails there and then")]

#[path = "attempts/context.rs"]
mod context;
#[path = "attempts/lock.rs"]
mod lock;
#[path = "attempts/under_way.rs"]
mod under_way;
#[path = "attempts/waits.rs"]
mod waits;
