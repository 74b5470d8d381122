//! The credential of a command and where it comes from. Errors name it, so that the right one is replaced.

use std::fmt;
use std::path::{Path, PathBuf};

use contract::{ProblemKind, Secret};
use reqwest::header::HeaderValue;
use tenancy::{TenantId, UserId};

use crate::framework::environment;
use crate::framework::error::{CliError, ErrorKind, Result, remediation_for};

/// What else can be the reason of a rejected credential.
const SUSPENDED: &str = "If no credential of the tenant works, ask the platform administrator whether it is suspended: `svc tenants get`.";

/// Session token or another bearer credential, for automation.
pub(crate) const TOKEN: &str = "SVC_TOKEN";
/// API key, for automation.
pub(crate) const API_KEY: &str = "SVC_API_KEY";
/// Token of the platform administrator.
pub(crate) const PLATFORM_TOKEN: &str = "SVC_PLATFORM_TOKEN";

/// A bearer credential and what the client knows about it.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    pub(crate) secret: Secret,
    pub(crate) source: CredentialSource,
    /// User of a stored session.
    pub(crate) user: Option<UserId>,
    /// Tenant to send with the credential. The service rejects a credential of another tenant.
    pub(crate) tenant: Option<TenantId>,
}

impl Credential {
    /// Whether this is the platform token.
    pub(crate) fn is_platform_token(&self) -> bool {
        self.source.variable() == Some(PLATFORM_TOKEN)
    }

    fn from_variable(name: &'static str, file: Option<PathBuf>, secret: &str) -> Result<Self> {
        let source = CredentialSource::Variable { name, file };
        if HeaderValue::try_from(secret).is_err() {
            let message = format!("{source}: a credential has visible ASCII characters only");
            return Err(ErrorKind::ConfigurationInvalid.with_message(message));
        }
        Ok(Self { secret: Secret::new(secret), source, user: None, tenant: None })
    }
}

/// Where a credential comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CredentialSource {
    /// An environment variable, or the file that `<name>_FILE` names.
    Variable { name: &'static str, file: Option<PathBuf> },
    /// A stored session.
    Stored { email: String, tenant: TenantId },
}

impl CredentialSource {
    /// Name of the variable without `_FILE`; `None` for a stored session.
    pub(crate) fn variable(&self) -> Option<&'static str> {
        match self {
            Self::Variable { name, .. } => Some(name),
            Self::Stored { .. } => None,
        }
    }

    /// The file with the credential, which can be replaced while a command runs.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Variable { file, .. } => file.as_deref(),
            Self::Stored { .. } => None,
        }
    }

    /// What to do if the service does not accept the credential any more.
    fn replacement(&self) -> String {
        let variable = self.variable_in_use();
        match self {
            Self::Stored { email, tenant } => {
                format!("Log in again: `svc auth login --email {email} --tenant {tenant}`. {SUSPENDED}")
            }
            Self::Variable { name: API_KEY, .. } => format!(
                "Replace the key in {variable} by an active one; an administrator creates it: `svc api-keys create`. Or \
                 unset {variable} to use the stored login. {SUSPENDED}"
            ),
            Self::Variable { name: PLATFORM_TOKEN, .. } => {
                format!("Replace the token in {variable} by the current platform token of the service.")
            }
            Self::Variable { .. } => format!(
                "Replace the token in {variable} by that of an active session, or unset {variable} to use the stored \
                 login."
            ),
        }
    }

    fn variable_in_use(&self) -> String {
        match self {
            Self::Variable { name, file } => format!("{name}{}", if file.is_some() { "_FILE" } else { "" }),
            Self::Stored { .. } => String::new(),
        }
    }
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable { file: Some(file), .. } => {
                write!(f, "{} ({})", self.variable_in_use(), file.display())
            }
            Self::Variable { name, .. } => f.write_str(name),
            Self::Stored { email, tenant } => {
                write!(f, "the session of {email} in tenant {tenant}, stored by `svc auth login`")
            }
        }
    }
}

/// Credential in the variable, or in the file that `<name>_FILE` names.
pub(crate) fn from_environment(name: &'static str) -> Result<Option<Credential>> {
    if let Some(raw) = environment::credential(name)? {
        return Credential::from_variable(name, None, raw.trim()).map(Some);
    }
    let file_variable = format!("{name}_FILE");
    let Some(path) = environment::credential(&file_variable)?.map(PathBuf::from) else {
        return Ok(None);
    };
    let invalid = |reason: String| {
        let message = format!("{file_variable} ({}): {reason}", path.display());
        ErrorKind::ConfigurationInvalid.with_message(message)
    };
    let raw = std::fs::read_to_string(&path).map_err(|error| invalid(error.to_string()))?;
    // A file of a secret has two lines while it is replaced, the current one first. Editors of Windows write a byte order mark.
    match raw.trim_start_matches('\u{feff}').lines().next().unwrap_or_default().trim() {
        "" => Err(invalid("the file is empty".to_owned())),
        secret => Credential::from_variable(name, Some(path.clone()), secret).map(Some),
    }
}

/// Returns whether there is a platform token, which some commands do not accept.
pub(crate) fn is_platform_token_set() -> bool {
    matches!(from_environment(PLATFORM_TOKEN), Ok(Some(_)))
}

impl CliError {
    /// Names the credential if the service rejected it or its permissions.
    pub(crate) fn with_credential(mut self, source: &CredentialSource) -> Self {
        let Some(kind) = ProblemKind::from_code(&self.code) else { return self };
        match (kind, source.variable()) {
            (ProblemKind::CredentialInvalid, _) => {
                // Other steps can follow the general one.
                let (general, replacement) = (remediation_for(kind), source.replacement());
                self.remediation = match self.remediation.strip_prefix(general) {
                    Some(others) => replacement + others,
                    None => replacement,
                };
            }
            (ProblemKind::ReauthenticationRequired, Some(_)) => {
                let variable = source.variable_in_use();
                self.remediation = format!(
                    "Unset {variable}, run `svc auth login` with the password, then run the command again."
                );
            }
            _ if matches!(kind.status(), 403) => {}
            _ => return self,
        }
        self.message = format!("{}\n  credential: {source}", self.message);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_the_credential_name_it() {
        let source = CredentialSource::Variable { name: API_KEY, file: Some("key.txt".into()) };
        let named = |code: &str| {
            let error = CliError { code: code.to_owned(), ..ErrorKind::Defect.with_message("failed") };
            error.with_credential(&source).message.contains("\n  credential: SVC_API_KEY_FILE (key.txt)")
        };
        for kind in ProblemKind::ALL {
            let expected = kind.status() == 403 || *kind == ProblemKind::CredentialInvalid;
            let reauthentication = *kind == ProblemKind::ReauthenticationRequired;
            assert_eq!(named(kind.code()), expected || reauthentication, "{}", kind.code());
        }
        assert!(!named("unreachable"));
    }
}
