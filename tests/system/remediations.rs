//! Remediations of `svc`: each command in one, executed as it is printed, leads to the repair of the command that failed.

mod factors;
mod limits;
mod logins;
mod lost_responses;
mod objects;

use std::collections::{BTreeMap, BTreeSet};

use e2e::{ApiUser, Installation, Run, Svc, SvcOutput};
use parking_lot::Mutex;
use serde_json::Value;
use testkit::{PASSWORD, wait_until};
use tokio::process::Child;

const NEW_PASSWORD: &str = "another battery staple";
const UNKNOWN_ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
/// Public origin of the installation, for passkeys: they need a host name.
const ORIGIN: &str = "https://svc.example";
/// Pending invites that a tenant can have.
const MAX_INVITES: usize = 8;

/// The remediations of the catalog that contain commands, and which of these commands were executed.
struct Remediations<'a> {
    run: &'a Run<'a>,
    commands: Vec<String>,
    /// Text of an error, by the command that failed and the code.
    texts: BTreeMap<(String, String), String>,
    executed: Mutex<BTreeSet<(String, String)>>,
}

/// A command that failed.
struct Failure<'a> {
    remediations: &'a Remediations<'a>,
    arguments: Vec<String>,
    input: String,
    remediation: String,
}

/// The commands of `svc` in a text.
fn commands_in(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("svc "))
}

impl<'a> Remediations<'a> {
    fn new(run: &'a Run<'a>, catalog: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let commands = catalog["commands"].as_array().unwrap();
        let errors = commands
            .iter()
            .flat_map(|command| command["errors"].as_array().unwrap().iter().map(move |e| (command, e)));
        let texts = errors.map(|(command, error)| {
            let remediation = text(&error["remediation"]);
            let (remediation, _) = remediation.rsplit_once(" (exit code").unwrap();
            ((text(&command["name"]), text(&error["code"])), remediation.to_owned())
        });
        Self {
            run,
            commands: commands.iter().map(|command| text(&command["name"])).collect(),
            texts: texts.collect(),
            executed: Mutex::default(),
        }
    }

    /// Name of the command that is called.
    fn name_of(&self, words: &str) -> String {
        let is_called = |name: &&String| format!("{words} ").starts_with(&format!("{name} "));
        self.commands
            .iter()
            .filter(is_called)
            .max_by_key(|name| name.len())
            .unwrap_or_else(|| panic!("{words}"))
            .clone()
    }

    /// Runs a command that fails with this code.
    async fn fail(&self, svc: &Svc, arguments: &[&str], input: &str, code: &str) -> Failure<'_> {
        let output = svc.run(&[arguments, &["--output", "json"]].concat(), input).await;
        self.failure(&output, arguments, input, code)
    }

    fn failure(&self, output: &SvcOutput, arguments: &[&str], input: &str, code: &str) -> Failure<'_> {
        let printed = output.stderr.lines().chain(output.stdout.lines());
        let error = printed
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|line| line["error"].is_object());
        let error = error.unwrap_or_else(|| panic!("{arguments:?}: {output:?}"));
        assert_eq!(error["error"]["code"], code, "{arguments:?}: {output:?}");
        Failure {
            remediations: self,
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            input: input.to_owned(),
            remediation: error["error"]["remediation"].as_str().unwrap().to_owned(),
        }
        .with_code(code)
    }

    /// A client without a login.
    fn svc(&self) -> Svc {
        self.run.svc()
    }

    fn platform_admin(&self) -> Svc {
        self.svc()
            .with_variable("SVC_PLATFORM_TOKEN_FILE", self.run.run_file.platform_token_file.to_str().unwrap())
    }

    /// Creates a tenant with an administrator. Returns the client of the administrator, who is logged in.
    async fn tenant(&self, tenant: &str) -> (Svc, ApiUser) {
        let token = std::fs::read_to_string(&self.run.run_file.platform_token_file).unwrap();
        let email = format!("ada@{tenant}.example");
        let user = ApiUser::create_tenant(&self.run.run_file.base_url, token.trim(), tenant, &email).await;
        let svc = Svc::new(&self.run.run_file.svc, &self.run.run_file.base_url, tenant);
        log_in(&svc, &email, PASSWORD).await;
        (svc, user)
    }

    /// Invites a member, who accepts. Returns the client of the member, who is logged in.
    async fn member(&self, admin: &Svc, tenant: &str, email: &str) -> Svc {
        let svc = Svc::new(&self.run.run_file.svc, &self.run.run_file.base_url, tenant);
        accept(&svc, &invite(admin, email).await["token"]).await;
        log_in(&svc, email, PASSWORD).await;
        svc
    }

    /// The token of a mail to the address.
    async fn mailed_token(&self, email: &str) -> String {
        let to = format!("To: {email}\r\n");
        let mail = wait_until("the mail is written", async || {
            let files =
                std::fs::read_dir(&self.run.run_file.mail_dir).unwrap().map(|file| file.unwrap().path());
            let complete = files.filter(|file| file.extension().is_some_and(|extension| extension == "eml"));
            let mut mails = complete.filter_map(|file| std::fs::read_to_string(file).ok());
            mails.find(|mail| mail.contains(&to) && mail.contains("#token="))
        })
        .await;
        e2e::token_in(&mail).to_owned()
    }

    /// Panics if a command in a remediation of the catalog was not executed.
    fn assert_complete(&self) {
        let executed = self.executed.lock();
        let all = self
            .texts
            .values()
            .flat_map(|text| commands_in(text).map(move |command| (text.clone(), self.name_of(command))));
        let missing: BTreeSet<_> = all.filter(|command| !executed.contains(command)).collect();
        assert!(missing.is_empty(), "add a case for each of {missing:#?}");
    }
}

impl Failure<'_> {
    /// Records commands under the text of the catalog, also if the printed one adds names or ids.
    fn with_code(self, code: &str) -> Self {
        let all = &self.remediations.texts;
        let command = self.remediations.name_of(&self.arguments.join(" "));
        if !all.values().any(|text| *text == self.remediation) {
            let text = &all[&(command, code.to_owned())];
            let printed: BTreeSet<_> =
                commands_in(&self.remediation).map(|command| self.remediations.name_of(command)).collect();
            for documented in commands_in(text) {
                let name = self.remediations.name_of(documented);
                if printed.contains(&name) {
                    self.remediations.executed.lock().insert((text.clone(), name));
                }
            }
        }
        self
    }

    /// The words of the printed command that starts with `command`, with `more` for what the text leaves open.
    fn words(&self, command: &str, more: &[&str]) -> Vec<String> {
        let printed = commands_in(&self.remediation).find(|printed| printed.starts_with(command));
        let printed = printed.unwrap_or_else(|| panic!("no {command}: {}", self.remediation));
        let name = self.remediations.name_of(printed);
        self.remediations.executed.lock().insert((self.remediation.clone(), name));
        let words = printed.split_whitespace().filter(|word| !word.starts_with('<'));
        words.chain(more.iter().copied()).map(str::to_owned).collect()
    }

    /// Executes the printed command that starts with `command`.
    async fn try_run(&self, svc: &Svc, command: &str, more: &[&str], input: &str) -> SvcOutput {
        let words = self.words(command, more);
        svc.run(&words.iter().map(String::as_str).collect::<Vec<_>>(), input).await
    }

    /// Executes the printed command, which succeeds. Returns its output.
    async fn run(&self, svc: &Svc, command: &str, more: &[&str], input: &str) -> String {
        let output = self.try_run(svc, command, more, input).await;
        assert_eq!(output.code, Some(0), "{command} {more:?}: {output:?}");
        output.stdout
    }

    /// Executes the printed command, which prints JSON.
    async fn json(&self, svc: &Svc, command: &str, more: &[&str]) -> Value {
        let stdout = self.run(svc, command, &[more, &["--output", "json"]].concat(), "").await;
        serde_json::from_str(&stdout).unwrap()
    }

    /// Starts the printed command.
    fn start(&self, svc: &Svc, command: &str, more: &[&str]) -> Child {
        svc.start(&self.words(command, more).iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Runs the command that failed again, which succeeds.
    async fn repeat(&self, svc: &Svc) -> String {
        let arguments: Vec<_> = self.arguments.iter().map(String::as_str).collect();
        svc.run_ok(&arguments, &self.input).await
    }
}

async fn log_in(svc: &Svc, email: &str, password: &str) {
    svc.run_ok(&["auth", "login", "--email", email, "--password-stdin"], password).await;
}

/// Invites a member without a mail.
async fn invite(admin: &Svc, email: &str) -> Value {
    admin.json(&["users", "invite", "--email", email, "--delivery", "response"], "").await
}

async fn accept(svc: &Svc, token: &Value) {
    let input = format!("{}\n{PASSWORD}\n", token.as_str().unwrap());
    svc.run_ok(&["users", "accept-invite", "-", "--password-stdin"], &input).await;
}

/// A text field of a JSON document.
fn field<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("{name}: {value}"))
}

#[tokio::test]
async fn each_command_in_a_remediation_leads_to_the_repair() {
    let max_invites = MAX_INVITES.to_string();
    let variables = [("SVC_MAX_PENDING_INVITES", &*max_invites), ("SVC_PUBLIC_URL", ORIGIN)];
    let installation = Installation::new(&variables);
    let run = installation.up().await;
    let catalog = run.svc().json(&["catalog", "show"], "").await;
    let remediations = Remediations::new(&run, &catalog);
    tokio::join!(
        logins::leads_to_the_repair(&remediations),
        objects::leads_to_the_repair(&remediations),
        factors::leads_to_the_repair(&remediations),
        limits::leads_to_the_repair(&remediations),
        lost_responses::leads_to_the_repair(&remediations),
    );
    remediations.assert_complete();
}
