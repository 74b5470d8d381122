//! Signals: a command ends by the signal that it received, in every phase, so that a shell ends its loop.

use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode};
use rustix::process::{Pid, Signal, kill_process};

use crate::client::Client;
use crate::keyring::store_login_in_keyring;
use crate::terminal::{read_until, rest_of, terminal};

const SIGNALS: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];
const DEADLINE: Duration = Duration::from_secs(30);

/// A server that accepts connections and sends nothing.
struct Silent(TcpListener);

impl Silent {
    fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn client(&self) -> Client {
        Client::for_url(&format!("http://{}", self.0.local_addr().unwrap()))
            .with_variable("SVC_TOKEN", "svc_st_x")
            .with_variable("SVC_TENANT", "acme")
    }
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < DEADLINE, "{what}");
        std::thread::yield_now();
    }
}

/// Waits for the end of a command. Fails if that takes too long.
fn end_of(mut child: Child) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > DEADLINE {
            child.kill().unwrap();
            panic!("the command did not end");
        }
        std::thread::yield_now();
    }
}

/// Whether the command handles signals.
fn handles_signals(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
    let caught = u64::from_str_radix(caught.trim(), 16).unwrap_or_default();
    SIGNALS.iter().all(|signal| (caught >> (signal.as_raw() - 1)) & 1 == 1)
}

#[test]
fn a_command_that_waits_for_the_service_ends_by_the_signal() {
    for command in
        [&["auth", "whoami"][..], &["users", "delete", "bob@acme.example", "--yes"], &["events", "tail"]]
    {
        for signal in SIGNALS {
            let silent = Silent::new();
            let child = silent.client().command(command).stderr(Stdio::null()).spawn().unwrap();
            let _connection = silent.0.accept().unwrap();
            kill_process(Pid::from_child(&child), signal).unwrap();
            assert_eq!(end_of(child).signal(), Some(signal.as_raw()), "{command:?}");
        }
    }
}

#[test]
fn a_command_that_waits_for_its_input_ends_by_the_signal() {
    for signal in SIGNALS {
        let client = Client::new();
        let child = client.command(&["events", "validate", "-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        wait_until("handler", || handles_signals(&child));
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(end_of(child).signal(), Some(signal.as_raw()));
    }
}

#[test]
fn a_command_that_is_blocked_ends_by_the_signal() {
    for signal in SIGNALS {
        let client = Client::new();
        let fifo = client.home().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let client = client.with_variable("SVC_TOKEN_FILE", fifo.to_str().unwrap());
        let child = client.command(&["auth", "whoami"]).spawn().unwrap();
        // Opening waits until the command reads.
        let _writer = File::options().write(true).open(&fifo).unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(end_of(child).signal(), Some(signal.as_raw()), "a FIFO that nothing is written to");

        let mut child = Client::new().command(&["catalog", "show"]).spawn().unwrap();
        let output = child.stdout.take().unwrap();
        // The catalog is larger than the buffer of the pipe.
        wait_until("the pipe is full", || rustix::io::ioctl_fionread(&output).unwrap() >= 64 * 1024);
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(end_of(child).signal(), Some(signal.as_raw()), "output that is not read");
    }
}

#[test]
fn a_command_that_waits_for_the_lock_of_the_settings_ends_by_the_signal() {
    for signal in SIGNALS {
        let client = Client::new();
        assert_eq!(client.run(&["config", "set", "tenant", "acme"]).code, Some(0));
        let lock = File::options().write(true).open(client.home().join(".config/svc/lock")).unwrap();
        lock.lock().unwrap();
        let (screen, terminal) = terminal();
        let mut command = client.command(&["config", "set", "tenant", "umbrella"]);
        let child = command.stderr(terminal).spawn().unwrap();
        drop(command);
        read_until(&screen, ".config/svc/lock\r\n");
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(end_of(child).signal(), Some(signal.as_raw()));
        assert_eq!(client.run(&["config", "get", "tenant"]).stdout, "acme\n");
    }
}

#[test]
fn a_command_that_waits_for_the_keyring_ends_by_the_signal() {
    for signal in SIGNALS {
        let client = Client::new();
        store_login_in_keyring(&client, "http://127.0.0.1:1");
        let home = client.home();
        // It accepts connections and sends nothing.
        let bus = UnixListener::bind(home.join("bus")).unwrap();
        let client = client.with_variable("XDG_RUNTIME_DIR", home.to_str().unwrap());
        let child = client.command(&["auth", "token"]).spawn().unwrap();
        let _connection = bus.accept().unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(end_of(child).signal(), Some(signal.as_raw()));
    }
}

#[test]
fn a_signal_at_any_time_never_becomes_an_exit_status() {
    for trial in 0..40 {
        let child = Client::new().command(&["version", "--client"]).stdout(Stdio::null()).spawn().unwrap();
        let until = Instant::now() + Duration::from_micros(trial * 300);
        wait_until("time", || Instant::now() >= until);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let status = end_of(child);
        assert!(status.success() || status.signal() == Some(Signal::INT.as_raw()), "{status:?}");
    }
}

#[test]
fn signals_that_the_calling_program_ignores_stay_ignored() {
    let silent = Silent::new();
    let client = silent.client();
    let svc = client.command(&["auth", "whoami"]);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh"]).arg(svc.get_program()).args(svc.get_args());
    shell.env_clear().envs(svc.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let child = shell.stderr(Stdio::null()).spawn().unwrap();
    let _connection = silent.0.accept().unwrap();
    // SIGTERM is delivered after them.
    for signal in SIGNALS {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    assert_eq!(end_of(child).signal(), Some(Signal::TERM.as_raw()));
}

/// A shell that runs a script with `svc` as its first argument, on a separate terminal. bash, if there is one: others do not wait
/// for the end of the command.
fn shell(client: &Client, script: &str, terminal: &File) -> Child {
    let svc = client.command(&[]);
    let bash = ["/bin/bash", "/usr/bin/bash"].into_iter().find(|path| std::fs::exists(path).unwrap());
    let mut session = Command::new("/usr/bin/setsid");
    session.args(["--ctty", bash.unwrap_or("/bin/sh"), "-c", script, "shell"]).arg(svc.get_program());
    session.env_clear().envs(svc.get_envs().filter_map(|(name, value)| Some((name, value?))));
    session.env("PATH", "/usr/bin:/bin").current_dir(client.home());
    let end = || terminal.try_clone().unwrap();
    session.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap()
}

#[test]
fn ctrl_c_ends_a_loop_of_commands() {
    for command in [
        "users list",
        "users delete bob@acme.example --yes",
        "events send -f events.ndjson",
        "events tail",
        "auth login --email a@acme.example --password-file events.ndjson",
    ] {
        let silent = Silent::new();
        let client = silent.client();
        std::fs::write(client.home().join("events.ndjson"), "{\"source_id\":\"fw\"}\n").unwrap();
        let (mut keyboard, terminal) = terminal();
        let script = format!("for i in 1 2 3; do echo run $i; $1 {command}; done; echo end of the loop");
        let child = shell(&client, &script, &terminal);
        drop(terminal);
        read_until(&keyboard, "run 1\r\n");
        let _connection = silent.0.accept().unwrap();
        keyboard.write_all(&[3]).unwrap();
        if command.starts_with("events send") {
            read_until(&keyboard, "press Ctrl-C again to end at once\r\n");
            keyboard.write_all(&[3]).unwrap();
        }
        assert_eq!(end_of(child).signal(), Some(Signal::INT.as_raw()), "{command}");
        let shown = rest_of(keyboard);
        assert!(!shown.contains("run 2") && !shown.contains("end of the loop"), "{command}: {shown}");
    }
}
