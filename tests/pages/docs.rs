//! `/docs`

use super::browser::Browser;

#[tokio::test]
async fn swagger_ui_renders_the_api_within_the_content_security_policy() {
    // Swagger UI supports current browsers only.
    let Some(browser) = Browser::start_current(&[]).await else { return };
    for scheme in ["light", "dark"] {
        for width in [1280, 390] {
            browser.set_appearance(scheme, width).await;
            browser.open(&format!("{}/api/v1/docs", browser.system.base_url)).await;
            browser.wait_for_text("Log in with e-mail and password").await;
            let overflow =
                "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
            assert_eq!(browser.execute(overflow).await, 0, "{scheme} {width}");
            let is_dark = "return document.documentElement.classList.contains('dark-mode')";
            assert_eq!(browser.execute(is_dark).await, scheme == "dark", "{width}");
        }
    }
    // The content of `#docs` is Swagger UI.
    browser.expect_accessible_outside("#docs", "docs").await;
    // Fails if the browser reported a violation of the policy or contacted another server.
    browser.close().await;
}
