//! Files of events in the encodings and layouts of other programs.

use std::process::Command;

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::client::Client;
use crate::events::{client, events, service};
use crate::stub::{Stub, StubRequest};

/// Sources of the events of all requests.
fn sources(stub: &Stub) -> Vec<String> {
    let requests = stub.requests();
    requests.iter().flat_map(events).map(|event| event["source_id"].as_str().unwrap().to_owned()).collect()
}

/// Bodies of all requests, which are not compressed.
fn bodies(stub: &Stub) -> Vec<String> {
    stub.requests().iter().map(|request| String::from_utf8(request.body.to_vec()).unwrap()).collect()
}

fn rejects(client: &Client, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(client.home().join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Writes each event, and prints the names of the files: with the layouts and encodings of Python.
const WRITE_FILES: &str = r#"
import bz2, gzip, json
events = [{"source_id": f"Süd-{n}", "text": "line\nbreak } ] \" 🙂", "n": [{}, {"a": 1.5}]} for n in range(40)]
lines = [json.dumps(event, ensure_ascii=False) for event in events]
layouts = {
    "ndjson": "\n".join(lines),
    "crlf": "\r\n".join(lines) + "\r\n",
    "jq": "".join(json.dumps(event, indent=2, ensure_ascii=False) + "\n" for event in events),
    "two": "\n".join(a + b for a, b in zip(lines[::2], lines[1::2])) + "\n",
    "seq": "".join("\x1e" + json.dumps(event, indent=4) + "\n" for event in events),
    "list": json.dumps(events, indent=2),
    "lists": json.dumps(events[:20]) + "\n" + json.dumps(events[20:]) + "\n",
}
encodings = {
    "utf-8": lambda text: text.encode(),
    "utf-8-sig": lambda text: text.encode("utf-8-sig"),
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-16-le": lambda text: text.encode("utf-16-le"),
    "utf-16-be": lambda text: text.encode("utf-16-be"),
    "gzip": lambda text: gzip.compress(text.encode()),
    "members": lambda text: gzip.compress(text.encode()[:100]) + gzip.compress(text.encode()[100:]),
    "utf-16.gzip": lambda text: gzip.compress(text.encode("utf-16")),
}
for layout, text in layouts.items():
    for encoding, encode in encodings.items():
        open(f"{layout}.{encoding}", "wb").write(encode(text))
        print(f"{layout}.{encoding}")
"#;

#[test]
fn every_layout_in_every_encoding_has_the_same_events_as_a_file_and_as_a_pipe() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let python =
        Command::new("python3").args(["-c", WRITE_FILES]).current_dir(client.home()).output().unwrap();
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    let names = String::from_utf8(python.stdout).unwrap();
    let expected: Vec<_> = (0..40).map(|number| format!("Süd-{number}")).collect();
    let mut sent = 0;
    for name in names.lines() {
        let file = std::fs::read(client.home().join(name)).unwrap();
        assert_eq!(client.run(&["events", "send", "-f", name]).code, Some(0), "{name}");
        assert_eq!(client.run_with(&["events", "send", "-f", "-"], &file).code, Some(0), "{name}");
        let all = sources(&stub);
        assert_eq!(all[sent..sent + 40], expected, "{name}");
        assert_eq!(all[sent + 40..], expected, "{name}");
        sent = all.len();
        assert_eq!(
            client.run(&["events", "validate", "-f", name, "-o", "json"]).json()["valid"],
            40,
            "{name}"
        );
    }
    assert_eq!(sent, 7 * 8 * 80);
}

#[test]
fn rejects_name_the_line_or_the_number_of_an_event() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let bad = "{\n \"source_id\": \"bad\"\n}";
    let good = "{\"source_id\":\"fw\"}";
    for (input, place, line, item) in [
        (format!("{good}\n\n{bad}\n"), "line 3", 3, Value::Null),
        (format!("[\n{good},\n{bad}\n]\n"), "item 2", 3, json!(2)),
        (format!("{good} {bad}\n"), "item 2", 1, json!(2)),
    ] {
        let result = client.run_with(&["events", "send", "-f", "-"], &input);
        let expected = format!("{place}: validation_failed: not this one (at /source_id)");
        assert!(result.stderr.contains(&expected), "{result:?}");
        let result = client.run_with(&["events", "send", "-f", "-", "-o", "json"], &input);
        let summary: Value = serde_json::from_str(&result.stdout).unwrap();
        let first = &summary["first_rejects"][0];
        assert_eq!((&first["line"], &first["item"]), (&json!(line), &item), "{first}");
        let kept = rejects(&client, summary["rejects_file"].as_str().unwrap());
        assert_eq!(
            (kept[0]["line"].clone(), kept[0].get("item").cloned().unwrap_or_default()),
            (json!(line), item)
        );
    }
    let result = client.run_with(&["events", "validate", "-f", "-"], "[{\"source_id\":\"fw\"}, {\"a\":1}]");
    assert!(result.stdout.contains("item 2: /source_id: "), "{result:?}");
}

#[test]
fn bytes_that_are_not_utf8_are_kept_and_can_be_sent_again() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let line = b"{\"source_id\":\"M\xfcller\"}";
    let send = ["events", "send", "-f", "-", "--rejects", "r", "-o", "json"];
    let result = client.run_with(&send, &[line, &b"\n"[..]].concat());
    assert_eq!(result.code, Some(7), "{result:?}");
    let kept = rejects(&client, "r");
    assert_eq!(BASE64.decode(kept[0]["bytes"].as_str().unwrap().as_bytes()).unwrap(), line);
    assert_eq!(kept[0].get("text"), None);
    // Unchanged, it is rejected with the same bytes. Corrected, it is sent.
    assert_eq!(client.run(&["events", "send", "-f", "r", "--rejects", "r2", "-o", "json"]).code, Some(7));
    assert_eq!(rejects(&client, "r2")[0]["bytes"], kept[0]["bytes"]);
    let corrected = BASE64.encode("{\"source_id\":\"Müller\"}".as_bytes());
    let text =
        serde_json::to_string(&kept[0]).unwrap().replace(kept[0]["bytes"].as_str().unwrap(), &corrected);
    std::fs::write(client.home().join("r"), text).unwrap();
    assert_eq!(client.run(&["events", "send", "-f", "r"]).code, Some(0));
    assert_eq!(sources(&stub), ["Müller"]);
}

#[test]
fn an_event_that_is_too_long_is_kept_completely_with_its_id_and_can_be_sent_after_its_correction() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let text = "x".repeat(5 << 20);
    let long = format!("{{\"source_id\":\"fw\",\n\"event_id\":\"long\",\"text\":\"{text}\"}}\n");
    let send = ["events", "send", "-f", "-", "--rejects", "r", "-o", "json"];
    let result = client.run_with(&send, &format!("{long}{{\"source_id\":\"fw\"}}\n"));
    assert_eq!(result.code, Some(10), "{:?}", result.stderr);
    let kept = rejects(&client, "r");
    assert_eq!((&kept[0]["event_id"], kept[0].get("truncated")), (&json!("long"), None));
    assert!(kept[0]["event"]["text"] == text.as_str(), "the event is complete");
    let remediation = result.error()["remediation"].as_str().unwrap().to_owned();
    assert!(!remediation.contains("truncated"), "{remediation}");
    let corrected = std::fs::read_to_string(client.home().join("r")).unwrap().replace(&text, "short");
    std::fs::write(client.home().join("r"), corrected).unwrap();
    assert_eq!(client.run(&["events", "send", "-f", "r"]).code, Some(0));
    let repeated = events(stub.requests().last().unwrap());
    assert_eq!(repeated, [json!({"source_id": "fw", "event_id": "long", "text": "short"})]);
}

#[test]
fn the_remediation_of_a_reject_that_is_cut_names_its_rest() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let input = format!("{{\"source_id\":\"fw\"}}\n{{\"source_id\":\"{}\n", "x".repeat(2 << 20));
    std::fs::write(client.home().join("file.ndjson"), format!("{input}{{\"source_id\":\"fw\"}}\n")).unwrap();
    for (file, expected) in
        [("file.ndjson", "Write these events from the original input to a new file"), ("-", "is lost")]
    {
        let send = ["events", "send", "-f", file, "--rejects", "r", "-o", "json"];
        let result = client.run_with(&send, &input);
        assert_eq!(result.code, Some(10), "{:?}", result.stderr);
        assert_eq!(rejects(&client, "r")[0]["truncated"], true);
        let remediation = result.error()["remediation"].as_str().unwrap().to_owned();
        assert!(
            remediation.contains("only the start is kept") && remediation.contains(expected),
            "{remediation}"
        );
    }
}

/// Fails from the third batch on, until the client is started a second time.
fn interrupted(request: &StubRequest) -> (u16, String) {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static REQUESTS: AtomicUsize = AtomicUsize::new(0);
    match REQUESTS.fetch_add(1, Ordering::Relaxed) {
        2 => crate::stub::problem(contract::ProblemKind::CredentialInvalid),
        _ => service(request),
    }
}

#[test]
fn a_compressed_file_continues_at_its_checkpoint() {
    let stub = Stub::new(interrupted);
    let client = client(&stub);
    let objects = (0..500).map(|number| format!("{{\n\"source_id\": \"fw-{number}\"\n}}\n"));
    let text = objects.collect::<Vec<_>>().concat();
    std::fs::write(client.home().join("events.zst"), zstd::encode_all(text.as_bytes(), 3).unwrap()).unwrap();
    let send = [
        "events",
        "send",
        "-f",
        "events.zst",
        "--checkpoint",
        "c",
        "--batch-size",
        "100",
        "--concurrency",
        "1",
        "-o",
        "json",
    ];
    let first = client.run(&send);
    let summary: Value = serde_json::from_str(&first.stdout).unwrap();
    assert_eq!((first.code, &summary["accepted"]), (Some(10), &json!(200)), "{first:?}");
    assert_eq!(
        (&summary["stopped_before_line"], &summary["stopped_before_item"]),
        (&json!(601), &Value::Null)
    );
    let second = client.run(&send).json();
    assert_eq!((&second["accepted"], &second["skipped"]), (&json!(500), &json!(200)));
    let received = sources(&stub);
    let expected = (0..300).chain(200..500).map(|number| format!("fw-{number}"));
    assert_eq!(received, expected.collect::<Vec<_>>());
}

#[test]
fn a_damaged_file_is_an_error_after_its_readable_events() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let text = "{\"source_id\":\"fw\"}\n".repeat(3);
    let zstd = zstd::encode_all(text.as_bytes(), 3).unwrap();
    let zstd = [&zstd[..], &zstd[..10]].concat();
    let result = client.run_with(&["events", "send", "-f", "-", "-o", "json"], &zstd);
    let error = result.error();
    assert_eq!((result.code, error["code"].as_str()), (Some(10), Some("partial_success")), "{result:?}");
    let expected = "3 accepted, 0 rejected; stopped before line 4: the zstd data is not complete";
    assert_eq!((error["message"].as_str(), &error["retryable"]), (Some(expected), &json!(false)));
    let remediation = error["remediation"].as_str().unwrap();
    assert!(remediation.contains("send it from line 4 on"), "{remediation}");
    assert_eq!(serde_json::from_str::<Value>(&result.stdout).unwrap()["accepted"], 3);
    let xz = client.run_with(&["events", "send", "-f", "-", "-o", "json"], b"\xfd7zXZ\0\0\0");
    let remediation = xz.error()["remediation"].as_str().unwrap().to_owned();
    assert!(remediation.contains("xz -dc FILE | svc events send --file -"), "{remediation}");
}

#[test]
fn an_export_of_a_search_is_sent_with_one_command_and_its_bytes_are_unchanged() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let event =
        r#"{"metadata":{"id":"AAAA+/8=","eventType":"USER_LOGIN","n":1.50},"principal":{"ip":["10.0.0.1"]}}"#;
    let send = ["events", "send", "-f", "export.json", "--source-id", "chronicle"];
    for export in [
        format!(
            "{{\n  \"events\": [\n    {{\"name\": \"a\", \"udm\": {event}}},\n    {{\"udm\": {event}}}\n  ],\n  \"moreDataAvailable\": true\n}}\n"
        ),
        format!("{{\"inlineSource\":{{\"events\":[{{\"udm\":{event}}},{{\"udm\":{event}}}]}}}}"),
        format!("[{{\"event\":{event}}},{{\"event\":{event}}}]"),
        format!("{{\"udm\":{event}}}\n{event}\n"),
    ] {
        std::fs::write(client.home().join("export.json"), &export).unwrap();
        let before = stub.requests().len();
        let result = client.run(&send);
        assert_eq!(result.code, Some(0), "{export}: {result:?}");
        let body = &bodies(&stub)[before];
        let with_source = event.replacen('{', "{\"source_id\":\"chronicle\",", 1);
        // An event without an id gets one before the other fields.
        assert_eq!(body.matches(with_source.strip_prefix('{').unwrap()).count(), 2, "{body}");
    }
}

#[test]
fn members_that_are_not_sent_and_objects_of_other_formats_are_a_warning() {
    let stub = Stub::new(service);
    let hec = r#"{"time":1,"host":"web-1","event":{"metadata":{"event_type":"USER_LOGIN"}}}"#;
    let otlp = r#"{"resourceLogs":[{"scopeLogs":[]}]}"#;
    for command in ["send", "validate"] {
        let warnings = |input: &str| {
            let result = client(&stub).run_with(&["events", command, "-f", "-", "--source-id", "fw"], input);
            assert_eq!(result.code, Some(0), "{result:?}");
            result.stderr
        };
        let both = warnings(&format!("{hec}\n{otlp}\n"));
        let ignored = "members next to wrapped events are not sent with them: host, time\n";
        assert!(both.contains(ignored), "{both}");
        assert!(both.contains("objects without a known field of an event: 1;"), "{both}");
        let none = warnings(r#"{"udm":{"metadata":{"event_type":"USER_LOGIN"}},"name":"a"}"#);
        assert!(!none.contains("members next to") && !none.contains("known field"), "{none}");
        let long = warnings(&hec.replace("host", &"h".repeat(65)));
        assert!(long.contains(&format!("with them: {}, time\n", "h".repeat(64))), "{long}");
    }
}

#[test]
fn the_error_of_the_first_line_of_csv_requests_an_export_as_json() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let expected = "line 2: malformed_json: not JSON: expected a value (NaN, Infinity, None and single quotes are not JSON) at column 2; CSV is not read";
    for separator in [",", ";", "\t"] {
        let csv = "\ntimestamp,source\nlogin,fw-1\n".replace(',', separator);
        let result = client.run_with(&["events", "send", "-f", "-"], &csv);
        assert_eq!(result.code, Some(7), "{result:?}");
        assert!(result.stderr.contains(expected), "{result:?}");
        assert_eq!(result.stderr.matches("CSV").count(), 1, "{result:?}");
    }
    for other in ["timestamp\n", "{\"source_id\":\"fw\"}\na,b\n", "{\"a\",1}\n"] {
        let result = client.run_with(&["events", "send", "-f", "-"], other);
        assert!(result.stderr.contains("not JSON") && !result.stderr.contains("CSV"), "{result:?}");
    }
}

#[test]
fn lines_of_the_tail_are_sent_with_their_ids_and_sources() {
    let stub = Stub::new(service);
    let line = |event: &str| {
        format!(
            "{{\"id\":\"9\",\"event_id\":\"e-1\",\"server_event_id\":\"01890a5d-ac96-774b-bcce-b302099a8057\",\
             \"source_id\":\"fw\",\"event_type\":\"USER_LOGIN\",\"received_at\":\"2026-01-31T12:00:00Z\",\"event\":{event}}}\n"
        )
    };
    let own = r#"{"source_id":"fw-2","eventId":"mine","metadata":{"eventType":"USER_LOGIN"}}"#;
    let input = [own, r#"{"metadata":{}}"#].map(line).concat();
    let result = client(&stub).run_with(&["events", "send", "-f", "-", "--source-id", "other"], &input);
    assert_eq!(result.code, Some(0), "{result:?}");
    let sent = events(&stub.requests()[0]);
    assert_eq!(sent[0], serde_json::from_str::<Value>(own).unwrap());
    assert_eq!(sent[1], json!({"event_id": "e-1", "source_id": "fw", "metadata": {}}));
}

#[test]
fn a_source_that_the_service_would_reject_is_a_usage_error() {
    for source in ["", " ", "a\nb"] {
        let result = Client::new().run(&["events", "send", "-f", "-", "--source-id", source]);
        assert_eq!(result.code, Some(2), "{result:?}");
    }
}
