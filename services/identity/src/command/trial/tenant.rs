//! The first tenant of a trial and its administrator.

use std::path::Path;
use std::time::Duration;

use authn::PLATFORM_TOKEN;
use contract::Secret;
use service::config::{Environment, Reader};
use tokio::time::{Instant, sleep};

use super::Result;
use crate::first_tenant::FirstTenant;

/// How long identity may take to start: images are pulled and the database is created.
const START_TIMEOUT: Duration = Duration::from_mins(10);
const POLL: Duration = Duration::from_secs(1);

/// Creates the tenant and accepts the invite of its administrator. Waits until identity responds.
pub(super) async fn create(url: &str, password_file: &Path, environment: &Environment) -> Result<String> {
    let mut reader = Reader::new(environment);
    let token = PLATFORM_TOKEN.required::<String>().read(&mut reader);
    let token = reader.finish(|| token)?;
    let password = Secret::new(std::fs::read_to_string(password_file)?.trim());
    let tenant = FirstTenant::new(url, &token)?;
    // Idempotent: continues after an attempt that was interrupted.
    let create = async || match tenant.invite().await? {
        Some(token) => tenant.accept(token, password.clone()).await,
        None => Ok(()),
    };
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        match create().await {
            Ok(()) => {
                let (tenant, administrator) = (FirstTenant::ID, FirstTenant::ADMINISTRATOR);
                return Ok(format!("the tenant {tenant} has the administrator {administrator}"));
            }
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => sleep(POLL).await,
        }
    }
}
