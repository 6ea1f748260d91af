//! `git` as a child process.
//!
//! Each process leads a session of its own before it executes git ([`gossip_stdx::spawn`]), so
//! neither Ctrl-C nor Ctrl-Z at the terminal reaches it: this process finishes its items before it
//! ends its children. A process that was killed with a body half read would fail its item.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use gossip_stdx::spawn;

use crate::environment::is_store_secret;
use crate::exec::find_in_path;

/// Variables that would make another repository, or another content, of the same command.
const REMOVED: [&str; 9] = [
    "GIT_DIR",
    "GIT_COMMON_DIR",
    "GIT_WORK_TREE",
    "GIT_NAMESPACE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
];

/// Variables that git gets. An older git fetches what a partial clone left out, and would wait for
/// a password.
const SET: [&str; 5] = [
    "GIT_NO_REPLACE_OBJECTS=1",
    "GIT_NO_LAZY_FETCH=1",
    "LC_ALL=C",
    "GIT_TERMINAL_PROMPT=0",
    "GIT_ASKPASS=true",
];

/// A command of git and its arguments.
pub(super) struct Git {
    words: Vec<OsString>,
}

impl Git {
    /// Creates a command on a repository.
    pub(super) fn on(git_dir: &Path) -> Self {
        let mut command = Self::isolated();
        command.words.extend(["--git-dir".into(), git_dir.into()]);
        // A blob above this size is streamed and not held in memory by git.
        command.args(&["-c", "core.bigFileThreshold=1m"]);
        command
    }

    /// Creates a command without a repository.
    pub(super) fn isolated() -> Self {
        Self { words: ["git", "-c", "protocol.allow=never"].map(OsString::from).to_vec() }
    }

    pub(super) fn args(&mut self, words: &[&str]) {
        self.words.extend(words.iter().map(OsString::from));
    }

    pub(super) fn arg(&mut self, word: impl Into<OsString>) {
        self.words.push(word.into());
    }

    /// Starts git without input.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no git; otherwise no process can be started.
    pub(super) fn start(&self) -> io::Result<(GitProcess, PipeReader)> {
        self.start_reading(File::open(NO_CONTENT)?.as_fd())
    }

    /// As [`Self::start`], with a pipe as input.
    pub(super) fn start_asking(&self) -> io::Result<(GitProcess, PipeWriter, PipeReader)> {
        let (its_input, input) = io::pipe()?;
        let (process, output) = self.start_reading(its_input.as_fd())?;
        Ok((process, input, output))
    }

    /// As [`Self::start`], with `input`.
    pub(super) fn start_reading(
        &self,
        input: BorrowedFd<'_>,
    ) -> io::Result<(GitProcess, PipeReader)> {
        let words = self.words.iter().map(|word| CString::new(word.as_bytes()));
        let arguments = words.collect::<Result<Vec<_>, _>>()?;
        let kept = std::env::vars_os().filter(|(name, _)| is_passed_on(name));
        let kept = kept
            .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()));
        let set = SET.into_iter().map(CString::new);
        let environment = kept.chain(set).collect::<Result<Vec<_>, _>>()?;
        let environment: Vec<&CStr> = environment.iter().map(CString::as_c_str).collect();
        let program = find_in_path(OsStr::new("git"))?;
        let (output, its_output) = io::pipe()?;
        let errors = File::options().write(true).open(NO_CONTENT)?;
        let child = spawn::Command {
            program: &CString::new(program.into_os_string().into_vec())?,
            arguments: &arguments,
            environment: &environment,
            stdio: [input, its_output.as_fd(), errors.as_fd()],
            has_session: true,
            // A process that is idle is used by any thread, and is no command of the user.
            is_helper: true,
        };
        Ok((GitProcess(child.spawn()?), output))
    }

    /// Runs git to its end and returns its output, if it ended well.
    pub(super) fn output(&self) -> io::Result<Option<Vec<u8>>> {
        let (mut process, mut output) = self.start()?;
        let mut text = Vec::new();
        output.read_to_end(&mut text)?;
        Ok(process.wait()?.success().then_some(text))
    }
}

/// The device without content, which drops all that is written.
const NO_CONTENT: &str = "/dev/null";

fn is_passed_on(name: &OsStr) -> bool {
    // A filter or hook that the repository's configuration names would get the secrets from git.
    if is_store_secret(name) {
        return false;
    }
    let is_set = |name: &OsStr| {
        SET.iter().any(|set| set.split('=').next().is_some_and(|set| OsStr::new(set) == name))
    };
    !REMOVED.iter().any(|removed| OsStr::new(removed) == name) && !is_set(name)
}

/// A running git; it is killed when this is dropped.
pub(super) struct GitProcess(spawn::Child);

impl GitProcess {
    /// Waits for its end.
    pub(super) fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            match self.0.wait(Duration::MAX) {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => {}
                // A signal, such as that of a child or of Ctrl-Z.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
