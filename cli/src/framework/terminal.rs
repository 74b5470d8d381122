//! The terminal while a question is open. What the question changed is undone when it is answered, and before a signal ends the
//! process.

use std::io::{self, Write};

use parking_lot::Mutex;
use rustix::termios::{LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr};

use crate::framework::error::{CliError, Result};

/// What the open question changed.
struct Changed {
    /// Modes to restore, if the terminal does not echo.
    echoing: Option<Termios>,
    /// The question, if its line has no end.
    open_line: Option<String>,
    /// Whether the terminal did not echo an answer.
    has_hidden: bool,
}

/// Not locked during output, which can block, because the thread of the signals must get it.
static CHANGED: Mutex<Changed> = Mutex::new(Changed { echoing: None, open_line: None, has_hidden: false });

/// Restores the echo and keeps the lock, so that a later question blocks and cannot change the echo again. Returns whether the line of
/// a question has not ended.
pub(crate) fn restore() -> bool {
    let mut changed = CHANGED.lock();
    changed.echo();
    let has_open_line = changed.open_line.is_some();
    std::mem::forget(changed);
    has_open_line
}

/// Hides the input again, and repeats the question: a shell that stops a command restores the echo, and keeps it when the command
/// continues.
pub(crate) fn resume() {
    let question = {
        let changed = CHANGED.lock();
        if changed.echoing.is_some() {
            // A failure cannot be handled: the terminal does not exist any more.
            let _ = hide();
        }
        changed.open_line.clone()
    };
    if let Some(question) = question {
        let mut err = io::stderr().lock();
        let _ = write!(err, "{question}: ").and_then(|()| err.flush());
    }
}

/// Discards lines that were typed or pasted after a hidden answer, so that the shell does not run them.
pub(crate) fn discard_rest() {
    if CHANGED.lock().has_hidden {
        let _ = tcflush(io::stdin(), QueueSelector::IFlush);
    }
}

/// Switches the echo off. Returns the modes before.
fn hide() -> io::Result<Termios> {
    let echoing = tcgetattr(io::stdin())?;
    let mut hidden = echoing.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    // The end of the line is echoed, so that later output starts on a new line.
    hidden.local_modes.insert(LocalModes::ECHONL);
    tcsetattr(io::stdin(), OptionalActions::Now, &hidden)?;
    Ok(echoing)
}

impl Changed {
    fn echo(&mut self) {
        if let Some(echoing) = self.echoing.take() {
            // A failure cannot be handled: the terminal does not exist any more.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &echoing);
        }
    }
}

/// The terminal does not echo its input until this is dropped.
pub(crate) struct HiddenInput;

impl HiddenInput {
    pub(crate) fn start() -> io::Result<Self> {
        let mut changed = CHANGED.lock();
        changed.echoing = Some(hide()?);
        changed.has_hidden = true;
        Ok(Self)
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        CHANGED.lock().echo();
    }
}

/// A printed question without an answer. Ends its line when dropped, so that later output starts on a new line.
pub(crate) struct OpenQuestion(());

impl OpenQuestion {
    pub(crate) fn print(question: &str) -> Result<Self> {
        // Before the question is shown, because a key can end the command at once.
        CHANGED.lock().open_line = Some(question.to_owned());
        let open = Self(());
        let mut err = io::stderr().lock();
        let printed = write!(err, "{question}: ").and_then(|()| err.flush());
        printed.map_err(|error| CliError::write_failed(&error, "standard error"))?;
        Ok(open)
    }

    /// The terminal has echoed the line ending of the answer.
    #[expect(clippy::unused_self, reason = "a question is answered once")]
    pub(crate) fn answered(self) {
        CHANGED.lock().open_line = None;
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        let open_line = CHANGED.lock().open_line.take();
        if open_line.is_some() {
            print_line("");
        }
    }
}

/// Prints to standard error. A failure cannot be reported anywhere else.
pub(crate) fn print_line(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
