//! The checks of `svc doctor` apart from the connection.

use chrono::{DateTime, TimeDelta, Utc};
use contract::session::Whoami;
use contract::{ProblemKind, Scope, identity, routes};

use super::connection::{self, proxy_of};
use super::{Check, Diagnosis};
use crate::api::{Api, ApiResponse};
use crate::commands::version::{VERSION, release};
use crate::context::{ActiveCredential, Context};
use crate::credentials::Credentials;
use crate::environment::{self, PLATFORM_TOKEN};
use crate::error::{CliError, ErrorKind, Exit, Result};
use crate::output::{now, timestamp};
use crate::settings::{Origin, Setting};

/// Difference to the clock of the service that is worth a warning. Responses take seconds at most.
const MAX_CLOCK_SKEW: TimeDelta = TimeDelta::seconds(60);

/// Runs all checks. A check that depends on a failed one is skipped.
pub(super) async fn run(context: &Context, scopes: &[Scope], diagnosis: &mut Diagnosis) {
    let settings = match describe_settings(context) {
        Ok(message) => {
            diagnosis.ok(Check::Configuration, message);
            true
        }
        Err(error) => {
            diagnosis.fail(Check::Configuration, error);
            false
        }
    };
    match Credentials::load() {
        Ok(stored) => diagnosis.ok(Check::Logins, format!("{} stored", stored.all().count())),
        Err(error) => diagnosis.fail(Check::Logins, error),
    }
    let api = if settings { context.api() } else { Err(ErrorKind::ConfigurationInvalid.into()) };
    let connected = match &api {
        Ok(api) => connection::check(context, api, diagnosis).await.map(|response| (api, response)),
        Err(_) if !settings => {
            diagnosis.skip(Check::Connection, "the configuration is not valid");
            None
        }
        Err(error) => {
            diagnosis.fail(Check::Connection, error.clone());
            None
        }
    };
    let Some((api, response)) = connected else {
        for check in [Check::Clock, Check::Version, Check::Credential, Check::Tenant, Check::Scopes] {
            diagnosis.skip(check, "no connection to the service");
        }
        return;
    };
    check_clock(&response, diagnosis);
    check_version(&response, diagnosis);
    check_credential(context, api, scopes, diagnosis).await;
    check_platform_token(context, api, diagnosis).await;
}

fn describe_settings(context: &Context) -> Result<String> {
    let (service, tenant) = (context.base_url()?, context.tenant_setting()?);
    if let Some(file) = context.ca_file()? {
        file.certificates()?;
    }
    let of = |setting: &Origin| format!(" ({setting})");
    let tenant = tenant.map(|tenant| format!(", tenant {}{}", tenant.value, of(&tenant.origin)));
    Ok(format!("service {}{}{}", service.value, of(&service.origin), tenant.unwrap_or_default()))
}

fn check_clock(response: &ApiResponse, diagnosis: &mut Diagnosis) {
    let Some(date) = response.header("date").and_then(|text| DateTime::parse_from_rfc2822(text).ok()) else {
        return diagnosis.skip(Check::Clock, "the response has no date");
    };
    let now = now();
    let difference: TimeDelta = now - date.with_timezone(&Utc);
    if difference.abs() <= MAX_CLOCK_SKEW {
        return diagnosis.ok(Check::Clock, "agrees with that of the service");
    }
    let direction = if difference > TimeDelta::zero() { "ahead of" } else { "behind" };
    let seconds = difference.num_seconds().unsigned_abs();
    diagnosis.warn(
        Check::Clock,
        format!("this machine is {seconds} s {direction} the service ({} here)", timestamp(&now)),
        "Set the clock of this machine: `sudo timedatectl set-ntp true`. Until then, times of expiry look wrong.",
    );
}

fn check_version(response: &ApiResponse, diagnosis: &mut Diagnosis) {
    // The connection check has parsed the response.
    let server = response.json::<identity::Version>().map(|version| version.version).unwrap_or_default();
    if release(VERSION) == release(&server) {
        return diagnosis.ok(Check::Version, format!("client {VERSION}, server {server}"));
    }
    diagnosis.warn(
        Check::Version,
        format!("client {VERSION} and server {server} belong to different releases"),
        format!("Install the client of release {}.", release(&server).join(".")),
    );
}

/// Checks the session or API key, its tenant and its scopes.
async fn check_credential(context: &Context, api: &Api, scopes: &[Scope], diagnosis: &mut Diagnosis) {
    let has_platform_token = matches!(environment::credential(PLATFORM_TOKEN), Ok(Some(_)));
    let result: Result<_> = async {
        let credential = context.credential()?;
        // Without the tenant: the credential is valid even if it belongs to another one.
        let whoami = api.call(&routes::WHOAMI, &[]).bearer(&credential.bearer)?.fetch::<Whoami>().await?;
        Ok((credential, whoami))
    }
    .await;
    match result {
        Ok((credential, whoami)) => {
            let expiry = timestamp(&whoami.expires_at);
            diagnosis.ok(Check::Credential, format!("{} is valid until {expiry}", credential.bearer.source));
            check_tenant(context, &credential, &whoami, diagnosis);
            check_scopes(&credential, &whoami, scopes, diagnosis);
        }
        Err(error) => {
            if has_platform_token && error.code == ErrorKind::NotLoggedIn.code() {
                diagnosis.skip(Check::Credential, "not logged in; the platform token is set");
            } else {
                diagnosis.fail(Check::Credential, error);
            }
            diagnosis.skip(Check::Tenant, "no valid credential");
            diagnosis.skip(Check::Scopes, "no valid credential");
        }
    }
}

fn check_tenant(
    context: &Context,
    credential: &ActiveCredential,
    whoami: &Whoami,
    diagnosis: &mut Diagnosis,
) {
    let (own, source) = (&whoami.tenant_id, &credential.bearer.source);
    let Ok(Some(Setting { value, origin })) = context.tenant_setting() else {
        return diagnosis.ok(Check::Tenant, own.to_string());
    };
    if value == *own {
        return diagnosis.ok(Check::Tenant, own.to_string());
    }
    let message = format!("{source} belongs to tenant {own}, but {origin} names tenant {value}");
    let remediation = match &origin {
        Origin::Option(_) => format!("Pass --tenant {own}, or use a credential of {value}."),
        Origin::Variable(_) => {
            format!("Run `unset SVC_TENANT`, or set SVC_TENANT={own}, or use a credential of {value}.")
        }
        Origin::Context(_) | Origin::Default => match source.variable() {
            Some(variable) => format!(
                "Run `unset {variable}` to use the stored login, or choose a context of {own}: `svc config list`."
            ),
            None => format!("Run `svc auth switch --tenant {own}`."),
        },
    };
    if credential.tenant.is_some() {
        diagnosis.fail(
            Check::Tenant,
            CliError {
                code: ProblemKind::TenantMismatch.code().to_owned(),
                message,
                remediation,
                exit: Exit::from_problem(ProblemKind::TenantMismatch),
                retryable: false,
                request_id: None,
            },
        );
    } else {
        diagnosis.warn(Check::Tenant, message, remediation);
    }
}

fn check_scopes(
    credential: &ActiveCredential,
    whoami: &Whoami,
    required: &[Scope],
    diagnosis: &mut Diagnosis,
) {
    let join = |scopes: &[Scope]| scopes.iter().copied().map(Scope::as_str).collect::<Vec<_>>().join(" ");
    let missing: Vec<_> = required.iter().copied().filter(|scope| !whoami.scopes.contains(scope)).collect();
    if missing.is_empty() {
        return diagnosis.ok(Check::Scopes, join(&whoami.scopes));
    }
    let (source, own) = (&credential.bearer.source, join(&whoami.scopes));
    let options: Vec<_> = missing.iter().map(|scope| format!("--scope {}", scope.as_str())).collect();
    diagnosis.fail(
        Check::Scopes,
        ErrorKind::ScopeMissing
            .with_message(format!("{source} lacks {}; it has {own}", join(&missing)))
            .with_remediation(format!(
                "Set SVC_API_KEY to a key with the scope. An administrator creates it: `svc api-keys create --name {} {}`.",
                whoami.tenant_id,
                options.join(" ")
            )),
    );
}

async fn check_platform_token(context: &Context, api: &Api, diagnosis: &mut Diagnosis) {
    if matches!(environment::credential(PLATFORM_TOKEN), Ok(None)) {
        return;
    }
    let result: Result<_> = async {
        let credential = context.platform_token()?;
        api.call_path(reqwest::Method::GET, "/tenants?limit=1").bearer(&credential.bearer)?.execute().await?;
        Ok(credential.bearer.source)
    }
    .await;
    match result {
        Ok(source) => diagnosis.ok(Check::PlatformToken, format!("{source} is valid")),
        Err(error) => diagnosis.fail(Check::PlatformToken, error),
    }
}

/// Adds the result for the proxy. `failed` is whether the connection does not work.
pub(super) fn report_proxy(context: &Context, failed: bool, diagnosis: &mut Diagnosis) {
    match proxy_of(context) {
        None => diagnosis.ok(Check::Proxy, "none is used"),
        Some(proxy) if failed => diagnosis.warn(
            Check::Proxy,
            format!("requests go through {}, set by {}", proxy.address, proxy.variable),
            proxy.bypass(),
        ),
        Some(proxy) => {
            diagnosis.ok(
                Check::Proxy,
                format!("requests go through {}, set by {}", proxy.address, proxy.variable),
            );
        }
    }
}
