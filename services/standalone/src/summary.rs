//! The text that `up` prints when the system is ready: addresses, directories and the next commands.

use std::fmt;
use std::path::Path;

use crate::run_file::RunFile;

/// The summary of a run.
pub(crate) struct Summary<'a> {
    pub(crate) run_file: &'a RunFile,
    pub(crate) run_file_path: &'a Path,
    /// The origin of the admin listener.
    pub(crate) admin_url: &'a str,
    /// Whether a mail server sends the mails. If not, they are written to files.
    pub(crate) sends_mails: bool,
    /// The data directory.
    pub(crate) data: &'a Path,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunFile { base_url, tenant, admin_email, .. } = self.run_file;
        writeln!(f, "\nThe system is ready.\n")?;
        writeln!(f, "  API        {base_url}/api/v1")?;
        writeln!(f, "  API docs   {base_url}/api/v1/docs")?;
        writeln!(f, "  readiness  {}/readyz", self.admin_url)?;
        writeln!(f, "  metrics    {}/metrics", self.admin_url)?;
        writeln!(f, "  data       {}", self.data.display())?;
        if self.sends_mails {
            writeln!(f, "  mails      sent through SVC_SMTP_URL")?;
        } else {
            writeln!(f, "  mails      {}", self.run_file.mail_dir.display())?;
        }
        writeln!(f, "  run file   {}", self.run_file_path.display())?;
        writeln!(f, "\nPress Ctrl-C to stop it; the data are kept. To try it, run in another terminal:\n")?;
        let svc = shell_word(&self.run_file.svc.to_string_lossy());
        writeln!(f, "  export SVC_BASE_URL={base_url} SVC_TENANT={tenant}")?;
        if let Some(token) = &self.run_file.admin_invite_token {
            writeln!(f, "  {svc} users accept-invite {token}")?;
        }
        writeln!(f, "  {svc} auth login --email {admin_email} --tenant {tenant}")?;
        writeln!(f, "  {svc} users invite --email user@{tenant}.example --tenant {tenant}")?;
        writeln!(f, "  {svc} auth sessions list")?;
        let event = r#"{"source_id":"demo","metadata":{"event_type":"USER_LOGIN"}}"#;
        writeln!(f, "  echo '{event}' | {svc} events send -f -")?;
        writeln!(f, "\nTo revoke a session, use an id from the list:\n")?;
        writeln!(f, "  {svc} auth sessions revoke <session-id>")
    }
}

/// Quotes the text as one word for a shell.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_as_one_shell_word() {
        assert_eq!(shell_word("/a-b/svc_1.0"), "/a-b/svc_1.0");
        assert_eq!(shell_word("/a b/it's"), r"'/a b/it'\''s'");
        assert_eq!(shell_word("/$HOME/svc"), "'/$HOME/svc'");
    }
}
