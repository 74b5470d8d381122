//! What the identity service can be told.

mod mail;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use audit::{AUDIT_PERSONAL, PiiPolicy};
use authn::{
    PLATFORM_TOKEN, PLATFORM_TOKEN_PREVIOUS, PlatformSecret, SERVICE_TOKEN, SERVICE_TOKEN_PREVIOUS,
    SESSION_URL,
};
use bus::NATS_URL;
use database::DATABASE_URL;
use database::migrations::MIGRATOR_DATABASE_URL;
use hashing::{Argon2Settings, PoolSize};
use ratelimit::Limit;
use service::config::{ConfigErrors, Environment, Reader, Variable};
use service::http::{TRUSTED_PROXIES, TrustedProxies};
use service::process::PUBLIC_URL;
use url::Url;

use crate::breach_set::BreachSet;
use crate::domain::attempt::{LimiterKey, LimiterKeys};
use crate::mail::MailSettings;

const TIME_COST: Variable =
    plain("SVC_ARGON2_TIME_COST", "iterations, 1 to 10", "3", "Iterations of Argon2id.");
const MEMORY_COST: Variable =
    plain("SVC_ARGON2_MEMORY_COST", "KiB, up to 524288", "65536", "Memory of one Argon2id hash.");
const PARALLELISM: Variable = plain("SVC_ARGON2_PARALLELISM", "lanes, 1 to 16", "4", "Lanes of Argon2id.");
const HASH_LEN: Variable = plain("SVC_ARGON2_HASH_LEN", "bytes, 16 to 64", "32", "Output of Argon2id.");
const SALT_LEN: Variable = plain("SVC_ARGON2_SALT_LEN", "bytes, 8 to 48", "16", "Salt of Argon2id.");
const HASH_WORKERS: Variable = Variable {
    name: "SVC_HASH_WORKERS",
    form: "number",
    default: None,
    secret: false,
    meaning: "How many passwords are hashed at once; by default one a core, as far as half of the memory limit allows.",
};
const MIN_LENGTH: Variable = plain(
    "SVC_PASSWORD_MIN_LENGTH",
    "characters, 12 to 128",
    "12",
    "How long a new password must be; it can be raised, never lowered.",
);
const BREACH_FILE: Variable = Variable {
    name: "SVC_BREACH_FILE",
    form: "file, as `svc-identity breach-set build` makes it",
    default: None,
    secret: false,
    meaning: "Passwords known from breaches, refused beside those that are built in.",
};
const INVITE_TTL: Variable =
    plain("SVC_INVITE_TTL", "duration, 1h to 7d", "72h", "How long an invite can be accepted.");
const RESET_TTL: Variable =
    plain("SVC_RESET_TTL", "duration, 5min to 1h", "30min", "How long a password reset can be confirmed.");
const LIMITER_KEY: Variable = Variable {
    name: "SVC_LIMITER_KEY",
    form: "32 or more characters",
    default: None,
    secret: true,
    meaning: "The key of the names under which failed logins are counted; the same in every replica.",
};
const LIMITER_KEY_PREVIOUS: Variable = Variable {
    name: "SVC_LIMITER_KEY_PREVIOUS",
    form: "32 or more characters",
    default: None,
    secret: true,
    meaning: "The limiter key before the last rotation; what was counted under it still counts.",
};

const fn plain(
    name: &'static str,
    form: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Variable {
    Variable { name, form, default: Some(default), secret: false, meaning }
}

/// Every variable that the service reads.
pub const VARIABLES: &[Variable] = &[
    DATABASE_URL,
    MIGRATOR_DATABASE_URL,
    PUBLIC_URL,
    SESSION_URL,
    SERVICE_TOKEN,
    SERVICE_TOKEN_PREVIOUS,
    PLATFORM_TOKEN,
    PLATFORM_TOKEN_PREVIOUS,
    NATS_URL,
    AUDIT_PERSONAL,
    TIME_COST,
    MEMORY_COST,
    PARALLELISM,
    HASH_LEN,
    SALT_LEN,
    HASH_WORKERS,
    MIN_LENGTH,
    BREACH_FILE,
    INVITE_TTL,
    RESET_TTL,
    mail::FROM,
    mail::SMTP_URL,
    mail::SMTP_CA_FILE,
    mail::SMTP_TIMEOUT,
    mail::DIR,
    TRUSTED_PROXIES,
    LIMITER_KEY,
    LIMITER_KEY_PREVIOUS,
    ratelimit::LOGIN,
    ratelimit::RESET,
    ratelimit::TOKEN,
    ratelimit::DEFAULT,
];

/// How often an address may do what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) login: Limit,
    pub(crate) reset: Limit,
    pub(crate) token: Limit,
    pub(crate) other: Limit,
}

/// The service's configuration.
#[derive(Clone)]
pub struct Config {
    /// Postgres, as the runtime role.
    pub database_url: String,
    /// The origin that people see.
    pub public_url: Url,
    /// Session's internal API.
    pub session_url: Url,
    pub(crate) service_token: contract::Secret,
    pub(crate) platform_secret: PlatformSecret,
    pub(crate) nats_url: contract::Secret,
    pub(crate) audit_personal: PiiPolicy,
    pub(crate) argon2: Argon2Settings,
    pub(crate) pool_size: PoolSize,
    pub(crate) min_length: usize,
    pub(crate) breach_set: Option<Arc<BreachSet>>,
    pub(crate) invite_ttl: Duration,
    pub(crate) reset_ttl: Duration,
    pub(crate) mail: MailSettings,
    pub(crate) proxies: TrustedProxies,
    pub(crate) limits: Limits,
    pub(crate) limiter_keys: LimiterKeys,
}

impl Config {
    /// Reads it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(environment: &Environment) -> Result<Self, ConfigErrors> {
        let mut read = Reader::new(environment);
        let database_url = read.required(&DATABASE_URL);
        let public_url: Option<Url> = read.required(&PUBLIC_URL);
        let session_url = read.required(&SESSION_URL);
        let service_token = read.required_with(&SERVICE_TOKEN, |text| {
            authn::SharedSecret::service(text).map(|_| contract::Secret::new(text))
        });
        let platform_secret = PlatformSecret::read(&mut read);
        let nats_url = read.required::<String>(&NATS_URL).map(contract::Secret::new);
        let audit_personal = read.required(&AUDIT_PERSONAL);
        let argon2 = argon2(&mut read);
        let workers = read.optional::<usize>(&HASH_WORKERS);
        let min_length = read.required_with(&MIN_LENGTH, |text| match text.parse() {
            Ok(length @ 12..=128) => Ok(length),
            _ => Err("must be 12 to 128"),
        });
        let breach_set =
            read.optional_with(&BREACH_FILE, |path| BreachSet::open(Path::new(path)).map(Arc::new));
        let invite_ttl = read.duration(&INVITE_TTL, Duration::from_hours(1), Duration::from_hours(7 * 24));
        let reset_ttl = read.duration(&RESET_TTL, Duration::from_mins(5), Duration::from_hours(1));
        let mail = mail::read(&mut read, public_url.as_ref());
        let proxies = TrustedProxies::read(&mut read);
        let limits = limits(&mut read);
        let limiter_key = read.required_with(&LIMITER_KEY, LimiterKey::new);
        let limiter_key_previous = read.optional_with(&LIMITER_KEY_PREVIOUS, LimiterKey::new);
        read.finish(|| {
            let argon2 = argon2?;
            let pool_size = match workers? {
                Some(workers) => PoolSize::new(workers),
                None => PoolSize::from_machine(&argon2, service::process::memory_limit()),
            };
            Some(Self {
                database_url: database_url?,
                public_url: public_url?,
                session_url: session_url?,
                service_token: service_token?,
                platform_secret: platform_secret?,
                nats_url: nats_url?,
                audit_personal: audit_personal?,
                argon2,
                pool_size,
                min_length: min_length?,
                breach_set: breach_set?,
                invite_ttl: invite_ttl?,
                reset_ttl: reset_ttl?,
                mail: mail?,
                proxies: proxies?,
                limits: limits?,
                limiter_keys: LimiterKeys { current: limiter_key?, previous: limiter_key_previous? },
            })
        })
    }
}

fn limits(read: &mut Reader<'_>) -> Option<Limits> {
    let login = Limit::read(read, &ratelimit::LOGIN, "login");
    let reset = Limit::read(read, &ratelimit::RESET, "reset");
    let token = Limit::read(read, &ratelimit::TOKEN, "token");
    let other = Limit::read(read, &ratelimit::DEFAULT, "default");
    Some(Limits { login: login?, reset: reset?, token: token?, other: other? })
}

fn argon2(read: &mut Reader<'_>) -> Option<Argon2Settings> {
    let (time_cost, memory_cost) = (read.required(&TIME_COST), read.required(&MEMORY_COST));
    let (parallelism, hash_len, salt_len) =
        (read.required(&PARALLELISM), read.required(&HASH_LEN), read.required(&SALT_LEN));
    let settings = Argon2Settings {
        time_cost: time_cost?,
        memory_cost: memory_cost?,
        parallelism: parallelism?,
        hash_len: hash_len?,
        salt_len: salt_len?,
    };
    if let Err(fault) = settings.validate() {
        read.fault(format!("SVC_ARGON2_…: {fault}"));
    }
    Some(settings)
}
