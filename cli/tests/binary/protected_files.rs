//! Settings that the user cannot replace or read, as in containers and in the home directory of another user.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::client::{Client, CommandResult};
use crate::stub::Stub;

/// A user namespace in which the command has no privileges, also if the test runs as root.
const UNPRIVILEGED: &[&str] = &["--user"];
/// Namespaces in which the command can mount files.
const MOUNTING: &[&str] = &["--user", "--map-root-user", "--mount"];

/// Returns whether the system permits the namespaces.
fn has_namespaces() -> bool {
    let unshare =
        Command::new("/usr/bin/unshare").args(MOUNTING).arg("/bin/true").stderr(Stdio::null()).status();
    let is_permitted = unshare.is_ok_and(|status| status.success());
    if !is_permitted {
        eprintln!("NOT TESTED: unshare is not installed, or user namespaces are not permitted");
    }
    is_permitted
}

/// Runs a shell command in new namespaces, then the client.
fn run_in(namespaces: &[&str], first: &str, client: &Client, arguments: &[&str]) -> CommandResult {
    let svc = client.command(arguments);
    let script = format!("{first} && exec \"$0\" \"$@\"");
    let mut unshare = Command::new("/usr/bin/unshare");
    unshare.args(namespaces).args(["/bin/sh", "-c", &script]).arg(svc.get_program()).args(svc.get_args());
    unshare.env_clear().envs(svc.get_envs().filter_map(|(name, value)| Some((name, value?))));
    unshare.env("PATH", "/usr/bin:/bin").current_dir(client.home()).stdin(Stdio::null());
    CommandResult::of(unshare.output().unwrap())
}

/// A client with a configuration file, and the path of the file.
fn configured() -> (Client, PathBuf) {
    let client = Client::new();
    assert_eq!(client.run(&["config", "set", "tenant", "acme"]).code, Some(0));
    let file = client.home().join(".config/svc/config.json");
    (client, file)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_mounted_configuration_file_is_changed_in_place_also_behind_a_link() {
    if !has_namespaces() {
        return;
    }
    for is_linked in [false, true] {
        let (client, file) = configured();
        let text = fs::read_to_string(&file).unwrap();
        let mounted = client.home().join("mounted.json");
        fs::write(&mounted, &text).unwrap();
        let mut target = file.clone();
        if is_linked {
            target = client.home().join("dotfile.json");
            fs::rename(&file, &target).unwrap();
            std::os::unix::fs::symlink(&target, &file).unwrap();
        }
        let mount = format!("mount --bind '{}' '{}'", mounted.display(), target.display());
        let result = run_in(MOUNTING, &mount, &client, &["config", "set", "tenant", "umbrella"]);
        assert_eq!(result.code, Some(0), "{result:?}");
        assert!(fs::read_to_string(&mounted).unwrap().contains("umbrella"));
        assert_eq!(fs::read_to_string(&target).unwrap(), text, "the file that the mount hides");
        assert_eq!(fs::symlink_metadata(&file).unwrap().is_symlink(), is_linked);
        let mut names: Vec<_> =
            fs::read_dir(file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["config.json", "lock"]);
    }
}

#[test]
fn a_configuration_file_in_a_read_only_directory_is_changed_in_place() {
    if !has_namespaces() {
        return;
    }
    let (client, file) = configured();
    let directory = file.parent().unwrap();
    set_mode(directory, 0o555);
    let result = run_in(UNPRIVILEGED, "true", &client, &["config", "set", "tenant", "umbrella"]);
    set_mode(directory, 0o700);
    assert_eq!(result.code, Some(0), "{result:?}");
    assert!(fs::read_to_string(&file).unwrap().contains("umbrella"));
}

#[test]
fn an_unreadable_configuration_is_an_error_unless_options_name_the_service() {
    if !has_namespaces() {
        return;
    }
    let (client, file) = configured();
    set_mode(&file, 0o000);
    let stub = Stub::new(|_| (200, r#"{"items":[]}"#.to_owned()));
    let list = ["users", "list", "--output", "json"];
    let client = client.with_variable("SVC_TOKEN", "svc_st_x").with_variable("SVC_TENANT", "acme");
    let error = run_in(UNPRIVILEGED, "true", &client, &list).error();
    assert_eq!(error["code"], "configuration_invalid");
    let advice = error["remediation"].as_str().unwrap();
    assert!(advice.contains(file.to_str().unwrap()) && advice.contains("XDG_CONFIG_HOME"), "{advice}");
    let client = client.with_variable("SVC_BASE_URL", &stub.url);
    let result = run_in(UNPRIVILEGED, "true", &client, &list);
    assert_eq!(result.code, Some(0), "{result:?}");
}

#[test]
fn a_lock_of_another_user_is_named() {
    if !has_namespaces() {
        return;
    }
    let (client, file) = configured();
    let lock = file.with_file_name("lock");
    set_mode(&lock, 0o000);
    let set = ["config", "set", "tenant", "umbrella", "--output", "json"];
    let error = run_in(UNPRIVILEGED, "true", &client, &set).error();
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with(lock.to_str().unwrap()), "{message}");
}
