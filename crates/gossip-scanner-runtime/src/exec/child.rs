//! A program in a session of its own, and its end.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use std::{fmt, io};

use gossip_stdx::spawn::{self, Child};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use super::capture::OutputPipes;
use super::program::find;
use crate::environment::is_store_secret;
use crate::processor::{Broken, CommandStatus, ItemFailure};
use crate::worker::Drain;

/// Kills every program of this process and its descendants, and starts no more. For an immediate
/// exit: the results of their keys are not recorded.
pub fn end_all_programs() {
    spawn::end_all();
}

/// Returns how many programs of this process are running.
#[must_use]
pub fn running_programs() -> usize {
    spawn::running()
}

/// Starts the process that kills the programs of this one if it dies, and records the signal mask
/// and the ignored signals that programs get.
///
/// Call it early, when this process is still small and has not changed its signals. The first
/// program does it otherwise.
///
/// # Errors
///
/// Returns the reason why no program can be started.
pub fn prepare_programs() -> Result<(), Broken> {
    let no_process = |error| Broken::Failed(format!("no process can be started: {error}").into());
    spawn::prepare().map_err(no_process)
}

/// Ends the process that [`prepare_programs`] started, if no program is running, and starts no more
/// programs. Call it last: otherwise that process is a zombie where process 1 does not wait for it.
pub fn finish_programs() {
    spawn::finish();
}

/// Returns whether this process was started with SIGHUP ignored, as by `nohup`.
#[must_use]
pub fn ignores_hangup() -> bool {
    spawn::was_ignored(Signal::HUP.as_raw())
}

/// A program that was found in `PATH`, and what all of its processes have in common.
pub(super) struct Launcher {
    program: OsString,
    path: CString,
    /// The environment of this process, without the variables that differ between its programs.
    environment: Vec<CString>,
    /// The device without content, for standard input.
    null: File,
}

/// Where the standard streams of a program are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stdio<'a> {
    /// No input, and the output of this process.
    Inherited,
    /// No input, and the standard error of this process as output.
    OutputToStderr,
    /// No input, and pipes for output and errors.
    Captured([BorrowedFd<'a>; 2]),
    /// A terminal as input, and the output of this process. The program is in the session and the
    /// process group of this process, as a program that a shell starts: keys of the terminal reach
    /// both.
    Terminal(BorrowedFd<'a>),
    /// Pipes for input and output.
    Pipes { input: BorrowedFd<'a>, output: BorrowedFd<'a> },
}

impl Launcher {
    /// Looks for a program. Its processes get the environment of this one, with `defaults` for
    /// variables that are not set, and without the settings of gossip that may contain a password.
    pub(super) fn new(program: &OsStr, defaults: &[(&str, &str)]) -> Result<Self, Broken> {
        let found = find(program).and_then(|path| {
            // Without the secrets of a store: a program needs no access to the store that its
            // worker uses.
            let inherited = std::env::vars_os().filter(|(name, _)| is_passed_on(name));
            let unset = defaults.iter().filter(|(name, _)| std::env::var_os(name).is_none());
            let unset = unset.map(|(name, value)| (OsString::from(name), OsString::from(value)));
            let environment = inherited.chain(unset).map(|(name, value)| variable(name, &value));
            Ok(Self {
                program: program.to_owned(),
                path: CString::new(path.into_os_string().into_vec())?,
                environment: environment.collect::<Result<_, _>>()?,
                // Opened once: a worker starts thousands of programs.
                null: File::open("/dev/null")?,
            })
        });
        found.map_err(|error| cannot_start(program, &error))
    }

    /// Starts a process. `own` has the values of [`OWN_VARIABLES`], if they are set.
    pub(super) fn start(
        &self,
        arguments: impl IntoIterator<Item = OsString>,
        own: Option<[String; OWN_VARIABLES.len()]>,
        stdio: Stdio<'_>,
    ) -> io::Result<Running> {
        let words = std::iter::once(self.program.clone()).chain(arguments);
        let words = words.map(|word| CString::new(word.into_vec()));
        let arguments = words.collect::<Result<Vec<_>, _>>()?;
        let own = OWN_VARIABLES.iter().zip(own.into_iter().flatten());
        let own = own.map(|(name, value)| variable((*name).into(), value.as_ref()));
        let own = own.collect::<Result<Vec<_>, _>>()?;
        let environment: Vec<&CStr> =
            self.environment.iter().chain(&own).map(CString::as_c_str).collect();
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let (null, stdout, stderr) = (self.null.as_fd(), stdout.as_fd(), stderr.as_fd());
        let streams = match stdio {
            Stdio::Inherited => [null, stdout, stderr],
            Stdio::OutputToStderr => [null, stderr, stderr],
            Stdio::Captured([output, error]) => [null, output, error],
            Stdio::Terminal(terminal) => [terminal, stdout, stderr],
            Stdio::Pipes { input, output } => [input, output, stderr],
        };
        let command = spawn::Command {
            program: &self.path,
            arguments: &arguments,
            environment: &environment,
            stdio: streams,
            // Only a process of the terminal's session may read from it and receives its signals.
            has_session: !matches!(stdio, Stdio::Terminal(_)),
            is_helper: false,
        };
        Ok(Running { child: command.spawn()?, since: Instant::now(), output: None })
    }

    /// Describes an error of [`Self::start`].
    pub(super) fn cannot_start(&self, error: &io::Error) -> Broken {
        cannot_start(&self.program, error)
    }
}

// The program only: arguments and environment may contain secrets.
impl fmt::Debug for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launcher").field("program", &self.program).finish_non_exhaustive()
    }
}

/// The variables that identify run, shard and fence to a program.
pub(super) const OWN_VARIABLES: [&str; 3] = ["GOSSIP_RUN", "GOSSIP_SHARD", "GOSSIP_FENCE"];

/// Variables that a program which keeps running gets if they are not set: Python would keep its
/// answers in a buffer, because it writes into a pipe.
pub(super) const HANDLER_VARIABLES: [(&str, &str); 1] = [("PYTHONUNBUFFERED", "1")];

/// Variables that ask programs to colour output that goes into a pipe.
pub(super) const COLOR_VARIABLES: [(&str, &str); 2] =
    [("CLICOLOR_FORCE", "1"), ("FORCE_COLOR", "1")];

/// Returns whether programs get a variable: not those that differ between them, and no secret of a
/// store.
fn is_passed_on(name: &OsStr) -> bool {
    !is_store_secret(name) && !OWN_VARIABLES.iter().any(|own| name == *own)
}

fn variable(mut name: OsString, value: &OsStr) -> io::Result<CString> {
    name.push("=");
    name.push(value);
    Ok(CString::new(name.into_vec())?)
}

/// How long the end of a killed program is waited for: longer only if it hangs in the kernel.
const KILL_PATIENCE: Duration = Duration::from_secs(1);

/// A running program; it and its descendants are killed when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    since: Instant,
    /// Its output, if it is captured here.
    output: Option<OutputPipes>,
}

impl Running {
    /// Returns for how long it has run.
    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Captures its output, whose pipes it has got.
    pub(super) fn capture(&mut self, output: OutputPipes) {
        self.output = Some(output);
    }

    /// Returns its output so far, if it is captured.
    pub(super) const fn output(&mut self) -> Option<&mut OutputPipes> {
        self.output.as_mut()
    }

    /// Returns its end, if it comes within `patience`, and captures its output meanwhile.
    ///
    /// The end of the process counts, not that of its output, which another process may hold. A
    /// process whose output cannot be kept is killed.
    pub(super) fn wait(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let begun = Instant::now();
        loop {
            let left = patience.saturating_sub(begun.elapsed());
            let pipes = self.output.as_ref().map_or([None, None], OutputPipes::open_ends);
            let woken = match self.child.wait_or_read(pipes, left) {
                // The time that is left is computed again, so signals do not extend the wait.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                woken => woken?,
            };
            if let Some(output) = &mut self.output {
                if !output.read(woken.readable) {
                    self.child.kill_group();
                }
                if woken.ended.is_some() {
                    // What it wrote last is still in the pipes, which a process that it left
                    // behind may keep open.
                    output.drain();
                }
            }
            let is_over = left.is_zero() || woken.readable == [false; 2];
            if woken.ended.is_some() || is_over {
                return Ok(woken.ended);
            }
        }
    }

    /// Kills it and its descendants, and captures what they had written.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.child.kill_group();
        // With a bound: a process that hangs in the kernel, as on a dead network file system,
        // ignores the signal.
        self.wait(KILL_PATIENCE).map(drop)
    }

    /// Returns whether it has ended; the processes it started may still run.
    pub(super) fn leader_has_ended(&self) -> bool {
        self.child.has_ended()
    }

    /// Kills its descendants, and leaves its own exit status to be read.
    pub(super) fn kill_rest(&self) {
        self.child.kill_group();
    }
}

/// How a program ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Success,
    /// With another exit status than 0, or by a signal.
    Failure(ItemFailure),
    /// By a signal that was not meant for its item, but for this process and all it runs.
    Untried,
}

impl End {
    /// Interprets an exit status. During a drain the death by a signal that requests one is not a
    /// failure: a supervisor sends it to all processes at the same time.
    ///
    /// Waits at most [`DRAIN_GRACE`] for the drain, because the program may get its signal first.
    pub(super) fn of(status: ExitStatus, drain: &Drain) -> Self {
        let requests = [Signal::INT, Signal::TERM, Signal::HUP].map(Signal::as_raw);
        let failure = |message: String, status| {
            Self::Failure(ItemFailure { status: Some(status), ..message.into() })
        };
        match (status.code(), status.signal()) {
            (Some(0), _) => Self::Success,
            (Some(code), _) => failure(format!("exit status {code}"), CommandStatus::Exited(code)),
            (None, Some(signal)) if requests.contains(&signal) && is_draining(drain) => {
                Self::Untried
            }
            (None, Some(signal)) => {
                failure(format!("killed by signal {signal}"), CommandStatus::Signaled(signal))
            }
            (None, None) => Self::Failure("the command failed".into()),
        }
    }
}

/// How long after the death of a program by a signal the same signal to this process may come:
/// both are sent by one loop over the processes, so they are microseconds apart on a machine that
/// is not overloaded.
const DRAIN_GRACE: Duration = Duration::from_millis(50);

/// How often a drain is checked for meanwhile.
const DRAIN_CHECK: Duration = Duration::from_millis(2);

fn is_draining(drain: &Drain) -> bool {
    let begun = Instant::now();
    while !drain.is_asked() {
        if begun.elapsed() >= DRAIN_GRACE {
            return false;
        }
        std::thread::sleep(DRAIN_CHECK);
    }
    true
}

/// Returns an error if the standard output or error of this process is a pipe without a reader:
/// then the failure of a program is no fault of its keys.
pub(super) fn check_output() -> Result<(), Broken> {
    match is_closed(&io::stdout()) || is_closed(&io::stderr()) {
        true => Err(Broken::OutputClosed),
        false => Ok(()),
    }
}

fn is_closed(output: &impl AsFd) -> bool {
    let at_once = Timespec::default();
    let mut asked = [PollFd::new(output, PollFlags::empty())];
    // A write would show it as well, and would put bytes into the output.
    let looked = poll(&mut asked, Some(&at_once));
    looked.is_ok() && asked[0].revents().contains(PollFlags::ERR)
}

/// Describes why a program could not be started at all.
pub(super) fn cannot_start(program: &OsStr, error: &io::Error) -> Broken {
    let program = String::from_utf8_lossy(program.as_bytes());
    match error.kind() {
        io::ErrorKind::NotFound => Broken::NotExecutable(
            format!("command `{program}` not found; check its name and PATH").into(),
        ),
        io::ErrorKind::PermissionDenied => Broken::NotExecutable(
            format!("command `{program}` is not executable; check its permissions").into(),
        ),
        _ => Broken::Failed(format!("command `{program}` could not be started: {error}").into()),
    }
}
