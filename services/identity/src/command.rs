//! What an operator does with the binary beside running it.

mod outbox;

pub use outbox::OutboxCommand;
