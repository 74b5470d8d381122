//! Checks that the built-in password lists are complete and sorted. A binary search in an unsorted list would find nothing and
//! report no error.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let readme = String::from_utf8(read("data/README.md")?)?;
    let common = read("data/common-12plus.txt")?;
    let lines: Vec<_> = common.strip_suffix(b"\n").unwrap_or_default().split(|b| *b == b'\n').collect();
    if lines.len() != entries(&readme, "common-12plus.txt")? || !lines.is_sorted_by(|a, b| a < b) {
        return Err("data/common-12plus.txt: expected sorted lines, as many as in data/README.md".into());
    }
    let breached = read("data/breached-12plus.sha1p64.bin")?;
    let (prefixes, rest) = breached.as_chunks::<8>();
    let is_complete = prefixes.len() == entries(&readme, "breached-12plus.sha1p64.bin")? && rest.is_empty();
    if !is_complete || !prefixes.is_sorted_by(|a, b| a <= b) {
        return Err(
            "data/breached-12plus.sha1p64.bin: expected sorted prefixes of 8 bytes, as many as in data/README.md"
                .into(),
        );
    }
    Ok(())
}

/// Returns the number of entries of a list according to the table in the README.
fn entries(readme: &str, name: &str) -> Result<usize, Box<dyn Error>> {
    let row = readme.lines().find(|line| line.starts_with(&format!("| {name} |")));
    let count = row.and_then(|row| row.split('|').nth(2)).ok_or("data/README.md does not list every list")?;
    Ok(count.trim().replace(',', "").parse()?)
}

fn read(path: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    println!("cargo::rerun-if-changed={path}");
    std::fs::read(path).map_err(|error| format!("{path}: {error}").into())
}
