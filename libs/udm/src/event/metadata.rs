//! What an event says of itself.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Open;

/// When, what kind, and which product said so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metadata {
    /// When it happened (RFC 3339). Absent: the time of receipt.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_timestamp: Option<DateTime<Utc>>,
    /// For example `USER_LOGIN`; absent: `GENERIC_EVENT`. Types that nobody has heard of are taken too.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(regex(pattern = r"^[A-Z][A-Z0-9_]{0,63}$"))]
    pub event_type: Option<String>,
    /// Who makes the product that saw the event. At most 1 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 1024))]
    pub vendor_name: Option<String>,
    /// The product that saw the event. At most 1 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 1024))]
    pub product_name: Option<String>,
    /// That product's version. At most 1 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 1024))]
    pub product_version: Option<String>,
    /// What the product calls this kind of event. At most 1 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 1024))]
    pub product_event_type: Option<String>,
    /// What the product calls this event. At most 1 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 1024))]
    pub product_log_id: Option<String>,
    /// Which installation of the product saw it. At most 1 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 1024))]
    pub product_deployment_id: Option<String>,
    /// Where the product shows the event. At most 1 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 1024))]
    pub url_back_to_product: Option<String>,
    /// The event in words. At most 8 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 8192))]
    pub description: Option<String>,
    /// Fields that are not known here; they pass through untouched.
    #[serde(flatten)]
    pub other: Open,
}

impl Metadata {
    /// Metadata that says the kind of the event and nothing else.
    pub fn of_type(event_type: impl Into<String>) -> Self {
        Self { event_type: Some(event_type.into()), ..Self::default() }
    }

    /// The same metadata with the time at which the event happened.
    #[must_use]
    pub fn at(mut self, event_timestamp: DateTime<Utc>) -> Self {
        self.event_timestamp = Some(event_timestamp);
        self
    }
}
