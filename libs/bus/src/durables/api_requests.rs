//! Requests of clients that list consumers, or create one before they read, for example `CreateOrUpdateConsumer` of nats.go.
//! The accounts of consumers map them to ingest: it answers with the durable of the login, and creates nothing.

use async_nats::jetstream::Context;
use async_nats::jetstream::context::RequestError;
use serde_json::{Map, Value, json};

/// What the accounts of consumers map.
pub(super) const MAPPED: [&str; 4] = ["CREATE.>", "DURABLE.CREATE.>", "NAMES.*", "LIST.*"];
/// Settings that must be those of the durable. A client that sends none of them accepts any. `deliver_policy` has no effect on a durable
/// that exists, and a reset changes it.
const COMPARED: [&str; 4] = ["ack_policy", "deliver_subject", "filter_subject", "filter_subjects"];
/// Codes of the broker: a consumer exists with another configuration, a consumer was not created, a stream does not exist, the payload is
/// not that of the request.
const EXISTS: u64 = 10_148;
const NOT_CREATED: u64 = 10_012;
const NO_STREAM: u64 = 10_059;
const INVALID_JSON: u64 = 10_025;

/// A JSON object. Other values cannot be indexed without a panic, and a client can send any value.
pub(super) type Object = Map<String, Value>;

/// A request of the login of a consumer.
#[derive(Debug, PartialEq)]
pub(super) struct ApiRequest<'a> {
    login: &'a str,
    stream: &'a str,
    kind: Kind<'a>,
}

#[derive(Debug, PartialEq)]
enum Kind<'a> {
    Names,
    List,
    /// Name of the consumer, if the subject has one, and its configuration; `None` if the payload has none.
    Create(Option<&'a str>, Option<Object>),
}

impl<'a> ApiRequest<'a> {
    /// Returns `None` for a request that is not one of the [mapped](MAPPED) ones: the part of the subject after `$JS.API.CONSUMER.`.
    pub(super) fn parse(login: &'a str, request: &'a str, payload: &[u8]) -> Option<Self> {
        let mut tokens = request.split('.');
        let verb = tokens.next()?;
        if verb == "DURABLE" && tokens.next()? != "CREATE" {
            return None;
        }
        let stream = tokens.next()?;
        let kind = match verb {
            "NAMES" => Kind::Names,
            "LIST" => Kind::List,
            "CREATE" | "DURABLE" => Kind::Create(tokens.next(), config(payload)),
            _ => return None,
        };
        Some(Self { login, stream, kind })
    }

    /// Asks for the durable of the login, and returns the response.
    pub(super) async fn response(
        &self,
        context: &Context,
        streams: &[String],
    ) -> Result<Object, RequestError> {
        let info = if streams.iter().any(|stream| stream == self.stream) {
            context.request(format!("CONSUMER.INFO.{}.{}", self.stream, self.login), &json!({})).await?
        } else {
            error(404, NO_STREAM, "stream not found")
        };
        Ok(self.respond(info))
    }

    /// Returns the response, from the information of the durable of the login.
    fn respond(&self, info: Object) -> Object {
        let (kind, mut response) = match &self.kind {
            Kind::Create(name, config) if !info.contains_key("error") => {
                ("create", self.created(*name, config.as_ref(), info))
            }
            Kind::Create(..) => ("create", info),
            Kind::Names => ("names", list(info, |info| info.remove("name"))),
            Kind::List => ("list", list(info, |info| Some(Value::Object(std::mem::take(info))))),
        };
        let kind = format!("io.nats.jetstream.api.v1.consumer_{kind}_response");
        response.insert("type".to_owned(), kind.into());
        response
    }

    /// Returns the durable of the login, if it is the one that the client wants to create.
    fn created(&self, name: Option<&str>, config: Option<&Object>, info: Object) -> Object {
        let Some(config) = config else { return error(400, INVALID_JSON, "invalid JSON") };
        let own = Some(self.login);
        let is_named = |setting| config.get(setting).and_then(Value::as_str) == own;
        if name != own && !is_named("durable_name") && !is_named("name") {
            let login = self.login;
            let description = format!(
                "login `{login}` cannot create a consumer: read its durable `{login}` of stream `{}` with pull requests",
                self.stream
            );
            return error(403, NOT_CREATED, &description);
        }
        if info.get("config").and_then(Value::as_object).is_some_and(|existing| matches(config, existing)) {
            return info;
        }
        let description = "consumer exists with another configuration: its filter and `ack_policy` are those of `svc consumers create`";
        error(400, EXISTS, description)
    }
}

/// Returns the configuration in the payload of a request.
fn config(payload: &[u8]) -> Option<Object> {
    let mut request: Object = serde_json::from_slice(payload).ok()?;
    match request.remove("config")? {
        Value::Object(config) => Some(config),
        _ => None,
    }
}

pub(super) fn error(code: u64, err_code: u64, description: &str) -> Object {
    let error = json!({ "code": code, "err_code": err_code, "description": description });
    Object::from_iter([("error".to_owned(), error)])
}

/// Returns the list with the durable of the login, or without one if it does not exist.
fn list(mut info: Object, item: impl FnOnce(&mut Object) -> Option<Value>) -> Object {
    let items: Vec<_> = if info.contains_key("error") { None } else { item(&mut info) }.into_iter().collect();
    let (total, consumers) = (json!(items.len()), json!(items));
    let fields = [("total", total), ("offset", json!(0)), ("limit", json!(256)), ("consumers", consumers)];
    fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

/// Returns whether a durable has the settings of a request.
fn matches(requested: &Object, existing: &Object) -> bool {
    let is_empty = |value: &Value| {
        value.is_null() || value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty)
    };
    COMPARED.iter().all(|setting| {
        requested.get(*setting).is_none_or(|value| is_empty(value) || existing.get(*setting) == Some(value))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(value: Value) -> Object {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_request_matches_a_durable_with_the_same_filter_and_ack_policy_wherever_it_starts() {
        let existing = object(
            json!({ "ack_policy": "explicit", "deliver_policy": "all", "filter_subject": "udm.v1.*.acme.>" }),
        );
        for requested in [
            json!({}),
            json!({ "durable_name": "acme", "ack_policy": "explicit", "deliver_policy": "all", "max_deliver": 5 }),
            json!({ "filter_subject": "udm.v1.*.acme.>", "filter_subjects": [], "deliver_subject": "" }),
            json!({ "deliver_policy": "new" }),
            json!({ "deliver_policy": "by_start_time", "opt_start_time": "2026-01-31T12:00:00Z" }),
        ] {
            assert!(matches(&object(requested.clone()), &existing), "{requested}");
        }
        for requested in [
            json!({ "ack_policy": "none" }),
            json!({ "filter_subject": "udm.v1.>" }),
            json!({ "filter_subjects": ["udm.v1.>"] }),
            json!({ "deliver_subject": "svc.invalidations.v1" }),
        ] {
            assert!(!matches(&object(requested.clone()), &existing), "{requested}");
        }
    }

    /// Any JSON value, also where a request has an object or text.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            Just(json!("acme")),
        ];
        let name = prop_oneof![
            Just("config".to_owned()),
            Just("name".to_owned()),
            Just("durable_name".to_owned()),
            Just("filter_subjects".to_owned()),
            any::<String>(),
        ];
        leaf.prop_recursive(4, 32, 4, move |value| {
            prop_oneof![
                prop::collection::vec(value.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(name.clone(), value, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn any_payload() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any_json().prop_map(|value| value.to_string().into_bytes()),
            any_json().prop_map(|config| json!({ "config": config }).to_string().into_bytes()),
            any::<Vec<u8>>(),
        ]
    }

    fn any_request() -> impl Strategy<Value = String> {
        let mapped = prop_oneof![
            Just("CREATE.UDM".to_owned()),
            Just("CREATE.UDM.acme".to_owned()),
            Just("CREATE.UDM.acme.udm.v1.>".to_owned()),
            Just("DURABLE.CREATE.UDM.acme".to_owned()),
            Just("NAMES.UDM".to_owned()),
            Just("LIST.UDM".to_owned()),
            "[A-Z.*>]{0,20}",
        ];
        prop_oneof![mapped, any::<String>()]
    }

    proptest! {
        #[test]
        fn any_message_gets_a_response_of_its_type_or_none(
            request in any_request(),
            payload in any_payload(),
            info in any_json(),
        ) {
            let info = info.as_object().cloned().unwrap_or_default();
            if let Some(request) = ApiRequest::parse("acme", &request, &payload) {
                let response = request.respond(info);
                let kind = response["type"].as_str().unwrap();
                prop_assert!(kind.starts_with("io.nats.jetstream.api.v1.consumer_"));
            }
        }
    }

    #[test]
    fn a_request_to_create_a_consumer_without_a_configuration_is_invalid_json() {
        let info = object(json!({ "name": "acme", "config": {} }));
        for payload in
            ["", "null", "[]", "0", "\"\"", "{", "{}", r#"{"config":[]}"#, r#"{"config":"x"}"#, "\u{0}"]
        {
            for subject in
                ["CREATE.UDM.acme", "CREATE.UDM", "DURABLE.CREATE.UDM.acme", "CREATE.UDM.acme.udm.v1.>"]
            {
                let request = ApiRequest::parse("acme", subject, payload.as_bytes()).unwrap();
                let response = request.respond(info.clone());
                assert_eq!(response["error"]["err_code"], INVALID_JSON, "{subject} {payload}");
            }
        }
    }
}
