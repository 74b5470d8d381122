//! The UDM event: what producers build, what ingest checks, and the JSON Schema of both.
//!
//! Checking never builds a tree and never copies the event: what the sender sent is what the stream keeps.

mod event;
mod id;
mod parse;
mod schema;
mod split;

pub use event::{Metadata, Noun, UdmEvent};
pub use id::server_event_id;
pub use parse::{
    DEFAULT_EVENT_TYPE, Event, Invalid, MAX_DEPTH, MAX_EVENT_BYTES, MAX_NOUNS, is_source_id, parse,
};
pub use schema::{pretty_schema, schema};
pub use split::{MAX_BATCH_EVENTS, SplitError, split_lines, split_list};
