//! Lists are answered in pages.

use serde::{Deserialize, Serialize};

/// One page of a list. `next_cursor` is opaque; it is absent on the last page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct Page<T> {
    /// The items of this page, in the list's order.
    pub items: Vec<T>,
    /// Send it back as `cursor` to get the page that follows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_cursor: Option<String>,
}

/// Which page is asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PageQuery {
    /// How many items at most, 50 unless told.
    #[schemars(range(min = 1, max = 200))]
    pub limit: Option<u32>,
    /// The `next_cursor` of the page before; the first page when absent.
    pub cursor: Option<String>,
}
