//! Single-use tokens of mails, and where a command reads one from. A token is never accepted as an argument.

use std::path::PathBuf;

use clap::Args;
use contract::Secret;

use crate::framework::context::Context;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::input::{file_secrets, stdin_secret};

/// Purpose of a single-use token.
#[derive(Clone, Copy)]
pub(crate) struct TokenKind {
    prefix: &'static str,
    name: &'static str,
    /// Where the token is.
    origin: &'static str,
    /// Command that accepts such a token.
    command: &'static str,
}

impl TokenKind {
    pub(crate) const INVITE: Self = Self {
        prefix: "svc_iv_",
        name: "Invite token",
        origin: "the mail, or from the output that shows it, such as that of `make up`",
        command: "svc users accept-invite",
    };
    pub(crate) const RESET: Self = Self {
        prefix: "svc_pr_",
        name: "Reset token",
        origin: "the mail",
        command: "svc auth password confirm-reset",
    };

    /// Checks the start of a token. The service checks the rest.
    fn check(self, token: &Secret) -> Result<()> {
        let starts = |kind: &Self| token.expose().starts_with(kind.prefix);
        if starts(&self) {
            return Ok(());
        }
        let remediation = match [Self::INVITE, Self::RESET].into_iter().find(starts) {
            Some(other) => format!("This token is for another command: run `{}`.", other.command),
            None => format!("Copy the whole token from {}.", self.origin),
        };
        let message = format!("the {} must start with {}", self.name.to_lowercase(), self.prefix);
        Err(ErrorKind::InputInvalid.with_message(message).with_remediation(remediation))
    }
}

/// Where a command reads a single-use token from.
#[derive(Args)]
pub(crate) struct TokenSource {
    /// `-` to read the token from standard input. A token itself is rejected: other users could see it [default: prompt].
    token: Option<String>,
    /// Read the token from the first line of a file.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
}

impl TokenSource {
    /// Reads the token: the next line of standard input for the argument `-`, the first line of a file, or a prompt.
    pub(crate) async fn read(self, kind: TokenKind, context: &Context) -> Result<Secret> {
        let token = match (self.token.as_deref(), self.token_file) {
            (Some("-"), _) => stdin_secret("token", context.out()).await?,
            (Some(_), _) => {
                let error = ErrorKind::Usage.with_message(
                    "a token is not accepted as an argument: other users of this machine can read arguments, and the shell \
                     stores them in its history",
                );
                return Err(error.with_remediation(
                    "Run the command without the token and paste it when asked, pass `-` and the token on standard input, \
                     or pass --token-file.",
                ));
            }
            (None, Some(path)) => {
                let [token] = file_secrets(["token"], path).await?;
                token
            }
            (None, None) => context.prompt().secret(kind.name, "token", "`-` or --token-file").await?,
        };
        let token = Secret::new(token.expose().trim());
        kind.check(&token)?;
        Ok(token)
    }
}
