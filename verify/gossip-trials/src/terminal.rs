//! Children under the keys of a terminal: none may be killed or stopped by Ctrl-C or Ctrl-Z.
//!
//! `terminal SPAWNS INTERRUPTS STOPS`. A process on a pseudo-terminal spawns children, one after
//! another on two threads, with [`gossip_stdx::spawn`], while Ctrl-C and Ctrl-Z are pressed. It
//! handles both signals, so each key reaches it and whichever child is still in its process group.
//!
//! `terminal std SPAWNS INTERRUPTS 0` spawns with the standard library and a process group instead:
//! there Ctrl-C kills children before their `exec`. It shows that the campaign detects this. Ctrl-Z
//! would stop such a child, and the process that spawns it for ever.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use gossip_stdx::spawn;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use signal_hook::consts::{SIGINT, SIGTSTP};
use signal_hook::iterator::Signals;

use crate::Outcome;
use crate::process::own_program;

/// The keys that a terminal turns into signals.
const CTRL_C: u8 = 3;
const CTRL_Z: u8 = 26;

/// A pause between two keys: about ten children are spawned meanwhile.
const BETWEEN_KEYS: Duration = Duration::from_millis(3);

/// A child runs for a millisecond; one that takes this long is stopped.
const CHILD_MAX: Duration = Duration::from_secs(30);

/// A campaign that takes longer hangs.
const CAMPAIGN_MAX: Duration = Duration::from_secs(900);

/// Threads that spawn, as many as the machine of the figures has processors.
const THREADS: u64 = 2;

/// The program `terminal`.
pub fn main() -> ExitCode {
    crate::run_program(run)
}

fn run(words: &[&str]) -> Outcome<String> {
    let (how, numbers) = match *words {
        ["spawner", how, ref numbers @ ..] => {
            return spawner(Spawner::parse(how)?, parse(numbers)?);
        }
        ["std", ref numbers @ ..] => ("std", numbers),
        ref numbers => ("gossip", numbers),
    };
    campaign(how, numbers, parse(numbers)?)
}

/// How many children are spawned, and how often each key must have arrived, at least.
#[derive(Clone, Copy)]
struct Floors {
    spawns: u64,
    interrupts: u64,
    stops: u64,
}

fn parse(words: &[&str]) -> Outcome<Floors> {
    let [spawns, interrupts, stops] = *words else {
        return Err("usage: terminal [std] SPAWNS INTERRUPTS STOPS".into());
    };
    Ok(Floors { spawns: spawns.parse()?, interrupts: interrupts.parse()?, stops: stops.parse()? })
}

/// Presses keys until the spawner has ended. Fails if a child was killed or stopped.
fn campaign(how: &str, words: &[&str], floors: Floors) -> Outcome<String> {
    let begun = Instant::now();
    let (keyboard, mut child) = on_terminal(how, words)?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
    // Before it handles the signals, a key would end it.
    let mut said = String::new();
    output.read_line(&mut said)?;
    let (mut interrupts, mut stops) = (0, 0);
    while child.try_wait()?.is_none() {
        if begun.elapsed() > CAMPAIGN_MAX {
            child.kill()?;
            return Err("the spawner hangs".into());
        }
        // The keys come in the ratio in which they are asked for.
        let key = if interrupts * floors.stops <= stops * floors.interrupts {
            interrupts += 1;
            CTRL_C
        } else {
            stops += 1;
            CTRL_Z
        };
        rustix::io::write(&keyboard, &[key])?;
        drain_screen(&keyboard)?;
        thread::sleep(BETWEEN_KEYS);
    }
    said.clear();
    output.read_to_string(&mut said)?;
    match said.trim() {
        said if said.ends_with(": 0 killed, 0 stopped") => {
            Ok(format!("{said}, {:.1} s", begun.elapsed().as_secs_f64()))
        }
        said => Err(said.into()),
    }
}

/// Starts a spawner in the foreground of a new terminal. A shell with job control leads the
/// session: the kernel does not stop a process group without a parent in its session.
fn on_terminal(how: &str, words: &[&str]) -> Outcome<(OwnedFd, Child)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let keyboard = openpt(flags)?;
    grantpt(&keyboard)?;
    unlockpt(&keyboard)?;
    let name = ptsname(&keyboard, Vec::new())?;
    let terminal = File::options().read(true).write(true).open(name.to_str()?)?;
    let program = own_program()?;
    let mut command = Command::new("setsid");
    command.args(["--ctty", "bash", "-c", "set -m; \"$@\"", "bash"]).arg(program.get_program());
    command.args(["spawner", how]).args(words);
    command.stdin(terminal.try_clone()?).stdout(Stdio::piped()).stderr(terminal);
    Ok((keyboard, command.spawn()?))
}

/// Reads what the terminal shows, if it shows something: a full screen would block the keys.
fn drain_screen(keyboard: &OwnedFd) -> Outcome<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut buffer = [0; 4096];
    let at_once = Timespec::default();
    while poll(&mut [PollFd::new(keyboard, PollFlags::IN)], Some(&at_once))? > 0 {
        // Reading fails once the last process has closed the terminal.
        match rustix::io::read(keyboard, &mut buffer) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// How children are spawned.
#[derive(Clone, Copy)]
enum Spawner {
    Gossip,
    Std,
}

impl Spawner {
    fn parse(word: &str) -> Outcome<Self> {
        match word {
            "gossip" => Ok(Self::Gossip),
            "std" => Ok(Self::Std),
            _ => Err(format!("unknown spawner {word}").into()),
        }
    }

    /// Runs a child; `None` if it is stopped.
    fn run(self) -> Outcome<Option<ExitStatus>> {
        match self {
            Self::Gossip => {
                let (null, output) = (File::open("/dev/null")?, std::io::stderr());
                let command = spawn::Command {
                    program: c"/bin/true",
                    arguments: &[CString::from(c"true")],
                    environment: &[],
                    stdio: [null.as_fd(), output.as_fd(), output.as_fd()],
                    has_session: true,
                    is_helper: false,
                };
                let mut child = command.spawn()?;
                loop {
                    match child.wait(CHILD_MAX) {
                        // A key was pressed.
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        ended => return Ok(ended?),
                    }
                }
            }
            Self::Std => {
                let mut command = Command::new("/bin/true");
                Ok(Some(command.stdin(Stdio::null()).process_group(0).status()?))
            }
        }
    }
}

/// Spawns children while signals arrive, until there were enough of both, and counts those that a
/// signal reached.
#[expect(clippy::print_stdout, reason = "the campaign waits for it")]
fn spawner(how: Spawner, floors: Floors) -> Outcome<String> {
    let [started, killed, stopped, interrupts, stops] = [const { AtomicU64::new(0) }; 5];
    let mut signals = Signals::new([SIGINT, SIGTSTP])?;
    println!("ready");
    let handle = signals.handle();
    let is_enough = || {
        started.load(Ordering::SeqCst) >= floors.spawns
            && interrupts.load(Ordering::SeqCst) >= floors.interrupts
            && stops.load(Ordering::SeqCst) >= floors.stops
    };
    let work = || -> Outcome<()> {
        while !is_enough() {
            started.fetch_add(1, Ordering::SeqCst);
            match how.run()? {
                Some(status) if status.signal().is_some() => {
                    killed.fetch_add(1, Ordering::SeqCst);
                }
                Some(_) => {}
                None => {
                    stopped.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for signal in signals.forever() {
                let counter = if signal == SIGINT { &interrupts } else { &stops };
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let ended: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
        handle.close();
        ended.into_iter().try_for_each(|ended| ended.map_err(|_| "a panic")?)
    })?;
    let [started, killed, stopped, interrupts, stops] =
        [started, killed, stopped, interrupts, stops].map(AtomicU64::into_inner);
    Ok(format!(
        "{started} spawns under {interrupts} Ctrl-C and {stops} Ctrl-Z: \
         {killed} killed, {stopped} stopped"
    ))
}
