//! The server event id. It is the same at every retry and must never change.

use uuid::Uuid;

/// Namespace of server event ids: UUIDv5 of `udm.server_event_id` in the DNS namespace of RFC 9562.
const NAMESPACE: Uuid = Uuid::from_u128(0xdb67_7c08_a25e_543d_b842_fe9b_1c97_24ee);

/// Returns the UUIDv5 of tenant, source and event id, separated by zero bytes: none of the three can contain one.
pub fn server_event_id(tenant: &str, source_id: &str, event_id: &str) -> Uuid {
    let mut name = Vec::with_capacity(tenant.len() + source_id.len() + event_id.len() + 2);
    name.extend_from_slice(tenant.as_bytes());
    name.push(0);
    name.extend_from_slice(source_id.as_bytes());
    name.push(0);
    name.extend_from_slice(event_id.as_bytes());
    Uuid::new_v5(&NAMESPACE, &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_is_the_documented_uuid() {
        assert_eq!(NAMESPACE, Uuid::new_v5(&Uuid::NAMESPACE_DNS, b"udm.server_event_id"));
    }

    #[test]
    fn server_event_ids_never_change() {
        let id = server_event_id("acme", "fw-1", "0190a5c4-0000-7000-8000-000000000001");
        assert_eq!(id.to_string(), "2bc385df-ea93-586a-8810-2514e34a37b9");
    }

    #[test]
    fn parts_are_separated() {
        assert_ne!(server_event_id("ab", "c", "d"), server_event_id("a", "bc", "d"));
        assert_ne!(server_event_id("a", "bc", "d"), server_event_id("a", "b", "cd"));
    }
}
