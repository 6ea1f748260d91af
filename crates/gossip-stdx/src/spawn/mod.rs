//! Child processes that neither the terminal nor a crash of this process reaches too late.
//!
//! [`Command::spawn`] starts a program as the leader of a session of its own, unless it is to share
//! that of this process and its terminal. Between the start of the child and its `exec`, every
//! signal is blocked, so a Ctrl-C or Ctrl-Z at the terminal neither kills nor stops it: a process
//! group that `posix_spawn` sets comes too late for that. The child shares the memory of this
//! process until its `exec` (`vfork`), so the cost does not depend on the size of this process.
//!
//! If this process dies, its children are killed by two means: the kernel's parent-death signal,
//! which reaches the child only, and a watcher, a process of its own that kills the whole process
//! groups of the children that were running. Descendants that leave their group with `setsid` are
//! out of reach.
//!
//! On systems other than Linux children are started by the standard library, in a process group of
//! their own, and none of this holds.
//!
//! # Contract
//!
//! - The parent-death signal follows the *thread* that spawned the child. The thread must outlive
//!   the child, or have it killed. A helper has no such signal and is left to the watcher: it may
//!   be used by one thread after another, and should end when its input does.
//! - A [`Child`] that is dropped is killed with its process group and waited for.

use std::process::ExitStatus;

#[cfg(target_os = "linux")]
mod child;
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "memory that is shared with the watcher comes from mmap")]
mod groups;
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "clone, and the system calls of the child before its exec")]
mod launch;
#[cfg(not(target_os = "linux"))]
mod portable;
#[expect(unsafe_code, reason = "sigaction and the signal mask")]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "std restores signals there"))]
mod signals;
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "a stack is memory from mmap")]
mod stack;
#[cfg(target_os = "linux")]
pub(crate) mod stat;
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "fork, and the system calls of the watcher")]
mod watcher;

#[cfg(target_os = "linux")]
pub use self::child::Child;
#[cfg(target_os = "linux")]
pub use self::groups::{end_all, finish, prepare, running, watcher_id};
#[cfg(target_os = "linux")]
pub use self::launch::Command;
#[cfg(not(target_os = "linux"))]
pub use self::portable::{Child, Command, end_all, finish, prepare, running, watcher_id};
pub use self::signals::was_ignored;

/// Maximum number of pipes that are waited for together with a child: its output and its errors.
pub const MAX_PIPES: usize = 2;

/// What a wait for a child and its pipes found; nothing, if its time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a wait has these results and no others")]
pub struct Woken {
    /// The status of the child, once it has ended.
    pub ended: Option<ExitStatus>,
    /// Which of the pipes can be read without blocking.
    pub readable: [bool; MAX_PIPES],
}
