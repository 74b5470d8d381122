//! Both spellings of every known name are one field at every place of an event, and all other spellings are rejected.

use std::collections::HashSet;
use std::sync::LazyLock;

use jsonschema::Validator;
use proptest::prelude::*;

use super::*;
use crate::{ParseError, UdmEvent, parse};

/// A place of an event: the fields that lead to it, and the object there.
struct Place {
    path: Vec<&'static Field>,
    object: &'static Object,
}

/// Returns each object of the table at one of its places.
fn places() -> Vec<Place> {
    let mut places = vec![Place { path: vec![], object: &EVENT }];
    let mut next = 0;
    while let Some(Place { path, object }) = places.get(next) {
        let inner = object.fields.iter().filter_map(|field| {
            let Rule::Object(object) = field.rule else { return None };
            Some(Place { path: path.iter().copied().chain([field]).collect(), object })
        });
        let inner: Vec<_> = inner.collect();
        for place in inner {
            if !places.iter().any(|known| std::ptr::eq(known.object, place.object)) {
                places.push(place);
            }
        }
        next += 1;
    }
    places
}

impl Place {
    /// Returns an event with these members of the object. The other spelling is used for the fields around it.
    fn event(&self, members: &str) -> String {
        let mut text = members.to_owned();
        for field in self.path.iter().rev() {
            let name = field.json_name;
            text = if field.is_repeated {
                format!(r#""{name}":[{{}},{{{text}}}]"#)
            } else {
                format!(r#""{name}":{{{text}}}"#)
            };
        }
        let has_source = self.path.is_empty()
            && ["\"source_id\"", "\"sourceId\""].iter().any(|name| members.contains(name));
        let source = if has_source { "" } else { r#""source_id":"s","# };
        format!("{{{source}{text}}}")
    }

    /// Returns the pointer to a name.
    fn pointer(&self, name: &str) -> String {
        let mut pointer = String::new();
        for field in &self.path {
            pointer = pointer + "/" + field.json_name;
            if field.is_repeated {
                pointer += "/1";
            }
        }
        format!("{pointer}/{name}")
    }
}

/// Returns each known name with its place.
fn known() -> Vec<(Place, &'static Field)> {
    let places = places().into_iter();
    places
        .flat_map(|Place { path, object }| {
            object.fields.iter().map(move |field| (Place { path: path.clone(), object }, field))
        })
        .collect()
}

/// Returns pointer, code and message of each error.
fn errors(event: &str) -> Vec<(String, String, String)> {
    match parse(event.as_bytes()) {
        Err(ParseError::Invalid { errors, .. }) => {
            errors.into_iter().map(|error| (error.pointer, error.code.into_owned(), error.message)).collect()
        }
        Ok(_) => vec![],
        Err(other) => panic!("{event}: {other:?}"),
    }
}

fn valid(rule: Rule) -> String {
    match rule {
        Rule::Any | Rule::Object(_) | Rule::OpenObject => "{}",
        Rule::Integer(_) | Rule::Number | Rule::Enumeration => "443",
        Rule::Boolean => "true",
        Rule::Text(rule) => match rule {
            TextRule::EventType => r#""USER_LOGIN""#,
            TextRule::EventTime | TextRule::Time => r#""2026-01-31T12:00:00.5Z""#,
            TextRule::Duration => r#""1.5s""#,
            TextRule::IpAddress => r#""2001:db8::1""#,
            TextRule::MacAddress => r#""00:1b:44:11:3a:b7""#,
            TextRule::Bytes => r#""AAE=""#,
            _ => r#""a""#,
        },
    }
    .to_owned()
}

/// Independent of the code: splits at `_`.
fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap().to_owned();
    words.fold(first, |name, word| {
        let mut letters = word.chars();
        let capital = letters.next().map(|letter| letter.to_ascii_uppercase());
        name + &capital.into_iter().chain(letters).collect::<String>()
    })
}

#[test]
fn the_second_spelling_is_that_of_protobuf() {
    for (original, expected) in [
        ("ip", "ip"),
        ("event_type", "eventType"),
        ("url_back_to_product", "urlBackToProduct"),
        ("md5", "md5"),
        ("sha256_of_file", "sha256OfFile"),
        ("tls_1_3", "tls13"),
        ("ip_v4address", "ipV4address"),
        ("a__b_", "aB"),
        ("_a", "A"),
        ("aB_c", "aBC"),
    ] {
        assert_eq!(JsonName::from_original(original).as_str(), expected);
        assert_eq!(json_name(original), expected);
    }
    for (_, field) in known() {
        assert_eq!(field.json_name, camel_case(field.name));
    }
}

#[test]
fn the_table_has_the_published_model_and_the_published_numbers() {
    assert!(known().len() > 950, "{}", known().len());
    assert!(EVENT_TYPES.is_sorted_by(|one, other| one.0 < other.0));
    for (number, name) in EVENT_TYPES {
        let event = |value: String| format!(r#"{{"source_id":"s","metadata":{{"eventType":{value}}}}}"#);
        for value in
            [number.to_string(), format!("\"{number}\""), format!("{number}.0"), format!("\"{name}\"")]
        {
            assert_eq!(parse(event(value).as_bytes()).unwrap().event_type, *name);
        }
    }
}

#[test]
fn no_spelling_of_a_known_name_is_a_misspelling_of_another_one() {
    for Place { object, .. } in places() {
        let folded = |name: &str| name.replace('_', "").to_lowercase();
        let names: HashSet<_> = object.fields.iter().map(|field| folded(field.name)).collect();
        assert_eq!(names.len(), object.fields.len(), "{}", object.name);
        for field in object.fields {
            assert!(field.name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_')));
            for (name, spelling) in [(field.name, Spelling::Original), (field.json_name, Spelling::Json)] {
                let Meaning::Known(known, found) = find(object, name) else { panic!("{name}") };
                assert_eq!(known.name, field.name);
                assert!(found == spelling || !field.has_two_spellings(), "{name}");
            }
        }
    }
}

#[test]
fn both_spellings_in_one_object_are_rejected_with_both_pointers() {
    let two_spellings: Vec<_> = known().into_iter().filter(|(_, field)| field.has_two_spellings()).collect();
    assert!(two_spellings.len() > 12);
    for (place, field) in two_spellings {
        let [original, json] = [field.name, field.json_name];
        let (first, second) = (place.pointer(original), place.pointer(json));
        let expected = [
            (
                first.clone(),
                "duplicate_field".to_owned(),
                format!("the same field as {second}; send only one of them"),
            ),
            (
                second,
                "duplicate_field".to_owned(),
                format!("the same field as {first}; send only one of them"),
            ),
        ];
        let value = valid(field.rule);
        for [one, other] in [[original, json], [json, original]] {
            for value in [value.as_str(), "null"] {
                let event = place.event(&format!(r#""{one}":{value},"x":1,"{other}":{value}"#));
                let found = errors(&event);
                assert_eq!(found[..2], expected, "{event}");
                let is_required = found.get(2).is_some_and(|error| error.1 == "required");
                assert!(found.len() == 2 || field.is_required() && is_required, "{event}: {found:?}");
            }
        }
    }
}

#[test]
fn errors_of_values_have_the_pointer_of_the_sender() {
    for (place, field) in known() {
        let value = if matches!(field.rule, Rule::Boolean) { "7" } else { "true" };
        for name in [field.name, field.json_name] {
            let event = place.event(&format!(r#""{name}":{value}"#));
            let found: Vec<_> =
                errors(&event).into_iter().map(|(pointer, code, _)| (pointer, code)).collect();
            assert_eq!(found, [(place.pointer(name), "invalid_type".to_owned())], "{event}");
            if field.is_required() {
                let found = errors(&place.event(&format!(r#""{name}":null"#)));
                assert_eq!((&*found[0].0, &*found[0].1), (&*place.pointer(name), "required"));
            }
        }
    }
}

#[test]
fn misspelled_names_are_kept_in_objects_that_do_not_have_the_field() {
    for (_, field) in known() {
        for name in [field.name.to_uppercase(), format!("{}_", field.json_name), format!("-{}", field.name)] {
            let members = format!(r#""{name}":1,"{}":2,"{}X":3"#, field.name, field.json_name);
            for event in [
                format!(r#"{{"source_id":"s","additional":{{{members}}}}}"#),
                format!(r#"{{"source_id":"s","principal":{{"x":[{{{members}}}]}}}}"#),
                format!(r#"{{"sourceId":"s","network":{{"x":{{{members}}}}}}}"#),
            ] {
                assert_eq!(errors(&event), [], "{event}");
            }
        }
    }
}

#[test]
fn parse_and_schema_agree_on_each_value_of_each_field() {
    let values = [
        "null",
        "true",
        "4",
        "-1",
        "80.0",
        "80.5",
        "1e30",
        r#""""#,
        r#""x""#,
        r#""4""#,
        r#""-4.0""#,
        r#""4.5""#,
        r#""1.5s""#,
        r#""1e3""#,
        r#""NaN""#,
        r#""::1%eth0""#,
        r#""10.0.XX.XX""#,
        r#""001b.4411.3ab7""#,
        r#""AAE=""#,
        r#""-_8""#,
        r#""+_8""#,
        r#""AA=""#,
        r#""AAEC==""#,
        r#""2026-01-31T12:00:00Z""#,
        "[]",
        "[[]]",
        "[null]",
        "[true]",
        "[4]",
        r#"["x"]"#,
        r#"["::1","10.0.0.1"]"#,
        "{}",
        r#"{"seconds":4}"#,
        r#"{"seconds":"4","nanos":null}"#,
        r#"{"nanos":4}"#,
        r#"{"seconds":null,"nanos":4}"#,
        r#"{"seconds":null}"#,
        "[{}]",
    ];
    for (place, field) in known() {
        for (index, value) in values.into_iter().enumerate() {
            let name = [field.name, field.json_name][index % 2];
            let event = place.event(&format!(r#""{name}":{value}"#));
            // The schema does not have the numbers of all event types.
            if *value == *"80.0" && matches!(field.rule, Rule::Text(TextRule::EventType)) {
                continue;
            }
            let is_valid = VALIDATOR.is_valid(&serde_json::from_str(&event).unwrap());
            assert_eq!(parse(event.as_bytes()).is_ok(), is_valid, "{event}");
        }
    }
}

/// Decisions of a generated event.
struct Choices {
    bytes: std::vec::IntoIter<u8>,
    /// Whether the form also changes in objects that the types of producers do not have.
    everywhere: bool,
}

impl Choices {
    fn next(&mut self) -> u8 {
        self.bytes.next().unwrap_or_default()
    }

    /// Returns the members of an object in the plain form, and with a random spelling and form of each.
    fn object(&mut self, object: &Object, depth: usize, changes: bool) -> [String; 2] {
        let changes = self.everywhere
            || changes && [&EVENT, &METADATA, &NOUN].iter().any(|typed| std::ptr::eq(*typed, object));
        let mut members = [vec![], vec![]];
        for field in object.fields {
            if !field.is_required() && (depth == 0 || self.next() % 2 == 1) {
                continue;
            }
            let is_other = changes && self.next() % 2 == 1;
            let names = [field.name, if is_other { field.json_name } else { field.name }];
            let values = if field.is_required() || !self.next().is_multiple_of(8) {
                self.values(field, depth, changes)
            } else {
                ["null", "null"].map(str::to_owned)
            };
            for ((members, name), value) in members.iter_mut().zip(names).zip(values) {
                members.push(format!(r#""{name}" : {value}"#));
            }
        }
        members.map(|members| format!("{{{}}}", members.join(",\n")))
    }

    fn values(&mut self, field: &Field, depth: usize, changes: bool) -> [String; 2] {
        let first = self.value(field.rule, depth, changes);
        match self.next() % 4 {
            _ if !field.is_repeated => first,
            0 if changes => [format!("[{}]", first[0]), first[1].clone()],
            _ => {
                let second = self.value(field.rule, depth, changes);
                [0, 1].map(|form| format!("[{}, {}]", first[form], second[form]))
            }
        }
    }

    fn value(&mut self, rule: Rule, depth: usize, changes: bool) -> [String; 2] {
        let number = self.next();
        let plain = match rule {
            Rule::Object(object) => return self.object(object, depth - 1, changes),
            Rule::Text(TextRule::EventType) => format!("\"TYPE_{number}\""),
            Rule::Text(TextRule::EventTime) => {
                let time = format!("\"1970-01-01T00:{:02}:{:02}.000000007Z\"", number / 60, number % 60);
                let instant = format!(r#"{{"seconds":"{number}","nanos":7.0}}"#);
                return [time.clone(), if changes { instant } else { time }];
            }
            Rule::Text(TextRule::SourceId | TextRule::EventId | TextRule::Any) => {
                format!("\"t{number}\"")
            }
            Rule::Integer(_) => number.to_string(),
            rule => valid(rule),
        };
        let other = match rule {
            Rule::Integer(_) if changes => format!("\"{number}\""),
            _ => plain.clone(),
        };
        [plain, other]
    }
}

/// Returns an event in the plain form, and the same with a random spelling of each name and a random form of each value.
fn events(everywhere: bool) -> impl Strategy<Value = [String; 2]> {
    prop::collection::vec(any::<u8>(), 0..250)
        .prop_map(move |bytes| Choices { bytes: bytes.into_iter(), everywhere }.object(&EVENT, 3, true))
}

/// Returns a name that differs from the known one only in case, `_` and `-`.
fn respelled(name: &str, choices: &[u8]) -> String {
    let letters = name.chars().filter(|letter| *letter != '_');
    let mut respelled = String::new();
    for (letter, choice) in letters.zip(choices) {
        respelled += ["", "", "", "_", "-", "__"][usize::from(choice / 2 % 6)];
        respelled.push(match letter {
            's' if choice % 16 == 1 => 'ſ',
            'k' if choice % 16 == 1 => '\u{212a}',
            _ if choice % 2 == 1 => letter.to_ascii_uppercase(),
            _ => letter,
        });
    }
    respelled
}

static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| {
    jsonschema::options().should_validate_formats(true).build(crate::schema().as_value()).unwrap()
});

proptest! {
    #[test]
    fn spelling_and_form_do_not_change_the_event([plain, other] in events(true)) {
        let (first, second) = (parse(plain.as_bytes()).unwrap(), parse(other.as_bytes()).unwrap());
        prop_assert_eq!(&first.source_id, &second.source_id);
        prop_assert_eq!(&first.event_id, &second.event_id);
        prop_assert_eq!(&first.event_type, &second.event_type);
        prop_assert_eq!(&first.event_timestamp, &second.event_timestamp);
        prop_assert_eq!(second.raw, other.as_bytes());
        prop_assert!(plain.contains(first.source_id_name) && other.contains(second.source_id_name));
        for event in [plain, other] {
            prop_assert!(VALIDATOR.is_valid(&serde_json::from_str(&event).unwrap()), "{}", event);
        }
    }

    #[test]
    fn spelling_and_form_do_not_change_the_types_of_producers([plain, other] in events(false)) {
        let typed = |text: &str| serde_json::from_str::<UdmEvent>(text).unwrap();
        prop_assert_eq!(typed(&plain), typed(&other));
        parse(serde_json::to_string(&typed(&other)).unwrap().as_bytes()).unwrap();
    }

    #[test]
    fn misspelled_names_are_rejected_with_the_right_spellings(
        index in any::<prop::sample::Index>(),
        choices in prop::collection::vec(any::<u8>(), 64),
    ) {
        let known = known();
        let (place, field) = &known[index.index(known.len())];
        let name = respelled(field.name, &choices);
        prop_assume!(name != field.name && name != field.json_name);
        let event = place.event(&format!(r#""{name}":{}"#, valid(field.rule)));
        let (pointer, code, message) = errors(&event).swap_remove(0);
        prop_assert_eq!((pointer, code.as_str()), (place.pointer(&name), "invalid_name"), "{}", event);
        let names = if field.name == field.json_name {
            field.name.to_owned()
        } else {
            format!("{} or {}", field.name, field.json_name)
        };
        prop_assert_eq!(message, format!("write this name as {names}"));
    }
}
