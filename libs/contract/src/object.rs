//! A JSON object, and nothing else. A derived `Deserialize` also takes a list of the fields' values, which no schema says.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// A value that must be written as an object.
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

/// For fields that may be absent or null: `deserialize_with`.
pub(crate) fn optional<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(from)?.map(|Object(value)| value))
}

#[cfg(test)]
mod tests {
    use super::Object;
    use crate::identity::PatchTenant;

    #[test]
    fn a_list_is_no_object_at_any_depth() {
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
