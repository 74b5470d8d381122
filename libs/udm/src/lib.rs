//! UDM events: the types of producers, the validation of ingest, and the JSON Schema.
//!
//! Validation neither builds a tree nor copies the event: the stream stores exactly the bytes of the sender.

mod event;
mod event_id;
mod fields;
mod parse;
mod schema;
mod split;
mod values;
mod wrapped;

pub use event::{Metadata, Noun, UdmEvent};
pub use event_id::{find_event_id, find_source_id, server_event_id, with_text};
pub use parse::{
    DEFAULT_EVENT_TYPE, Event, MAX_DEPTH, MAX_EVENT_BYTES, NOT_UTF_8, ParseError, is_followed_by_object,
    is_source_id, json_error, parse,
};
pub use schema::{pretty_schema, schema};
pub use split::{MAX_BATCH_EVENTS, SplitError, split_lines, split_list};
pub use values::values_at;
pub use wrapped::{Document, WrappedEvent, unwrap_events};
