//! The known fields of an event in one table: original name, type, whether it is repeated, and the object that it contains. The
//! second spelling of a name, the check of names, the validation and the JSON Schema are derived from it.

mod names;
#[cfg(test)]
mod tests;

use names::JsonName;
pub(crate) use names::{Meaning, Name, Spelling, find, is_same_name};

/// Maximum number of nouns in `intermediary` and in `about`.
pub const MAX_NOUNS: usize = 64;

pub(crate) const MAX_SOURCE_ID_BYTES: usize = 256;
pub(crate) const MAX_EVENT_ID_BYTES: usize = 128;
pub(crate) const MAX_TYPE_BYTES: usize = 64;
const MAX_TEXT_BYTES: usize = 1024;
const MAX_DESCRIPTION_BYTES: usize = 8 * 1024;

/// An object of the model.
pub(crate) struct Object {
    /// Name of its JSON Schema.
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) fields: &'static [Field],
}

/// A known field of an object.
pub(crate) struct Field {
    /// Original name, in `snake_case`.
    pub(crate) name: &'static str,
    /// Second spelling, in `lowerCamelCase`. It equals the original name if that is one word.
    pub(crate) json_name: &'static str,
    /// First and last letter in lower case.
    ends: [char; 2],
    pub(crate) rule: Rule,
    pub(crate) description: &'static str,
}

/// The rule of a value.
#[derive(Clone, Copy)]
pub(crate) enum Rule {
    /// Any JSON.
    Any,
    /// An object of the model. It can also have unknown fields.
    Object(&'static Object),
    /// An object of which no field is known.
    OpenObject,
    /// A repeated field: a list of at most `max` items.
    List { items: &'static Rule, max: usize },
    /// A string.
    Text(TextRule),
    /// An integer from 0 to 65535.
    Port,
}

/// The rule of a string.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextRule {
    Any,
    /// At most this number of bytes.
    Within(usize),
    SourceId,
    EventId,
    EventType,
    Timestamp,
    Address,
    Mac,
}

impl Field {
    /// Returns whether an event without the field is invalid.
    pub(crate) fn is_required(&self) -> bool {
        matches!(self.rule, Rule::Text(TextRule::SourceId))
    }
}

/// Returns a field. The compiler derives the second spelling.
macro_rules! field {
    ($name:literal, $rule:expr, $description:literal) => {{
        const JSON_NAME: &JsonName = &JsonName::of($name);
        Field {
            name: $name,
            json_name: JSON_NAME.as_str(),
            ends: JSON_NAME.ends(),
            rule: $rule,
            description: $description,
        }
    }};
}

const fn text(rule: TextRule) -> Rule {
    Rule::Text(rule)
}

/// A list of any length. The size of the event bounds it.
const fn list(items: &'static Rule) -> Rule {
    Rule::List { items, max: usize::MAX }
}

const OPEN: Rule = Rule::OpenObject;
const SHORT: Rule = text(TextRule::Within(MAX_TEXT_BYTES));
const NOUN_RULE: Rule = Rule::Object(&NOUN);
const NOUNS: Rule = Rule::List { items: &NOUN_RULE, max: MAX_NOUNS };

pub(crate) static EVENT: Object = Object {
    name: "UdmEvent",
    description: "A UDM event: what happened, the participants, and the reporting product.\n\nNames and nesting follow the Unified \
        Data Model of Google Security Operations. Each name can also be written in lowerCamelCase, as in ProtoJSON: `eventType` is \
        the field `event_type`. An object has at most one of the two. Unknown fields pass through unchanged.\n\
        At most 256 KiB as JSON, nested at most 32 deep.",
    fields: &[
        field!(
            "source_id",
            text(TextRule::SourceId),
            "Source of the event: 1 to 256 bytes, not blank, no control characters."
        ),
        field!(
            "event_id",
            text(TextRule::EventId),
            "Id of the event. Tenant, source and id are the idempotency key. Without an id the server generates one, and a retry\n\
            creates a second event."
        ),
        field!("metadata", Rule::Object(&METADATA), "Time, type and reporting product."),
        field!("principal", NOUN_RULE, "Participant that acted."),
        field!("src", NOUN_RULE, "Source that the principal acted on or through."),
        field!("target", NOUN_RULE, "Participant that was acted on."),
        field!("observer", NOUN_RULE, "Observer that did not take part."),
        field!("intermediary", NOUNS, "Intermediaries, in order."),
        field!("about", NOUNS, "Other participants that the event refers to."),
        field!("network", OPEN, "Network details, for example protocol and bytes."),
        field!("security_result", list(&OPEN), "Results of security products."),
        field!("extensions", OPEN, "Extensions of the model for the event type."),
        field!("additional", OPEN, "Additional details."),
    ],
};

pub(crate) static METADATA: Object = Object {
    name: "Metadata",
    description: "Time, type and reporting product of an event.",
    fields: &[
        field!(
            "event_timestamp",
            text(TextRule::Timestamp),
            "Time of the event (RFC 3339), in the years 0001 to 9999. Default: the time of receipt."
        ),
        field!(
            "event_type",
            text(TextRule::EventType),
            "Type of the event, for example `USER_LOGIN`. Default: `GENERIC_EVENT`. Unknown types are accepted."
        ),
        field!("vendor_name", SHORT, "Vendor of the product that reported the event. At most 1 KiB."),
        field!("product_name", SHORT, "Product that reported the event. At most 1 KiB."),
        field!("product_version", SHORT, "Version of the product. At most 1 KiB."),
        field!("product_event_type", SHORT, "Type of the event in the terms of the product. At most 1 KiB."),
        field!("product_log_id", SHORT, "Id of the event in the product. At most 1 KiB."),
        field!(
            "product_deployment_id",
            SHORT,
            "Installation of the product that reported the event. At most 1 KiB."
        ),
        field!("url_back_to_product", SHORT, "URL of the event in the product. At most 1 KiB."),
        field!(
            "description",
            text(TextRule::Within(MAX_DESCRIPTION_BYTES)),
            "Description in natural language. At most 8 KiB."
        ),
    ],
};

pub(crate) static NOUN: Object = Object {
    name: "Noun",
    description: "A participant of an event, for example a machine, a user, a process or a file.",
    fields: &[
        field!("hostname", text(TextRule::Any), "Host name of the machine."),
        field!("asset_id", text(TextRule::Any), "Id of the machine in the inventory of the producer."),
        field!("ip", list(&text(TextRule::Address)), "IPv4 or IPv6 addresses."),
        field!(
            "mac",
            list(&text(TextRule::Mac)),
            "Hardware addresses: six hexadecimal octets separated by `:` or `-`."
        ),
        field!("port", Rule::Port, "Network port."),
        field!("url", text(TextRule::Any), "URL, for example of a requested page."),
        field!("user", OPEN, "User or account."),
        field!("process", OPEN, "Process."),
        field!("file", OPEN, "File."),
        field!("resource", OPEN, "Any other resource."),
    ],
};
