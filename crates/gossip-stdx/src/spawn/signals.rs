//! The signal mask and the ignored signals that this process was started with, and those that its
//! children get.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use libc::{SIG_DFL, SIG_IGN, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP, c_int, sigset_t};

/// Signals that a terminal or a supervisor sends to a whole group: one that arrives before the
/// child's `exec` is not meant for the program.
const DROPPED: [c_int; 5] = [SIGINT, SIGQUIT, SIGTSTP, SIGHUP, SIGTERM];

/// The highest signal of Linux. Asking for one that a system does not have is an error, no harm.
const LAST_SIGNAL: c_int = 64;

/// The signals of this process when it was started.
pub(super) struct Inherited {
    mask: sigset_t,
    /// Bit `n - 1` is set if signal `n` was ignored.
    ignored: u64,
}

static INHERITED: OnceLock<Inherited> = OnceLock::new();

/// Records the signal mask and the ignored signals, which children get, on the first call.
///
/// Call it at the start of the process, before signals are blocked or handled. The first child
/// records them otherwise.
pub(crate) fn remember_signals() {
    inherited();
}

/// Returns whether a signal was ignored at [`prepare`](super::prepare), as `nohup` does with
/// SIGHUP.
///
/// For SIGPIPE the answer is always true: the start code of Rust ignores it.
#[must_use]
pub fn was_ignored(signal: i32) -> bool {
    inherited().ignores(signal)
}

pub(super) fn inherited() -> &'static Inherited {
    INHERITED.get_or_init(|| Inherited {
        mask: current_mask(),
        ignored: (1..=LAST_SIGNAL)
            .filter(|signal| disposition(*signal) == Some(SIG_IGN))
            .fold(0, |bits, signal| bits | bit(signal)),
    })
}

impl Inherited {
    fn ignores(&self, signal: c_int) -> bool {
        (1..=LAST_SIGNAL).contains(&signal) && self.ignored & bit(signal) != 0
    }

    /// Gives the calling process, a child before its `exec`, the signals that this process was
    /// started with, and drops those of [`DROPPED`] that are pending. Only system calls.
    pub(super) fn restore_in_child(&self) {
        for signal in 1..=LAST_SIGNAL {
            if DROPPED.contains(&signal) {
                // To ignore a signal drops it if it is pending.
                set_disposition(signal, SIG_IGN);
                if !self.ignores(signal) {
                    set_disposition(signal, SIG_DFL);
                }
            } else if signal == SIGPIPE
                // A handler would run in the memory of the parent once the mask is restored.
                || disposition(signal).is_some_and(|it| it != SIG_IGN && it != SIG_DFL)
            {
                set_disposition(signal, SIG_DFL);
            }
        }
        set_mask(&self.mask);
    }
}

const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// All signals of the calling thread are blocked until this is dropped.
pub(super) struct Blocked {
    previous: sigset_t,
}

impl Blocked {
    pub(super) fn new() -> Self {
        let mut all = MaybeUninit::<sigset_t>::uninit();
        // SAFETY: sigfillset initializes the set it is given.
        let all = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            all.assume_init()
        };
        let previous = current_mask();
        set_mask(&all);
        Self { previous }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        set_mask(&self.previous);
    }
}

fn current_mask() -> sigset_t {
    let mut mask = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: without a new mask the call only writes the old one, which it cannot fail to do;
    // the empty set makes the memory initialized in any case.
    unsafe {
        libc::sigemptyset(mask.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), mask.as_mut_ptr());
        mask.assume_init()
    }
}

fn set_mask(mask: &sigset_t) {
    // SAFETY: the mask is initialized, and no old one is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

/// Returns the handler of a signal; `None` for signals that the C library keeps for itself.
fn disposition(signal: c_int) -> Option<libc::sighandler_t> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call only writes the old one, on success.
    unsafe {
        (libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0)
            .then(|| action.assume_init().sa_sigaction)
    }
}

fn set_disposition(signal: c_int, disposition: libc::sighandler_t) {
    // SAFETY: all fields of the action may be zero, and the disposition is no handler, so no code
    // of ours runs on the signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = disposition;
        libc::sigaction(signal, &raw const action, ptr::null_mut());
    }
}
