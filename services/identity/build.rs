//! Checks that the built-in password lists are whole and in order: a search in a list that is not finds nothing, silently.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let said = String::from_utf8(read("data/README.md")?)?;
    let common = read("data/common-12plus.txt")?;
    let lines: Vec<_> = common.strip_suffix(b"\n").unwrap_or_default().split(|b| *b == b'\n').collect();
    if lines.len() != entries(&said, "common-12plus.txt")? || !lines.is_sorted_by(|a, b| a < b) {
        return Err(
            "data/common-12plus.txt is not as data/README.md says, sorted by bytes, a line an entry".into()
        );
    }
    let breached = read("data/breached-12plus.sha1p64.bin")?;
    let (prefixes, rest) = breached.as_chunks::<8>();
    let whole = prefixes.len() == entries(&said, "breached-12plus.sha1p64.bin")? && rest.is_empty();
    if !whole || !prefixes.is_sorted_by(|a, b| a <= b) {
        return Err(
            "data/breached-12plus.sha1p64.bin is not as data/README.md says, sorted prefixes of 8 bytes"
                .into(),
        );
    }
    Ok(())
}

/// How many entries a list has, by the table of the README.
fn entries(readme: &str, name: &str) -> Result<usize, Box<dyn Error>> {
    let row = readme.lines().find(|line| line.starts_with(&format!("| {name} |")));
    let count = row.and_then(|row| row.split('|').nth(2)).ok_or("data/README.md does not list every list")?;
    Ok(count.trim().replace(',', "").parse()?)
}

fn read(path: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    println!("cargo::rerun-if-changed={path}");
    std::fs::read(path).map_err(|error| format!("{path}: {error}").into())
}
