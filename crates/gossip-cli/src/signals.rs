//! SIGTERM, Ctrl-C and SIGHUP: the first signal drains, the second kills the commands and exits.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gossip::runtime::Drain;
use gossip::runtime::exec::{end_all_programs, ignores_hangup, running_programs};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::count;

/// Signals that follow the first within this time belong to the same request. `timeout` sends its
/// signal to the program and then to the group, and a service manager may do the same; a person who
/// reads the message and decides takes longer.
const SAME_REQUEST: Duration = Duration::from_millis(500);

/// Handles signals from now on until the end of the process.
pub(crate) fn drain_on_signals(drain: &Drain, console: &Arc<Console>) -> Result<(), Failure> {
    // Under `nohup` a closed terminal is no reason to stop.
    let hangup = (!ignores_hangup()).then_some(SIGHUP);
    let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hangup))
        .map_err(|error| Failure::new(Code::Internal, "cannot handle signals").why(error))?;
    let (drain, console) = (drain.clone(), Arc::clone(console));
    thread::spawn(move || {
        let mut first = None;
        for signal in signals.forever() {
            let Some(begun) = first else {
                drain.ask();
                console.note(&finishing(signal));
                // After the message: a person cannot have read it before it is written.
                first = Some(Instant::now());
                continue;
            };
            // A closed terminal sends SIGHUP twice, from the shell and from the kernel.
            let is_repeated = signal == SIGHUP || begun.elapsed() < SAME_REQUEST;
            if !is_repeated {
                end_all_programs();
                console.note("gossip: killed; a resume may have to wait for the leases to expire");
                console.screen().end();
                std::process::exit(i32::from(Code::Interrupted as u8));
            }
        }
    });
    Ok(())
}

/// Describes what the first signal leads to.
fn finishing(signal: i32) -> String {
    let again = if signal == SIGINT { "Ctrl-C again" } else { "signal again" };
    match running_programs() as u64 {
        0 => format!("gossip: stopping; {again} to end at once"),
        running => {
            let commands = count(running, "running command");
            let them = if running == 1 { "it" } else { "them" };
            format!("gossip: finishing {commands}; {again} to kill {them}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No test of this binary starts a program.
    #[test]
    fn no_command_is_not_counted() {
        let text = finishing(SIGINT);
        assert_eq!(text, "gossip: stopping; Ctrl-C again to end at once");
    }
}
