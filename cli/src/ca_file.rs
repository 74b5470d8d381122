//! The certificates to trust instead of the system's: the file of `--ca-file`, read.

use std::path::{Path, PathBuf};

use reqwest::Certificate;

use crate::error::{CliError, Fault, Result};

/// A PEM file of root certificates.
pub(crate) struct CaFile {
    path: PathBuf,
    pem: Vec<u8>,
}

impl CaFile {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let unread = Self { path: path.to_owned(), pem: Vec::new() };
        match std::fs::read(path) {
            Ok(pem) => Ok(Self { pem, ..unread }),
            Err(error) => Err(unread.unusable(&error.to_string())),
        }
    }

    /// What stands in it.
    pub(crate) fn pem(&self) -> &[u8] {
        &self.pem
    }

    /// Its certificates, at least one.
    pub(crate) fn certificates(&self) -> Result<Vec<Certificate>> {
        let certificates =
            Certificate::from_pem_bundle(&self.pem).map_err(|error| self.unusable(&error.to_string()))?;
        if certificates.is_empty() {
            return Err(self.unusable("the file holds no PEM certificate"));
        }
        Ok(certificates)
    }

    /// The error for a file that cannot be used.
    pub(crate) fn unusable(&self, why: &str) -> CliError {
        Fault::ConfigurationInvalid.because(format!("--ca-file {}: {why}", self.path.display()))
    }
}
