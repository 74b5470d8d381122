//! A terminal, and a person who types at it.

use std::fs::File;
use std::io::{Read, Write};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::client::{Client, Ran};

/// A terminal: the end that a person holds, and the end of the program.
pub(crate) fn terminal() -> (File, File) {
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let name = ptsname(&keyboard, Vec::new()).unwrap();
    let terminal = File::from(open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
    (File::from(keyboard), terminal)
}

/// Runs the command at a terminal where this is typed; what it says there is its standard error.
pub(crate) fn typing(client: &Client, command: &[&str], answer: &str) -> Ran {
    let (mut keyboard, terminal) = terminal();
    keyboard.write_all(answer.as_bytes()).unwrap();
    let mut command = client.command(command);
    let child = command.stdin(terminal.try_clone().unwrap()).stderr(terminal).spawn().unwrap();
    // Its copies of the terminal: while they are open, reading what was said would not end.
    drop(command);
    let mut ran = Ran::of(child.wait_with_output().unwrap());
    let mut said = Vec::new();
    // Ends with an error of its own when the last copy is closed.
    let _ = keyboard.read_to_end(&mut said);
    ran.stderr = String::from_utf8(said).unwrap();
    ran
}
