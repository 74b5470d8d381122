use std::collections::BTreeSet;

use proptest::prelude::*;
use tempfile::TempDir;

use super::build::{BuildError, LineError};
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

fn line_error(text: &str) -> (u64, LineError) {
    match built(text).1 {
        Err(BuildError::Line { line, error }) => (line, error),
        other => panic!("{other:?}"),
    }
}

fn of(passwords: &[&str]) -> BTreeSet<[u8; 20]> {
    passwords.iter().map(|password| Sha1::digest(password.as_bytes()).into()).collect()
}

#[test]
fn finds_passwords_in_exact_case() {
    let (home, count) = built(&download(&of(&["Summer2024!!!", "hunter2hunter2"])));
    assert_eq!(count.unwrap(), 2);
    let set = opened(&home).unwrap();
    let has = |password: &str| set.contains(Entry::from_password(password)).unwrap();
    assert!(has("Summer2024!!!") && has("hunter2hunter2"));
    assert!(!has("summer2024!!!") && !has("correct-horse-battery-9"));
}

#[test]
fn rejects_a_wrong_download_and_names_the_line() {
    let sha1 = "0".repeat(39);
    assert_eq!(line_error(&format!("{sha1}1:2\n{sha1}0:1\n")), (2, LineError::Order));
    assert_eq!(line_error(&format!("{}:4\n", "A".repeat(32))), (1, LineError::Ntlm));
    assert_eq!(line_error(&format!("{}:4\n", "A".repeat(35))), (1, LineError::Range));
    for text in ["\n", "password\n", &format!("{sha1}g:1\n"), &"a".repeat(100_000), &format!("{sha1}:1\n")] {
        assert_eq!(line_error(text), (1, LineError::Format), "{}", &text[..text.len().min(60)]);
    }
    assert!(matches!(built("").1, Err(BuildError::Empty)));
}

#[test]
fn a_rejected_download_leaves_the_existing_file_unchanged() {
    let home = tempfile::tempdir().unwrap();
    let to = home.path().join("set");
    std::fs::write(&to, "previous content").unwrap();
    build("nonsense\n".as_bytes(), &to, |_| {}).unwrap_err();
    assert_eq!(std::fs::read_to_string(&to).unwrap(), "previous content");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn rejects_a_truncated_or_modified_file() {
    let digests = (0..3000_u32).map(|n| Sha1::digest(n.to_be_bytes()).into()).collect();
    let (home, _) = built(&download(&digests));
    let path = home.path().join("set");
    let content = std::fs::read(&path).unwrap();
    let open_error = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        opened(&home).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(open_error(&content), "");
    assert_eq!(
        open_error(&content[..content.len() - 1]),
        "the file has 24047 bytes, expected 24048; copy or build it again"
    );
    assert!(open_error(&[content.as_slice(), &[0; 8]].concat()).contains("24056 bytes"));
    assert!(open_error(b"").contains("not a breach set"));
    assert!(open_error(download(&digests).as_bytes()).contains("not a breach set"));
    let with = |at: usize, byte: u8| {
        let mut bytes = content.clone();
        bytes[at] = byte;
        bytes
    };
    assert!(open_error(&with(15, 2)).contains("version 2"));
    assert!(open_error(&with(27, content[27] ^ 1)).contains("corrupt"));
    assert!(open_error(&with(48, !content[48])).contains("corrupt"));
    let swapped = [&content[..48], &content[12048..], &content[48..12048]].concat();
    assert!(open_error(&swapped).contains("corrupt"));
    std::fs::remove_file(&path).unwrap();
    assert!(opened(&home).unwrap_err().to_string().contains("No such file"));
}

/// Digests in clusters, for which interpolation fails.
fn clustered_digests() -> impl Strategy<Value = BTreeSet<[u8; 20]>> {
    let digest = (
        prop_oneof![Just(0_u8), Just(127), Just(255), any::<u8>()],
        any::<u16>(),
        any::<u64>(),
        any::<bool>(),
    );
    let digest = digest.prop_map(|(cluster, near, far, is_near)| {
        let mut digest = [cluster; 20];
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
    fn contains_the_same_entries_as_a_btree_set(digests in clustered_digests(), others in prop::collection::vec(any::<[u8; 20]>(), 200)) {
        let (home, count) = built(&download(&digests));
        let plain: BTreeSet<_> = digests.iter().map(|digest| Entry::from_digest(*digest)).collect();
        prop_assert_eq!(count.unwrap(), plain.len() as u64);
        let set = opened(&home).unwrap();
        let near = plain.iter().flat_map(|entry| [entry.0.wrapping_sub(1), entry.0, entry.0.wrapping_add(1)]);
        for entry in near.map(Entry).chain(others.into_iter().map(Entry::from_digest)) {
            prop_assert_eq!(set.contains(entry).unwrap(), plain.contains(&entry), "{:?}", entry);
        }
    }
}
