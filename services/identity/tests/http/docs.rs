//! `/docs`.

use std::collections::HashSet;

use contract::ProblemKind;
use contract::routes;
use testsystem::TestSystem;

#[tokio::test]
async fn the_page_documents_every_route_and_loads_nothing_from_elsewhere() {
    let system = TestSystem::start().await.unwrap();
    let page = system.client().get("/docs").await;
    assert_eq!(
        (page.status, &page.headers["content-type"]),
        (200, &"text/html; charset=utf-8".parse().unwrap())
    );
    assert!(page.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'; "));
    for route in routes::all() {
        let asked = format!("{}</b> <code>{}</code>", route.method.as_str(), route.path);
        assert!(page.body.contains(&asked), "{asked}");
    }
    assert!(!page.body.contains("<script") && !page.body.contains("src=") && !page.body.contains("style="));
}

#[tokio::test]
async fn every_link_of_the_page_leads_somewhere() {
    let system = TestSystem::start().await.unwrap();
    let page = system.client().get("/docs").await;
    let links: HashSet<_> =
        page.body.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(links.len() > routes::all().count());
    for link in links {
        if let Some(place) = link.strip_prefix('#') {
            assert!(page.body.contains(&format!("id=\"{place}\"")), "{link}");
        } else if let Some(code) = link.strip_prefix("problems/") {
            assert!(ProblemKind::from_code(code).is_some(), "{link}");
        } else {
            assert_eq!(system.client().get(&format!("/{link}")).await.status, 200, "{link}");
        }
    }
}
