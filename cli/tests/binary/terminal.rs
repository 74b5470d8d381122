//! A pseudo-terminal with typed input.

use std::fs::File;
use std::io::{Read, Write};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

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

/// Runs a command on a terminal with this input. `stderr` of the result is the output on the terminal.
pub(crate) fn run_at_terminal(client: &Client, command: &[&str], input: &str) -> CommandResult {
    let (mut keyboard, terminal) = terminal();
    keyboard.write_all(input.as_bytes()).unwrap();
    let mut command = client.command(command);
    let child = command.stdin(terminal.try_clone().unwrap()).stderr(terminal).spawn().unwrap();
    // Closes the copies of the terminal. While they are open, reading the output would not end.
    drop(command);
    let mut result = CommandResult::of(child.wait_with_output().unwrap());
    let mut output = Vec::new();
    // Reading ends with an error when the last copy is closed.
    let _ = keyboard.read_to_end(&mut output);
    result.stderr = String::from_utf8(output).unwrap();
    result
}
