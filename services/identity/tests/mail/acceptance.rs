//! What follows from the replies of the mail server: which links work, and what administrators see.

use contract::Page;
use contract::Role;
use contract::audit::AuditRecord;
use contract::identity::{Invite, InviteMail, MailKind, MailStatus, UndeliveredMail};
use serde_json::{Value, json};
use testkit::{MailServer, wait_until};
use testsystem::{TestSystem, TestUser};

use super::{invite, system, token};

async fn request_reset(system: &TestSystem, email: &str) {
    let client = system.client().header("X-Tenant-ID", "acme");
    client.post("/auth/password/reset", &json!({ "email": email })).await.expect_empty(204);
}

async fn resend(admin: &TestUser, invite: &Invite) -> Invite {
    let path = format!("/users/invites/{}/resend", invite.invite_id);
    admin.client.post(&path, &json!({})).await.expect(200)
}

/// The status of the link of a mail: 200 if it works.
async fn inspect(system: &TestSystem, mail: &Value) -> u16 {
    let token = token(mail);
    let path = if token.starts_with("svc_iv_") { "/users/accept-invite" } else { "/auth/password/reset" };
    let response = system.client().post(&format!("{path}/inspect"), &json!({ "token": token })).await;
    response.status
}

/// Skips the back-off until the outbox is empty. A message that is being delivered has a fence.
async fn deliver_all(system: &TestSystem) {
    wait_until("the outbox is empty", async || {
        system.run_sql("update identity.outbox set due_at = now() where fence is null").await;
        let mut connection = system.database.superuser().await.unwrap();
        let waiting = sqlx::query_scalar("select count(*) from identity.outbox");
        let waiting: i64 = waiting.fetch_one(&mut connection).await.unwrap();
        (waiting == 0).then_some(())
    })
    .await;
}

async fn mail_of(admin: &TestUser, email: &str) -> Option<InviteMail> {
    let page: Page<Invite> = admin.client.get("/users/invites").await.expect(200);
    page.items.into_iter().find(|invite| invite.email == email).unwrap().mail
}

/// Waits until the invite of an address shows this status and an error, or none.
async fn until_shown(admin: &TestUser, email: &str, status: MailStatus, has_error: bool) -> InviteMail {
    wait_until("the invite shows the status of its mail", async || {
        let mail = mail_of(admin, email).await?;
        (mail.status == status && mail.error.is_some() == has_error).then_some(mail)
    })
    .await
}

#[tokio::test]
async fn a_link_works_until_the_mail_server_has_accepted_its_successor() {
    let mut server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    let invited = invite(&admin, "ada@acme.example").await;
    server.wait_for_mails(1).await;
    request_reset(&system, "admin@acme.example").await;
    let old = server.wait_for_mails(2).await;
    system.wait_for_empty_outbox().await;

    server.stop();
    resend(&admin, &invited).await;
    request_reset(&system, "admin@acme.example").await;
    until_shown(&admin, "ada@acme.example", MailStatus::Waiting, true).await;
    wait_until("both mails were tried", async || {
        let page: Page<UndeliveredMail> = system.platform_admin().get("/mails").await.expect(200);
        (page.items.len() == 2 && page.items.iter().all(|mail| mail.error.is_some())).then_some(())
    })
    .await;
    for mail in &old {
        assert_eq!(inspect(&system, mail).await, 200, "{mail}");
    }

    server.restart().await.unwrap();
    deliver_all(&system).await;
    let mails = server.wait_for_mails(4).await;
    for (mail, status) in mails.iter().zip([400, 400, 200, 200]) {
        assert_eq!(inspect(&system, mail).await, status, "{mail}");
    }
}

#[tokio::test]
async fn a_link_works_if_the_next_mail_is_rejected() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    let invited = invite(&admin, "ada@acme.example").await;
    let old = server.wait_for_mails(1).await.remove(0);
    system.wait_for_empty_outbox().await;
    system
        .run_sql("update identity.invites set email = 'refused@acme.example' where status = 'pending'")
        .await;
    resend(&admin, &invited).await;
    until_shown(&admin, "refused@acme.example", MailStatus::Failed, true).await;
    assert_eq!(inspect(&system, &old).await, 200);
}

#[tokio::test]
async fn all_links_of_mails_that_arrived_without_a_reply_work_until_one_is_confirmed() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[("SVC_SMTP_TIMEOUT", "1s")]).await;
    system.add_user(&admin, "late-reset@acme.example", Role::Member).await;
    let invited = invite(&admin, "late@acme.example").await;
    request_reset(&system, "late-reset@acme.example").await;
    let mails = wait_until("each mail arrived twice", async || {
        system.run_sql("update identity.outbox set due_at = now() where fence is null").await;
        let mails = server.mails();
        let arrived = |email: &str| mails.iter().filter(|mail| mail["to"][0] == email).count();
        (arrived("late@acme.example") > 1 && arrived("late-reset@acme.example") > 1).then_some(mails)
    })
    .await;
    for mail in &mails {
        assert_eq!(inspect(&system, mail).await, 200, "{mail}");
    }
    // The server replies in time to another address of the same invite.
    system
        .run_sql("update identity.invites set email = 'ada@acme.example' where email = 'late@acme.example'")
        .await;
    resend(&admin, &invited).await;
    let last = wait_until("the mail arrived", async || {
        server.mails().into_iter().find(|mail| mail["to"][0] == "ada@acme.example")
    })
    .await;
    until_shown(&admin, "ada@acme.example", MailStatus::Sent, false).await;
    assert_eq!(inspect(&system, &last).await, 200);
    for mail in mails.iter().filter(|mail| mail["to"][0] == "late@acme.example") {
        assert_eq!(inspect(&system, mail).await, 400, "{mail}");
    }
}

#[tokio::test]
async fn an_administrator_sees_whether_the_mail_of_each_invite_was_sent() {
    let mut server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    let created = invite(&admin, "ada@acme.example").await;
    assert_eq!(created.mail, Some(InviteMail { status: MailStatus::Waiting, error: None }));
    for (email, status, reply) in [
        ("ada@acme.example", MailStatus::Sent, ""),
        ("refused@acme.example", MailStatus::Failed, "550 5.1.1"),
        ("unwanted@acme.example", MailStatus::Failed, "554 5.7.1"),
        ("deferred@acme.example", MailStatus::Waiting, "451 4.7.1"),
    ] {
        if email != "ada@acme.example" {
            invite(&admin, email).await;
        }
        let shown = until_shown(&admin, email, status, !reply.is_empty()).await;
        assert!(shown.error.unwrap_or_default().contains(reply), "{email}");
    }
    let body = json!({ "email": "bob@acme.example", "delivery": "response" });
    admin.client.post("/users/invite", &body).await.expect::<Invite>(201);
    assert_eq!(mail_of(&admin, "bob@acme.example").await, None);

    server.stop();
    invite(&admin, "eve@acme.example").await;
    let error = until_shown(&admin, "eve@acme.example", MailStatus::Waiting, true).await.error.unwrap();
    assert!(
        !error.contains("127.0.0.1") && !error.contains("refused"),
        "no details of the installation: {error}"
    );
    drop(system);
}

#[tokio::test]
async fn the_platform_administrator_sees_every_mail_that_is_not_sent() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    let user = system.add_user(&admin, "refused@acme.example", Role::Admin).await;
    deliver_all(&system).await;
    request_reset(&system, "refused@acme.example").await;
    invite(&admin, "deferred@acme.example").await;
    let page = wait_until("both mails were tried", async || {
        let page: Page<UndeliveredMail> = system.platform_admin().get("/mails").await.expect(200);
        (page.items.len() == 2 && page.items.iter().all(|mail| mail.error.is_some())).then_some(page)
    })
    .await;
    let [reset, invite] = &*page.items else { panic!("two mails") };
    assert_eq!((reset.kind, reset.status, reset.attempts), (MailKind::Reset, MailStatus::Failed, 1));
    assert_eq!((reset.user_id, reset.next_attempt_at), (Some(user.user.user_id), None));
    assert!(reset.error.as_ref().unwrap().contains("550 5.1.1"), "{reset:?}");
    let requested = wait_until("the request is audited", async || {
        let path = "/audit?tenant_id=acme&kind=authn_token_created&limit=200";
        let page: Page<AuditRecord> = system.platform_admin().get(path).await.expect(200);
        page.items.into_iter().find(|record| record.about.as_deref() == Some("password_reset"))
    })
    .await;
    assert_eq!(requested.occurred_at, reset.created_at, "the time is that of the request");
    assert_eq!((invite.kind, invite.status), (MailKind::Invite, MailStatus::Waiting));
    assert!(invite.next_attempt_at.is_some() && invite.tenant_id.as_str() == "acme", "{invite:?}");
    let first: Page<UndeliveredMail> = system.platform_admin().get("/mails?limit=1").await.expect(200);
    assert_eq!(first.items[0].mail_id, reset.mail_id);
    let next = format!("/mails?limit=1&cursor={}", first.next_cursor.unwrap());
    let next: Page<UndeliveredMail> = system.platform_admin().get(&next).await.expect(200);
    assert_eq!(next.items[0].mail_id, invite.mail_id);
    admin.client.get("/mails").await.expect_problem(403, "forbidden");
}
