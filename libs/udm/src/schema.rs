//! The JSON Schema of an event, made from the types that producers use.
//!
//! It says a little less than `parse`: lengths count characters there and bytes here, and it knows no size and depth.

use schemars::Schema;

use crate::UdmEvent;

/// The JSON Schema (draft 2020-12) of an event.
pub fn schema() -> Schema {
    schemars::schema_for!(UdmEvent)
}

/// The schema as it is checked in: indented, with a newline at the end.
pub fn pretty_schema() -> String {
    format!("{:#}\n", schema().as_value())
}
