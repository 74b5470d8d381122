//! The logs of the real binary at level trace.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use testkit::{MailServer, TestDatabase, wait_until};

use super::token;

/// A process that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(database: &TestDatabase, server: &MailServer, level: &str, log: &File) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc-identity"));
    command.env_clear().envs(server.variables()).env("SVC_LOG", level).env("SVC_SMTP_TIMEOUT", "1s");
    for listener in ["SVC_LISTEN", "SVC_LISTEN_INTERNAL", "SVC_LISTEN_ADMIN"] {
        command.env(listener, "127.0.0.1:0");
    }
    for secret in ["SVC_SERVICE_TOKEN", "SVC_LIMITER_KEY"] {
        command.env(secret, "a-secret-for-tests-of-32-or-more-characters");
    }
    // Unused ports: this test needs neither the session service nor the broker.
    command
        .env("SVC_SESSION_URL", "http://127.0.0.1:1")
        .env("SVC_NATS_URL", "nats://127.0.0.1:1")
        .env("SVC_STREAM_MAX_BYTES", "64MiB");
    command.env("SVC_DATABASE_URL", database.url("svc_identity"));
    command.env("SVC_ARGON2_MEMORY_COST", "64").env("SVC_HASH_WORKERS", "1");
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log.try_clone().unwrap());
    Running(command.spawn().unwrap())
}

async fn run_sql(database: &TestDatabase, statement: &'static str) {
    let mut connection = database.superuser().await.unwrap();
    sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
}

#[tokio::test]
async fn logs_contain_no_token_password_or_mail() {
    let (database, server) =
        (TestDatabase::create().await.unwrap(), MailServer::start("starttls").await.unwrap());
    run_sql(
        &database,
        "insert into identity.tenants (tenant_id, display_name, status, created_at, updated_at)
        values ('acme', 'Acme', 'active', now(), now());
        insert into identity.users (user_id, tenant_id, email, email_key, email_skeleton, role, status, created_at, updated_at)
        select gen_random_uuid(), 'acme', name || '@acme.example', name, name, 'member', 'invited', now(), now()
        from unnest(array['ada', 'silent', 'parrot', 'refused']) as name;
        insert into identity.invites
            (invite_id, tenant_id, user_id, email, email_key, role, status, expires_at, created_at)
        select gen_random_uuid(), 'acme', user_id, email, email_key, 'member', 'pending', '2100-01-01', now()
        from identity.users;
        insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
        select gen_random_uuid(), 'acme', 'mail_invite',
            jsonb_build_object('invite_id', invite_id, 'user_id', user_id, 'expires_at', expires_at), now(), now()
        from identity.invites",
    )
    .await;
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("log");
    let _running = start(&database, &server, "trace", &File::create(&log).unwrap());
    let mail = server.wait_for_mails(1).await.remove(0);
    let read = || std::fs::read_to_string(&log).unwrap();
    wait_until("three failures are logged", async || {
        (read().matches("failed to deliver outbox message").count() >= 3).then_some(())
    })
    .await;
    let log_text = read();
    // Confirms that the level is trace.
    assert!(log_text.contains("\"level\":\"TRACE\""), "{}", &log_text[..log_text.len().min(2000)]);
    for secret in [token(&mail).as_str(), "svc_iv_", "p:w/d", "p%3Aw%2Fd", "AHN2YwBwOncvZA=="] {
        assert!(!log_text.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn dropped_reset_requests_write_no_line_at_the_default_level() {
    let (database, server) =
        (TestDatabase::create().await.unwrap(), MailServer::start("starttls").await.unwrap());
    let home = tempfile::tempdir().unwrap();
    for (level, lines) in [("info", 0), ("info,identity=debug", 20)] {
        let log = home.path().join(level);
        let _running = start(&database, &server, level, &File::create(&log).unwrap());
        let read = || std::fs::read_to_string(&log).unwrap();
        let address = wait_until("the service is started", async || {
            let text = read();
            let line = text.lines().find(|line| line.contains("\"service started\""))?.to_owned();
            let line: serde_json::Value = serde_json::from_str(&line).ok()?;
            Some(line["address"].as_str()?.to_owned())
        })
        .await;
        let client = testkit::Client::new(&format!("http://{address}")).header("X-Tenant-ID", "acme");
        for _ in 0..20 {
            // No address, so that the request is dropped.
            client.post("/auth/password/reset", &serde_json::json!({ "email": "x" })).await.expect_empty(204);
        }
        let text = read();
        assert_eq!(text.matches("password reset request dropped").count(), lines, "{text}");
        assert!(lines > 0 || text.lines().count() < 20, "{text}");
    }
}
