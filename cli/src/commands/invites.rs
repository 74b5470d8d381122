//! `svc invites`, `svc users invite` and `svc users accept-invite`.

use clap::Args;
use contract::identity::{
    AcceptInvite, AcceptedInvite, Delivery, InspectInvite, InspectedInvite, Invite, InviteMail, InviteStatus,
    InviteUser, ResendInvite,
};
use contract::{ProblemKind, Role, Secret, routes};
use tenancy::InviteId;

use crate::framework::address::{IdOfEmail as _, InviteRef};
use crate::framework::api::{Api, Paging};
use crate::framework::arguments::{delivery_parser, enum_parser, role_parser};
use crate::framework::catalog::{Errors, Examples, Names, Routes, SchemaOf, text_input};
use crate::framework::command::{Command, ended, group};
use crate::framework::context::Context;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::output::{Cell, CommandOutput, ItemList, Row, Table, name, optional, text, time, word};
use crate::framework::prompt::PasswordSource;
use crate::framework::token::{TokenKind, TokenSource};

group!(
    /// Manage invites.
    Invites {
        List(List),
        Resend(Resend),
        Revoke(Revoke),
    }
);

impl CommandOutput for Invite {
    fn table(&self) -> Table {
        Table::fields([
            ("invite", Some(text(self.invite_id))),
            ("email", Some(text(&self.email))),
            ("role", Some(text(self.role))),
            ("status", Some(text(self.status))),
            ("expires", Some(time(&self.expires_at))),
            ("mail", self.mail.as_ref().map(mail)),
            ("token", self.token.as_ref().map(|token| text(token.expose()))),
        ])
    }
}

impl Row for Invite {
    const EMPTY: &'static str = "No invites.";

    fn columns(&self) -> Vec<(&'static str, Cell)> {
        vec![
            ("ID", word(self.invite_id)),
            ("EMAIL", name(&self.email)),
            ("STATUS", text(self.status)),
            ("MAIL", optional(self.mail.as_ref().map(mail))),
            ("ROLE", text(self.role)),
            ("EXPIRES", time(&self.expires_at)),
            ("CREATED", time(&self.created_at)),
        ]
    }
}

/// The status of a mail, with the reason if it is not sent.
fn mail(mail: &InviteMail) -> Cell {
    match &mail.error {
        Some(error) => text(format!("{}: {error}", mail.status)),
        None => text(mail.status),
    }
}

/// Invite a user.
///
/// The user gets a link by mail and chooses a password. Requires an administrator, an API key with the scope `users:write`
/// (members only, by mail only), or the platform token and a tenant. To invite an administrator, or with `--delivery response`,
/// log in again with the password or a passkey if the login is older than ten minutes. At most three invites are mailed to one
/// address within an hour.
#[derive(Args)]
pub(crate) struct InviteCommand {
    /// E-mail address of the user.
    #[arg(long)]
    email: String,
    /// Role of the user.
    #[arg(long, default_value = "member", value_parser = role_parser())]
    role: Role,
    /// How to deliver the invite token.
    #[arg(long, value_name = "HOW", default_value = "email", value_parser = delivery_parser())]
    delivery: Delivery,
}

impl Command for InviteCommand {
    type Output = Invite;

    const ROUTES: Routes = Routes::Only(&[&routes::INVITE_USER]);
    const ERRORS: Errors = ErrorKind::PROMPT;
    const EXAMPLES: Examples = &[
        ("Invite a member by mail", "svc users invite --email bob@acme.example --tenant acme"),
        (
            "Invite an administrator and print the token",
            "svc users invite --email bob@acme.example --tenant acme --role admin --delivery response",
        ),
    ];
    const AFTER_LOST_RESPONSE: Option<&'static str> = Some(
        "Run `svc invites list --status pending`. If the address is listed, the invite exists: `svc \
        invites resend` issues a new token.",
    );
    const AGENT_NOTES: &'static str = "Not idempotent: a second invite while one is pending fails with \
        invite_pending. After three mails to one address, a further one fails with rate_limited, except one per 20 minutes. \
        With --delivery response, the output contains a credential that is shown only once. \
        Uses SVC_PLATFORM_TOKEN only if neither SVC_TOKEN nor SVC_API_KEY is set.";
    const SEE_ALSO: Names = &["users accept-invite", "invites list", "invites resend", "tenants create"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let request = InviteUser { email: self.email, role: self.role, delivery: self.delivery };
        match api.call(&routes::INVITE_USER, &[]).json(&request)?.fetch().await {
            Err(error) if error.code == ProblemKind::InvitePending.code() => {
                Err(with_invite_id(error, &request.email, &api).await)
            }
            result => result.inspect(|invite| announce_mail(context, invite)),
        }
    }
}

/// Accept an invite and choose a password.
///
/// Prompts for the password twice, and again if it is rejected. A rejected password does not use up the invite.
#[derive(Args)]
pub(crate) struct AcceptInviteCommand {
    #[command(flatten)]
    token: TokenSource,
    #[command(flatten)]
    password: PasswordSource,
}

impl CommandOutput for AcceptedInvite {
    fn table(&self) -> Table {
        Table::fields([
            ("tenant", Some(text(&self.tenant_id))),
            ("user", Some(text(self.user_id))),
            ("email", Some(text(&self.email))),
            ("role", Some(text(self.role))),
        ])
    }
}

impl Command for AcceptInviteCommand {
    type Output = AcceptedInvite;

    const ROUTES: Routes = Routes::Only(&[&routes::INSPECT_INVITE, &routes::ACCEPT_INVITE]);
    const ERRORS: Errors = ErrorKind::PROMPT;
    const EXAMPLES: Examples = &[
        ("Accept an invite with prompts", "svc users accept-invite"),
        (
            "Read token and password as two lines of standard input",
            "svc users accept-invite - --password-stdin < token-and-password.txt",
        ),
    ];
    const AFTER_LOST_RESPONSE: Option<&'static str> = Some(
        "Run `svc auth login` with the new password. If it is rejected, the invite is still valid: run \
        the command again.",
    );
    const AGENT_NOTES: &'static str = "Requires a terminal unless --password-stdin or --password-file is set. Never pass the \
        token as an argument: it is rejected. A password needs \
        at least 12 characters; common and breached passwords are rejected. An invite works once. Does not \
        log in: run `svc auth login` next.";
    const SEE_ALSO: Names = &["auth login", "users invite"];
    const INPUT_SCHEMA: Option<SchemaOf> =
        Some(|| text_input("A line each: the token for `-`, and the password for --password-stdin."));

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let (prompt, api) = (context.prompt(), context.api()?);
        let token = self.token.read(TokenKind::INVITE, context).await?;
        let accept = async |password: Secret| -> Result<AcceptedInvite> {
            let request = AcceptInvite { token: token.clone(), password };
            let accepted = api.call(&routes::ACCEPT_INVITE, &[]).json(&request)?.fetch().await;
            accepted.inspect(|AcceptedInvite { email, tenant_id, .. }| {
                context.notice_later(format!("Next: svc auth login --email {email} --tenant {tenant_id}"));
            })
        };
        if let Some([password]) = self.password.read(["password"], context.out()).await? {
            return accept(password).await;
        }
        prompt.require_available("new password", PasswordSource::OPTIONS)?;
        let inspect = InspectInvite { token: token.clone() };
        let call = api.call(&routes::INSPECT_INVITE, &[]).json(&inspect)?;
        let InspectedInvite { email, role, tenant_id, password_min_length, .. } = call.fetch().await?;
        context.out().notice(&format!("Invite of {email} to tenant {tenant_id} as {role}."));
        prompt.send_new_password(password_min_length, accept).await
    }
}

/// List invites.
///
/// Lists the oldest first, each with the status of its last mail: waiting, sent or failed, with the reason. Requires an
/// administrator, an API key with the scope `users:read`, or the platform token and a tenant.
#[derive(Args)]
pub(crate) struct List {
    /// Show only invites with this status.
    #[arg(long, value_parser = enum_parser::<InviteStatus>(InviteStatus::ALL.iter().map(|it| it.as_str())))]
    status: Option<InviteStatus>,
    #[command(flatten)]
    paging: Paging,
}

impl Command for List {
    type Output = ItemList<Invite>;

    const ROUTES: Routes = Routes::Only(&[&routes::LIST_INVITES]);
    const ERRORS: Errors = ErrorKind::PROMPT;
    const EXAMPLES: Examples = &[("List all pending invites", "svc invites list --status pending")];
    const AGENT_NOTES: &'static str =
        "Tokens are never listed. The field mail is absent if a response contained the token.";
    const SEE_ALSO: Names = &["invites resend", "invites revoke", "users invite", "users list"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let filter = [("status", self.status.map(InviteStatus::as_str))];
        context
            .connect(Self::REQUIRES)
            .await?
            .print_list(routes::LIST_INVITES.path, &filter, self.paging)
            .await
    }
}

/// Resend a pending invite with a new token.
///
/// The expiry starts again. The old token becomes invalid when the mail server has accepted the new mail. The mail counts
/// towards the invites that are mailed to one address: three, then one per 20 minutes. Requires an administrator, an API key
/// with the scope `users:write`, or the platform token and a tenant. With `--delivery response`, an administrator must have
/// logged in with the password or a passkey in the last ten minutes.
#[derive(Args)]
pub(crate) struct Resend {
    /// E-mail address or id of the invite.
    #[arg(value_name = "INVITE_ID")]
    invite: InviteRef,
    /// How to deliver the invite token.
    #[arg(long, value_name = "HOW", default_value = "email", value_parser = delivery_parser())]
    delivery: Delivery,
}

impl Command for Resend {
    type Output = Invite;

    const ROUTES: Routes = Routes::Only(&[&routes::RESEND_INVITE, &routes::LIST_INVITES]);
    const ERRORS: Errors = ErrorKind::PROMPT;
    const EXAMPLES: Examples = &[
        ("Send the mail again", "svc invites resend bob@acme.example"),
        ("Print a new token", "svc invites resend 01890a5d-ac96-774b-bcce-b302099a8057 --delivery response"),
    ];
    const AFTER_LOST_RESPONSE: Option<&'static str> = Some(
        "Run `svc invites list`. A later expiry means that a new token was issued. To replace this one \
        too, run the command again.",
    );
    const AGENT_NOTES: &'static str = "Each run invalidates the previous token, by mail as soon as the mail server has \
        accepted the new one. Exit status 3 means that the invite has expired or was revoked: invite the user again. With \
        --delivery response, the output \
        contains a credential that is shown only once.";
    const SEE_ALSO: Names = &["invites list", "invites revoke", "users invite"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let id = self.invite.id(&api).await?;
        let request = ResendInvite { delivery: self.delivery };
        let invite = api.call(&routes::RESEND_INVITE, &[&id]).json(&request)?.fetch().await;
        invite.inspect(|invite| announce_mail(context, invite))
    }
}

/// Revoke a pending invite.
///
/// Deletes the invited user. Requires an administrator, an API key with the scope `users:write`, or the platform token and a
/// tenant. Asks for confirmation.
#[derive(Args)]
pub(crate) struct Revoke {
    /// E-mail address or id of the invite.
    #[arg(value_name = "INVITE_ID")]
    invite: InviteRef,
}

ended!(
    /// Result of revoking an invite.
    RevokedInvite {
        /// Invite id.
        invite_id: InviteId,
        revoked,
        /// E-mail address, if it was typed or looked up.
        email
    }: "Invite revoked."
);

impl Command for Revoke {
    type Output = RevokedInvite;

    const ROUTES: Routes = Routes::Only(&[&routes::REVOKE_INVITE, &routes::LIST_INVITES]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[
        ("Revoke an invite after confirmation", "svc invites revoke bob@acme.example"),
        ("Revoke an invite in a script", "svc invites revoke 01890a5d-ac96-774b-bcce-b302099a8057 --yes"),
    ];
    const AGENT_NOTES: &'static str = "Requires --yes without a terminal; pass it only if the user asked \
        for this change. Idempotent. An accepted invite cannot be revoked: disable the user instead.";
    const SEE_ALSO: Names = &["invites list", "invites resend", "users disable"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let (api, prompt) = (context.connect(Self::REQUIRES).await?, context.prompt());
        let invite = self.invite.resolve(prompt, &api).await?;
        prompt.confirm(&format!("Revoke the invite of {invite}?")).await?;
        api.call(&routes::REVOKE_INVITE, &[&invite.id]).execute().await?;
        Ok(RevokedInvite::new(invite.id, invite.label))
    }
}

fn announce_mail(context: &Context, invite: &Invite) {
    if invite.token.is_none() {
        context.out().notice("The invite link is sent by mail.");
    }
}

/// Names the pending invite of the address, if the credential may list invites.
async fn with_invite_id(error: CliError, email: &str, api: &Api) -> CliError {
    match InviteId::find(email, api).await {
        Ok(Invite { invite_id, .. }) => error.with_remediation(format!(
            "To send the mail again, run `svc invites resend {invite_id}`. To withdraw the invite, run `svc invites revoke \
             {invite_id}`."
        )),
        Err(_) => error,
    }
}
