//! What the session service can be told.

use std::num::NonZeroU32;
use std::time::Duration;

use audit::{AUDIT_PERSONAL, PiiPolicy};
use authn::{SERVICE_TOKEN, SERVICE_TOKEN_PREVIOUS, ServiceSecret};
use bus::NATS_URL;
use contract::Secret;
use database::DATABASE_URL;
use database::migrations::MIGRATOR_DATABASE_URL;
use ratelimit::{Limit, Rate};
use service::config::{ConfigErrors, Environment, Reader, Variable};
use service::http::{TRUSTED_PROXIES, TrustedProxies};
use service::process::PUBLIC_URL;

use crate::domain::session::Lifetimes;

const SESSION_IDLE: Variable = lifetime(
    "SVC_SESSION_IDLE",
    "1h",
    "A session made with a password ends when it was not used for this long.",
);
const SESSION_MAX: Variable =
    lifetime("SVC_SESSION_MAX", "12h", "A session made with a password ends after this time in any case.");
const DEVICE_IDLE: Variable = lifetime(
    "SVC_DEVICE_IDLE",
    "7d",
    "A session made with a device code ends when it was not used for this long.",
);
const DEVICE_MAX: Variable =
    lifetime("SVC_DEVICE_MAX", "30d", "A session made with a device code ends after this time in any case.");

const fn lifetime(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
    Variable { name, form: "duration, 5min to 30d", default: Some(default), secret: false, meaning }
}

/// Every variable that the service reads.
pub const VARIABLES: &[Variable] = &[
    DATABASE_URL,
    MIGRATOR_DATABASE_URL,
    PUBLIC_URL,
    SERVICE_TOKEN,
    SERVICE_TOKEN_PREVIOUS,
    NATS_URL,
    AUDIT_PERSONAL,
    SESSION_IDLE,
    SESSION_MAX,
    DEVICE_IDLE,
    DEVICE_MAX,
    TRUSTED_PROXIES,
    ratelimit::DEVICE,
    ratelimit::DEFAULT,
];

/// How often an address may do what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Ask for a device's codes, or show a device code that never was.
    pub(crate) device: Limit,
    /// Type a wrong user code. Off when the one before is.
    pub(crate) user_code: Limit,
    pub(crate) other: Limit,
}

const WRONG_USER_CODES: NonZeroU32 = NonZeroU32::new(10).unwrap();
const LEAST: Duration = Duration::from_mins(5);
const MOST: Duration = Duration::from_hours(30 * 24);

/// The service's configuration.
#[derive(Clone)]
pub struct Config {
    /// Postgres, as the runtime role.
    pub database_url: String,
    /// The origin that people see.
    pub public_url: String,
    /// What lets the other services in.
    pub service_secret: ServiceSecret,
    pub(crate) nats_url: Secret,
    pub(crate) audit_personal: PiiPolicy,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) proxies: TrustedProxies,
    pub(crate) limits: Limits,
}

impl Config {
    /// Reads it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(environment: &Environment) -> Result<Self, ConfigErrors> {
        let mut read = Reader::new(environment);
        let database_url = read.required(&DATABASE_URL);
        let public_url = read.required(&PUBLIC_URL);
        let service_secret = ServiceSecret::read(&mut read);
        let nats_url = read.required::<String>(&NATS_URL).map(Secret::new);
        let audit_personal = read.required(&AUDIT_PERSONAL);
        let [password_idle, password_max, device_idle, device_max] =
            [SESSION_IDLE, SESSION_MAX, DEVICE_IDLE, DEVICE_MAX].map(|v| read.duration(&v, LEAST, MOST));
        let proxies = TrustedProxies::read(&mut read);
        let device = Limit::read(&mut read, &ratelimit::DEVICE, "device");
        let other = Limit::read(&mut read, &ratelimit::DEFAULT, "default");
        read.finish(|| {
            Some(Self {
                database_url: database_url?,
                public_url: public_url?,
                service_secret: service_secret?,
                nats_url: nats_url?,
                audit_personal: audit_personal?,
                lifetimes: Lifetimes {
                    password_idle: password_idle?,
                    password_max: password_max?,
                    device_idle: device_idle?,
                    device_max: device_max?,
                },
                proxies: proxies?,
                limits: Limits { device: device?, user_code: user_code(device?), other: other? },
            })
        })
    }
}

/// Ten wrong user codes at once, then one a minute: whoever guesses has ten minutes for each.
fn user_code(device: Limit) -> Limit {
    let rate = Rate::new(WRONG_USER_CODES, Duration::from_mins(1));
    Limit { name: "user_code", rate: device.rate.map(|_| rate) }
}
