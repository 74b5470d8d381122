//! The file of CA certificates that replace the system's.

use std::path::{Path, PathBuf};

use reqwest::Certificate;

use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::settings::Origin;

/// A PEM file of root certificates.
pub(crate) struct CaFile {
    path: PathBuf,
    origin: Origin,
    pem: Vec<u8>,
}

impl CaFile {
    pub(crate) fn read(path: &Path, origin: Origin) -> Result<Self> {
        let empty = Self { path: path.to_owned(), origin, pem: Vec::new() };
        match std::fs::read(path) {
            Ok(pem) => Ok(Self { pem, ..empty }),
            Err(error) => Err(empty.invalid(&error.to_string())),
        }
    }

    pub(crate) fn pem(&self) -> &[u8] {
        &self.pem
    }

    /// Certificates of the file, at least one.
    pub(crate) fn certificates(&self) -> Result<Vec<Certificate>> {
        let certificates =
            Certificate::from_pem_bundle(&self.pem).map_err(|error| self.invalid(&error.to_string()))?;
        if certificates.is_empty() {
            return Err(self.invalid("the file contains no PEM certificate"));
        }
        Ok(certificates)
    }

    /// Error for a file that cannot be used.
    pub(crate) fn invalid(&self, reason: &str) -> CliError {
        let message = format!("CA file {} ({}): {reason}", self.path.display(), self.origin);
        ErrorKind::ConfigurationInvalid.with_message(message)
    }
}
