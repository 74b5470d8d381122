//! Output never changes the input of the same command, however the two files are named.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::client::{Client, CommandResult};
use crate::events::{client, service};
use crate::stub::Stub;

/// An accepted event, a rejected one, and a line that is not JSON.
const INPUT: &str = "{\"source_id\":\"fw\"}\n{\"source_id\":\"bad\"}\nnonsense\n";

/// Runs a script in the home directory, with `svc` as its first argument.
fn run(client: &Client, script: &str) -> CommandResult {
    let svc = client.command(&[]);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script, "sh"]).arg(svc.get_program()).current_dir(client.home());
    shell.env_clear().envs(svc.get_envs().filter_map(|(name, value)| Some((name, value?))));
    CommandResult::of(shell.env("PATH", "/usr/bin:/bin").output().unwrap())
}

fn read(client: &Client, file: &str) -> String {
    std::fs::read_to_string(client.home().join(file)).unwrap()
}

/// Runs a script that names an input in two ways. Asserts that the command changes nothing.
fn assert_refused(input: &str, script: &str) {
    let stub = Stub::new(service);
    let client = client(&stub);
    std::fs::write(client.home().join(input), INPUT).unwrap();
    let result = run(&client, script);
    assert_eq!(result.code, Some(2), "{script}: {result:?}");
    assert_eq!(read(&client, input), INPUT, "{script}");
    assert!(result.stderr.contains("what to do: "), "{script}: {result:?}");
    assert_eq!(stub.requests().len(), 0, "{script}");
}

#[test]
fn rejects_are_not_written_to_the_input() {
    for script in [
        "$1 events send -f a --rejects ./a",
        "$1 events send -f - --rejects a < a",
        "ln a b; $1 events send -f a --rejects b",
        "ln a b; $1 events send -f - --rejects b < a",
        "ln -s a b; $1 events send -f a --rejects b",
        "ln -s a b; $1 events send -f b --rejects a",
        "mkdir d; ln -s .. d/up; $1 events send -f a --rejects d/up/a",
        "$1 events send -f /dev/stdin --rejects a < a",
        "$1 events send -f - --rejects /dev/stdin < a",
        "$1 events send -f - --rejects /proc/self/fd/0 < a",
        "$1 events send -f a --rejects /proc/self/fd/3 3<> a",
        "$1 events send -f a --rejects /dev/fd/3 3< a",
        "$1 events send -f /proc/self/fd/3 --rejects a 3< a",
        "$1 events send -f a --checkpoint c --rejects a",
        "ln a b; $1 events send -f a --checkpoint c --rejects b",
    ] {
        assert_refused("a", script);
    }
    assert_refused("c.rejects.ndjson", "$1 events send -f c.rejects.ndjson --checkpoint c");
    assert_refused("a", "ln -s a c.rejects.ndjson; $1 events send -f a --checkpoint c");
    assert_refused("a", "mkfifo p; cat a > p & timeout 20 $1 events send -f p --rejects p");
}

#[test]
fn the_shell_does_not_redirect_output_to_the_input() {
    for script in [
        "$1 events send -f a >> a",
        "$1 events send -f a 1<> a",
        "$1 events send -f - < a >> a",
        "ln a b; $1 events send -f a >> b",
        "$1 events send -f a --rejects /dev/stdout >> a",
        "$1 events validate -f a >> a",
        "$1 events validate -f - < a 1<> a",
        "$1 catalog validate a >> a",
        "$1 catalog validate - < a >> a",
        "$1 api POST /users --data - < a >> a",
        "$1 auth login --email a@b.example --tenant acme --password-stdin < a >> a",
        "$1 auth login --email a@b.example --tenant acme --password-file a >> a",
        "$1 auth sessions revoke - < a >> a",
        "$1 users accept-invite - --password-stdin < a >> a",
    ] {
        assert_refused("a", script);
    }
}

#[test]
fn an_input_that_is_standard_error_too_gets_only_the_error() {
    let stub = Stub::new(service);
    let client = client(&stub);
    std::fs::write(client.home().join("a"), INPUT).unwrap();
    assert_eq!(run(&client, "$1 events send -f a 2>> a").code, Some(2));
    let added = read(&client, "a").strip_prefix(INPUT).unwrap().to_owned();
    assert!(
        added.starts_with("error: the input file is standard error too") && added.lines().count() == 2,
        "{added}"
    );
    assert_eq!(stub.requests().len(), 0);
}

#[test]
fn an_input_that_the_shell_has_emptied_is_reported() {
    let result = run(&Client::new(), "echo x > a; $1 events validate -f a > a");
    assert_eq!(result.code, Some(2), "{result:?}");
    assert!(result.stderr.contains("the input file is standard output too"), "{result:?}");
}

#[test]
fn rejects_are_not_written_to_the_checkpoint_a_credential_or_the_settings() {
    let stub = Stub::new(service);
    let assert_kept = |client: &Client, file: &str, script: &str| {
        std::fs::write(client.home().join("a"), INPUT).unwrap();
        let before = read(client, file);
        let result = run(client, script);
        assert_eq!((result.code, read(client, file)), (Some(2), before), "{script}: {result:?}");
    };
    let sender = client(&stub);
    assert_eq!(
        run(&sender, "echo '{\"source_id\":\"fw\"}' > a; $1 events send -f a --checkpoint c").code,
        Some(0)
    );
    assert_kept(
        &sender,
        "c",
        "echo '{\"source_id\":\"fw\"}' > a; ln c d; $1 events send -f a --checkpoint c --rejects d",
    );
    let new = "$1 events send -f a --checkpoint new --rejects ./new";
    assert_kept(&sender, "a", new);
    assert!(!sender.home().join("new").exists());

    let with_file = Client::for_url(&stub.url).with_variable("SVC_API_KEY_FILE", "key");
    std::fs::write(with_file.home().join("key"), "svc_ak_x\n").unwrap();
    assert_kept(&with_file, "key", "ln -s key k; $1 events send -f a --rejects k");

    let certificate = rcgen::generate_simple_self_signed(vec!["svc.example".to_owned()]).unwrap();
    std::fs::write(sender.home().join("ca.pem"), certificate.cert.pem()).unwrap();
    assert_kept(&sender, "ca.pem", "ln ca.pem r; $1 events send -f a --ca-file ca.pem --rejects r");
    assert_eq!(run(&sender, "$1 config set tenant acme").code, Some(0));
    assert_kept(&sender, ".config/svc/config.json", "$1 events send -f a --rejects .config/svc/config.json");
}

#[test]
fn the_temporary_file_of_a_checkpoint_is_no_other_file() {
    let stub = Stub::new(service);
    let client = client(&stub);
    for file in ["c.tmp", "other"] {
        std::fs::write(client.home().join(file), INPUT).unwrap();
    }
    let result = run(&client, "$1 events send -f c.tmp --checkpoint c");
    assert_eq!((result.code, read(&client, "c.tmp").as_str()), (Some(10), INPUT), "{result:?}");
    let result = run(&client, "$1 events send -f c.tmp --checkpoint other");
    assert_eq!((result.code, read(&client, "other").as_str()), (Some(7), INPUT), "{result:?}");
    let names = std::fs::read_dir(client.home()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["c", "c.rejects.ndjson", "c.tmp", "other"]);
}

#[test]
fn a_rejects_file_is_private_and_replaces_an_earlier_one() {
    let stub = Stub::new(service);
    let client = client(&stub);
    std::fs::write(client.home().join("a"), INPUT).unwrap();
    assert_eq!(run(&client, "umask 022; $1 events send -f a --rejects r").code, Some(10));
    let path = client.home().join("r");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let rejects = read(&client, "r");
    std::fs::write(&path, "x".repeat(10_000)).unwrap();
    assert_eq!(run(&client, "$1 events send -f a --rejects r").code, Some(10));
    assert_eq!(read(&client, "r").lines().count(), rejects.lines().count());
    // A pipe is no file that could be emptied.
    let piped =
        run(&client, "$1 events send -f a --rejects /dev/stderr 2>&1 >/dev/null | grep -c '^{\"line\":'");
    assert_eq!(piped.stdout, "2\n", "{piped:?}");
}
