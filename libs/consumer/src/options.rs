//! How to connect to NATS: credentials, TLS, and what happens when the connection fails.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::{BoxError, ConsumerError};

/// Receives the changes of a connection.
type EventCallback = Arc<dyn Fn(async_nats::Event) + Send + Sync>;

/// Credentials, TLS and limits of the connection. Certificates are PEM.
///
/// ```
/// use consumer::ConnectOptions;
///
/// let options = ConnectOptions::with_user_and_password("archive", "password").max_reconnects(100);
/// assert!(options.root_certificates(b"not a certificate").is_err());
/// ```
#[derive(Clone)]
pub struct ConnectOptions {
    options: async_nats::ConnectOptions,
    /// `None` trusts the certificates of the system.
    roots: Option<RootCertStore>,
    identity: Option<Arc<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>>,
    event_callback: Option<EventCallback>,
    pub(crate) retries_start: bool,
}

/// Without credentials.
impl Debug for ConnectOptions {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ConnectOptions")
            .field("retry_on_initial_connect", &self.retries_start)
            .finish_non_exhaustive()
    }
}

impl ConnectOptions {
    /// Logs in with a user and a password, as `svc consumers create` prints them.
    pub fn with_user_and_password(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self::new(async_nats::ConnectOptions::with_user_and_password(user.into(), password.into()))
    }

    /// Logs in with a token.
    pub fn with_token(token: impl Into<String>) -> Self {
        Self::new(async_nats::ConnectOptions::with_token(token.into()))
    }

    /// Logs in with the seed of an `NKey`.
    pub fn with_nkey(seed: impl Into<String>) -> Self {
        Self::new(async_nats::ConnectOptions::with_nkey(seed.into()))
    }

    /// Logs in with the text of a file with credentials (JWT and seed).
    ///
    /// # Errors
    /// [`ConsumerError::Options`] if the text is malformed.
    pub fn with_credentials(text: &str) -> Result<Self, ConsumerError> {
        let options = async_nats::ConnectOptions::with_credentials(text);
        Ok(Self::new(options.map_err(|error| ConsumerError::Options(error.into()))?))
    }

    fn new(options: async_nats::ConnectOptions) -> Self {
        Self { options, roots: None, identity: None, event_callback: None, retries_start: false }
    }

    fn with(self, change: impl FnOnce(async_nats::ConnectOptions) -> async_nats::ConnectOptions) -> Self {
        Self { options: change(self.options), ..self }
    }

    /// Ends [`run`](crate::run) with [`ConsumerError::Closed`] after more than this number of failed attempts in a row. Each server has its
    /// own attempts. 0 is without a limit, the default.
    #[must_use]
    pub fn max_reconnects(self, attempts: usize) -> Self {
        self.with(|options| options.max_reconnects(attempts))
    }

    /// Waits at the start until a server is reachable. Otherwise, [`run`](crate::run) fails at once.
    #[must_use]
    pub fn retry_on_initial_connect(self) -> Self {
        Self { retries_start: true, ..self }
    }

    /// Limits the time of one attempt, 5 s by default.
    #[must_use]
    pub fn connection_timeout(self, timeout: Duration) -> Self {
        self.with(|options| options.connection_timeout(timeout))
    }

    /// Calls a function after each change of the connection and each error of the server. It must not block.
    #[must_use]
    pub fn event_callback(self, callback: impl Fn(async_nats::Event) + Send + Sync + 'static) -> Self {
        Self { event_callback: Some(Arc::new(callback)), ..self }
    }

    /// Rejects a server without TLS, also with an address that starts with `nats://`.
    #[must_use]
    pub fn require_tls(self) -> Self {
        self.with(|options| options.require_tls(true))
    }

    /// Trusts these certificates instead of those of the system.
    ///
    /// # Errors
    /// [`ConsumerError::Options`] if the text contains no certificate, or a malformed one.
    pub fn root_certificates(self, pem: &[u8]) -> Result<Self, ConsumerError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(pem)? {
            roots.add(certificate).map_err(|error| ConsumerError::Options(error.into()))?;
        }
        Ok(Self { roots: Some(roots), ..self })
    }

    /// Presents a certificate, followed by those of its authorities, to a server that verifies clients.
    ///
    /// # Errors
    /// [`ConsumerError::Options`] if the certificate or the key is malformed.
    pub fn client_certificate(self, pem: &[u8], key: &[u8]) -> Result<Self, ConsumerError> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| ConsumerError::Options(error.into()))?;
        Ok(Self { identity: Some(Arc::new((certificates(pem)?, key))), ..self })
    }

    /// Returns the options of the client. `on_event` precedes the function of the program.
    pub(crate) fn client_options(
        &self,
        on_event: impl Fn(&async_nats::Event) + Send + Sync + 'static,
    ) -> Result<async_nats::ConnectOptions, ConsumerError> {
        let tls = self.tls().map_err(ConsumerError::Options)?;
        let callback = self.event_callback.clone();
        Ok(self.options.clone().tls_client_config(tls).event_callback(move |event| {
            on_event(&event);
            if let Some(callback) = &callback {
                callback(event);
            }
            std::future::ready(())
        }))
    }

    /// Uses the provider that the program has installed, or ring. Installs none: that of the process belongs to the program. Without
    /// this configuration, the client library would let rustls install one, or panic if several are compiled in.
    fn tls(&self) -> Result<ClientConfig, BoxError> {
        let provider = CryptoProvider::get_default().cloned();
        let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
        let roots = self.roots.clone().unwrap_or_else(|| {
            let mut roots = RootCertStore::empty();
            // Certificates that cannot be read are not trusted.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            roots
        });
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = builder.with_root_certificates(roots);
        Ok(match &self.identity {
            Some(identity) => builder.with_client_auth_cert(identity.0.clone(), identity.1.clone_key())?,
            None => builder.with_no_client_auth(),
        })
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ConsumerError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(ConsumerError::Options("no PEM certificate found".into()))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(ConsumerError::Options(error.into())),
    }
}
