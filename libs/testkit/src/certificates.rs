//! Certificates of a private certificate authority, as files with the names of Kubernetes Secrets.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// A certificate authority, and a certificate for a server on loopback and for a client. Dropping it deletes the files.
pub struct Certificates(TempDir);

impl Certificates {
    /// Creates the certificates.
    pub fn create() -> anyhow::Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        fs::write(directory.path().join("ca.crt"), authority.as_ref().pem())?;
        for name in ["server", "client"] {
            let key = KeyPair::generate()?;
            let certificate =
                CertificateParams::new(["127.0.0.1".to_owned()])?.signed_by(&key, &authority)?;
            let files = directory.path().join(name);
            fs::create_dir(&files)?;
            fs::write(files.join("tls.crt"), certificate.pem())?;
            fs::write(files.join("tls.key"), key.serialize_pem())?;
        }
        Ok(Self(directory))
    }

    /// Returns the file with the certificate of the authority.
    pub fn authority(&self) -> PathBuf {
        self.path().join("ca.crt")
    }

    /// Returns the directory with `tls.crt` and `tls.key` of the server.
    pub fn server(&self) -> PathBuf {
        self.path().join("server")
    }

    /// Returns the directory with `tls.crt` and `tls.key` of the client.
    pub fn client(&self) -> PathBuf {
        self.path().join("client")
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}
