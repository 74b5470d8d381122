//! Configuration of the identity service.

mod mail;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use audit::{AUDIT_PERSONAL, AuditStreamSettings, PiiPolicy};
use authn::{OperatorSettings, PlatformSecret, ServiceSecret};
use bus::NatsSettings;
use database::DatabaseSettings;
use hashing::{Argon2Settings, HashKernel, PoolSize};
use ratelimit::Limit;
use service::config::{Live, Reader, Variable, Variables, parse_http_url};
use service::http::ConnectionSettings;
use service::process::{PUBLIC_URL, SESSION_URL, parse_origin};
use url::Url;

use crate::branding::Branding;
use crate::breach_set::BreachSet;
use crate::domain::account::LimiterKeys;
use crate::domain::factor::FactorKeys;
use crate::mail::MailSettings;

service::variables! {
    /// Configuration of the identity service.
    #[derive(Clone)]
    pub struct Config {
        pub(crate) database: DatabaseSettings,
        /// Origin of the public API.
        pub public_url: Url = PUBLIC_URL.required_with(parse_origin),
        /// Internal API of the session service.
        pub session_url: Url = SESSION_URL.required_with(parse_http_url),
        pub(crate) service_secret: ServiceSecret,
        /// Access of the Kubernetes operator to the internal API.
        pub(crate) operator: OperatorSettings,
        pub(crate) platform_secret: PlatformSecret,
        pub(crate) nats: NatsSettings,
        pub(crate) audit_personal: PiiPolicy = AUDIT_PERSONAL.required(),
        pub(crate) audit_streams: AuditStreamSettings,
        pub(crate) argon2: Argon2,
        /// Number of passwords that are hashed in parallel. The default is one per core (`SVC_CPUS`), but at most as many as fit
        /// into half of the memory limit.
        hash_workers: Option<usize> = Variable::new("SVC_HASH_WORKERS", "number, 1 to 256").optional_between(1, 256),
        /// Implementation of Argon2id. `auto` uses AVX2, if the processor has it, and checks results with the `argon2` crate;
        /// `crate` uses only the crate.
        pub(crate) hash_kernel: HashKernel = Variable::new("SVC_HASH_KERNEL", "`auto` or `crate`")
            .default("auto")
            .one_of([("auto", HashKernel::Auto), ("crate", HashKernel::Crate)]),
        /// Minimum length of a new password.
        pub(crate) min_length: usize =
            Variable::new("SVC_PASSWORD_MIN_LENGTH", "characters, 12 to 128").default("12").between(12, 128),
        /// Breached passwords that are rejected in addition to the built-in ones.
        pub(crate) breach_set: Option<Arc<BreachSet>> =
            Variable::new("SVC_BREACH_FILE", "file created by `svc-identity breach-set build`")
                .optional_with(|path| BreachSet::open(Path::new(path)).map(Arc::new)),
        /// Lifetime of an invite.
        pub(crate) invite_ttl: Duration = Variable::new("SVC_INVITE_TTL", "duration, 1h to 7d")
            .default("72h")
            .duration(Duration::from_hours(1), Duration::from_hours(7 * 24)),
        /// How long an accepted, revoked or expired invite is kept with its e-mail address.
        pub(crate) invite_retention: Duration = Variable::new("SVC_INVITE_RETENTION", "duration, 1d to 365d")
            .default("30d")
            .duration(Duration::from_hours(24), Duration::from_hours(365 * 24)),
        /// Pending invites that a tenant can have.
        pub(crate) max_pending_invites: i64 =
            Variable::new("SVC_MAX_PENDING_INVITES", "number, 1 to 100000").default("1000").between(1, 100_000),
        /// Users that a tenant can have, including invited and disabled ones.
        pub(crate) max_users: i64 =
            Variable::new("SVC_MAX_USERS", "number, 1 to 10000000").default("100000").between(1, 10_000_000),
        /// Lifetime of a password reset.
        pub(crate) reset_ttl: Duration = Variable::new("SVC_RESET_TTL", "duration, 5m to 1h")
            .default("30m")
            .duration(Duration::from_mins(5), Duration::from_hours(1)),
        pub(crate) mail: MailSettings,
        pub(crate) branding: Branding,
        pub(crate) connections: ConnectionSettings,
        pub(crate) rate_limits: RateLimits,
        /// Key that hashes the e-mail addresses in the table of failed logins, and signs the options of logins with a passkey. Use the same
        /// key in every replica.
        /// During a rotation, the second line is the previous key: failed logins recorded with it still count.
        pub(crate) limiter_keys: Live<LimiterKeys> =
            Variable::new("SVC_LIMITER_KEY", "32 or more characters").secret().required_live(LimiterKeys::parse),
        /// Key that encrypts the secrets of authenticator apps. Use the same key in every replica. Without it, apps cannot be set up,
        /// and logins with one get 503. A lost key makes all apps unusable. During a rotation, the second line is the previous key: a
        /// login encrypts the secret under the new one.
        pub(crate) factor_keys: Option<Live<FactorKeys>> =
            Variable::new("SVC_FACTOR_KEY", "32 or more characters").secret().optional_live(FactorKeys::parse),
    }
}

service::variables! {
    /// Rate limits of the service.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct RateLimits {
        /// Logins and password changes.
        pub(crate) login: Limit = Limit::setting(ratelimit::LOGIN, "login"),
        /// Requests for a password reset.
        pub(crate) reset: Limit = Limit::setting(ratelimit::RESET, "reset"),
        /// Invites and resent invites of a tenant.
        pub(crate) invite: Limit = Limit::setting(ratelimit::INVITE, "invite"),
        /// Unknown tokens of invites and resets, and requests with a valid one.
        pub(crate) token: Limit = Limit::setting(ratelimit::TOKEN, "token"),
        /// All other routes.
        pub(crate) other: Limit = Limit::setting(ratelimit::DEFAULT, "default"),
    }
}

service::variables! {
    struct Argon2Variables {
        /// Iterations of Argon2id.
        time_cost: u32 = Variable::new("SVC_ARGON2_TIME_COST", "iterations, 1 to 10").default("3").between(1, 10),
        /// Memory of one Argon2id hash.
        memory_cost: u32 = Variable::new("SVC_ARGON2_MEMORY_COST", "KiB, 8 to 524288").default("65536").between(8, 524_288),
        /// Lanes of Argon2id.
        parallelism: u32 = Variable::new("SVC_ARGON2_PARALLELISM", "lanes, 1 to 16").default("4").between(1, 16),
        /// Output length of Argon2id.
        hash_len: usize = Variable::new("SVC_ARGON2_HASH_LEN", "bytes, 16 to 64").default("32").between(16, 64),
        /// Salt length of Argon2id.
        salt_len: usize = Variable::new("SVC_ARGON2_SALT_LEN", "bytes, 8 to 48").default("16").between(8, 48),
    }
}

/// Parameters of new password hashes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argon2(pub(crate) Argon2Settings);

impl Variables for Argon2 {
    fn variables() -> Vec<Variable> {
        Argon2Variables::variables()
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let Argon2Variables { time_cost, memory_cost, parallelism, hash_len, salt_len } =
            Argon2Variables::read(reader)?;
        let settings = Argon2Settings { time_cost, memory_cost, parallelism, hash_len, salt_len };
        if let Err(error) = settings.validate() {
            reader.error(format!("SVC_ARGON2_*: {error}"));
            return None;
        }
        Some(Self(settings))
    }
}

impl Config {
    /// The workers for password hashes in a process with this number of threads.
    pub(crate) fn pool_size(&self, threads: usize) -> PoolSize {
        match self.hash_workers {
            Some(workers) => PoolSize::new(workers).with_memory_limit(service::process::memory_limit()),
            None => PoolSize::fitting(&self.argon2.0, threads, service::process::memory_limit()),
        }
    }
}
