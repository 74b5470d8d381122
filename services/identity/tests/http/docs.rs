//! `/docs`.

use std::collections::HashSet;

use testsystem::TestSystem;

#[tokio::test]
async fn the_page_loads_only_own_resources_and_no_inline_script() {
    let system = TestSystem::start().await.unwrap();
    let page = system.client().get("/docs").await;
    assert_eq!(
        (page.status, &page.headers["content-type"]),
        (200, &"text/html; charset=utf-8".parse().unwrap())
    );
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; "), "{policy}");
    assert!(!page.body.contains("<script>") && !page.body.contains("style=") && !page.body.contains("//"));
}

#[tokio::test]
async fn every_resource_of_the_page_is_served() {
    let system = TestSystem::start().await.unwrap();
    let page = system.client().get("/docs").await;
    let attributes = ["href=\"", "src=\""].map(|name| page.body.split(name).skip(1));
    let links: HashSet<_> =
        attributes.into_iter().flatten().filter_map(|rest| rest.split('"').next()).collect();
    assert!(
        links.contains("openapi.json") && links.iter().any(|link| link.ends_with("/swagger-ui.js")),
        "{links:?}"
    );
    for link in links.into_iter().filter(|link| !link.starts_with("data:")) {
        let path = link.strip_prefix("/api/v1/").unwrap_or(link);
        assert_eq!(system.client().get(&format!("/{path}")).await.status, 200, "{link}");
    }
}
