//! Building blocks of requests and responses: pages, secrets and JSON objects.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use chrono::{DateTime, Utc};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct Page<T> {
    /// Items of this page, in the order of the list.
    pub items: Vec<T>,
    /// Value of `cursor` for the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_cursor: Option<String>,
}

/// Query parameters of a list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PageQuery {
    /// Maximum number of items. Default: 50.
    #[schemars(range(min = 1, max = 200))]
    pub limit: Option<u32>,
    /// `next_cursor` of the previous page. Absent: the first page.
    pub cursor: Option<String>,
}

/// A password or a raw token. It can be serialized but not logged: `Debug` redacts it, and `Display` is not implemented.
/// The memory is zeroed on drop.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
#[schemars(description = "A password or a raw token.")]
pub struct Secret(#[schemars(extend("format" = "password"))] String);

impl Secret {
    /// Wraps the raw text.
    pub fn new(raw: impl Into<String>) -> Self {
        Self(raw.into())
    }

    /// Returns the raw text. Every call is a place where the secret could leak.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}

/// A value that must be a JSON object. A derived `Deserialize` also accepts a list of the field values, which the schema
/// does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<T>(pub T);

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Deserializes an optional object; for `deserialize_with`.
pub(crate) fn optional_object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(from)?.map(|Object(value)| value))
}

/// Deserializes `null` as the default, like an absent field; for `deserialize_with`.
///
/// # Errors
/// The value is not valid for the type.
pub fn null_is_default<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Deserializes an optional time. The errors of `chrono` do not name the form; for `deserialize_with`.
pub(crate) fn optional_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<DateTime<Utc>>, D::Error> {
    let Some(text) = Option::<Cow<'de, str>>::deserialize(from)? else {
        return Ok(None);
    };
    let time = DateTime::parse_from_rfc3339(&text)
        .map_err(|_| D::Error::custom("must be an RFC 3339 time such as 2026-01-31T12:00:00Z"))?;
    Ok(Some(time.to_utc()))
}

#[cfg(test)]
mod tests {
    use super::Object;
    use crate::identity::{InviteUser, PatchTenant};
    use crate::session::CreateApiKey;
    use crate::{Role, Scope};

    #[test]
    fn null_of_an_optional_field_counts_as_absent() {
        let json = r#"{"email":"a@b.example","role":null,"delivery":null}"#;
        assert_eq!(serde_json::from_str::<InviteUser>(json).unwrap().role, Role::Member);
        let json = r#"{"name":"a","scopes":null,"expires_at":null,"source_ids":null}"#;
        let key: CreateApiKey = serde_json::from_str(json).unwrap();
        assert_eq!((key.scopes, key.expires_at, key.source_ids), (vec![Scope::EventsWrite], None, None));
    }

    #[test]
    fn the_error_of_a_time_names_its_form() {
        let json = r#"{"name":"a","expires_at":"tomorrow"}"#;
        let error = serde_json::from_str::<CreateApiKey>(json).unwrap_err().to_string();
        assert!(error.starts_with("must be an RFC 3339 time such as "), "{error}");
    }

    #[test]
    fn rejects_lists_in_place_of_objects() {
        let read = |json: &str| serde_json::from_str::<Object<PatchTenant>>(json);
        let Object(patch) = read(r#"{"quota":{"events_per_second":5}}"#).unwrap();
        assert_eq!(patch.quota.unwrap().events_per_second, Some(5));
        assert!(read(r#"{"quota":null}"#).unwrap().0.quota.is_none());
        for list in ["[]", "[null,null,null]", r#"{"quota":[5,5]}"#] {
            let error = read(list).unwrap_err().to_string();
            assert!(error.starts_with("invalid type: sequence, expected an object"), "{error}");
        }
    }
}
