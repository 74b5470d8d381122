//! How mails leave: encrypted, once, again when that helps, and not when it does not.

use contract::identity::AcceptedInvite;
use serde_json::json;
use testkit::world::{PASSWORD, until};
use testkit::{MailServer, World};

use super::{header, invite, token, world};

/// The last error of the one row that is left, once it has so many attempts.
async fn row(world: &World, attempts: i32, parked: bool) -> String {
    until(async || {
        let mut connection = world.database.superuser().await.unwrap();
        sqlx::query_scalar(
            "select last_error from identity.outbox
            where kind like 'mail_%' and attempts >= $1 and (parked_at is not null) = $2 and last_error is not null",
        )
        .bind(attempts)
        .bind(parked)
        .fetch_optional(&mut connection)
        .await
        .unwrap()
    })
    .await
}

#[tokio::test]
async fn a_mail_goes_out_over_tls_with_user_and_password() {
    for encryption in ["tls", "starttls"] {
        let server = MailServer::start(encryption).await.unwrap();
        let (world, admin) = world(&server, &[]).await;
        invite(&admin, "ada@acme.example").await;
        let mail = server.until_mails(1).await.remove(0);
        assert_eq!((&mail["tls"], &mail["user"]), (&json!(true), &json!("svc")), "{encryption}");
        assert_eq!((&mail["from"], &mail["to"]), (&json!("svc@mail.example"), &json!(["ada@acme.example"])));
        assert_eq!(mail["hello"], "[127.0.0.1]");
        let accept = json!({ "token": token(&mail), "password": PASSWORD });
        world.client().post("/users/accept-invite", &accept).await.expect::<AcceptedInvite>(201);
    }
}

#[tokio::test]
async fn a_server_on_this_machine_needs_no_tls() {
    let server = MailServer::start("none").await.unwrap();
    let (_world, admin) = world(&server, &[]).await;
    invite(&admin, "ada@acme.example").await;
    assert_eq!(server.until_mails(1).await[0]["tls"], false);
}

#[tokio::test]
async fn a_server_that_offers_no_tls_gets_neither_mail_nor_password() {
    let server = MailServer::start("none").await.unwrap();
    let url = server.variables()[0].1.replace("//", "//svc:p@") + "?tls=required";
    let (world, admin) = world(&server, &[("SVC_SMTP_URL", &url)]).await;
    invite(&admin, "ada@acme.example").await;
    assert!(row(&world, 1, false).await.contains("STARTTLS"));
    assert_eq!(server.attempts("ada@acme.example"), 0);
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_gets_nothing() {
    let (server, stranger) =
        (MailServer::start("starttls").await.unwrap(), MailServer::start("none").await.unwrap());
    let other = &stranger.variables()[1].1;
    let (world, admin) = world(&server, &[("SVC_SMTP_CA_FILE", other)]).await;
    invite(&admin, "ada@acme.example").await;
    assert!(row(&world, 1, false).await.contains("certificate"));
    assert_eq!(server.attempts("ada@acme.example"), 0);
}

#[tokio::test]
async fn a_wrong_password_is_told_without_repeating_it() {
    let server = MailServer::start("tls").await.unwrap();
    let url = server.variables()[0].1.replace("p%3Aw%2Fd", "swordfish");
    let (world, admin) = world(&server, &[("SVC_SMTP_URL", &url)]).await;
    invite(&admin, "ada@acme.example").await;
    assert_eq!(row(&world, 1, false).await, "the mail server refused the user or the password");
}

#[tokio::test]
async fn a_mail_waits_for_a_server_that_is_down_and_is_sent_once() {
    let mut server = MailServer::start("starttls").await.unwrap();
    let (world, admin) = world(&server, &[]).await;
    server.stop();
    invite(&admin, "ada@acme.example").await;
    assert!(row(&world, 1, false).await.starts_with("the mail server cannot be used: "));
    server.restart().await.unwrap();
    let mail = server.until_mails(1).await.remove(0);
    world.until_outbox_is_empty().await;
    assert_eq!(server.mails().len(), 1);
    let accept = json!({ "token": token(&mail), "password": PASSWORD });
    world.client().post("/users/accept-invite", &accept).await.expect::<AcceptedInvite>(201);
}

#[tokio::test]
async fn an_address_that_is_refused_for_ever_is_tried_once_and_parked() {
    let server = MailServer::start("starttls").await.unwrap();
    let (world, admin) = world(&server, &[]).await;
    invite(&admin, "refused@acme.example").await;
    assert!(row(&world, 1, true).await.contains("550"));
    invite(&admin, "ada@acme.example").await;
    server.until_mails(1).await;
    assert_eq!(server.attempts("refused@acme.example"), 1);
}

#[tokio::test]
async fn a_mail_that_is_not_wanted_is_parked_too() {
    let server = MailServer::start("starttls").await.unwrap();
    let (world, admin) = world(&server, &[]).await;
    invite(&admin, "unwanted@acme.example").await;
    assert!(row(&world, 1, true).await.contains("554"));
}

#[tokio::test]
async fn an_address_that_is_refused_for_now_is_tried_again_and_parked_in_the_end() {
    let server = MailServer::start("starttls").await.unwrap();
    let (world, admin) = world(&server, &[]).await;
    invite(&admin, "deferred@acme.example").await;
    assert!(row(&world, 1, false).await.contains("451"));
    until(async || {
        // Its back-off is cut short; a row that is being worked off is due only when its lease ends, and is let alone.
        world
            .run_sql(
                "update identity.outbox set due_at = now() where due_at < now() + interval '130 seconds'",
            )
            .await;
        (server.attempts("deferred@acme.example") == 5).then_some(())
    })
    .await;
    row(&world, 5, true).await;
    assert_eq!(server.attempts("deferred@acme.example"), 5);
}

#[tokio::test]
async fn a_server_that_does_not_answer_holds_a_mail_up_for_a_limited_time() {
    let server = MailServer::start("starttls").await.unwrap();
    let (world, admin) = world(&server, &[("SVC_SMTP_TIMEOUT", "1s")]).await;
    invite(&admin, "silent@acme.example").await;
    assert_eq!(row(&world, 1, false).await, "the mail server took longer than 1s");
    invite(&admin, "ada@acme.example").await;
    server.until_mails(1).await;
}

#[tokio::test]
async fn what_the_server_has_accepted_is_not_sent_again_because_the_goodbye_hangs() {
    let server = MailServer::start("starttls").await.unwrap();
    let (world, admin) = world(&server, &[("SVC_SMTP_TIMEOUT", "1s")]).await;
    invite(&admin, "clinging@acme.example").await;
    world.until_outbox_is_empty().await;
    assert_eq!((server.mails().len(), server.attempts("clinging@acme.example")), (1, 1));
}

#[tokio::test]
async fn a_server_that_repeats_a_mail_does_not_bring_its_token_into_the_database() {
    let server = MailServer::start("starttls").await.unwrap();
    let (world, admin) = world(&server, &[]).await;
    invite(&admin, "parrot@acme.example").await;
    assert_eq!(row(&world, 1, true).await, "the mail server refused the mail: 554");
    assert!(!world.dump().await.contains("svc_iv_"));
}

/// A token is dead as soon as there is a newer one: whoever drops mails with a known id must not keep the dead one.
#[tokio::test]
async fn the_mail_of_a_new_token_has_an_id_of_its_own() {
    let server = MailServer::start("starttls").await.unwrap();
    let (world, admin) = world(&server, &[]).await;
    let invite = invite(&admin, "ada@acme.example").await;
    server.until_mails(1).await;
    // As after an attempt whose outcome was not known: the same row once more.
    let payload = json!({ "invite_id": invite.invite_id, "expires_at": invite.expires_at });
    for _ in 0..2 {
        world
            .run_sql(&format!(
                "insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
                values ('00000000-0000-7000-8000-000000000000', 'acme', 'mail_invite', '{payload}', now(), now())"
            ))
            .await;
        world.until_outbox_is_empty().await;
    }
    let mails = server.until_mails(3).await;
    let ids: Vec<_> = mails.iter().map(|mail| header(mail, "Message-ID")).collect();
    assert!(
        ids[1].starts_with("<00000000-0000-7000-8000-000000000000.") && ids[1].ends_with("@mail.example>")
    );
    assert!(ids[1] != ids[2] && token(&mails[1]) != token(&mails[2]), "{ids:?}");
}
