//! `svc-identity trial`: prepares a trial installation of the chart (`trial.enabled`). Not for production.

mod secret;
mod tenant;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use service::config::Environment;
use service::process::{CommandResult, print_line};
use url::Url;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Subcommands of `svc-identity trial`.
#[derive(Debug, clap::Subcommand)]
pub enum TrialCommand {
    /// Create a Kubernetes Secret with random passwords and tokens, unless it exists
    ///
    /// The service account of the pod owns the Secret: Kubernetes deletes the Secret with it.
    Secret {
        /// Name of the Secret
        name: String,
        /// Host and port of Postgres
        #[arg(long)]
        postgres: String,
        /// Host and port of NATS
        #[arg(long)]
        nats: String,
        /// Kubernetes API
        #[arg(long, default_value = "https://kubernetes.default.svc")]
        api_server: Url,
        /// Directory with the files `token` and `ca.crt` of the service account
        #[arg(long, default_value = "/var/run/secrets/kubernetes.io/serviceaccount")]
        service_account: PathBuf,
    },
    /// Create the tenant `demo` and its administrator, unless they exist; requires `SVC_PLATFORM_TOKEN`
    Tenant {
        /// Address of identity
        #[arg(long)]
        url: String,
        /// File with the password of the administrator
        #[arg(long)]
        password_file: PathBuf,
    },
}

impl TrialCommand {
    pub(super) async fn execute(self, environment: &Environment) -> CommandResult {
        let message = match self {
            Self::Secret { name, postgres, nats, api_server, service_account } => {
                let data = secret::data(&postgres, &nats);
                secret::create(&name, &data, &api_server, &service_account).await?
            }
            Self::Tenant { url, password_file } => tenant::create(&url, &password_file, environment).await?,
        };
        print_line(&message)?;
        Ok(ExitCode::SUCCESS)
    }
}
