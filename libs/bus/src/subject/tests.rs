//! Introspection subjects, and the property that what is made can be read.

use proptest::prelude::*;

use super::*;

#[test]
fn known_subjects_never_change() {
    let known = [
        ("acme", "fw-1", "udm.v1.04.acme.NETWORK_DNS.fw-1"),
        ("acme", "fw-2", "udm.v1.49.acme.NETWORK_DNS.fw-2"),
        ("globex", "fw-1", "udm.v1.45.globex.NETWORK_DNS.fw-1"),
        ("acme", "söurce 1", "udm.v1.36.acme.NETWORK_DNS.h-VA73F4FEKCKDDNJH"),
        ("a", "h-x", "udm.v1.54.a.NETWORK_DNS.h-UQBGEZCJFNT22OPO"),
    ];
    for (tenant, source, subject) in known {
        let made = EventSubject::new(&tenant.parse().unwrap(), "NETWORK_DNS", source).unwrap();
        assert_eq!(made.to_string(), subject);
    }
}

#[test]
fn what_is_no_event_subject_is_refused() {
    for bad in [
        "",
        "udm.v1.1.acme.T.s",
        "udm.v1.64.acme.T.s",
        "udm.v1.+1.acme.T.s",
        "udm.v1.01.Acme.T.s",
        "udm.v1.01.acme.t.s",
        "udm.v1.01.acme.T",
        "udm.v1.01.acme.T.s.x",
        "udm.v1.01.acme.T.*",
        "udm.v1.01.acme.T.",
        "udm.v2.01.acme.T.s",
    ] {
        assert_eq!(bad.parse::<EventSubject>(), Err(InvalidSubject), "{bad}");
    }
    let acme = "acme".parse().unwrap();
    for event_type in ["", "a", "_A", "A.B", "A*", &"A".repeat(65)] {
        assert_eq!(EventSubject::new(&acme, event_type, "s"), Err(InvalidSubject), "{event_type}");
    }
}

#[test]
fn a_source_cannot_pose_as_the_digest_of_another() {
    let acme = "acme".parse().unwrap();
    let hashed = EventSubject::new(&acme, "T", "a b").unwrap();
    let posing = EventSubject::new(&acme, "T", hashed.source_token()).unwrap();
    assert_ne!(hashed.source_token(), posing.source_token());
}

proptest! {
    #[test]
    fn any_event_subject_reads_back(
        tenant in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
        event_type in "[A-Z][A-Z0-9_]{0,63}",
        source in prop_oneof!["[A-Za-z0-9_-]{1,80}", "\\PC{1,60}", "h-[a-z]{0,9}"],
    ) {
        let made = EventSubject::new(&tenant.parse().unwrap(), &event_type, &source).unwrap();
        let text = made.to_string();
        prop_assert!(async_nats::Subject::from(text.as_str()).is_valid());
        prop_assert!(made.source_token().len() <= 64);
        prop_assert_eq!(text.parse::<EventSubject>().unwrap(), made);
    }

    #[test]
    fn any_audit_subject_reads_back(
        tenant in prop::option::of("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"),
        context in "[a-z0-9_]{1,64}",
        event in "[a-z0-9_]{1,64}",
    ) {
        let made = AuditSubject::new(
            tenant.map(|tenant| tenant.parse().unwrap()).as_ref(), &context, &event
        ).unwrap();
        prop_assert_eq!(made.to_string().parse::<AuditSubject>().unwrap(), made);
    }

    #[test]
    fn what_reads_writes_the_same(text in "(udm|audit)[.]v1([.][a-zA-Z0-9_*>-]{0,5}){2,6}") {
        if let Ok(subject) = text.parse::<EventSubject>() {
            prop_assert_eq!(subject.to_string(), text.clone());
        }
        if let Ok(subject) = text.parse::<AuditSubject>() {
            prop_assert_eq!(subject.to_string(), text);
        }
    }
}
