//! `/`, and paths that redirect to the documentation.

use super::browser::Browser;

#[tokio::test]
async fn the_start_page_links_to_the_other_pages_in_the_language_of_the_browser() {
    let Some(browser) = Browser::start().await else { return };
    browser.open(&browser.system.base_url).await;
    browser.wait_for_text("Welcome to svc").await;
    for (page, title) in [
        ("sessions", "Your sessions"),
        ("request-reset", "Reset your password"),
        ("factors", "Your second factor"),
        ("change-password", "Change your password"),
        ("device", "Connect a device"),
    ] {
        assert_eq!(browser.link_to(page).await, title);
    }
    browser.set_language("de-AT,en;q=0.5").await;
    browser.open(&browser.system.base_url).await;
    browser.wait_for_text("Willkommen bei svc").await;
    assert_eq!(browser.execute("return document.documentElement.lang").await, "de");
    browser.close().await;
}

#[tokio::test]
async fn docs_and_the_base_path_redirect_to_the_documentation() {
    let Some(browser) = Browser::start_current(&[]).await else { return };
    let docs = format!("{}/api/v1/docs", browser.system.base_url);
    for path in ["/docs", "/api/v1"] {
        browser.open(&format!("{}{path}", browser.system.base_url)).await;
        assert_eq!(browser.address().await, docs, "{path}");
    }
    browser.wait_for_text("Log in with e-mail and password").await;
    browser.close().await;
}
