//! Checks that the built-in password lists are in order: a search in a list that is not finds nothing, silently.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let common = read("data/common-12plus.txt")?;
    let breached = read("data/breached-12plus.sha1p64.bin")?;
    if common.last() != Some(&b'\n')
        || !common
            .strip_suffix(b"\n")
            .is_some_and(|all| all.split(|b| *b == b'\n').is_sorted_by(|a, b| a < b))
    {
        return Err("data/common-12plus.txt is not sorted by bytes, a line an entry".into());
    }
    if breached.len() % 8 != 0 || !breached.chunks_exact(8).is_sorted_by(|a, b| a <= b) {
        return Err("data/breached-12plus.sha1p64.bin is not a sorted sequence of 8-byte prefixes".into());
    }
    Ok(())
}

fn read(path: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    println!("cargo::rerun-if-changed={path}");
    std::fs::read(path).map_err(|error| format!("{path}: {error}").into())
}
