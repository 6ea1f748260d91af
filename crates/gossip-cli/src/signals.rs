//! SIGTERM and Ctrl-C: once to drain, twice to leave at once.

use std::sync::Arc;
use std::thread;

use gossip::runtime::Drain;
use gossip::runtime::exec::end_all_programs;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::console::Console;
use crate::failure::{Code, Failure};

/// Lets signals drain, from now until the end of the process.
pub(crate) fn drain_on_signals(drain: &Drain, console: &Arc<Console>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| Failure::new(Code::Internal, "signals cannot be caught").why(error))?;
    let (drain, console) = (drain.clone(), Arc::clone(console));
    thread::spawn(move || {
        for _signal in signals.forever() {
            if drain.is_asked() {
                end_all_programs();
                console.note("gossip: left at once; leases run out by themselves");
                std::process::exit(i32::from(Code::Interrupted as u8));
            }
            console.note("gossip: finishing the keys under way; once more to leave at once");
            drain.ask();
        }
    });
    Ok(())
}
