//! The checks of `svc doctor` apart from the connection.

use chrono::{DateTime, TimeDelta, Utc};
use contract::session::Whoami;
use contract::{Page, ProblemKind, Scope, identity, routes};

use super::{Check, Diagnosis, Finding, connection};
use crate::commands::version::{VERSION, release};
use crate::framework::api::{Api, ApiResponse};
use crate::framework::catalog::Requirement;
use crate::framework::context::Context;
use crate::framework::credential::{self, Credential, PLATFORM_TOKEN};
use crate::framework::credentials::Credentials;
use crate::framework::endpoint::BaseUrl;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::output::{now, timestamp};
use crate::framework::settings::{Origin, Setting};

/// Difference to the clock of the service that is worth a warning. Responses take seconds at most.
const MAX_CLOCK_SKEW: TimeDelta = TimeDelta::seconds(60);

/// Runs all checks. A check that depends on a failed one is skipped.
pub(super) async fn run(context: &Context, scopes: &[Scope]) -> Diagnosis {
    let mut diagnosis = Diagnosis { healthy: true, checks: Vec::new(), first_error: None };
    let settings = settings(context);
    let service = settings.as_ref().ok().map(|(service, _)| service.clone());
    diagnosis.add(Check::Configuration, settings.map(|(_, message)| Finding::Ok(message)));
    let logins = Credentials::load().map(|stored| Finding::Ok(format!("{} stored", stored.sessions.len())));
    diagnosis.add(Check::Logins, logins);
    let Some((api, response)) = connect(context, service, &mut diagnosis).await else {
        for check in [Check::Clock, Check::Version, Check::Credential, Check::Tenant, Check::Scopes] {
            diagnosis.add(check, Ok(Finding::Skipped("no connection to the service")));
        }
        return diagnosis;
    };
    diagnosis.add(Check::Clock, Ok(clock(&response)));
    diagnosis.add(Check::Version, Ok(version(&response)));
    check_credential(context, &api, scopes, &mut diagnosis).await;
    if !matches!(credential::from_environment(PLATFORM_TOKEN), Ok(None)) {
        diagnosis.add(Check::PlatformToken, platform_token(context, api).await);
    }
    diagnosis
}

/// Service and description of the settings.
fn settings(context: &Context) -> Result<(BaseUrl, String)> {
    let (service, tenant) = (context.base_url()?, context.tenant_setting()?);
    if let Some(file) = context.ca_file()? {
        file.certificates()?;
    }
    let tenant = tenant.map(|Setting { value, origin }| format!(", tenant {value} ({origin})"));
    let message = format!("service {} ({}){}", service.value, service.origin, tenant.unwrap_or_default());
    Ok((service.value, message))
}

/// Checks connection and proxy. Returns the response of the service.
async fn connect(
    context: &Context,
    service: Option<BaseUrl>,
    diagnosis: &mut Diagnosis,
) -> Option<(Api, ApiResponse)> {
    let Some(service) = service else {
        diagnosis.add(Check::Connection, Ok(Finding::Skipped("the configuration is not valid")));
        return None;
    };
    let api = context.api().map_err(|error| diagnosis.add(Check::Connection, Err(error))).ok()?;
    let result = connection::check(context, &api, &service).await;
    let finding = result.as_ref().map(|_| Finding::Ok(format!("{service} answers")));
    diagnosis.add(Check::Connection, finding.map_err(Clone::clone));
    diagnosis.add(Check::Proxy, Ok(connection::check_proxy(context, result.is_err())));
    Some((api, result.ok()?))
}

fn clock(response: &ApiResponse) -> Finding {
    let Some(date) = response.header("date").and_then(|text| DateTime::parse_from_rfc2822(text).ok()) else {
        return Finding::Skipped("the response has no date");
    };
    let now = now();
    let difference: TimeDelta = now - date.with_timezone(&Utc);
    if difference.abs() <= MAX_CLOCK_SKEW {
        return Finding::Ok("agrees with that of the service".to_owned());
    }
    let direction = if difference > TimeDelta::zero() { "ahead of" } else { "behind" };
    let seconds = difference.num_seconds().unsigned_abs();
    Finding::Warning(
        format!("this machine is {seconds} s {direction} the service ({} here)", timestamp(&now)),
        "Set the clock of this machine: `sudo timedatectl set-ntp true`. Until then, times of expiry look wrong."
            .to_owned(),
    )
}

fn version(response: &ApiResponse) -> Finding {
    // The connection check has parsed the response.
    let server = response.json::<identity::Version>().map(|version| version.version).unwrap_or_default();
    if release(VERSION) == release(&server) {
        return Finding::Ok(format!("client {VERSION}, server {server}"));
    }
    Finding::Warning(
        format!("client {VERSION} and server {server} belong to different releases"),
        format!("Install the client of release {}.", release(&server).join(".")),
    )
}

/// Checks the session or API key, its tenant and its scopes.
async fn check_credential(context: &Context, api: &Api, scopes: &[Scope], diagnosis: &mut Diagnosis) {
    let result: Result<_> = async {
        let credential = context.credential(Requirement::Credential)?;
        // Without the tenant: the credential is valid even if it belongs to another one.
        let api = api.clone().with_credential(Credential { tenant: None, ..credential.clone() })?;
        Ok((credential, api.call(&routes::WHOAMI, &[]).fetch::<Whoami>().await?))
    }
    .await;
    match result {
        Ok((credential, whoami)) => {
            let validity = format!("{} is valid until {}", credential.source, timestamp(&whoami.expires_at));
            diagnosis.add(Check::Credential, Ok(Finding::Ok(validity)));
            diagnosis.add(Check::Tenant, tenant(context, &credential, &whoami));
            diagnosis.add(Check::Scopes, check_scopes(&credential, &whoami, scopes));
        }
        Err(error) => {
            if credential::is_platform_token_set() && error.code == ErrorKind::NotLoggedIn.code() {
                let reason = "not logged in; the platform token is set";
                diagnosis.add(Check::Credential, Ok(Finding::Skipped(reason)));
                diagnosis.add(Check::Tenant, tenant_of_platform(context, api.clone()).await);
                diagnosis.add(Check::Scopes, scopes_of_platform(scopes));
                return;
            }
            diagnosis.add(Check::Credential, Err(error));
            diagnosis.add(Check::Tenant, Ok(Finding::Skipped("no valid credential")));
            diagnosis.add(Check::Scopes, Ok(Finding::Skipped("no valid credential")));
        }
    }
}

fn tenant(context: &Context, credential: &Credential, whoami: &Whoami) -> Result<Finding> {
    let (own, source) = (&whoami.tenant_id, &credential.source);
    let (value, origin) = match context.tenant_setting() {
        Ok(Some(Setting { value, origin })) if value != *own => (value, origin),
        _ => return Ok(Finding::Ok(own.to_string())),
    };
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
    if credential.tenant.is_none() {
        return Ok(Finding::Warning(message, remediation));
    }
    let error = CliError::from_kind(ProblemKind::TenantMismatch, routes::WHOAMI.path);
    Err(error.with_message(message).with_remediation(remediation))
}

fn check_scopes(credential: &Credential, whoami: &Whoami, required: &[Scope]) -> Result<Finding> {
    let join = |scopes: &[Scope]| scopes.iter().copied().map(Scope::as_str).collect::<Vec<_>>().join(" ");
    let missing: Vec<_> = required.iter().copied().filter(|scope| !whoami.scopes.contains(scope)).collect();
    let own = join(&whoami.scopes);
    if missing.is_empty() {
        return Ok(Finding::Ok(own));
    }
    let options: Vec<_> = missing.iter().map(|scope| format!("--scope {}", scope.as_str())).collect();
    Err(ErrorKind::ScopeMissing
        .with_message(format!("{} lacks {}; it has {own}", credential.source, join(&missing)))
        .with_remediation(format!(
            "Set SVC_API_KEY to a key with the scope. An administrator creates it: `svc api-keys create --name {} {}`.",
            whoami.tenant_id,
            options.join(" ")
        )))
}

/// The tenant that the settings name, if the platform token is the only credential.
async fn tenant_of_platform(context: &Context, api: Api) -> Result<Finding> {
    let Some(Setting { value, .. }) = context.tenant_setting()? else {
        return Ok(Finding::Skipped("no tenant is set"));
    };
    let api = with_platform_token(context, api)?;
    api.call(&routes::GET_TENANT, &[&value]).fetch::<identity::Tenant>().await?;
    Ok(Finding::Ok(format!("{value} exists")))
}

fn scopes_of_platform(required: &[Scope]) -> Result<Finding> {
    let [first, ..] = required else { return Ok(Finding::Skipped("the platform token has no scopes")) };
    let message = format!("the platform token has no scopes, so it lacks {}", first.as_str());
    Err(ErrorKind::ScopeMissing.with_message(message))
}

fn with_platform_token(context: &Context, api: Api) -> Result<Api> {
    let credential = context.credential(Requirement::PlatformToken)?;
    api.with_credential(Credential { tenant: None, ..credential })
}

async fn platform_token(context: &Context, api: Api) -> Result<Finding> {
    let api = with_platform_token(context, api)?;
    let message = api.credential().map(|credential| format!("{} is valid", credential.source));
    api.call_path(reqwest::Method::GET, "/tenants?limit=1").fetch::<Page<identity::Tenant>>().await?;
    Ok(Finding::Ok(message.unwrap_or_default()))
}
