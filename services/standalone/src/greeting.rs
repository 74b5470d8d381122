//! What a person reads when everything runs: where things are, and what to type next, as it stands.

use std::fmt;
use std::path::Path;

use crate::run_file::RunFile;

/// The text for a run, made from its run_file.
pub(crate) struct Greeting<'a> {
    /// The run_file.
    pub(crate) run_file: &'a RunFile,
    /// Where they can be read again.
    pub(crate) facts_file: &'a Path,
    /// The origin of the admin listener.
    pub(crate) admin_url: &'a str,
    /// Whether mails are sent, instead of written to files.
    pub(crate) sends_mails: bool,
    /// The data directory.
    pub(crate) data: &'a Path,
}

impl fmt::Display for Greeting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunFile { base_url, tenant, admin_email, .. } = self.run_file;
        writeln!(f, "\nRunning.\n")?;
        writeln!(f, "  address  {base_url}/api/v1")?;
        writeln!(f, "  admin    {}/readyz", self.admin_url)?;
        writeln!(f, "  data     {}", self.data.display())?;
        if self.sends_mails {
            writeln!(f, "  mails    sent by SVC_SMTP_URL")?;
        } else {
            writeln!(f, "  mails    {}", self.run_file.mail_dir.display())?;
        }
        writeln!(f, "  run_file    {}", self.facts_file.display())?;
        writeln!(f, "\nCtrl-C stops it; the data stay. To try it, type in another terminal:\n")?;
        let svc = shell_word(&self.run_file.svc.to_string_lossy());
        writeln!(f, "  export SVC_BASE_URL={base_url} SVC_TENANT={tenant}")?;
        if let Some(token) = &self.run_file.admin_invite_token {
            writeln!(f, "  {svc} users accept-invite {token}")?;
        }
        writeln!(f, "  {svc} auth login --email {admin_email} --tenant {tenant}")?;
        writeln!(f, "  {svc} users invite --email somebody@{tenant}.example --tenant {tenant}")?;
        writeln!(f, "  {svc} auth sessions list")?;
        let event = r#"{"source_id":"demo","metadata":{"event_type":"USER_LOGIN"}}"#;
        writeln!(f, "  echo '{event}' | {svc} events send -f -")?;
        writeln!(f, "\nand to end a session, with an id from the list:\n")?;
        writeln!(f, "  {svc} auth sessions revoke <session-id>")
    }
}

/// The text as one word of a shell.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_one_word_of_the_shell() {
        assert_eq!(shell_word("/a-b/svc_1.0"), "/a-b/svc_1.0");
        assert_eq!(shell_word("/a b/it's"), r"'/a b/it'\''s'");
        assert_eq!(shell_word("/$HOME/svc"), "'/$HOME/svc'");
    }
}
