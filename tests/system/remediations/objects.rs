//! Remediations of objects that do not exist, exist already, or are in another state.

use e2e::Svc;
use serde_json::Value;
use testkit::PASSWORD;

use super::{MAX_INVITES, Remediations, UNKNOWN_ID, accept, field, invite};

pub(super) async fn leads_to_the_repair(remediations: &Remediations<'_>) {
    let (ada, _) = remediations.tenant("objects").await;
    unknown_objects(remediations, &ada).await;
    users(remediations, &ada).await;
    invites(remediations, &ada).await;
    pending_invites(remediations, &ada).await;
    tenants(remediations).await;
    too_many_invites(remediations).await;
}

/// A client, a command with an unknown id, the command that lists ids, their field, and the command without the id.
type UnknownId<'a> = (&'a Svc, &'a [&'a str], &'a str, &'a str, &'a [&'a str]);

async fn unknown_objects(remediations: &Remediations<'_>, ada: &Svc) {
    let platform_admin = remediations.platform_admin();
    ada.run_ok(&["api-keys", "create", "--name", "k"], "").await;
    platform_admin.run_ok(&["consumers", "create", "archive"], "").await;
    let cases: [UnknownId<'_>; 4] = [
        (ada, &["users", "get", UNKNOWN_ID], "users list", "user_id", &["users", "get"]),
        (
            ada,
            &["api-keys", "revoke", UNKNOWN_ID, "--yes"],
            "api-keys list",
            "id",
            &["api-keys", "revoke", "--yes"],
        ),
        (&platform_admin, &["tenants", "get", "nope"], "tenants list", "tenant_id", &["tenants", "get"]),
        (&platform_admin, &["consumers", "get", "nope"], "consumers list", "name", &["consumers", "get"]),
    ];
    for (svc, arguments, list, id, repaired) in cases {
        let failure = remediations.fail(svc, arguments, "", "not_found").await;
        let listed = failure.json(svc, list, &[]).await;
        svc.run_ok(&[repaired, &[field(&listed["items"][0], id)]].concat(), "").await;
    }
    let create = ["consumers", "create", "archive", "--event-type", "USER_LOGIN"];
    let failure = remediations.fail(&platform_admin, &create, "", "consumer_exists").await;
    failure.run(&platform_admin, "consumers delete", &["archive", "--yes"], "").await;
    failure.repeat(&platform_admin).await;
}

async fn users(remediations: &Remediations<'_>, ada: &Svc) {
    let email = "bob@objects.example";
    remediations.member(ada, "objects", email).await;
    let again = ["users", "invite", "--email", email, "--delivery", "response"];
    let failure = remediations.fail(ada, &again, "", "user_exists").await;
    failure.run(ada, "auth password reset", &["--email", email], "").await;
    ada.run_ok(&["users", "disable", email, "--yes"], "").await;
    let failure = remediations.fail(ada, &again, "", "user_exists").await;
    failure.run(ada, "users enable", &[email], "").await;
    ada.run_ok(&["auth", "login", "--email", email, "--password-stdin", "--context", "bob"], PASSWORD).await;
    ada.run_ok(&["config", "use-context", "objects"], "").await;

    let demote = ["users", "set-role", "ada@objects.example", "member", "--yes"];
    let failure = remediations.fail(ada, &demote, "", "last_admin").await;
    failure.run(ada, "users set-role", &[email, "admin", "--yes"], "").await;
    failure.repeat(ada).await;
    let back = ["users", "set-role", "ada@objects.example", "admin", "--yes", "--context", "bob"];
    ada.run_ok(&back, "").await;
}

async fn invites(remediations: &Remediations<'_>, ada: &Svc) {
    let resend = ["invites", "resend", UNKNOWN_ID];
    let failure = remediations.fail(ada, &resend, "", "not_found").await;
    failure.run(ada, "invites list", &[], "").await;
    failure.run(ada, "users invite", &["--email", "carol@objects.example"], "").await;

    let email = "dan@objects.example";
    let invited = invite(ada, email).await;
    let token = field(&invited, "token");
    let stranger = remediations.svc();
    let input = format!("{token}\n{PASSWORD}\n");
    let accept_command = ["users", "accept-invite", "-", "--password-stdin"];
    stranger.run_ok(&accept_command, &input).await;
    let used = remediations.fail(&stranger, &accept_command, &input, "token_invalid").await;
    used.run(
        &stranger,
        "auth login",
        &["--email", email, "--password-stdin", "--tenant", "objects"],
        PASSWORD,
    )
    .await;
    let revoke = ["invites", "revoke", field(&invited, "invite_id"), "--yes"];
    let failure = remediations.fail(ada, &revoke, "", "user_exists").await;
    failure.run(ada, "users disable", &[email, "--yes"], "").await;

    // The token of another person is replaced.
    let email = "eve@objects.example";
    let old = used.json(ada, "users invite", &["--email", email, "--delivery", "response"]).await;
    let listed = used.json(ada, "invites list", &["--status", "pending"]).await;
    let id =
        listed["items"].as_array().unwrap().iter().find(|item| item["email"] == email).unwrap()["invite_id"]
            .clone();
    let new = used.json(ada, "invites resend", &[id.as_str().unwrap(), "--delivery", "response"]).await;
    assert_ne!(old["token"], new["token"]);
    accept(&stranger, &new["token"]).await;
}

async fn pending_invites(remediations: &Remediations<'_>, ada: &Svc) {
    let key = ["api-keys", "create", "--name", "inviter", "--scope", "users:write"];
    let key = ada.json(&key, "").await;
    let run_file = &remediations.run.run_file;
    let program = Svc::new(&run_file.svc, &run_file.base_url, "objects").with_api_key(field(&key, "key"));
    let email = "fred@objects.example";
    invite(ada, email).await;
    let again = ["users", "invite", "--email", email];
    let in_response = ["--delivery", "response"];
    let again_in_response = [&again[..], &in_response].concat();
    // The text has the id for a caller that can list invites.
    let failure = remediations.fail(ada, &again_in_response, "", "invite_pending").await;
    failure.run(ada, "invites resend", &in_response, "").await;
    failure.run(ada, "invites revoke", &["--yes"], "").await;
    failure.repeat(ada).await;
    let failure = remediations.fail(&program, &again, "", "invite_pending").await;
    let id_of = |listed: &Value, email: &str| -> String {
        let mut items = listed["items"].as_array().unwrap().iter();
        field(items.find(|item| item["email"] == email).unwrap(), "invite_id").to_owned()
    };
    let id = id_of(&failure.json(ada, "invites list --status pending", &[]).await, email);
    failure.run(ada, "invites resend", &[&[&*id], &in_response[..]].concat(), "").await;
    failure.run(ada, "invites revoke", &[&id, "--yes"], "").await;
    failure.repeat(&program).await;

    let disable = ["users", "disable", "grace@objects.example", "--yes"];
    invite(ada, "grace@objects.example").await;
    let failure = remediations.fail(ada, &disable, "", "user_invited").await;
    let listed = failure.json(ada, "invites list --status pending", &[]).await;
    let id = id_of(&listed, "grace@objects.example");
    let resent = failure.json(ada, "invites resend", &[&id, "--delivery", "response"]).await;
    accept(&remediations.svc(), &resent["token"]).await;
    failure.repeat(ada).await;
    failure.run(ada, "invites revoke", &[&id_of(&listed, email), "--yes"], "").await;
}

async fn tenants(remediations: &Remediations<'_>) {
    let platform_admin = remediations.platform_admin();
    platform_admin.run_ok(&["tenants", "create", "twice"], "").await;
    let failure =
        remediations.fail(&platform_admin, &["tenants", "create", "twice"], "", "tenant_exists").await;
    assert_eq!(failure.json(&platform_admin, "tenants get", &["twice"]).await["status"], "active");
    let delete = ["tenants", "delete", "twice", "--yes"];
    let failure = remediations.fail(&platform_admin, &delete, "", "tenant_active").await;
    failure.run(&platform_admin, "tenants suspend", &["twice", "--yes"], "").await;
    failure.repeat(&platform_admin).await;
}

async fn too_many_invites(remediations: &Remediations<'_>) {
    let (ada, _) = remediations.tenant("invites").await;
    for number in 0..MAX_INVITES {
        invite(&ada, &format!("person{number}@invites.example")).await;
    }
    let one_more = ["users", "invite", "--email", "late@invites.example"];
    let failure = remediations.fail(&ada, &one_more, "", "too_many_invites").await;
    let listed = failure.json(&ada, "invites list --status pending", &[]).await;
    let id = field(&listed["items"][0], "invite_id");
    failure.run(&ada, "invites revoke", &[id, "--yes"], "").await;
    failure.repeat(&ada).await;
}
