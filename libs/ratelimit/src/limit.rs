//! The limits, each with the variable that sets it.

use service::config::{Setting, Variable};

use crate::Rate;

/// Log in and change a password.
pub const LOGIN: Variable =
    variable("SVC_LIMIT_LOGIN", "30/min", "How often an address may log in or change a password.");
/// Ask for a reset.
pub const RESET: Variable =
    variable("SVC_LIMIT_RESET", "5/h", "How often an address may ask for a password reset.");
/// Accept an invite and confirm a reset.
pub const TOKEN: Variable =
    variable("SVC_LIMIT_TOKEN", "10/min", "How often an address may accept an invite or confirm a reset.");
/// Ask for a device code.
pub const DEVICE: Variable = variable(
    "SVC_LIMIT_DEVICE",
    "10/min",
    "How often an address may ask for a device code, or show an unknown one; `off` also lifts its limit of wrong user codes, ten and then one a minute.",
);
/// Everything else.
pub const DEFAULT: Variable = variable(
    "SVC_LIMIT_DEFAULT",
    "120/min",
    "How often an address may use any other route of identity, and any other of session.",
);

const fn variable(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
    Variable {
        name,
        form: "count per s, min or h, as in `30/min`, or `off`",
        default: Some(default),
        secret: false,
        meaning,
    }
}

/// A limit: what it is called, and how much it allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its name in the table and in metrics.
    pub name: &'static str,
    /// How much; `None` for as much as anybody likes.
    pub rate: Option<Rate>,
}

impl Limit {
    /// Declares a setting for the limit `name` with one of the variables above.
    pub fn setting(variable: Variable, name: &'static str) -> Setting<Self> {
        variable.required_with(move |text| match text {
            "off" => Ok(Self { name, rate: None }),
            text => text.parse().map(|rate| Self { name, rate: Some(rate) }),
        })
    }
}
