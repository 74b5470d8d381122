//! Help, completion scripts and manual pages.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::client::{Client, assert_valid_output};
use crate::environment::variables;

/// Topics of `svc help`.
pub(crate) const TOPICS: [&str; 2] = ["environment", "exit-codes"];

/// Names of all commands and groups; the first is empty.
pub(crate) fn commands_and_groups() -> Vec<Vec<String>> {
    let catalog = Client::new().run(&["catalog", "show", "--output", "json"]).json();
    let names =
        catalog["commands"].as_array().unwrap().iter().map(|command| command["name"].as_str().unwrap());
    let mut all = vec![Vec::new()];
    for name in names.filter(|name| *name != "svc") {
        let words: Vec<String> = name.split(' ').map(str::to_owned).collect();
        all.extend((1..=words.len()).map(|length| words[..length].to_vec()));
    }
    all.sort();
    all.dedup();
    all
}

fn text(words: &[&str]) -> String {
    let result = Client::new().run(words);
    assert_eq!((result.code, result.stderr.as_str()), (Some(0), ""), "{result:?}");
    result.stdout
}

#[test]
fn help_command_prints_what_the_help_option_prints() {
    for words in [&[][..], &["auth"], &["auth", "sessions"], &["events", "send"], &["help"]] {
        assert_eq!(text(&[&["help"], words].concat()), text(&[words, &["--help"]].concat()), "{words:?}");
    }
    let client = Client::new();
    let shown = client.run(&["help", "users", "disable", "-o", "json"]).json();
    assert_valid_output("help", &shown);
    assert_eq!(shown["help"], text(&["users", "disable", "--help"]));
    let unknown = client.run(&["help", "login"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("did you mean `svc auth login`?"), "{unknown:?}");
}

/// Names and meanings that a topic lists.
fn entries(topic: &str) -> BTreeSet<(String, String)> {
    let shown = text(&["help", topic]);
    let entries = shown.lines().filter_map(|line| line.strip_prefix("  ")?.split_once("  "));
    entries.map(|(name, meaning)| (name.to_owned(), meaning.trim().to_owned())).collect()
}

#[test]
fn the_topic_of_variables_lists_those_of_the_catalog_with_their_meanings() {
    let entries = entries("environment");
    let names: BTreeSet<_> = entries.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, variables());
    assert_eq!(names.len(), entries.len());
    let catalog = Client::new().run(&["catalog", "show", "users", "list", "--output", "json"]).json();
    for option in catalog["options"].as_array().unwrap() {
        let Some(name) = option["env"].as_str() else { continue };
        let (_, meaning) = entries.iter().find(|(own, _)| own == name).unwrap();
        let [flag, description] = ["flag", "description"].map(|field| option[field].as_str().unwrap());
        assert!(meaning.starts_with(&format!("{flag}: {description}")), "{meaning}");
        if let Some(default) = option["default"].as_str() {
            assert!(meaning.ends_with(&format!(" [default: {default}]")), "{meaning}");
        }
    }
    let (_, of_file) = entries.iter().find(|(name, _)| name == "SVC_API_KEY_FILE").unwrap();
    assert!(of_file.contains("if SVC_API_KEY is not set"), "{of_file}");
}

#[test]
fn the_topic_of_exit_codes_lists_those_of_the_catalog_with_their_meanings() {
    let catalog = Client::new().run(&["catalog", "show", "--output", "json"]).json();
    let commands = catalog["commands"].as_array().unwrap().iter();
    let exits = commands.flat_map(|command| command["exit_codes"].as_array().unwrap());
    let expected: BTreeSet<_> =
        exits.map(|exit| (exit["code"].to_string(), exit["meaning"].as_str().unwrap().to_owned())).collect();
    assert_eq!(entries("exit-codes"), expected);
}

#[test]
fn topics_are_named_in_the_help_the_completion_and_the_manual_page() {
    let client = Client::new();
    let directory = client.home().join("man1");
    client.run(&["man-pages", directory.to_str().unwrap()]);
    let page = std::fs::read_to_string(directory.join("svc.1")).unwrap();
    let completion = text(&["completion", "bash"]);
    let opts = completion.lines().filter(|line| line.trim_start().starts_with("opts="));
    for topic in TOPICS {
        for option in ["--help", "-h"] {
            assert!(text(&[option]).contains(&format!("`svc help {topic}`")), "{option}");
        }
        let named = opts.clone().filter(|line| line.contains(&format!(" {topic}"))).collect::<Vec<_>>();
        assert!(named.len() == 1 && named[0].contains(" users "), "{named:?}");
        for (name, _) in entries(topic) {
            assert!(page.contains(&name), "{name}: {page}");
        }
        let shown = client.run(&["help", topic, "--output", "json"]).json();
        assert_valid_output("help", &shown);
        assert_eq!(shown["help"], text(&["help", topic]));
    }
}

#[test]
fn the_completion_offers_the_words_of_names_where_a_command_is_named() {
    let client = Client::new();
    let script = client.home().join("svc.bash");
    std::fs::write(&script, text(&["completion", "bash"])).unwrap();
    for (line, word) in [
        ("svc catalog show user", "users"),
        ("svc catalog show users dis", "disable"),
        ("svc help auth sessions rev", "revoke"),
        ("svc help exit", "exit-codes"),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        let [.., previous, current] = words.as_slice() else { unreachable!() };
        let program = format!(
            ". \"$0\"; COMP_WORDS=({line}) COMP_CWORD={}; _svc svc {current} {previous}; echo \"${{COMPREPLY[@]}}\"",
            words.len() - 1,
        );
        let output = Command::new("bash").args(["--norc", "-c", &program]).arg(&script).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), word, "{line}");
    }
}

#[test]
fn a_group_without_a_subcommand_prints_its_help() {
    for words in [&[][..], &["auth"], &["auth", "sessions"]] {
        assert_eq!(text(words), text(&[words, &["-h"]].concat()), "{words:?}");
        assert_eq!(text(&[words, &["--yes"]].concat()), text(words), "{words:?}");
        let json = Client::new().with_variable("SVC_OUTPUT", "json").run(words).json();
        assert_eq!(json["help"], text(words));
    }
}

#[test]
fn only_the_long_help_lists_the_global_options() {
    for words in [&[][..], &["auth"], &["users", "disable"]] {
        let long = text(&[words, &["--help"]].concat());
        assert_eq!(long.matches("--ca-file").count(), 1, "{long}");
        let short = text(&[words, &["-h"]].concat());
        assert!(
            !short.contains("--ca-file") && short.contains("For global options, run `svc help`"),
            "{short}"
        );
    }
}

#[test]
fn every_help_has_the_examples_of_the_catalog() {
    let catalog = Client::new().run(&["catalog", "show", "--output", "json"]).json();
    for command in catalog["commands"].as_array().unwrap().iter().filter(|command| command["name"] != "svc") {
        let words: Vec<_> = command["name"].as_str().unwrap().split(' ').collect();
        let help = text(&[&words[..], &["--help"]].concat());
        let unbroken = help.replace(" \\\n      --", " --");
        for example in command["examples"].as_array().unwrap() {
            let line = example["command"].as_str().unwrap();
            assert!(unbroken.contains(line), "{line}: {help}");
        }
    }
    for words in commands_and_groups() {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        assert!(text(&[&words[..], &["--help"]].concat()).contains("Examples:\n  "), "{words:?}");
    }
}

#[test]
fn completion_help_describes_the_installation_of_each_script() {
    let help = text(&["completion", "--help"]);
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(help.contains(&format!("svc completion {shell} >")), "{shell}: {help}");
    }
}

#[test]
fn writes_a_manual_page_for_each_command_and_group() {
    let client = Client::new();
    let directory = client.home().join("share/man1");
    let written = client.run(&["man-pages", directory.to_str().unwrap(), "-o", "json"]).json();
    assert_valid_output("man-pages", &written);
    assert_eq!(written["files"].as_array().unwrap().len(), commands_and_groups().len());
    for words in commands_and_groups() {
        let name = [&["svc".to_owned()][..], &words].concat().join("-");
        let page = std::fs::read_to_string(directory.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(".SH OPTIONS"), "{name}: {page}");
        assert_eq!(page.contains(".SH EXAMPLES"), name != "svc", "{name}: {page}");
    }
    for name in ["svc", "svc-users-disable"] {
        let page = std::fs::read_to_string(directory.join(format!("{name}.1"))).unwrap();
        for text in ["SVC_TOKEN_FILE", ".SH ENVIRONMENT", ".SH \"EXIT STATUS\"", "\"svc 0."] {
            assert!(page.contains(text), "{name}: {text}: {page}");
        }
    }
    let page = std::fs::read_to_string(directory.join("svc-users-disable.1")).unwrap();
    assert!(page.contains("SVC_TOKEN or SVC_TOKEN_FILE") && page.contains("SEE ALSO"), "{page}");
    assert!(page.contains("svc users disable bob@acme.example \\-\\-yes"), "{page}");

    std::fs::write(client.home().join("file"), "").unwrap();
    let failed = client.run(&["man-pages", "file", "-o", "json"]);
    assert_eq!((failed.code, &failed.error()["code"]), (Some(1), &Value::from("output_failed")));
}
