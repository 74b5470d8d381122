//! UDM events: the types of producers, the validation of ingest, and the JSON Schema.
//!
//! Validation neither builds a tree nor copies the event: the stream stores exactly the bytes of the sender.

mod event;
mod parse;
mod split;

pub use event::{Metadata, Noun, UdmEvent, pretty_schema, schema, server_event_id};
pub use parse::{
    DEFAULT_EVENT_TYPE, Event, MAX_DEPTH, MAX_EVENT_BYTES, MAX_NOUNS, ParseError, is_source_id, parse,
};
pub use split::{MAX_BATCH_EVENTS, SplitError, split_lines, split_list};
