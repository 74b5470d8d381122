//! A wrong clock of one process: the loader adds a library that shifts the time of day. Needs Linux and a C compiler.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// Monotonic clocks are not shifted.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    long result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += atol(getenv("CLOCK_DIFFERENCE"));
    return (int)result;
}
"#;

/// A library that shifts the clock of a process.
pub struct WrongClock(TempDir);

impl WrongClock {
    /// Compiles the library.
    pub fn compile() -> Self {
        let clock = Self(tempfile::tempdir().unwrap());
        let source = clock.0.path().join("clock.c");
        std::fs::write(&source, SOURCE).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).args([clock.library(), source]);
        assert!(compiler.status().unwrap().success(), "the C compiler failed");
        clock
    }

    /// The variables of a process with a clock that is wrong by this number of seconds.
    pub fn variables(&self, seconds: i64) -> [(&'static str, String); 2] {
        [
            ("LD_PRELOAD", self.library().to_str().unwrap().to_owned()),
            ("CLOCK_DIFFERENCE", seconds.to_string()),
        ]
    }

    fn library(&self) -> PathBuf {
        self.0.path().join("clock.so")
    }
}
