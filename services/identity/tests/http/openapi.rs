//! `/openapi.json`.

use reqwest::Method;
use testsystem::TestSystem;

#[tokio::test]
async fn serves_the_checked_in_document_and_honors_if_none_match() {
    let system = TestSystem::start().await.unwrap();
    let client = system.client();
    let answer = client.get("/openapi.json").await;
    assert_eq!((answer.status, &answer.headers["content-type"]), (200, &"application/json".parse().unwrap()));
    assert!(answer.body == include_str!("../../../../catalog/openapi.json"));
    let name = answer.headers["etag"].to_str().unwrap();
    for (known, status) in [(name, 304), ("\"other\", *", 304), ("\"other\"", 200)] {
        let again = client.request(Method::GET, "/openapi.json").header("If-None-Match", known);
        assert_eq!(client.send(again).await.status, status, "{known}");
    }
    let weak =
        client.request(Method::GET, "/openapi.json").header("If-None-Match", format!("\"x\", W/{name}"));
    let answer = client.send(weak).await;
    assert_eq!((answer.headers["etag"].to_str().unwrap(), answer.body.as_str()), (name, ""));
}
