//! Remediations of second factors that a tenant requires, and of passkeys.

use std::path::Path;

use e2e::{Svc, api_client};
use serde_json::{Value, json};
use testkit::{Authenticator, Client, DEADLINE, PASSWORD, totp_after, within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::ChildStdout;

use super::{Failure, ORIGIN, Remediations, field};

const STDIN: &str = "--password-stdin";
/// Maximum number of passkeys of a user.
const MAX_PASSKEYS: usize = 10;

pub(super) async fn leads_to_the_repair(remediations: &Remediations<'_>) {
    required_factor(remediations).await;
    passkeys(remediations).await;
}

async fn required_factor(remediations: &Remediations<'_>) {
    let (ada, _) = remediations.tenant("factors").await;
    let email = "gina@factors.example";
    let gina = remediations.member(&ada, "factors", email).await;
    let token = gina.run_ok(&["auth", "token"], "").await;
    let api = api_client(&remediations.run.run_file.base_url).bearer(token.trim());
    let app: Value = api.post("/auth/factors/totp", &Value::Null).await.expect(201);
    let secret = field(&app, "secret");
    let confirm = json!({ "code": totp_after(secret, 0) });
    api.post("/auth/factors/totp/confirm", &confirm).await.expect::<Value>(200);
    let login = ["auth", "login", "--email", email, STDIN];
    let code = format!("{PASSWORD}\n{}\n", totp_after(secret, 1));
    gina.run_ok(&[&login[..], &["--code-stdin"]].concat(), &code).await;
    let require = ["tenants", "update", "factors", "--second-factor", "everyone"];
    remediations.platform_admin().run_ok(&require, "").await;

    let listed = gina.json(&["auth", "factors", "list"], "").await;
    let remove = ["auth", "factors", "remove", field(&listed["items"][0], "factor_id"), "--yes"];
    let failure = remediations.fail(&gina, &remove, "", "last_factor").await;
    failure.run(&ada, "users reset-factors", &[email, "--yes"], "").await;

    let failure = remediations.fail(&gina, &login, PASSWORD, "second_factor_setup_required").await;
    set_up_in_a_terminal(&failure, email).await;
    remediations.fail(&gina, &login, PASSWORD, "input_needed").await;
}

/// Executes the printed login in a terminal, which `script` of util-linux opens.
async fn set_up_in_a_terminal(failure: &Failure<'_>, email: &str) {
    let run_file = &failure.remediations.run.run_file;
    let words = failure.words("auth login", &["--email", email]).join(" ");
    let command = format!("{} {words}", run_file.svc.display());
    let terminal = Svc::new(Path::new("script"), &run_file.base_url, "factors");
    let mut login = terminal.start(&["--quiet", "--return", "--command", &command, "/dev/null"]);
    let (mut input, mut output) = (login.stdin.take().unwrap(), login.stdout.take().unwrap());
    let mut shown = String::new();
    read_until(&mut output, &mut shown, "Password of").await;
    input.write_all(format!("{PASSWORD}\n").as_bytes()).await.unwrap();
    read_until(&mut output, &mut shown, "Code of the app").await;
    let secret = shown.split("secret into the app: ").nth(1).unwrap().split_whitespace().next().unwrap();
    let code = format!("{}\n", totp_after(secret, 0));
    input.write_all(code.as_bytes()).await.unwrap();
    read_until(&mut output, &mut shown, "Recovery codes").await;
    let status = within(DEADLINE, "the login in a terminal", login.wait()).await.unwrap();
    assert!(status.success(), "{shown}");
}

/// Reads until the output contains the text.
async fn read_until(output: &mut ChildStdout, shown: &mut String, text: &str) {
    let read = async {
        while !shown.contains(text) {
            let mut chunk = [0; 4096];
            let length = output.read(&mut chunk).await.unwrap();
            assert!(length > 0, "the output ended: {shown}");
            shown.push_str(&String::from_utf8_lossy(&chunk[..length]));
        }
    };
    within(DEADLINE, text, read).await;
}

async fn passkeys(remediations: &Remediations<'_>) {
    let run_file = &remediations.run.run_file;
    let (_, ada) = remediations.tenant("passkeys").await;
    let mut first = Authenticator::new(ORIGIN);
    register(&ada.client, &mut first, "number 1").await;
    // Only a login with the passkey may add others.
    let anonymous = api_client(&run_file.base_url).header("X-Tenant-ID", "passkeys");
    let login = json!({ "email": "ada@passkeys.example", "password": PASSWORD });
    let challenge = anonymous.post("/auth/password/login", &login).await.json();
    let assertion = first.get(&challenge["public_key"]);
    let answer = json!({ "challenge": challenge["challenge"], "assertion": assertion });
    let session: Value = anonymous.post("/auth/second-factor", &answer).await.expect(200);
    let token = field(&session, "session_id");
    let client = api_client(&run_file.base_url).bearer(token);
    for number in 2..=MAX_PASSKEYS {
        register(&client, &mut Authenticator::new(ORIGIN), &format!("number {number}")).await;
    }

    let svc = Svc::new(&run_file.svc, &run_file.base_url, "passkeys").with_variable("SVC_TOKEN", token);
    let one_more = ["api", "POST", "/auth/factors/passkeys/options"];
    let failure = remediations.fail(&svc, &one_more, "", "too_many_passkeys").await;
    let listed = failure.json(&svc, "auth factors list", &[]).await;
    let id = field(&listed["items"][0], "factor_id");
    failure.run(&svc, "auth factors remove", &[id, "--yes"], "").await;
    failure.repeat(&svc).await;
}

async fn register(client: &Client, authenticator: &mut Authenticator, name: &str) {
    let options: Value = client.post("/auth/factors/passkeys/options", &Value::Null).await.expect(201);
    let credential = authenticator.create(&options["public_key"]);
    let body = json!({ "challenge": options["challenge"], "name": name, "credential": credential });
    client.post("/auth/factors/passkeys", &body).await.expect::<Value>(201);
}
