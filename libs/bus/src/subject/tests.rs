//! Golden subjects, and round trips of formatting and parsing.

use proptest::prelude::*;

use super::*;

#[test]
fn subjects_never_change() {
    let known = [
        ("acme", "fw-1", "udm.v1.04.acme.NETWORK_DNS"),
        ("acme", "fw-2", "udm.v1.49.acme.NETWORK_DNS"),
        ("globex", "fw-1", "udm.v1.45.globex.NETWORK_DNS"),
        ("acme", "söurce 1", "udm.v1.36.acme.NETWORK_DNS"),
    ];
    for (tenant, source, expected) in known {
        let subject = EventSubject::new(&tenant.parse().unwrap(), "NETWORK_DNS", source).unwrap();
        assert_eq!(subject.to_string(), expected);
    }
}

#[test]
fn audit_subjects_of_tenants_and_of_no_tenant_have_different_prefixes() {
    let acme = "acme".parse().unwrap();
    for (tenant, expected) in [
        (Some(&acme), "audit.v1.acme.identity.user_updated"),
        (None, "audit.anonymous.v1.identity.user_updated"),
    ] {
        assert_eq!(AuditSubject::new(tenant, "identity", "user_updated").unwrap().to_string(), expected);
    }
    assert_eq!(AuditSubject::tenant_filter(&acme), "audit.v1.acme.>");
    assert_eq!("audit.v1._.identity.user_updated".parse::<AuditSubject>(), Err(InvalidSubject));
}

#[test]
fn invalid_event_subjects_are_rejected() {
    for bad in [
        "",
        "udm.v1.1.acme.T",
        "udm.v1.64.acme.T",
        "udm.v1.+1.acme.T",
        "udm.v1.001.acme.T",
        "udm.v1.01.Acme.T",
        "udm.v1.01.acme.t",
        "udm.v1.01.acme",
        "udm.v1.01.acme.T.s",
        "udm.v1.01.acme.*",
        "udm.v1.01.acme.T.",
        "udm.v2.01.acme.T",
    ] {
        assert_eq!(bad.parse::<EventSubject>(), Err(InvalidSubject), "{bad}");
    }
    let acme = "acme".parse().unwrap();
    for event_type in ["", "a", "_A", "A.B", "A*", &"A".repeat(65)] {
        assert_eq!(EventSubject::new(&acme, event_type, "s"), Err(InvalidSubject), "{event_type}");
    }
}

proptest! {
    #[test]
    fn event_subjects_round_trip(
        tenant in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
        event_type in "[A-Z][A-Z0-9_]{0,63}",
        source in "\\PC{1,60}",
    ) {
        let tenant = tenant.parse().unwrap();
        let subject = EventSubject::new(&tenant, &event_type, &source).unwrap();
        let text = subject.to_string();
        prop_assert!(async_nats::Subject::from(text.as_str()).is_valid());
        prop_assert_eq!(text.split('.').count(), 5);
        prop_assert_eq!(subject.partition(), partition(&tenant, &source));
        prop_assert_eq!(text.parse::<EventSubject>().unwrap(), subject);
    }

    #[test]
    fn audit_subjects_round_trip(
        tenant in prop::option::of("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"),
        context in "[a-z0-9_]{1,64}",
        event in "[a-z0-9_]{1,64}",
    ) {
        let subject = AuditSubject::new(
            tenant.map(|tenant| tenant.parse().unwrap()).as_ref(), &context, &event
        ).unwrap();
        prop_assert_eq!(subject.to_string().parse::<AuditSubject>().unwrap(), subject);
    }

    #[test]
    fn parsed_subjects_format_to_the_same_text(text in "(udm|audit|audit[.]anonymous)[.]v1([.][a-zA-Z0-9_*>-]{0,5}){2,6}") {
        if let Ok(subject) = text.parse::<EventSubject>() {
            prop_assert_eq!(subject.to_string(), text.clone());
        }
        if let Ok(subject) = text.parse::<AuditSubject>() {
            prop_assert_eq!(subject.to_string(), text);
        }
    }
}
