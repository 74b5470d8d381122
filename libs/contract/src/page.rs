//! Lists are answered in pages.

use serde::{Deserialize, Serialize};

/// One page of a list. `next_cursor` is opaque; it is absent on the last page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Page<T> {
    /// The items of this page, in the list's order.
    pub items: Vec<T>,
    /// Send it back as `cursor` to get the page that follows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_cursor: Option<String>,
}
