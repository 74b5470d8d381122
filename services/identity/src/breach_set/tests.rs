use std::collections::BTreeSet;

use proptest::prelude::*;
use tempfile::TempDir;

use super::build::{BuildError, LineFault};
use super::*;

fn download(digests: &BTreeSet<[u8; 20]>) -> String {
    let line = |digest: &[u8; 20]| format!("{}:{}\r\n", data_encoding::HEXUPPER.encode(digest), digest[0]);
    digests.iter().map(line).collect()
}

fn built(text: &str) -> (TempDir, Result<u64, BuildError>) {
    let home = tempfile::tempdir().unwrap();
    let count = build(text.as_bytes(), &home.path().join("set"), |_| {});
    (home, count)
}

fn opened(home: &TempDir) -> Result<BreachSet, OpenError> {
    BreachSet::open(&home.path().join("set"))
}

fn fault(text: &str) -> (u64, LineFault) {
    match built(text).1 {
        Err(BuildError::Line { line, fault }) => (line, fault),
        other => panic!("{other:?}"),
    }
}

fn of(passwords: &[&str]) -> BTreeSet<[u8; 20]> {
    passwords.iter().map(|password| Sha1::digest(password.as_bytes()).into()).collect()
}

#[test]
fn passwords_are_found_in_their_exact_case() {
    let (home, count) = built(&download(&of(&["Summer2024!!!", "hunter2hunter2"])));
    assert_eq!(count.unwrap(), 2);
    let set = opened(&home).unwrap();
    let has = |password: &str| set.contains(Entry::of_password(password)).unwrap();
    assert!(has("Summer2024!!!") && has("hunter2hunter2"));
    assert!(!has("summer2024!!!") && !has("correct-horse-battery-9"));
}

#[test]
fn a_download_that_is_not_what_is_needed_is_refused_with_its_line() {
    let sha1 = "0".repeat(39);
    assert_eq!(fault(&format!("{sha1}1:2\n{sha1}0:1\n")), (2, LineFault::Order));
    assert_eq!(fault(&format!("{}:4\n", "A".repeat(32))), (1, LineFault::Ntlm));
    assert_eq!(fault(&format!("{}:4\n", "A".repeat(35))), (1, LineFault::Range));
    for text in ["\n", "password\n", &format!("{sha1}g:1\n"), &"a".repeat(100_000), &format!("{sha1}:1\n")] {
        assert_eq!(fault(text), (1, LineFault::Form), "{}", &text[..text.len().min(60)]);
    }
    assert!(matches!(built("").1, Err(BuildError::Empty)));
}

#[test]
fn a_refused_download_leaves_what_was_there_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let to = home.path().join("set");
    std::fs::write(&to, "the one before").unwrap();
    build("nonsense\n".as_bytes(), &to, |_| {}).unwrap_err();
    assert_eq!(std::fs::read_to_string(&to).unwrap(), "the one before");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn what_was_cut_off_or_changed_is_not_opened() {
    let digests = (0..3000_u32).map(|n| Sha1::digest(n.to_be_bytes()).into()).collect();
    let (home, _) = built(&download(&digests));
    let path = home.path().join("set");
    let whole = std::fs::read(&path).unwrap();
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        opened(&home).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(refused(&whole), "");
    assert_eq!(
        refused(&whole[..whole.len() - 1]),
        "it has 24047 bytes where it should have 24048: it was cut off; copy or build it anew"
    );
    assert!(refused(&[whole.as_slice(), &[0; 8]].concat()).contains("24056 bytes"));
    assert!(refused(b"").contains("no breach set"));
    assert!(refused(download(&digests).as_bytes()).contains("no breach set"));
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    assert!(refused(&with(15, 2)).contains("version 2"));
    assert!(refused(&with(27, whole[27] ^ 1)).contains("damaged"));
    assert!(refused(&with(48, !whole[48])).contains("damaged"));
    let swapped = [&whole[..48], &whole[12048..], &whole[48..12048]].concat();
    assert!(refused(&swapped).contains("damaged"));
    std::fs::remove_file(&path).unwrap();
    assert!(opened(&home).unwrap_err().to_string().contains("No such file"));
}

/// Digests as they never are: in heaps, so that guesses go wrong.
fn heaps() -> impl Strategy<Value = BTreeSet<[u8; 20]>> {
    let digest = (
        prop_oneof![Just(0_u8), Just(127), Just(255), any::<u8>()],
        any::<u16>(),
        any::<u64>(),
        any::<bool>(),
    );
    let digest = digest.prop_map(|(heap, near, far, is_near)| {
        let mut digest = [heap; 20];
        if is_near {
            digest[6..8].copy_from_slice(&near.to_be_bytes());
        } else {
            digest[1..9].copy_from_slice(&far.to_be_bytes());
        }
        digest
    });
    prop::collection::btree_set(digest, 1..4000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_set_has_what_a_plain_set_has(digests in heaps(), others in prop::collection::vec(any::<[u8; 20]>(), 200)) {
        let (home, count) = built(&download(&digests));
        let plain: BTreeSet<_> = digests.iter().map(|digest| Entry::of_digest(*digest)).collect();
        prop_assert_eq!(count.unwrap(), plain.len() as u64);
        let set = opened(&home).unwrap();
        let near = plain.iter().flat_map(|entry| [entry.0.wrapping_sub(1), entry.0, entry.0.wrapping_add(1)]);
        for entry in near.map(Entry).chain(others.into_iter().map(Entry::of_digest)) {
            prop_assert_eq!(set.contains(entry).unwrap(), plain.contains(&entry), "{:?}", entry);
        }
    }
}
