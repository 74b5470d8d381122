//! Remediations after a lost response: the commands in them show whether the first one had its effect, and it had.

use std::path::Path;

use e2e::{Svc, SvcOutput};
use serde_json::{Value, json};
use testkit::PASSWORD;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::{Failure, NEW_PASSWORD, Remediations, field};

const STDIN: &str = "--password-stdin";
const CODE: &str = "response_lost";

/// A proxy that loses the responses to requests that create something.
struct LossyProxy {
    url: String,
    _connections: JoinSet<()>,
}

impl LossyProxy {
    async fn start(service: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                clients.spawn(forward(client, service.clone()));
            }
        });
        Self { url, _connections: connections }
    }
}

/// Forwards until a response is lost.
async fn forward(mut client: TcpStream, service: String) -> std::io::Result<()> {
    let mut service = TcpStream::connect(service).await?;
    let (mut request, mut response) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut is_lost = false;
    loop {
        tokio::select! {
            count = client.read(&mut request) => {
                let sent = &request[..count?];
                if sent.is_empty() {
                    return Ok(());
                }
                let line = String::from_utf8_lossy(sent.split(|byte| *byte == b'\n').next().unwrap_or_default());
                if line.contains(" HTTP/1.1") {
                    is_lost = line.starts_with("POST ") && !line.contains("/inspect");
                }
                service.write_all(sent).await?;
            }
            count = service.read(&mut response) => match &response[..count?] {
                [] => return Ok(()),
                _ if is_lost => return Ok(()),
                received => client.write_all(received).await?,
            },
        }
    }
}

/// A client behind the proxy, and one without it.
struct Clients<'a> {
    remediations: &'a Remediations<'a>,
    lossy: Svc,
    direct: Svc,
    proxy: LossyProxy,
}

impl Clients<'_> {
    async fn fail(&self, arguments: &[&str], input: &str) -> Failure<'_> {
        self.remediations.fail(&self.lossy, arguments, input, CODE).await
    }
}

pub(super) async fn leads_to_the_repair(remediations: &Remediations<'_>) {
    let (direct, ada) = remediations.tenant("lost").await;
    let run_file = &remediations.run.run_file;
    let service = run_file.base_url.strip_prefix("http://").unwrap().to_owned();
    let proxy = LossyProxy::start(service).await;
    let token_file = run_file.platform_token_file.to_str().unwrap();
    let lossy = Svc::new(&run_file.svc, &proxy.url, "lost")
        .with_variable("SVC_TOKEN", &ada.token)
        .with_variable("SVC_PLATFORM_TOKEN_FILE", token_file);
    let clients = Clients { remediations, lossy, direct, proxy };
    created(&clients).await;
    invites(&clients).await;
    passwords(&clients).await;
    devices(&clients).await;
    add_factor(&clients, &run_file.svc, &ada.token).await;
}

async fn created(clients: &Clients<'_>) {
    let direct = &clients.direct;
    let failure = clients.fail(&["api-keys", "create", "--name", "lost"], "").await;
    let listed = failure.json(direct, "api-keys list", &[]).await;
    let key = listed["items"].as_array().unwrap().iter().find(|key| key["name"] == "lost").unwrap();
    failure.run(direct, "api-keys revoke", &[field(key, "id"), "--yes"], "").await;
    failure.repeat(direct).await;

    let platform_admin = clients.remediations.platform_admin();
    let create = ["tenants", "create", "vanished", "--admin-email", "ada@vanished.example"];
    let failure = clients.fail(&create, "").await;
    assert_eq!(failure.json(&platform_admin, "tenants get", &["vanished"]).await["status"], "active");
    let listed = failure.json(&platform_admin, "invites list --tenant", &["vanished"]).await;
    let id = field(&listed["items"][0], "invite_id");
    failure.run(&platform_admin, "invites resend", &[id, "--tenant", "vanished"], "").await;

    let run_file = &clients.remediations.run.run_file;
    let shell = Svc::new(Path::new("/bin/sh"), &run_file.base_url, "lost")
        .with_variable("SVC_PLATFORM_TOKEN_FILE", run_file.platform_token_file.to_str().unwrap());
    let create = format!("{} consumers create unseen --output json > /dev/full", run_file.svc.display());
    let output = shell.run(&["-c", &create], "").await;
    let failure = clients.remediations.failure(&output, &["consumers", "create", "unseen"], "", CODE);
    failure.run(&platform_admin, "consumers rotate-login", &["unseen", "--yes"], "").await;

    platform_admin.run_ok(&["consumers", "create", "lost"], "").await;
    let failure = clients.fail(&["events", "dlq", "replay", "lost", "1"], "").await;
    assert_eq!(failure.json(&platform_admin, "events dlq list", &["lost"]).await["items"], json!([]));
}

async fn invites(clients: &Clients<'_>) {
    let direct = &clients.direct;
    let email = "bob@lost.example";
    let failure = clients.fail(&["users", "invite", "--email", email], "").await;
    let listed = failure.json(direct, "invites list --status pending", &[]).await;
    let invite = &listed["items"][0];
    let (id, first) = (field(invite, "invite_id"), field(invite, "expires_at"));
    failure.run(direct, "invites resend", &[id, "--delivery", "response"], "").await;

    let failure = clients.fail(&["invites", "resend", id], "").await;
    let all = failure.json(direct, "invites list", &[]).await;
    let resent = all["items"].as_array().unwrap().iter().find(|item| item["invite_id"] == id).unwrap();
    assert!(field(resent, "expires_at") > first, "a later expiry");
    let token = direct.json(&["invites", "resend", id, "--delivery", "response"], "").await;

    let input = format!("{}\n{PASSWORD}\n", field(&token, "token"));
    let failure = clients.fail(&["users", "accept-invite", "-", STDIN], &input).await;
    failure.run(direct, "auth login", &["--email", email, STDIN, "--context", "bob"], PASSWORD).await;
    direct.run_ok(&["config", "use-context", "lost"], "").await;
}

async fn passwords(clients: &Clients<'_>) {
    let (remediations, direct) = (clients.remediations, &clients.direct);
    let email = "carol@lost.example";
    let carol = remediations.member(direct, "lost", email).await;
    let sessions =
        async || carol.json(&["auth", "sessions", "list"], "").await["items"].as_array().unwrap().clone();
    let before: Vec<_> = sessions().await.iter().map(|session| session["id"].clone()).collect();
    let failure = clients.fail(&["auth", "login", "--email", email, STDIN], PASSWORD).await;
    let listed = failure.json(&carol, "auth sessions list", &[]).await;
    let lost =
        listed["items"].as_array().unwrap().iter().find(|session| !before.contains(&session["id"])).unwrap();
    failure.run(&carol, "auth sessions revoke", &[field(lost, "id")], "").await;

    let token = carol.run_ok(&["auth", "token"], "").await;
    let proxied = Svc::new(&remediations.run.run_file.svc, &clients.proxy.url, "lost")
        .with_variable("SVC_TOKEN", token.trim());
    let change = ["auth", "password", "change", STDIN];
    let input = format!("{PASSWORD}\n{NEW_PASSWORD}\n");
    let failure = remediations.fail(&proxied, &change, &input, CODE).await;
    failure.run(&carol, "auth login", &["--email", email, STDIN], NEW_PASSWORD).await;

    carol.run_ok(&["auth", "password", "reset", "--email", email], "").await;
    let input = format!("{}\n{PASSWORD}\n", remediations.mailed_token(email).await);
    let failure = clients.fail(&["auth", "password", "confirm-reset", "-", STDIN], &input).await;
    failure.run(&carol, "auth login", &["--email", email, STDIN], PASSWORD).await;
}

/// Starts a login on a device. Returns its code.
async fn start_device(direct: &Svc) -> String {
    let start = ["api", "POST", "/auth/device/code", "--anonymous", "--data", "{}"];
    let codes: Value = direct.json(&start, "").await;
    field(&codes, "user_code").to_owned()
}

async fn devices(clients: &Clients<'_>) {
    for decision in ["approve", "deny"] {
        let code = start_device(&clients.direct).await;
        let failure = clients.fail(&["auth", "device", decision, &code, "--yes"], "").await;
        failure.run(&clients.direct, "auth sessions list", &[], "").await;
        let again = ["auth", "device", decision, &code, "--yes"];
        clients.remediations.fail(&clients.direct, &again, "", "not_found").await;
    }
}

/// The command needs a terminal, which `script` of util-linux opens.
async fn add_factor(clients: &Clients<'_>, program: &Path, token: &str) {
    let terminal =
        Svc::new(Path::new("script"), &clients.proxy.url, "lost").with_variable("SVC_TOKEN", token);
    let command = format!("{} auth factors add totp --output json", program.display());
    let output: SvcOutput =
        terminal.run(&["--quiet", "--return", "--command", &command, "/dev/null"], "").await;
    let arguments = ["auth", "factors", "add", "totp"];
    let failure = clients.remediations.failure(&output, &arguments, "", CODE);
    failure.run(&clients.direct, "auth factors list", &[], "").await;
}
