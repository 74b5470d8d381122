//! A mail server that is not reachable, and one that rejects.

use serde_json::{Value, json};
use testkit::{MailServer, wait_until};

use super::Watched;

#[tokio::test]
async fn a_mail_server_that_is_not_reachable_and_one_that_rejects() {
    let mut mail = MailServer::start("none").await.unwrap();
    let variables = mail.variables();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let Some(mut watched) = Watched::start(&variables).await else { return };
    mail.stop();
    let invite = json!({ "email": "carol@acme.example", "role": "member", "delivery": "email" });
    assert_eq!(watched.ada.client.post("/users/invite", &invite).await.status, 201);
    // Time passes: the mail waits for an hour.
    let hour =
        "update identity.outbox set created_at = created_at - interval '1 hour' where kind = 'mail_invite'";
    watched.run_sql(hour).await;
    let outputs = watched.expect(&["SvcOutboxDelayed"], async || ()).await;
    let listed = &outputs["svc-identity outbox list"];
    assert!(listed.contains("mail server unavailable"), "the runbook names the error: {listed}");

    mail.restart().await.unwrap();
    // Time passes: a back-off that is longer than a delivery in progress can take ends.
    let retry = "update identity.outbox set due_at = now() where kind = 'mail_invite' and due_at > now() + interval '61 seconds'";
    wait_until("the mail arrives", async || {
        watched.run_sql(retry).await;
        (mail.mails().len() == 1).then_some(())
    })
    .await;
    watched.expect_recovery(async || ()).await;

    let invite = json!({ "email": "refused@acme.example", "role": "member", "delivery": "email" });
    let invite: Value = watched.ada.client.post("/users/invite", &invite).await.expect(201);
    let outputs = watched.expect(&["SvcOutboxDeadLettered"], async || ()).await;
    let listed = &outputs["svc-identity outbox list"];
    assert!(listed.contains("the mail server rejected the mail"), "the runbook names the error: {listed}");
    watched.values.push(("<invite-id>", invite["invite_id"].as_str().unwrap().to_owned()));
    let invites = watched.act("SvcOutboxDeadLettered", "svc invites list").await;
    assert!(invites.contains("refused@acme.example"), "{invites}");
    watched.act("SvcOutboxDeadLettered", "svc invites revoke <invite-id>").await;
    watched.act("SvcOutboxDeadLettered", "svc-identity outbox retry --all").await;
    watched.expect_recovery(async || ()).await;
    assert_eq!(mail.mails().len(), 1, "the mail of the revoked invite is not sent");
}
