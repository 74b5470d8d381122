//! Where the servers' programs are, as `deploy/local/fetch.py` found or fetched them.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;

/// `.dev/tools.json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Tools {
    /// The directory of `postgres` and `initdb`.
    pub postgres_bin_dir: PathBuf,
    /// All that belongs to a fetched Postgres; nothing when the machine has its own.
    pub postgres_package: Option<PathBuf>,
    /// The broker.
    pub nats_server: PathBuf,
    /// The Python that ran `fetch.py`.
    pub python: Option<PathBuf>,
    /// A reverse proxy, for tests.
    pub caddy: Option<PathBuf>,
    /// The directory that holds nats-py, for tests.
    pub nats_py_path: Option<PathBuf>,
    /// The directory that holds aiosmtpd, for tests.
    pub aiosmtpd_path: Option<PathBuf>,
    /// The directory that holds schemathesis, for tests; nothing where Python is too old for it.
    pub schemathesis_path: Option<PathBuf>,
}

impl Tools {
    /// Reads the file.
    ///
    /// # Errors
    /// What to do about a missing or unreadable one.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let advice = || format!("cannot use {}: run python3 deploy/local/fetch.py first", path.display());
        let text = std::fs::read(path).with_context(advice)?;
        serde_json::from_slice(&text).with_context(advice)
    }
}
