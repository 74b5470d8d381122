//! The pages in a real browser: Chromium without a window, driven by its `WebDriver`. Where neither is on this machine, nor
//! can be had for it, the tests say so and pass.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without, it may fail on, in shared code too")]

mod pages {
    mod accept_invite;
    mod browser;
    mod device;
    mod looks;
    mod reset_password;
    mod web_driver;
}
