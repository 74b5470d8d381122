//! A file with the credential, for example a projected service account token of Kubernetes. It is read for each request, because its
//! token is replaced before it expires.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io, thread};

use reqwest::header::HeaderValue;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::client::{bearer_header, configuration_error};
use crate::{TransportError, TransportErrorKind};

/// Maximum number of threads that read the file. Each can be blocked without limit, for example by a FIFO or a mount that does not
/// answer.
const MAX_THREADS: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    /// Each thread has a permit.
    threads: Arc<Semaphore>,
}

impl TokenFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, threads: Arc::new(Semaphore::new(MAX_THREADS)) }
    }

    /// Reads the credential, within this time.
    pub(super) async fn bearer(&self, limit: Duration) -> Result<HeaderValue, TransportError> {
        let read = timeout(limit, self.read()).await;
        let shown = self.path.display();
        let token = read
            .map_err(|_| {
                let message = format!("reading the token file {shown} timed out");
                TransportError::new(TransportErrorKind::Timeout, message)
            })?
            .map_err(|error| {
                configuration_error(format!("failed to read the token file {shown}: {error}"))
            })?;
        // A file of a secret has two lines while it is replaced, the current one first.
        match token.lines().next().map(str::trim) {
            Some(token) if !token.is_empty() => bearer_header(token),
            // A program that replaces the token can have emptied the file.
            _ => {
                let error = configuration_error(format!("the token file {shown} is empty"));
                Err(TransportError { retryable: true, ..error })
            }
        }
    }

    /// Reads in a thread that does not belong to the runtime, which would wait for it when it stops.
    async fn read(&self) -> io::Result<String> {
        // An error means that the semaphore is closed, which never happens.
        let permit = Arc::clone(&self.threads).acquire_owned().await.map_err(io::Error::other)?;
        let (sender, content) = oneshot::channel();
        let path = self.path.clone();
        let read = move || {
            let content = fs::read_to_string(path);
            drop(permit);
            // An error means that the read timed out.
            let _ = sender.send(content);
        };
        thread::Builder::new().name("token file".to_owned()).spawn(read)?;
        content.await.map_err(io::Error::other)?
    }
}
