//! Mail delivery over SMTP: encryption, retries, dead letters.

use contract::identity::AcceptedInvite;
use serde_json::{Value, json};
use testkit::{MailServer, PASSWORD, wait_until};
use testsystem::TestSystem;

use super::{header, invite, system, token};

/// Waits until the only outbox message has this many attempts and returns its last error.
async fn row(system: &TestSystem, attempts: i32, dead_lettered: bool) -> String {
    wait_until("the message has this many attempts", async || {
        let mut connection = system.database.superuser().await.unwrap();
        sqlx::query_scalar(
            "select last_error from identity.outbox
            where kind like 'mail_%' and attempts >= $1 and (dead_lettered_at is not null) = $2 and last_error is not null",
        )
        .bind(attempts)
        .bind(dead_lettered)
        .fetch_optional(&mut connection)
        .await
        .unwrap()
    })
    .await
}

#[tokio::test]
async fn mail_is_sent_over_tls_with_authentication() {
    for encryption in ["tls", "starttls"] {
        let server = MailServer::start(encryption).await.unwrap();
        let (system, admin) = system(&server, &[]).await;
        invite(&admin, "ada@acme.example").await;
        let mail = server.wait_for_mails(1).await.remove(0);
        assert_eq!((&mail["tls"], &mail["user"]), (&json!(true), &json!("svc")), "{encryption}");
        assert_eq!((&mail["from"], &mail["to"]), (&json!("svc@mail.example"), &json!(["ada@acme.example"])));
        assert_eq!(mail["hello"], "[127.0.0.1]");
        let accept = json!({ "token": token(&mail), "password": PASSWORD });
        system.client().post("/users/accept-invite", &accept).await.expect::<AcceptedInvite>(201);
    }
}

#[tokio::test]
async fn a_loopback_server_needs_no_tls() {
    let server = MailServer::start("none").await.unwrap();
    let (_world, admin) = system(&server, &[]).await;
    invite(&admin, "ada@acme.example").await;
    assert_eq!(server.wait_for_mails(1).await[0]["tls"], false);
}

#[tokio::test]
async fn a_server_without_starttls_receives_nothing() {
    let server = MailServer::start("none").await.unwrap();
    let url = server.variables()[0].1.replace("//", "//svc:p@") + "?tls=required";
    let (system, admin) = system(&server, &[("SVC_SMTP_URL", &url)]).await;
    invite(&admin, "ada@acme.example").await;
    assert!(row(&system, 1, false).await.contains("STARTTLS"));
    assert_eq!(server.attempts("ada@acme.example"), 0);
}

#[tokio::test]
async fn a_server_with_an_untrusted_certificate_receives_nothing() {
    let (server, untrusted) =
        (MailServer::start("starttls").await.unwrap(), MailServer::start("none").await.unwrap());
    let other = &untrusted.variables()[1].1;
    let (system, admin) = system(&server, &[("SVC_SMTP_CA_FILE", other)]).await;
    invite(&admin, "ada@acme.example").await;
    let error = row(&system, 1, false).await;
    assert!(error.contains("certificate") && error.contains("to SVC_SMTP_CA_FILE"), "{error}");
    assert_eq!(server.attempts("ada@acme.example"), 0);
}

#[tokio::test]
async fn a_changed_file_of_certificates_is_used_for_the_next_mail() {
    let (server, untrusted) =
        (MailServer::start("starttls").await.unwrap(), MailServer::start("none").await.unwrap());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(&untrusted.variables()[1].1, file.path()).unwrap();
    let (system, admin) = system(&server, &[("SVC_SMTP_CA_FILE", file.path().to_str().unwrap())]).await;
    invite(&admin, "ada@acme.example").await;
    assert!(row(&system, 1, false).await.contains("certificate"));
    std::fs::copy(&server.variables()[1].1, file.path()).unwrap();
    let mail = sent_after_retries(&system, &server, 0).await;
    assert_eq!(mail["to"], json!(["ada@acme.example"]));
}

#[tokio::test]
async fn a_ca_certificate_that_a_server_uses_as_its_own_is_rejected_with_the_remedy() {
    let server = MailServer::start_as_authority("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    invite(&admin, "ada@acme.example").await;
    let error = row(&system, 1, false).await;
    assert!(error.contains("is a CA certificate") && error.contains("basicConstraints=CA:FALSE"), "{error}");
    assert_eq!(server.attempts("ada@acme.example"), 0);
}

#[tokio::test]
async fn an_authentication_error_does_not_repeat_the_password() {
    let server = MailServer::start("tls").await.unwrap();
    let url = server.variables()[0].1.replace("p%3Aw%2Fd", "swordfish");
    let (system, admin) = system(&server, &[("SVC_SMTP_URL", &url)]).await;
    invite(&admin, "ada@acme.example").await;
    assert_eq!(
        row(&system, 1, false).await,
        "the mail server rejected the user name or password; check SVC_SMTP_URL"
    );
}

#[tokio::test]
async fn a_changed_file_of_the_url_is_used_for_the_next_mail() {
    let server = MailServer::start("tls").await.unwrap();
    let [(_, url), authority, sender] = server.variables();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &url).unwrap();
    let variables = [
        ("SVC_SMTP_URL_FILE", file.path().to_str().unwrap()),
        (authority.0, &authority.1),
        (sender.0, &sender.1),
    ];
    let system = TestSystem::start_with(&variables).await.unwrap();
    let admin = system.create_tenant("acme").await;
    invite(&admin, "ada@acme.example").await;
    server.wait_for_mails(1).await;

    // A mail between the change of the server and that of the file is retried.
    server.set_password("changed");
    invite(&admin, "bob@acme.example").await;
    assert!(row(&system, 1, false).await.contains("rejected the user name or password"));
    std::fs::write(file.path(), url.replace("p%3Aw%2Fd", "changed")).unwrap();
    let mail = sent_after_retries(&system, &server, 1).await;
    assert_eq!(mail["to"], json!(["bob@acme.example"]));
}

/// Returns the mail with this index once it is sent, without the back-off.
async fn sent_after_retries(system: &TestSystem, server: &MailServer, index: usize) -> Value {
    wait_until("the mail is sent", async || {
        // A message that is being delivered is due when its lease ends and is not changed.
        let retry = "update identity.outbox set due_at = now(), attempts = 0 where due_at < now() + interval '130 seconds'";
        system.run_sql(retry).await;
        server.mails().into_iter().nth(index)
    })
    .await
}

#[tokio::test]
async fn a_mail_is_sent_once_after_the_server_is_back() {
    let mut server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    server.stop();
    invite(&admin, "ada@acme.example").await;
    assert!(row(&system, 1, false).await.starts_with("mail server unavailable: "));
    server.restart().await.unwrap();
    let mail = server.wait_for_mails(1).await.remove(0);
    system.wait_for_empty_outbox().await;
    assert_eq!(server.mails().len(), 1);
    let accept = json!({ "token": token(&mail), "password": PASSWORD });
    system.client().post("/users/accept-invite", &accept).await.expect::<AcceptedInvite>(201);
}

#[tokio::test]
async fn a_permanently_rejected_recipient_is_dead_lettered_after_one_attempt() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    invite(&admin, "refused@acme.example").await;
    assert!(row(&system, 1, true).await.contains("550"));
    invite(&admin, "ada@acme.example").await;
    server.wait_for_mails(1).await;
    assert_eq!(server.attempts("refused@acme.example"), 1);
}

#[tokio::test]
async fn a_permanently_rejected_mail_is_dead_lettered() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    invite(&admin, "unwanted@acme.example").await;
    assert!(row(&system, 1, true).await.contains("554"));
}

#[tokio::test]
async fn a_deferred_mail_is_retried_for_days_before_it_is_dead_lettered() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    invite(&admin, "deferred@acme.example").await;
    assert!(row(&system, 1, false).await.contains("451"));
    for (from, attempts, dead_lettered) in [(0, 10, false), (2012, 2021, true)] {
        system.run_sql(&format!("update identity.outbox set attempts = greatest(attempts, {from})")).await;
        wait_until("the mail has these attempts", async || {
            // Skips the back-off. A message that is being delivered has a fence.
            system.run_sql("update identity.outbox set due_at = now() where fence is null").await;
            let reached = "select exists (select from identity.outbox where attempts >= $1 and (dead_lettered_at is not null) = $2)";
            let mut connection = system.database.superuser().await.unwrap();
            let reached = sqlx::query_scalar::<_, bool>(reached).bind(attempts).bind(dead_lettered);
            reached.fetch_one(&mut connection).await.unwrap().then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_reset_that_is_not_mailed_before_its_link_would_expire_is_not_mailed_later() {
    let mut server = MailServer::start("starttls").await.unwrap();
    let (system, _) = system(&server, &[]).await;
    server.stop();
    let client = system.client().header("X-Tenant-ID", "acme");
    client.post("/auth/password/reset", &json!({ "email": "admin@acme.example" })).await.expect_empty(204);
    row(&system, 1, false).await;
    server.restart().await.unwrap();
    let late = "update identity.outbox set due_at = now(), payload = payload || jsonb_build_object(
        'requested_at', to_jsonb(now() - interval '31 minutes'))";
    system.run_sql(late).await;
    system.wait_for_empty_outbox().await;
    assert_eq!(server.mails().len(), 0);
}

#[tokio::test]
async fn a_server_that_does_not_reply_times_out() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[("SVC_SMTP_TIMEOUT", "1s")]).await;
    invite(&admin, "silent@acme.example").await;
    assert_eq!(row(&system, 1, false).await, "the mail server did not reply within 1s");
    invite(&admin, "ada@acme.example").await;
    server.wait_for_mails(1).await;
}

#[tokio::test]
async fn an_accepted_mail_is_not_sent_again_if_quit_hangs() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[("SVC_SMTP_TIMEOUT", "1s")]).await;
    invite(&admin, "clinging@acme.example").await;
    system.wait_for_empty_outbox().await;
    assert_eq!((server.mails().len(), server.attempts("clinging@acme.example")), (1, 1));
}

#[tokio::test]
async fn a_server_reply_that_repeats_the_token_is_not_stored() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    invite(&admin, "parrot@acme.example").await;
    assert_eq!(row(&system, 1, true).await, "the mail server rejected the mail: 554");
    assert!(!system.dump_database().await.contains("svc_iv_"));
}

/// A mail store that drops duplicates by message id must not drop the mail with the newer token.
#[tokio::test]
async fn the_mail_of_a_new_token_has_a_new_message_id() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    let invite = invite(&admin, "ada@acme.example").await;
    server.wait_for_mails(1).await;
    // Delivers the same outbox message again, as after an attempt with an unknown result.
    let payload = json!({
        "invite_id": invite.invite_id, "user_id": tenancy::UserId::generate(), "expires_at": invite.expires_at
    });
    for _ in 0..2 {
        system
            .run_sql(&format!(
                "insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
                values ('00000000-0000-7000-8000-000000000000', 'acme', 'mail_invite', '{payload}', now(), now())"
            ))
            .await;
        system.wait_for_empty_outbox().await;
    }
    let mails = server.wait_for_mails(3).await;
    let ids: Vec<_> = mails.iter().map(|mail| header(mail, "Message-ID")).collect();
    assert!(
        ids[1].starts_with("<00000000-0000-7000-8000-000000000000.") && ids[1].ends_with("@mail.example>")
    );
    assert!(ids.iter().all(|id| id.is_ascii()), "RFC 5322, section 3.6.4: {ids:?}");
    assert!(ids[1] != ids[2] && token(&mails[1]) != token(&mails[2]), "{ids:?}");
}
