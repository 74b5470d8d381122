use serde_json::{Value, json};

use super::*;

/// Visits every value with its path.
fn each(path: &str, value: &Value, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, value);
    match value {
        Value::Object(map) => map.iter().for_each(|(key, one)| each(&format!("{path}/{key}"), one, visit)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, one)| each(&format!("{path}/{i}"), one, visit));
        }
        _ => {}
    }
}

#[test]
fn the_checked_in_document_is_up_to_date() {
    let checked_in = include_str!("../../../catalog/openapi.json");
    assert!(checked_in == pretty_document(), "catalog/openapi.json is out of date: run `make gen`");
}

#[test]
fn every_reference_resolves() {
    let document = document();
    each("", &document, &mut |path, value| {
        if let Some(target) = value.get("$ref").and_then(Value::as_str) {
            let found = target.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
            assert!(found.is_some(), "{path} refers to {target}");
        }
    });
}

#[test]
fn every_example_matches_its_schema() {
    let document = document();
    let components = json!({ "components": document["components"] });
    let mut examples = 0;
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let mut whole = components.clone();
        whole["$ref"] = format!("#/components/schemas/{name}").into();
        let validator = jsonschema::validator_for(&whole).unwrap();
        for example in schema["examples"].as_array().into_iter().flatten() {
            assert!(validator.is_valid(example), "{name}: {example}");
            examples += 1;
        }
    }
    assert!(examples > 15, "{examples}");
}

#[test]
fn an_unknown_field_in_a_part_of_a_request_is_invalid_also_if_responses_have_the_part() {
    let document = document();
    for (name, field, mut part, is_open) in [
        ("CreateTenant", "quota", json!({ "events_per_second": 5 }), false),
        ("PatchTenant", "quota", json!({ "events_per_second": 5 }), false),
        ("Tenant", "quota", json!({ "events_per_second": 5 }), true),
        ("CreateConsumer", "partitions", json!({ "first": 0, "last": 1 }), false),
        ("Consumer", "partitions", json!({ "first": 0, "last": 1 }), true),
    ] {
        let mut whole = json!({ "components": document["components"] });
        whole["$ref"] = format!("#/components/schemas/{name}/properties/{field}").into();
        let validator = jsonschema::validator_for(&whole).unwrap();
        assert!(validator.is_valid(&part), "{name}");
        part["unknown"] = 1.into();
        assert_eq!(validator.is_valid(&part), is_open, "{name}");
    }
}

#[test]
fn every_field_and_response_has_a_description() {
    let document = document();
    let mut fields = 0;
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            // The published list of UDM fields describes only some of them.
            let is_udm = name.starts_with("Udm");
            let known = is_udm || schema["description"].is_string() || schema.get("$ref").is_some();
            assert!(known, "{name}.{field}");
            fields += 1;
        }
    }
    assert!(fields > 100, "{fields}");
    each("", &document, &mut |path, value| {
        for (name, response) in value.get("responses").and_then(Value::as_object).into_iter().flatten() {
            let known = response["description"].as_str().is_some_and(|text| !text.is_empty());
            assert!(known || response.get("$ref").is_some(), "{path}: {name}");
        }
    });
}

#[test]
fn every_optional_field_of_a_request_can_be_null() {
    let document = document();
    let components = json!({ "components": document["components"] });
    let mut optional = 0;
    each("", &document["paths"], &mut |path, value| {
        let reference = &value["requestBody"]["content"]["application/json"]["schema"]["$ref"];
        let Some(pointer) = reference.as_str().and_then(|reference| reference.strip_prefix('#')) else {
            return;
        };
        let schema = document.pointer(pointer).unwrap();
        // A field with two spellings is required if the other one is absent.
        let required = schema.get("required").unwrap_or(&schema["then"]["required"]);
        let required = required.as_array().cloned().unwrap_or_default();
        for (field, schema) in schema["properties"].as_object().unwrap() {
            if !required.contains(&json!(field)) {
                let mut whole = components.clone();
                whole["allOf"] = json!([schema]);
                let validator = jsonschema::validator_for(&whole).unwrap();
                assert!(validator.is_valid(&Value::Null), "{path}: {field}");
                optional += 1;
            }
        }
    });
    assert!(optional > 20, "{optional}");
}
