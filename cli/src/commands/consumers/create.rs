//! `svc consumers create` and `rotate-login`, which print a login.

use std::pin::pin;

use clap::Args;
use contract::consumers::{
    Consumer, ConsumerLogin, ConsumerName, ConsumerStart, ConsumerSuspension, CreateConsumer,
    CreatedConsumer, MAX_ACK_PENDING, MAX_ACK_WAIT_SECONDS, Partitions,
};
use contract::identity::Tenant;
use contract::{ProblemKind, routes};
use futures::FutureExt as _;
use schemars::JsonSchema;
use serde::Serialize;

use super::fields;
use crate::framework::api::Api;
use crate::framework::arguments::{AllTenants, up_to};
use crate::framework::catalog::{Errors, Examples, Names, Routes};
use crate::framework::command::Command;
use crate::framework::context::Context;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::output::{CommandOutput, Table, text, timestamp};

/// What to do after a failure of `rotate-login`.
const REPEAT: &str = "Run the command again; after --all, with the name of each consumer that the error names. \
    Only the last password of a consumer is valid.";
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
    #[arg(long)]
    start: Option<ConsumerStart>,
    /// Seconds until an event without an acknowledgement is delivered again, 1 to 3600 [default: 30].
    #[arg(long, value_name = "SECONDS", value_parser = up_to(MAX_ACK_WAIT_SECONDS))]
    ack_wait: Option<u32>,
    /// Maximum number of delivered events without an acknowledgement, 1 to 10000 [default: 1000].
    #[arg(long, value_name = "NUMBER", value_parser = up_to(MAX_ACK_PENDING))]
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
    const AFTER_LOST_OUTPUT: Option<&'static str> = Some(
        "The consumer exists, and its password is lost. Run `svc consumers rotate-login` with its name.",
    );

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let tenant_id = context.tenant_option().cloned();
        let all_tenants = self.all_tenants;
        if tenant_id.is_none() && !all_tenants {
            let message = "pass either --tenant (or set SVC_TENANT) or --all-tenants";
            return Err(ErrorKind::Usage.with_message(message));
        }
        let api = context.connect_to_tenants(Self::REQUIRES, AllTenants { all_tenants })?.api;
        let name = self.name.clone();
        let request = CreateConsumer {
            name: self.name,
            tenant_id: tenant_id.clone(),
            all_tenants,
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
            let error = CliError::from_kind(ProblemKind::ConsumerExists, routes::CREATE_CONSUMER.path);
            return Err(error.with_message(message).with_remediation(format!(
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

/// Replace the login of a consumer, or of all consumers, and print the new one.
///
/// The previous password is not valid any more, and its connections are closed: the program stops until it has the new one. A suspension
/// remains. Asks for confirmation. After a restore of the broker, --all ends logins that were replaced or deleted since the backup.
#[derive(Args)]
pub(crate) struct RotateLogin {
    /// Name of the consumer. Without it, --all is required.
    #[arg(required_unless_present = "all")]
    name: Option<ConsumerName>,
    /// Replace the logins of all consumers.
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

/// A consumer with its new login, or all of them.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Rotated {
    /// With NAME.
    One(Box<CreatedConsumer>),
    /// With --all.
    All(RotatedLogins),
}

/// The new logins of all consumers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RotatedLogins {
    /// Consumers with their new logins, ordered by name.
    items: Vec<CreatedConsumer>,
    #[serde(skip)]
    error: Option<CliError>,
}

impl CommandOutput for Rotated {
    fn table(&self) -> Table {
        match self {
            Self::One(created) => created.table(),
            Self::All(logins) if logins.items.is_empty() => Table::message("No logins."),
            // Each with all fields: a column that is too wide for the terminal is left out.
            Self::All(logins) => Table::Sections(logins.items.iter().map(CommandOutput::table).collect()),
        }
    }

    fn lines(&self) -> serde_json::Result<Vec<String>> {
        match self {
            Self::One(created) => created.lines(),
            Self::All(logins) => logins.items.iter().map(serde_json::to_string).collect(),
        }
    }

    fn error(&self) -> Option<CliError> {
        match self {
            Self::One(_) => None,
            Self::All(logins) => logins.error.clone(),
        }
    }
}

impl Command for RotateLogin {
    type Output = Rotated;

    const ROUTES: Routes = Routes::Only(&[&routes::ROTATE_CONSUMER_LOGIN, &routes::LIST_CONSUMERS]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[
        ("Replace a lost or leaked login", "svc consumers rotate-login acme-siem --yes"),
        (
            "Replace all logins after a restore of the broker, and save the new ones",
            "svc consumers rotate-login --all --yes --output json",
        ),
    ];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE, and --yes without a \
        terminal; pass --yes only if the user asked for this change: programs with the previous password stop reading. The \
        position of the consumer remains. With --all, the output lists the new logins also after a failure, and the error names the \
        consumers without a new one.";
    const SEE_ALSO: Names = &["consumers create", "consumers config"];
    const AFTER_LOST_RESPONSE: Option<&'static str> = Some(REPEAT);
    const AFTER_LOST_OUTPUT: Option<&'static str> = Some(
        "Run the command again: the new passwords are lost, and only the last one of a consumer is valid.",
    );

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let Some(name) = self.name else { return Ok(Rotated::All(rotate_all(context, &api).await?)) };
        context.prompt().confirm(&format!("Replace the login of consumer {name}?")).await?;
        let created = rotate(&api, &name).await?;
        explain(context, &created);
        Ok(Rotated::One(Box::new(created)))
    }
}

/// The request may have had its effect.
const WITHOUT_RESPONSE: [ErrorKind; 3] =
    [ErrorKind::Unreachable, ErrorKind::TimedOut, ErrorKind::ResponseLost];

async fn rotate(api: &Api, name: &ConsumerName) -> Result<CreatedConsumer> {
    api.call(&routes::ROTATE_CONSUMER_LOGIN, &[name]).fetch().await
}

/// Replaces the logins one after the other. A failure of one does not stop the others, unless the service did not answer. After a
/// signal, the others keep their logins, and the new ones are printed.
async fn rotate_all(context: &Context, api: &Api) -> Result<RotatedLogins> {
    let consumers: Vec<Consumer> = api.list_all(routes::LIST_CONSUMERS.path).await?;
    let count = consumers.len();
    if count > 0 {
        let question = format!(
            "Replace the logins of {count} consumers? Each stops until its program has the new login."
        );
        context.prompt().confirm(&question).await?;
    }
    let mut signal = pin!(context.signals().take_first());
    let (mut items, mut failed, mut first_error) = (Vec::new(), Vec::new(), None::<CliError>);
    let mut is_stopped = false;
    for Consumer { name, .. } in consumers {
        if !is_stopped && let Some(signal) = signal.as_mut().now_or_never() {
            (first_error, is_stopped) = (Some(signal.into()), true);
        }
        if is_stopped {
            failed.push(name.to_string());
            continue;
        }
        match rotate(api, &name).await {
            Ok(created) => items.push(created),
            Err(error) => {
                // Others would lose their new passwords in the same way.
                is_stopped = WITHOUT_RESPONSE.iter().any(|kind| error.code == kind.code());
                failed.push(name.to_string());
                first_error.get_or_insert(error);
            }
        }
    }
    if !items.is_empty() {
        context.notice_later("Save the passwords: they are not shown again. Each program reads again when it has its new password.");
    }
    if items.iter().any(|created| created.login.as_ref().is_some_and(|login| !login.active)) {
        context.notice_later(
            "Logins that are not active cannot read yet: they are suspended, or the broker needs the file that `svc consumers config` \
             prints (docs/consumers.md).",
        );
    }
    let error = first_error.map(|error| {
        let names = failed.join(", ");
        let message =
            format!("failed to replace {} of {count} logins: {names}\n  {}", failed.len(), error.message);
        CliError { retryable: false, message, ..error }.with_remediation(REPEAT)
    });
    Ok(RotatedLogins { items, error })
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
