//! The web pages in headless Chromium. The tests are skipped with a message if Chromium is not installed.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod pages {
    mod accept_invite;
    mod addresses;
    mod appearance;
    mod baseline;
    mod browser;
    mod change_password;
    mod device;
    mod docs;
    mod factors;
    mod failures;
    mod home;
    mod mails;
    mod passkey_login;
    mod proxy;
    mod reset_password;
    mod sessions;
}
