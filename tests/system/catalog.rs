//! The examples of read-only commands in the catalog run against a real system, and their output has the documented schema.

use e2e::{Installation, Run, Svc};
use serde_json::Value;
use testkit::PASSWORD;

const ADMIN: &str = "ada@acme.example";
const EVENT: &str = r#"{"source_id": "fw-1", "metadata": {"event_type": "USER_LOGIN"}}"#;

/// A client in the state that the examples assume: tenant, users, consumer, quarantined item and files with the names in the examples.
async fn set_up(run: &Run<'_>) -> Svc {
    let platform_token = run.run_file.platform_token_file.to_str().unwrap();
    let svc = Svc::new(&run.run_file.svc, &run.run_file.base_url, "acme")
        .with_variable("SVC_PLATFORM_TOKEN_FILE", platform_token);
    let tenant = [
        "tenants",
        "create",
        "acme",
        "--display-name",
        "Acme Ltd",
        "--admin-email",
        ADMIN,
        "--delivery",
        "response",
    ];
    let tenant = svc.json(&tenant, "").await;
    accept(&svc, &tenant["invite"]["token"]).await;
    let bob = ["users", "invite", "--email", "bob@acme.example", "--delivery", "response"];
    let bob = svc.json(&bob, "").await;
    accept(&svc, &bob["token"]).await;
    svc.run_ok(&["auth", "login", "--email", ADMIN, "--password-stdin"], PASSWORD).await;
    for name in ["archive", "acme-siem"] {
        svc.run_ok(&["consumers", "create", name], "").await;
    }
    svc.run_ok(&["api", "POST", "/events?invalid=quarantine", "--data", "{}"], "").await;
    svc.write("events.ndjson", EVENT);
    svc.write("catalog/svc.catalog.json", &svc.run_ok(&["catalog", "show"], "").await);
    svc
}

async fn accept(svc: &Svc, token: &Value) {
    let input = format!("{}\n{PASSWORD}\n", token.as_str().unwrap());
    svc.run_ok(&["users", "accept-invite", "-", "--password-stdin"], &input).await;
}

/// Arguments of an example with JSON output, without an endless stream, and the file of its standard input.
fn arguments(example: &str) -> (Vec<&str>, Option<&str>) {
    let (line, file) = example.split_once(" < ").map_or((example, None), |(line, file)| (line, Some(file)));
    let mut words: Vec<_> = line.split(' ').skip(1).collect();
    if let Some(option) = words.iter().position(|word| *word == "--output") {
        words.drain(option..option + 2);
    }
    words.extend(["--output", "json"]);
    if words.starts_with(&["events", "tail"]) && !words.contains(&"--no-follow") {
        words.push("--no-follow");
    }
    (words, file)
}

#[tokio::test]
async fn read_only_examples_succeed_and_print_what_their_schema_describes() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let svc = set_up(&run).await;
    let catalog = svc.json(&["catalog", "show"], "").await;
    let mut examples = 0;
    for command in catalog["commands"].as_array().unwrap() {
        if !command["agent_notes"].as_str().unwrap().starts_with("Reads only.") {
            continue;
        }
        let schema = command.get("output_schema").map(|schema| jsonschema::validator_for(schema).unwrap());
        for example in command["examples"].as_array().unwrap() {
            let line = example["command"].as_str().unwrap();
            let (arguments, file) = arguments(line);
            let input = file.map(|_| catalog.to_string()).unwrap_or_default();
            let printed = svc.run_ok(&arguments, &input).await;
            // A stream has one document per line, other commands print one document.
            let documents = serde_json::Deserializer::from_str(&printed).into_iter::<Value>();
            for document in documents.map(Result::unwrap) {
                let errors: Vec<_> = schema
                    .iter()
                    .flat_map(|schema| schema.iter_errors(&document))
                    .map(|it| it.to_string())
                    .collect();
                assert!(errors.is_empty(), "{line}: {errors:?}: {document}");
            }
            examples += 1;
        }
    }
    assert!(examples >= 25, "{examples} examples");
}
