//! `/pages`, `/problems` and `/version`.

use contract::ProblemKind;
use testsystem::TestSystem;

#[tokio::test]
async fn pages_load_only_own_resources_and_send_no_referrer() {
    let system = TestSystem::start().await.unwrap();
    for (name, content_type) in [
        ("accept-invite", "text/html; charset=utf-8"),
        ("reset-password", "text/html; charset=utf-8"),
        ("device", "text/html; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("page.js", "text/javascript; charset=utf-8"),
        ("device.js", "text/javascript; charset=utf-8"),
        ("token-form.js", "text/javascript; charset=utf-8"),
        ("docs.js", "text/javascript; charset=utf-8"),
    ] {
        let page = system.client().get(&format!("/pages/{name}")).await;
        assert_eq!(
            (page.status, &page.headers["content-type"]),
            (200, &content_type.parse().unwrap()),
            "{name}"
        );
        assert!(
            page.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'; ")
        );
        assert_eq!(page.headers["referrer-policy"], "no-referrer");
        assert!(!page.body.contains("http://") && !page.body.contains("https://"), "{name}");
    }
    system.client().get("/pages/nowhere").await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn swagger_ui_is_served_compressed() {
    let system = TestSystem::start().await.unwrap();
    for (name, content_type) in
        [("swagger-ui.js", "text/javascript; charset=utf-8"), ("swagger-ui.css", "text/css; charset=utf-8")]
    {
        let file = system.client().get(&format!("/pages/{name}")).await;
        assert_eq!(file.status, 200, "{name}");
        assert_eq!(file.headers["content-encoding"], "gzip");
        assert_eq!(file.headers["content-type"], content_type);
    }
}

#[tokio::test]
async fn every_problem_type_has_a_page() {
    let system = TestSystem::start().await.unwrap();
    for kind in ProblemKind::ALL {
        let page = system.client().get(&format!("/problems/{}", kind.code())).await;
        assert!(page.status == 200 && page.body.contains(kind.title()), "{page}");
    }
    let problem = system.client().get("/problems/none").await.expect_problem(404, "not_found");
    assert_eq!(problem.type_uri, format!("{}/api/v1/problems/not_found", system.base_url));
}

#[tokio::test]
async fn the_version_is_served() {
    let system = TestSystem::start().await.unwrap();
    assert_eq!(system.client().get("/version").await.json()["version"], env!("CARGO_PKG_VERSION"));
}
