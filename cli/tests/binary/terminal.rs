//! A pseudo-terminal with typed input.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::client::{Client, CommandResult};

/// Opens a pseudo-terminal. Returns its controlling end and the end for the program.
pub(crate) fn terminal() -> (File, File) {
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let name = ptsname(&keyboard, Vec::new()).unwrap();
    let terminal = File::from(open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
    (File::from(keyboard), terminal)
}

/// Changes the size of a terminal.
pub(crate) fn resize(terminal: &File, columns: u16) {
    tcsetwinsize(terminal, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

/// Reads from a terminal until its output ends with a text, and returns the output. Fails if that takes too long.
pub(crate) fn read_until(screen: &File, end: &str) -> String {
    let mut screen = screen.try_clone().unwrap();
    let expected = end.as_bytes().to_owned();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut output = Vec::new();
        let mut byte = [0];
        while !output.ends_with(&expected) && screen.read_exact(&mut byte).is_ok() {
            output.push(byte[0]);
            // Fails only after the deadline.
            let _ = sender.send(output.clone());
        }
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut output = Vec::new();
    while !output.ends_with(end.as_bytes()) {
        let next = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        let shown = String::from_utf8_lossy(&output).into_owned();
        output = next.unwrap_or_else(|error| panic!("{error}: no {end:?} in {shown:?}"));
    }
    String::from_utf8_lossy(&output).into_owned()
}

/// Reads the rest of the output of a terminal that no program uses any more.
pub(crate) fn rest_of(mut screen: File) -> String {
    let mut output = Vec::new();
    // Reading ends with an error because all copies of the terminal are closed.
    let _ = screen.read_to_end(&mut output);
    String::from_utf8(output).unwrap()
}

/// How the first questions of commands, and announcements of input, end.
const QUESTIONS: [&str; 10] = [
    "[y/N]: ",
    " to confirm: ",
    " token: ",
    " password: ",
    "in acme: ",
    "E-mail: ",
    "Tenant: ",
    "Number of the login: ",
    "end with Enter\r\n",
    "end with Ctrl-D\r\n",
];

/// Types the input when the command has asked its first question, and returns the output until then. Types nothing if the command ends
/// without a question.
pub(crate) fn answer(keyboard: &mut File, input: &str) -> Vec<u8> {
    let mut output = Vec::new();
    let mut byte = [0];
    // Reading ends with an error when the command has closed the terminal.
    while keyboard.read_exact(&mut byte).is_ok() {
        output.push(byte[0]);
        if QUESTIONS.iter().any(|end| output.ends_with(end.as_bytes())) {
            keyboard.write_all(input.as_bytes()).unwrap();
            break;
        }
    }
    output
}

/// Runs a command on a terminal with this input. `stderr` of the result is the output on the terminal.
pub(crate) fn run_at_terminal(client: &Client, command: &[&str], input: &str) -> CommandResult {
    let (mut keyboard, terminal) = terminal();
    let mut command = client.command(command);
    let child = command.stdin(terminal.try_clone().unwrap()).stderr(terminal).spawn().unwrap();
    // Closes the copies of the terminal. While they are open, reading the output would not end.
    drop(command);
    let mut output = answer(&mut keyboard, input);
    let mut result = CommandResult::of(child.wait_with_output().unwrap());
    // Reading ends with an error when the last copy is closed.
    let _ = keyboard.read_to_end(&mut output);
    result.stderr = String::from_utf8(output).unwrap();
    result
}
