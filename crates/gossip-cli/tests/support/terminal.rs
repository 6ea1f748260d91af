//! A pseudo-terminal with a process on it.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]
#![allow(dead_code, reason = "each file of tests uses its part of it")]

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The keys that a terminal turns into signals.
pub(crate) const CTRL_C: u8 = 3;
pub(crate) const CTRL_Z: u8 = 26;

/// A terminal, and the leader of the session that it controls.
pub(crate) struct Terminal {
    keyboard: File,
    pub(crate) child: Child,
    screen: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts `words` on a new terminal, in the directory and the environment of `like`.
    pub(crate) fn start(like: &Command, words: &[&str]) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let keyboard = File::from(keyboard.unwrap());
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let terminal = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let side = || Stdio::from(OwnedFd::from(terminal.try_clone().unwrap()));
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(words);
        command.stdin(side()).stdout(side()).stderr(side());
        command.current_dir(like.get_current_dir().unwrap()).env_clear();
        command.env("TERM", "xterm-256color");
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let child = command.spawn().unwrap();
        let screen = Arc::new(Mutex::new(Vec::new()));
        let reader = thread::spawn({
            let (mut output, screen) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
            move || {
                let mut buffer = [0; 4096];
                // Reading fails when the last process has closed the terminal.
                while let Ok(len @ 1..) = output.read(&mut buffer) {
                    screen.lock().unwrap().extend_from_slice(&buffer[..len]);
                }
            }
        });
        Self { keyboard, child, screen, reader: Some(reader) }
    }

    pub(crate) fn press(&mut self, key: u8) {
        rustix::io::write(&self.keyboard, &[key]).unwrap();
    }

    /// Changes the size of the terminal.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keyboard, size).unwrap();
    }

    /// Returns all output so far.
    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    /// Waits for the end of the session's leader. Returns its exit code and all output.
    pub(crate) fn finish(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        self.reader.take().unwrap().join().unwrap();
        (code, self.screen())
    }
}
