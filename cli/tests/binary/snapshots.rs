//! What people see on a terminal of 80 columns, compared with the files in `snapshots`. With the variable `UPDATE_SNAPSHOTS`,
//! the tests write these files.

use std::path::Path;

use contract::ProblemKind;

use crate::client::Client;
use crate::help::{TOPICS, commands_and_groups};
use crate::stub::{Stub, StubRequest, problem};
use crate::terminal::{resize, rest_of, terminal};

/// Compares a text with the file of this name.
#[expect(clippy::disallowed_methods, reason = "a setting of the developer")]
pub(crate) fn assert_snapshot(name: &str, text: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/binary/snapshots");
    let file = directory.join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(file, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        expected == text,
        "{name}: run the test with UPDATE_SNAPSHOTS=1 if this is right:\n{text}\nbefore:\n{expected}"
    );
}

/// Both outputs of a command on a terminal of 80 columns. No line is longer.
fn screen(client: &Client, words: &[&str]) -> String {
    let (screen, terminal) = terminal();
    resize(&terminal, 80);
    let mut command = client.command(words);
    let mut child = command.stdout(terminal.try_clone().unwrap()).stderr(terminal).spawn().unwrap();
    drop(command);
    child.wait().unwrap();
    rest_of(screen).replace("\r\n", "\n")
}

fn assert_fits(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn help_is_as_in_the_snapshots() {
    let client = Client::new().with_variable("NO_COLOR", "1");
    for (name, words) in [
        ("help", &["help"][..]),
        ("help_short", &["-h"]),
        ("help_group", &["auth", "--help"]),
        ("help_command", &["users", "disable", "--help"]),
        ("help_command_short", &["users", "disable", "-h"]),
    ] {
        assert_snapshot(name, &screen(&client, words));
    }
}

#[test]
fn no_help_is_wider_than_80_columns() {
    let client = Client::new().with_variable("NO_COLOR", "1");
    for words in commands_and_groups() {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        for option in ["-h", "--help"] {
            assert_fits(&screen(&client, &[&words[..], &[option]].concat()));
        }
    }
    for topic in TOPICS {
        assert_fits(&screen(&client, &["help", topic]));
    }
}

fn rejecting(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "GET /api/v1/auth/session" => problem(ProblemKind::CredentialInvalid),
        _ => problem(ProblemKind::NotFound),
    }
}

#[test]
fn errors_are_as_in_the_snapshots() {
    let stub = Stub::new(rejecting);
    let client = || Client::new().with_variable("NO_COLOR", "1");
    let connected = client().with_variable("SVC_BASE_URL", &stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    for (name, client, words) in [
        ("error_not_logged_in", &client(), &["auth", "whoami"][..]),
        ("error_credential", &connected, &["auth", "whoami"]),
        ("error_not_found", &connected, &["users", "get", "01890a5d-ac96-774b-bcce-b302099a8057"]),
        ("error_input_needed", &client(), &["auth", "login", "--tenant", "acme"]),
        ("error_usage", &client(), &["events", "send"]),
        ("error_command", &client(), &["login"]),
    ] {
        let shown = screen(client, words);
        assert_fits(&shown);
        assert_snapshot(name, &shown);
    }
}

#[test]
fn the_report_of_doctor_fits_80_columns() {
    let client =
        Client::for_url("http://127.0.0.1:1").with_variable("TERM", "dumb").with_variable("NO_COLOR", "1");
    let report = screen(&client, &["doctor"]);
    assert!(report.contains("failed   connection      "), "{report}");
    assert_fits(&report);
}

#[test]
fn no_color_variable_and_option_disable_all_colors() {
    let plain = Client::new().with_variable("TERM", "xterm");
    assert!(screen(&plain, &["auth", "whoami"]).contains("\u{1b}[1;31merror:"));
    assert!(screen(&plain, &["auth", "login", "--nonsense"]).contains('\u{1b}'));
    for words in
        [&["auth", "whoami"][..], &["auth", "login", "--nonsense"], &["auth", "--help"], &["help"], &["auth"]]
    {
        let never = screen(&plain, &[words, &["--color", "never"]].concat());
        let variable =
            screen(&Client::new().with_variable("TERM", "xterm").with_variable("NO_COLOR", "1"), words);
        for text in [never, variable] {
            assert!(!text.contains('\u{1b}'), "{words:?}: {text:?}");
        }
    }
}
