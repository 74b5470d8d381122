//! The oldest supported browsers: scripts, styles and markup of the pages use no feature that one of them lacks. `newer.json` lists
//! these features, and all tests of pages run without those that can be removed.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Value, json};
use testsystem::TestSystem;

/// Features that older browsers ignore, and what a person sees then.
const ENHANCEMENTS: [(&str, &str); 13] = [
    ("cursor: pointer", "a telephone has no pointer"),
    ("cursor: progress", "a telephone has no pointer"),
    ("outline", "the outline of the focus has no round corners"),
    ("color-scheme", "form fields are light on a dark page"),
    ("scrollbar-gutter", "the page moves when a scroll bar appears"),
    ("accent-color", "check boxes have the color of the browser"),
    (":focus-visible", "the focus has the outline of the browser"),
    ("overflow-wrap: anywhere", "`word-break: break-word` does the same"),
    ("(scripting", "without scripts, two notices instead of one"),
    ("inputmode=", "another keyboard on a telephone"),
    ("autocapitalize=", "a capital letter that the person or the page corrects"),
    ("isConditionalMediationAvailable", "passkeys are not among the suggestions for the address"),
    ("keepalive", "a page that is closed possibly leaves its session to the idle timeout"),
];

fn newer() -> Value {
    serde_json::from_str(include_str!("newer.json")).unwrap()
}

fn words(list: &Value, separator: &str) -> HashSet<String> {
    list.as_str().unwrap().split(separator).map(str::to_owned).collect()
}

/// Features that the test itself needs: chromedriver, and V8 for the stack of an error. The scripts are checked for them too.
const KEPT: [&str; 2] = ["hasOwn", "stackTraceLimit"];

/// A script that removes the features of scripts from a newer browser.
pub(crate) fn removal() -> String {
    let (interfaces, kept) = (newer()["interfaces"].to_string(), json!(KEPT));
    format!(
        "for (const [name, members] of Object.entries({interfaces})) {{
            const owner = globalThis[name];
            for (const member of members.split(' ').filter((member) => !{kept}.includes(member))) {{
                for (const object of [owner, owner?.prototype, name === 'Window' ? globalThis : undefined]) {{
                    if (object && Object.getOwnPropertyDescriptor(object, member)?.configurable) delete object[member];
                }}
            }}
        }}"
    )
}

/// Splits a text into words and single other characters.
fn tokens(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let mut rest = text;
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        let end =
            if is_word(first) { rest.find(|c| !is_word(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        let (token, after) = rest.split_at(end);
        if !token.trim().is_empty() {
            tokens.push(token);
        }
        rest = after;
    }
    tokens
}

/// The text without comments between two marks.
fn without_comments(text: &str, start: &str, end: &str) -> String {
    let mut parts = text.split(start);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| kept + part.split_once(end).map_or("", |(_, after)| after))
}

/// The features of a style sheet, in the notation of `newer.json`.
fn features_of_style(style: &str) -> BTreeSet<String> {
    let style = without_comments(style, "/*", "*/");
    let mut features = BTreeSet::new();
    for statement in style.split_inclusive(['{', '}', ';']) {
        let tokens = tokens(statement);
        for pair in tokens.windows(2) {
            match *pair {
                ["@" | ":" | "(", name] => features.insert(format!("{}{name}", pair[0])),
                [name, "("] => features.insert(format!("{name}()")),
                ["&", _] => features.insert(":nesting".to_owned()),
                _ => continue,
            };
        }
        if let ([property, ":", values @ ..], false) = (&*tokens, statement.ends_with('{')) {
            features.insert((*property).to_owned());
            features.extend(values.iter().map(|value| format!("{property}: {value}")));
        }
    }
    features
}

/// Syntax that older browsers do not parse: assertions about text before, static blocks, declarations that dispose, import
/// attributes.
const SYNTAX: [&str; 5] = ["(?<=", "(?<!", "static {", "using ", " with {"];
const TOP_LEVEL_AWAIT: &str = "await outside a function";

/// The members that a script names, and syntax that older browsers do not parse.
fn features_of_script(script: &str) -> BTreeSet<String> {
    // Without comments and texts.
    let lines = script.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    let lines = lines.map(|line| line.split('"').step_by(2).collect::<Vec<_>>().join("\"\""));
    let code = lines.collect::<Vec<_>>().join("\n");
    let found = SYNTAX.into_iter().filter(|syntax| code.contains(syntax));
    let top = code.lines().any(|line| !line.starts_with(' ') && line.contains("await "));
    let mut features: BTreeSet<_> = found.chain(top.then_some(TOP_LEVEL_AWAIT)).map(str::to_owned).collect();
    for line in code.lines() {
        let is_destructuring = line.contains("} =");
        for pair in tokens(line).windows(2) {
            match *pair {
                [".", name] => features.insert(name.to_owned()),
                ["," | "{", name] if is_destructuring => features.insert(name.to_owned()),
                _ => continue,
            };
        }
    }
    features
}

fn extension(file: &str) -> &str {
    file.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// The elements and attributes of a document.
fn features_of_markup(document: &str) -> BTreeSet<String> {
    let mut features = BTreeSet::new();
    for tag in document.split('<').skip(1).filter_map(|tag| tag.split('>').next()) {
        let name = tag.split_whitespace().next().unwrap_or_default();
        features.insert(format!("<{name}"));
        // Values contain spaces, but names are before an equals sign or alone.
        for (number, part) in tag.split('"').enumerate().filter(|(number, _)| number % 2 == 0) {
            let names = part.split_whitespace().skip(usize::from(number == 0));
            features.extend(names.map(|name| format!("{}=", name.trim_end_matches('='))));
        }
    }
    features
}

#[tokio::test]
async fn pages_use_no_feature_that_the_oldest_supported_browsers_lack() {
    let system = TestSystem::start().await.unwrap();
    let newer = newer();
    let markup = words(&newer["markup"], " ");
    let styles = words(&newer["styles"], "; ");
    let mut names = words(&newer["names"], " ");
    names.extend(SYNTAX.into_iter().chain([TOP_LEVEL_AWAIT]).map(str::to_owned));
    let (mut used, mut files) = (BTreeSet::new(), BTreeSet::new());
    for page in [
        "accept-invite",
        "reset-password",
        "request-reset",
        "change-password",
        "device",
        "factors",
        "sessions",
    ] {
        let document = system.client().get(&format!("/pages/{page}")).await.body;
        used.extend(features_of_markup(&document).into_iter().filter(|feature| markup.contains(feature)));
        let addresses = document.split('"').filter(|text| text.starts_with("/api/v1/pages/files/"));
        files.extend(addresses.map(|address| address.trim_start_matches("/api/v1").to_owned()));
    }
    // Scripts of pages import them.
    let script = files.iter().find(|file| extension(file) == "js").unwrap();
    let directory = script.rsplit_once('/').unwrap().0.to_owned();
    files.extend(["token.js", "login.js", "passkey.js"].map(|file| format!("{directory}/{file}")));
    assert_eq!(files.len(), 12, "{files:?}");
    for file in &files {
        let content = system.client().get(file).await.body;
        if extension(file) == "css" {
            used.extend(features_of_style(&content).into_iter().filter(|feature| styles.contains(feature)));
        } else {
            used.extend(features_of_script(&content).into_iter().filter(|feature| names.contains(feature)));
        }
    }
    let known: BTreeSet<_> = ENHANCEMENTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(used, known, "features that the oldest supported browsers lack, and known enhancements");
}

#[test]
fn newer_features_are_found() {
    let newer = newer();
    let styles = words(&newer["styles"], "; ");
    for style in [
        "a { &:hover { color: red } }",
        "@layer base { a { color: red } }",
        "a:has(b) { color: red }",
        "a { color: color-mix(in srgb, red, blue) }",
        "@media (scripting: none) { a { color: red } }",
        "a { overflow-wrap: anywhere }",
        "a { accent-color: red; }",
        "@container (min-width: 1px) { a { color: red } }",
    ] {
        assert!(features_of_style(style).iter().any(|feature| styles.contains(feature)), "{style}");
    }
    let names = words(&newer["names"], " ");
    for script in [
        "a.checkVisibility()",
        "list.at(-1)",
        "form.requestSubmit()",
        "Object.hasOwn(a)",
        "const { randomUUID } = crypto",
    ] {
        assert!(features_of_script(script).iter().any(|feature| names.contains(feature)), "{script}");
    }
    let has_syntax = |script: &str| {
        let features = features_of_script(script);
        features.iter().any(|feature| SYNTAX.contains(&&**feature) || feature == TOP_LEVEL_AWAIT)
    };
    for script in ["/(?<=a)b/", "class A { static { } }", "await list();", "const a = await list();"] {
        assert!(has_syntax(script), "{script}");
    }
    assert!(!has_syntax("async () => {\n  await list();\n}"));
    let markup = words(&newer["markup"], " ");
    for document in [
        "<dialog open>",
        "<p class=\"a b\" inert>x</p>",
        "<input popovertarget=\"x\">",
        "<script src=\"x\" blocking=\"render\">",
    ] {
        assert!(features_of_markup(document).iter().any(|feature| markup.contains(feature)), "{document}");
    }
}
