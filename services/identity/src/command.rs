//! What an operator does with the binary beside running it.

mod breach_set;
mod outbox;

pub use breach_set::BreachSetCommand;
pub use outbox::OutboxCommand;
