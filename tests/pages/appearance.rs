//! Contrast and layout of the pages: light and dark, wide and narrow. Screenshots are in `target/pages` after the test.

use std::path::Path;

use serde_json::json;
use testkit::PASSWORD;

use super::browser::{Browser, ENTER, TAB};

/// A script that returns the lowest contrast ratio between text and background (WCAG 2.2, section 1.4.3).
const CONTRAST: &str = r#"
const channels = (color) => color.match(/[\d.]+/g).slice(0, 3).map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
const luminance = (color) => channels(color).reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (element) => {
    const color = getComputedStyle(element).backgroundColor;
    return /, 0\)$/.test(color) ? behind(element.parentElement) : color;
};
const ratios = [...document.querySelectorAll("h1, p, label, input, button, dt, dd, code")]
    .filter((element) => element.checkVisibility() && (element.textContent.trim() || element.value))
    .map((element) => [getComputedStyle(element).color, behind(element)].map(luminance).sort((a, b) => b - a))
    .map(([lighter, darker]) => (lighter + 0.05) / (darker + 0.05));
return Math.min(...ratios);
"#;

async fn expect_readable(browser: &Browser, screenshot: &str) {
    let overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
    assert_eq!(browser.execute(overflow).await, 0, "{screenshot} is wider than its window");
    let contrast = browser.execute(CONTRAST).await.as_f64().unwrap();
    assert!(contrast >= 4.5, "{screenshot}: a text has a contrast of {contrast}");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("pages");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join(format!("{screenshot}.png")), browser.screenshot().await).unwrap();
}

#[tokio::test]
async fn each_page_is_readable_in_light_and_dark_wide_and_narrow() {
    let Some(browser) = Browser::start().await else { return };
    browser.system.create_tenant("acme").await;
    let device = browser.system.client().header("X-Tenant-ID", "acme");
    let request = json!({ "client_name": format!("svc on {}", "a-machine-with-a-long-name.".repeat(2)) });
    let base = format!("{}/api/v1/pages", browser.system.base_url);
    for scheme in ["light", "dark"] {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.dev_tools("Emulation.setEmulatedMedia", media).await;
        for (size, width, height) in [("wide", 1280, 800), ("narrow", 320, 640)] {
            let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "narrow" });
            browser.dev_tools("Emulation.setDeviceMetricsOverride", metrics).await;
            for page in ["accept-invite", "reset-password"] {
                browser.open(&format!("{base}/{page}#token=x")).await;
                browser.press(&format!("{TAB}one{TAB}two{ENTER}")).await;
                browser.wait_for_text("The passwords do not match.").await;
                expect_readable(&browser, &format!("{page}-{scheme}-{size}")).await;
            }
            let codes = device.post("/auth/device/code", &request).await.json();
            browser.open(codes["verification_uri_complete"].as_str().unwrap()).await;
            expect_readable(&browser, &format!("device-{scheme}-{size}")).await;
            browser.press(&format!("admin@acme.example{TAB}{PASSWORD}{ENTER}")).await;
            browser.wait_for_text("Allow only if").await;
            expect_readable(&browser, &format!("device-pending-{scheme}-{size}")).await;
            browser.press(&format!("{TAB}{ENTER}")).await;
            browser.wait_for_text("The device is connected.").await;
            expect_readable(&browser, &format!("device-done-{scheme}-{size}")).await;
        }
    }
    browser.close().await;
}
