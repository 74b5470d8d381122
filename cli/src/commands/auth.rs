//! `svc auth`: who acts.

mod device;
mod login;
mod logout;
mod password;
mod sessions;
mod status;
mod token;
mod whoami;

use super::group;

group!(
    /// Log in and out, and look after sessions and your password.
    Auth {
        Login(login::Login),
        Logout(logout::Logout),
        Whoami(whoami::WhoamiCommand),
        Status(status::Status),
        Token(token::Token),
        /// See and end sessions.
        #[command(subcommand)]
        Sessions(sessions::Sessions),
        /// Change your password, or reset a forgotten one.
        #[command(subcommand)]
        Password(password::Password),
        /// Let devices in that ask to act as you, or not.
        #[command(subcommand)]
        Device(device::Device),
    }
);
