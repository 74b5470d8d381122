//! `svc consumers create` and `rotate-login`, which print a login.

use clap::Args;
use contract::consumers::{
    ConsumerLogin, ConsumerName, ConsumerStart, ConsumerSuspension, CreateConsumer, CreatedConsumer,
    Partitions,
};
use contract::identity::Tenant;
use contract::{ProblemKind, routes};

use super::fields;
use crate::framework::catalog::{Errors, Examples, Names, Routes};
use crate::framework::command::Command;
use crate::framework::context::Context;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::output::{CommandOutput, Table, text, timestamp};

/// Highest number of a partition.
const MAX_PARTITION: u8 = 63;

impl CommandOutput for CreatedConsumer {
    fn table(&self) -> Table {
        let mut fields = fields(&self.consumer);
        if let Some(ConsumerLogin { user, password, .. }) = &self.login {
            fields.extend([("user", Some(text(user))), ("password", Some(text(password)))]);
        }
        Table::fields(fields)
    }
}

/// Create a consumer and print its login at the broker.
///
/// Creates a durable pull consumer. Any NATS client reads it with the printed user and password and default options. Requires --tenant,
/// `SVC_TENANT` or --all-tenants; the tenant of the context does not apply.
#[derive(Args)]
pub(crate) struct Create {
    /// Name: 1 to 63 characters of a-z, 0-9 and `-`. It is also the user at the broker.
    #[arg(value_name = "NAME")]
    name: ConsumerName,
    /// Read the events of all tenants. The consumer is then a trusted part of the platform.
    #[arg(long)]
    all_tenants: bool,
    /// Event type to read; repeatable. The consumer also gets other types with the subject of `GENERIC_EVENT` [default: all].
    #[arg(long, value_name = "TYPE")]
    event_type: Vec<String>,
    /// Partitions to read, such as 0-31, to share the events among consumers [default: all].
    #[arg(long, value_name = "FIRST-LAST", value_parser = parse_partitions)]
    partitions: Option<Partitions>,
    /// First event: `all` stored events, `new` ones only, or those since a time such as 2026-01-31T12:00:00Z [default: all].
    #[arg(long, value_name = "START")]
    start: Option<ConsumerStart>,
    /// Seconds until an event without an acknowledgement is delivered again, 1 to 3600 [default: 30].
    #[arg(long, value_name = "SECONDS")]
    ack_wait: Option<u32>,
    /// Maximum number of delivered events without an acknowledgement, 1 to 10000 [default: 1000].
    #[arg(long, value_name = "NUMBER")]
    max_ack_pending: Option<u32>,
}

impl Command for Create {
    type Output = CreatedConsumer;

    const ROUTES: Routes = Routes::Only(&[&routes::CREATE_CONSUMER, &routes::GET_TENANT]);
    const EXAMPLES: Examples = &[
        (
            "Create a consumer of the logins of one tenant",
            "svc consumers create acme-logins --tenant acme --event-type USER_LOGIN",
        ),
        (
            "Create a consumer of all events from now on",
            "svc consumers create archive --all-tenants --start new",
        ),
    ];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE, and --tenant, SVC_TENANT \
        or --all-tenants; pass --all-tenants only if the user asked for the events of all tenants. A repeated command \
        changes nothing and fails with consumer_exists, also after a response that was lost. The output \
        contains the password, which is not shown again: `svc consumers rotate-login` replaces a lost one. If `login.active` \
        is false, the administrator of the broker installs the file that `svc consumers config` prints.";
    const SEE_ALSO: Names =
        &["consumers list", "consumers rotate-login", "consumers config", "consumers delete"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let tenant_id = context.tenant_option().cloned();
        if tenant_id.is_some() == self.all_tenants {
            let message = if tenant_id.is_some() {
                "--all-tenants is set together with --tenant or the variable SVC_TENANT: pass one of them, and unset the variable"
            } else {
                "pass either --tenant (or set SVC_TENANT) or --all-tenants"
            };
            return Err(ErrorKind::Usage.with_message(message));
        }
        let api = context.connect(Self::REQUIRES).await?;
        let name = self.name.clone();
        let request = CreateConsumer {
            name: self.name,
            tenant_id: tenant_id.clone(),
            all_tenants: self.all_tenants,
            event_types: self.event_type,
            partitions: self.partitions,
            start: self.start,
            ack_wait_seconds: self.ack_wait,
            max_ack_pending: self.max_ack_pending,
        };
        let created: CreatedConsumer =
            api.call(&routes::CREATE_CONSUMER, &[]).json(&request)?.fetch().await?;
        if created.login.is_none() {
            let message =
                format!("consumer {name} exists with this definition, and its login is not shown again");
            let path = routes::CREATE_CONSUMER.path;
            let error = CliError::from_kind(ProblemKind::ConsumerExists, path, message);
            return Err(error.with_remediation(format!(
                "Use its login. If it was lost, also in the response of an earlier try: `svc consumers rotate-login {name}`."
            )));
        }
        explain(context, &created);
        if let Some(tenant_id) = tenant_id {
            let tenant = api.call(&routes::GET_TENANT, &[&tenant_id]).fetch::<Tenant>().await;
            if tenant.is_err_and(|error| error.code == ProblemKind::NotFound.code()) {
                context.warn_later(format!(
                    "tenant {tenant_id} does not exist: the consumer gets no events until it is created"
                ));
            }
        }
        Ok(created)
    }
}

/// Prints how to read with the login.
fn explain(context: &Context, created: &CreatedConsumer) {
    let CreatedConsumer { consumer, login } = created;
    let Some(ConsumerLogin { user, active, .. }) = login else { return };
    context.notice_later(
        "Save the password: it is not shown again. Any NATS client reads with this login, for example:",
    );
    for stream in &consumer.streams {
        context.notice_later(format!(
            "  NATS_URL=nats://HOST:4222 NATS_USER={user} NATS_PASSWORD=... nats consumer next {stream} {user} --ack"
        ));
    }
    if let Some(ConsumerSuspension { until, .. }) = &consumer.suspension {
        context.notice_later(format!(
            "The login is suspended until {}. `svc consumers resume {user}` ends the suspension.",
            timestamp(until)
        ));
    } else if !active {
        context.notice_later(
            "The login cannot read yet: install the file that `svc consumers config` prints, and reload the broker (docs/consumers.md).",
        );
    }
}

/// Replace the login of a consumer and print the new one.
///
/// The previous password is not valid any more, and its connections are closed. A suspension remains. Asks for confirmation.
#[derive(Args)]
pub(crate) struct RotateLogin {
    /// Name of the consumer.
    #[arg(value_name = "NAME")]
    name: ConsumerName,
}

impl Command for RotateLogin {
    type Output = CreatedConsumer;

    const ROUTES: Routes = Routes::Only(&[&routes::ROTATE_CONSUMER_LOGIN]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples =
        &[("Replace a lost or leaked login", "svc consumers rotate-login acme-siem --yes")];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE, and --yes without a \
        terminal; pass --yes only if the user asked for this change: programs with the previous password stop reading. The \
        position of the consumer remains.";
    const SEE_ALSO: Names = &["consumers create", "consumers config"];
    const AFTER_LOST_RESPONSE: Option<&'static str> =
        Some("Run the command again. Only the last password is valid.");

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        context.prompt().confirm(&format!("Replace the login of consumer {}?", self.name)).await?;
        let created: CreatedConsumer =
            api.call(&routes::ROTATE_CONSUMER_LOGIN, &[&self.name]).fetch().await?;
        explain(context, &created);
        Ok(created)
    }
}

fn parse_partitions(text: &str) -> std::result::Result<Partitions, String> {
    let range = text
        .split_once('-')
        .and_then(|(first, last)| Some(Partitions { first: first.parse().ok()?, last: last.parse().ok()? }));
    let valid = range.filter(|Partitions { first, last }| first <= last && *last <= MAX_PARTITION);
    valid.ok_or_else(|| {
        format!("expected two numbers of 0 to {MAX_PARTITION}, the smaller one first, such as 0-31")
    })
}
