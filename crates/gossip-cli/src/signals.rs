//! SIGTERM and Ctrl-C: the first signal drains, the second kills the commands and exits.

use std::sync::Arc;
use std::thread;

use gossip::runtime::Drain;
use gossip::runtime::exec::{end_all_programs, running_programs};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::count;

/// Handles signals from now on until the end of the process.
pub(crate) fn drain_on_signals(drain: &Drain, console: &Arc<Console>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| Failure::new(Code::Internal, "cannot handle signals").why(error))?;
    let (drain, console) = (drain.clone(), Arc::clone(console));
    thread::spawn(move || {
        for signal in signals.forever() {
            if drain.is_asked() {
                end_all_programs();
                console.note("gossip: killed; a resume may have to wait for the leases to expire");
                std::process::exit(i32::from(Code::Interrupted as u8));
            }
            let again = if signal == SIGINT { "Ctrl-C again" } else { "signal again" };
            let running = running_programs() as u64;
            let commands = count(running, "running command");
            let them = if running == 1 { "it" } else { "them" };
            console.note(&format!("gossip: finishing {commands}; {again} to kill {them}"));
            drain.ask();
        }
    });
    Ok(())
}
