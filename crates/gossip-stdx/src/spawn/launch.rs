//! Starts a child: `clone` as `vfork` does, and the steps of the child up to its `exec`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::{fmt, io};

use rustix::process::Pid;

use super::child::Child;
use super::groups::{Group, Guard, guard};
use super::signals::{Blocked, Inherited, inherited};
use super::stack::Stack;

/// A program with everything that its process gets.
#[derive(Clone, Copy)]
#[expect(clippy::exhaustive_structs, reason = "the caller decides about every part")]
pub struct Command<'a> {
    /// The path of the program; `PATH` is not searched.
    pub program: &'a CStr,
    /// The arguments; the first is the name of the program.
    pub arguments: &'a [CString],
    /// The environment, as `NAME=VALUE`.
    pub environment: &'a [&'a CStr],
    /// Standard input, output and error. Other descriptors are inherited unless they are
    /// close-on-exec.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Whether it leads a session of its own. Without it, it is in the session and the process
    /// group of this process, and so has its terminal.
    pub has_session: bool,
    /// Whether it serves this process and not the user. It does not die with the thread that
    /// started it, but with this process, and [`running`](super::running) does not count it.
    pub is_helper: bool,
}

impl Command<'_> {
    /// Starts the program, as the leader of a session of its own unless it is to share this one.
    ///
    /// # Errors
    ///
    /// Returns the error of `exec`, such as `NotFound`, and that of the system calls before it.
    /// No child runs then. After [`end_all`](super::end_all) the error is `ECANCELED`.
    pub fn spawn(&self) -> io::Result<Child> {
        // The watcher must run before the first child does.
        let guard = guard()?;
        let group = guard.reserve(self.is_helper)?;
        let (exec_error, child) = self.clone_into(guard, group).inspect_err(|_| group.clear())?;
        match exec_error {
            0 => Ok(child),
            // Dropping the child waits for it; it has exited.
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Returns the child, and the error number of its `exec` or of a step before it.
    fn clone_into(
        &self,
        guard: &'static Guard,
        group: &'static Group,
    ) -> io::Result<(c_int, Child)> {
        let arguments = pointers(self.arguments.iter().map(CString::as_c_str));
        let environment = pointers(self.environment.iter().copied());
        let plan = Plan {
            program: self.program.as_ptr(),
            arguments: arguments.as_ptr(),
            environment: environment.as_ptr(),
            stdio: self.stdio.map(|descriptor| descriptor.as_raw_fd()),
            has_session: self.has_session,
            dies_with_thread: !self.is_helper,
            // SAFETY: it only returns a number.
            parent: unsafe { libc::getpid() },
            inherited: inherited(),
            guard,
            group,
            error: AtomicI32::new(0),
        };
        let mut pidfd: RawFd = -1;
        let started = with_stack(|stack| {
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
            let blocked = Blocked::new();
            // SAFETY: the stack is used by this child alone, because `CLONE_VFORK` returns only
            // when the child has executed its program or exited; so `plan`, and what it points to,
            // outlive its use. The child makes system calls only, and with all signals blocked no
            // handler runs in it.
            let started = unsafe {
                let plan = (&raw const plan).cast_mut().cast::<c_void>();
                libc::clone(run_child, stack.top(), flags, plan, &raw mut pidfd)
            };
            let error = io::Error::last_os_error();
            drop(blocked);
            Pid::from_raw(started.max(0)).ok_or(error)
        })?;
        if pidfd < 0 {
            // Linux before 5.2 ignores the flag.
            let _ = rustix::process::kill_process_group(started, rustix::process::Signal::KILL);
            let _ = rustix::process::waitpid(Some(started), rustix::process::WaitOptions::empty());
            return Err(io::ErrorKind::Unsupported.into());
        }
        // SAFETY: the kernel has just opened it for us.
        let child = Child::new(started, unsafe { OwnedFd::from_raw_fd(pidfd) }, group);
        Ok((plan.error.load(Ordering::SeqCst), child))
    }
}

// The program only: arguments and environment may contain secrets.
impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command").field("program", &self.program).finish_non_exhaustive()
    }
}

/// Returns the pointers of strings, with a null pointer at the end.
fn pointers<'a>(strings: impl Iterator<Item = &'a CStr>) -> Vec<*const c_char> {
    strings.map(CStr::as_ptr).chain([ptr::null()]).collect()
}

/// Calls `start` with the stack of this thread; its children use it one after another.
fn with_stack<T>(start: impl FnOnce(&Stack) -> io::Result<T>) -> io::Result<T> {
    thread_local! {
        static STACK: RefCell<Option<Stack>> = const { RefCell::new(None) };
    }
    STACK.with_borrow_mut(|stack| {
        if stack.is_none() {
            *stack = Some(Stack::new()?);
        }
        match stack {
            Some(stack) => start(stack),
            None => Err(io::ErrorKind::OutOfMemory.into()),
        }
    })
}

/// What a child needs up to its `exec`. It reads it in the memory of its parent.
struct Plan {
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    stdio: [RawFd; 3],
    has_session: bool,
    dies_with_thread: bool,
    parent: libc::pid_t,
    inherited: &'static Inherited,
    guard: &'static Guard,
    group: &'static Group,
    /// The error number of the step that failed; 0 if none did.
    error: AtomicI32,
}

/// The child. It must not allocate, lock, unwind or return: its parent's threads are running, and
/// own every lock that they own.
extern "C" fn run_child(plan: *mut c_void) -> c_int {
    // SAFETY: the parent passes a pointer to its plan, and waits until the child is done with it.
    let plan = unsafe { &*plan.cast::<Plan>() };
    let error = plan.execute();
    plan.error.store(error, Ordering::SeqCst);
    // SAFETY: it ends this process at once.
    unsafe { libc::_exit(EXIT_NOT_EXECUTED) }
}

/// The status of a child that could not execute its program; only we see it.
const EXIT_NOT_EXECUTED: c_int = 127;

impl Plan {
    /// Executes the program. Returns the error number if that fails.
    fn execute(&self) -> c_int {
        match self.prepare() {
            Ok(()) => {
                // SAFETY: the three arrays and their strings end with zeros and outlive the call.
                unsafe { libc::execve(self.program, self.arguments, self.environment) };
                last_error()
            }
            Err(error) => error,
        }
    }

    /// Prepares the child process for its program: session, death signal, standard streams, and its
    /// entry among the groups. Does not start the program. On an error number the child must end:
    /// `ESRCH` if the parent has died, `ECANCELED` if no more programs may start.
    fn prepare(&self) -> Result<(), c_int> {
        // SAFETY: these calls change the child only.
        unsafe {
            // A session, not only a group: without a controlling terminal the program is not
            // stopped when it opens one.
            if self.has_session {
                check(libc::setsid())?;
            }
            if self.dies_with_thread {
                check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            }
            // The parent may have died before the signal was set.
            if libc::getppid() != self.parent {
                return Err(libc::ESRCH);
            }
            for (number, descriptor) in (0..).zip(self.stdio) {
                if descriptor == number {
                    // dup2 would leave the descriptor close-on-exec.
                    check(libc::fcntl(number, libc::F_SETFD, 0))?;
                } else {
                    check(libc::dup2(descriptor, number))?;
                }
            }
        }
        // Recorded before the check: `end_all` closes before it reads the groups, so that one of
        // the two sees the other.
        self.group.record();
        if self.guard.is_closed() {
            return Err(libc::ECANCELED);
        }
        self.inherited.restore_in_child();
        Ok(())
    }
}

fn check(result: c_int) -> Result<(), c_int> {
    if result < 0 { Err(last_error()) } else { Ok(()) }
}

fn last_error() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
}
