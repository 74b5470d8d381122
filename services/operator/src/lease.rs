//! Election of the replica that writes, by a Lease (`coordination.k8s.io/v1`), with the rule of client-go: a lease has expired when it
//! was observed unchanged for its duration. Clocks of different nodes are never compared.
//!
//! A lease is not a fencing token: a paused leader can write after another replica took over. identity and session reject such writes by
//! their generation.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

/// How long a lease is valid after its last observed renewal.
const DURATION: Duration = Duration::from_secs(15);
const DURATION_SECONDS: i32 = 15;
/// How long the leader writes after it requested the last renewal.
const TERM: Duration = Duration::from_secs(10);
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
const ACQUIRE_INTERVAL: Duration = Duration::from_secs(2);

/// The time until which this replica may write. After a pause of the process, the time has passed before it reads the lease again.
#[derive(Clone)]
pub(crate) struct Term(pub(crate) watch::Receiver<Instant>);

impl Term {
    /// Returns immediately while this replica may write. Afterwards, it stays pending until the caller is cancelled.
    pub(crate) async fn wait_while_valid(&self) {
        if *self.0.borrow() <= Instant::now() {
            std::future::pending::<()>().await;
        }
    }
}

/// A candidate for a lease.
pub(crate) struct Candidate {
    leases: Api<Lease>,
    name: String,
    holder: String,
    /// The last observed lease, and when it was first observed.
    observed: Option<(LeaseSpec, Instant)>,
    term: watch::Sender<Instant>,
}

impl Candidate {
    pub(crate) fn new(client: Client, namespace: &str, name: &str, holder: &str) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            holder: holder.to_owned(),
            observed: None,
            term: watch::Sender::new(Instant::now()),
        }
    }

    /// The term of this candidate.
    pub(crate) fn term(&self) -> Term {
        Term(self.term.subscribe())
    }

    /// Waits until this replica holds the lease.
    pub(crate) async fn acquire(&mut self) {
        loop {
            match timeout(TERM, self.try_acquire()).await {
                Ok(Ok(true)) => return,
                Ok(Ok(false)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(error = service::chain(&error), "failed to acquire the lease");
                }
                Err(_) => tracing::warn!("timed out acquiring the lease"),
            }
            sleep(ACQUIRE_INTERVAL).await;
        }
    }

    /// Renews the lease. Returns when another replica has it, or when it could not be renewed in time.
    pub(crate) async fn hold(&mut self) {
        loop {
            let end = *self.term.borrow();
            sleep_until(end - RENEW_INTERVAL).await;
            match timeout_at(end, self.try_acquire()).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return,
                Ok(Err(error)) => {
                    tracing::warn!(error = service::chain(&error), "failed to renew the lease");
                    sleep(Duration::from_secs(1)).await;
                }
                Err(_) => return tracing::error!("the lease was not renewed in time"),
            }
        }
    }

    /// Gives the lease up, so that another replica takes over at once.
    pub(crate) async fn release(&mut self) {
        let Ok(Some(mut lease)) = self.leases.get_opt(&self.name).await else { return };
        let Some(spec) =
            lease.spec.as_mut().filter(|spec| spec.holder_identity.as_ref() == Some(&self.holder))
        else {
            return;
        };
        spec.holder_identity = None;
        if let Err(error) = self.leases.replace(&self.name, &PostParams::default(), &lease).await {
            tracing::warn!(error = service::chain(&error), "failed to release the lease");
        }
    }

    async fn try_acquire(&mut self) -> Result<bool, kube::Error> {
        // Other replicas observe the renewal later than this.
        let requested_at = Instant::now();
        let is_held = self.request().await?;
        if is_held {
            self.term.send_replace(requested_at + TERM);
        }
        Ok(is_held)
    }

    async fn request(&mut self) -> Result<bool, kube::Error> {
        let found = self.leases.get_opt(&self.name).await?;
        let now = MicroTime(Timestamp::now());
        let Some(mut lease) = found else {
            let mut lease = Lease::default();
            lease.metadata.name = Some(self.name.clone());
            lease.spec = Some(self.renewed(&LeaseSpec::default(), now));
            let created = self.leases.create(&PostParams::default(), &lease).await;
            return is_written(created);
        };
        let spec = lease.spec.take().unwrap_or_default();
        let is_holder = spec.holder_identity.as_ref() == Some(&self.holder);
        if !is_holder && !self.has_expired(&spec) {
            return Ok(false);
        }
        lease.spec = Some(self.renewed(&spec, now));
        // The resource version makes the write fail if another replica was faster.
        let replaced = self.leases.replace(&lease.name_any(), &PostParams::default(), &lease).await;
        is_written(replaced)
    }

    fn renewed(&self, spec: &LeaseSpec, now: MicroTime) -> LeaseSpec {
        let is_holder = spec.holder_identity.as_ref() == Some(&self.holder);
        LeaseSpec {
            acquire_time: if is_holder { spec.acquire_time.clone() } else { Some(now.clone()) },
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: Some(DURATION_SECONDS),
            lease_transitions: Some(spec.lease_transitions.unwrap_or(0) + i32::from(!is_holder)),
            renew_time: Some(now),
            ..spec.clone()
        }
    }

    /// Returns whether the lease has no holder, or was observed unchanged for its duration.
    fn has_expired(&mut self, spec: &LeaseSpec) -> bool {
        if spec.holder_identity.as_deref().is_none_or(str::is_empty) {
            return true;
        }
        match &self.observed {
            Some((observed, since)) if observed == spec => since.elapsed() >= DURATION,
            _ => {
                self.observed = Some((spec.clone(), Instant::now()));
                false
            }
        }
    }
}

/// Another replica was faster: the write is a conflict.
fn is_written(result: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_written_after_the_end_of_the_term() {
        let sender = watch::Sender::new(Instant::now() + TERM);
        let term = Term(sender.subscribe());
        assert!(term.wait_while_valid().now_or_never().is_some());
        tokio::time::advance(TERM).await;
        assert!(term.wait_while_valid().now_or_never().is_none());
        sender.send_replace(Instant::now() + TERM);
        assert!(term.wait_while_valid().now_or_never().is_some());
    }
}
