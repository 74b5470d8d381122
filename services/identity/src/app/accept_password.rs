//! Accept a new password: the rules first, then the mounted breach set, where there is one. Nothing of this happens at a
//! login.

use std::io;
use std::sync::Arc;

use contract::ProblemKind;
use hashing::Password;
use service::Problem;
use tenancy::TenantId;

use super::App;
use crate::breach_set::Entry;
use crate::domain::email::EmailKey;
use crate::domain::password::PolicyViolation;

/// Why a password is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PasswordError {
    #[error("the password was refused")]
    Rejected(PolicyViolation),
    /// A password that may be a breached one is not taken.
    #[error("the breach set cannot be read")]
    Unchecked(#[source] io::Error),
}

impl PasswordError {
    /// The problem, at the field that held the password.
    pub(super) fn at(self, pointer: &str) -> Problem {
        match self {
            Self::Rejected(refusal) => {
                let kind = refusal.kind();
                let message = match refusal {
                    PolicyViolation::TooShort { min } => format!("use at least {min} characters"),
                    _ => kind.title().to_owned(),
                };
                Problem::new(kind).field(pointer, kind.code(), message)
            }
            Self::Unchecked(_) => Problem::new(ProblemKind::DependencyUnavailable).caused_by(self),
        }
    }
}

impl App {
    /// Prepares a new password, or says why it cannot be one.
    pub(super) async fn accept_password(
        &self,
        raw: &str,
        email: &EmailKey,
        tenant_id: &TenantId,
    ) -> Result<Password, PasswordError> {
        let password = self.policy.accept(raw, email, tenant_id).map_err(PasswordError::Rejected)?;
        if let Some(set) = &self.breach_set {
            // Outer spaces make nothing harder to guess.
            let entries = [password.expose(), password.expose().trim()].map(Entry::of_password);
            let set = Arc::clone(set);
            let found = tokio::task::spawn_blocking(move || {
                Ok(set.contains(entries[0])? || (entries[0] != entries[1] && set.contains(entries[1])?))
            });
            let found = found.await.map_err(io::Error::other).flatten();
            if found.map_err(PasswordError::Unchecked)? {
                return Err(PasswordError::Rejected(PolicyViolation::Breached));
            }
        }
        Ok(password)
    }
}
